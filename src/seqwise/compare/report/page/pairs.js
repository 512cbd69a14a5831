// --- who beats whom: every pair of families, with the uncertainty of the difference
const pairsOf = (report.pairs ?? []).filter((pair) => exists(pair.difference));
const points = share ? "percentage points" : metric.name;

function against(a, b) {
  const straight = pairsOf.find((pair) => pair.a === a && pair.b === b);
  if (straight) return straight;
  const other = pairsOf.find((pair) => pair.a === b && pair.b === a);
  const minus = (value) => exists(value) ? 0 - value : null;
  return other && { ...other, a, b, difference: minus(other.difference), low: minus(other.high), high: minus(other.low),
    shown: { ...other.shown, difference: turned(other.shown.difference), low: turned(other.shown.high), high: turned(other.shown.low) } };
}

const probable = (pair) => pair.outcome === "probable";
const level = (pair) => pair.outcome === "level";
const direction = (pair) => (probable(pair) ? "probably " : "") + (better(pair.difference, 0) ? "better" : "worse");
const kind = (pair) => level(pair) ? "level" : probable(pair) ? "unsure" : direction(pair);
const spread = (pair) => exists(pair.low) && exists(pair.high) ? pair.shown.low + " to " + pair.shown.high : NONE;
const MINDED = { "seeds and examples": "seeds, examples", examples: "examples alone" };
const sentence = (pair) =>
  (level(pair) ? `no significant difference between ${pair.a} and ${pair.b}: ` : `${pair.a} is ${direction(pair)} than ${pair.b}: difference `) +
  `${pair.shown.difference} (95 % interval ${spread(pair)}), ` +
  (probable(pair) && exists(pair.with_best) ? `p ${pair.shown.with_best} among the pairs with the best, ` : "") + `adjusted p ${pair.shown.adjusted}` +
  (pair.covers === "examples" ? ", by the test examples alone" : "");

function matrix(names) {
  const said = make("p", { class: "note said-pair", role: "status" }, "Choose a field for its interval and p.");
  const head = make("tr", {}, heading(make("span", { class: "quiet" }, "row against column")), ...names.map((name) => heading(called(name), { class: "turn" })));
  const rows = names.map((a) => make("tr", {}, rowHead(a), ...names.map((b) => {
    const pair = a === b ? null : against(a, b);
    if (!pair) return make("td", { class: "empty" }, a === b ? "" : NONE);
    const field = make("button", { type: "button", title: sentence(pair), "aria-label": sentence(pair) },
      number({ "data-family": a, "data-other": b, "data-key": "difference" }, pair.difference, pair.shown.difference, "b"), make("small", {}, level(pair) ? "≈ level" : direction(pair)));
    field.addEventListener("click", () => said.replaceChildren(sentence(pair) + "."));
    return make("td", { class: "field " + kind(pair), "data-family": a, "data-other": b }, field);
  })));
  return [table("differences between families, row against column", head, rows, { class: "matrix" }), said];
}

function pairList() {
  const head = make("tr", {}, heading("Families"), heading("Outcome", { class: "words" }), heading("Difference", { class: "number" }), heading("95 % interval", { class: "number" }),
    heading("p", { class: "number", title: "two-sided, paired over the test examples" }),
    heading("p with the best", { class: "number", title: "after Holm, over the pairs with the best family" }),
    heading("adjusted p", { class: "number", title: "after Holm, over all pairs" }),
    heading("Chance minded", { class: "words", title: "where a family was trained once, nothing is known of other seeds" }));
  const rows = pairsOf.map((pair) => {
    const field = (key, tag = "td") => number({ "data-family": pair.a, "data-other": pair.b, "data-key": "pair." + key }, pair[key], pair.shown[key], tag);
    const ahead = better(pair.difference, 0) ? pair.a : pair.b;
    const words = level(pair) ? [make("span", {}, "no significant difference")] : [make("bdi", {}, ahead), probable(pair) ? " is probably better" : " is better"];
    return make("tr", {}, make("th", { scope: "row" }, called(pair.a), make("span", { class: "quiet" }, " and "), called(pair.b)),
      make("td", { class: "words outcome" }, ...words), field("difference"),
      exists(pair.low) ? make("td", { class: "between" }, field("low", "span"), " to ", field("high", "span")) : make("td", {}, NONE),
      field("p"), field("with_best"), field("adjusted"), make("td", { class: "words", "data-covers": pair.covers }, MINDED[pair.covers] ?? NONE));
  });
  return folded(plural(pairsOf.length, "pair") + " with intervals and p", table("all pairs", head, rows));
}

function pairs() {
  if (pairsOf.length === 0) return part("pairs", "Who beats whom", shown.length < 2 ? "There is no pair to compare." : "Pairs were not compared.");
  const names = shown.map((family) => family.name).filter((name) => pairsOf.some((pair) => pair.a === name || pair.b === name));
  const sure = pairsOf.filter((pair) => pair.significant).length, likely = pairsOf.filter(probable).length;
  const among = (number) => `${number} of ${plural(pairsOf.length, "pair")} ${number === 1 ? "differs" : "differ"}`;
  const lead = sure && likely ? `${among(sure)} significantly, ${likely} more probably.` : sure ? `${among(sure)} significantly.`
    : likely ? `No pair differs significantly; ${among(likely)} probably.`
    : "No pair differs significantly: this experiment cannot tell these families apart.";
  return part("pairs", "Who beats whom", lead, ...matrix(names),
    note(`Differences are ${metric.name} of the row minus that of the column, in ${points}; ${lower ? "below" : "above"} 0 the row is better. `,
      "A difference counts as significant when its p, adjusted for the number of pairs, is below 0.05.",
      likely > 0 && " The families probably differ, but not certainly, where that holds among the pairs with the best alone, or where one of them was trained only once."), pairList());
}
