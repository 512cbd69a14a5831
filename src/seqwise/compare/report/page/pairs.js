// --- who beats whom: every pair of families, with the uncertainty of the difference
const comparedPairs = (report.pairs ?? []).filter((pair) => exists(pair.difference));
const points = isRatio ? "percentage points" : metric.name;

function findPair(a, b) {
  const straight = comparedPairs.find((pair) => pair.a === a && pair.b === b);
  if (straight) return straight;
  const other = comparedPairs.find((pair) => pair.a === b && pair.b === a);
  const minus = (value) => exists(value) ? 0 - value : null;
  return other && { ...other, a, b, difference: minus(other.difference), low: minus(other.high), high: minus(other.low),
    text: { ...other.text, difference: negated(other.text.difference), low: negated(other.text.high), high: negated(other.text.low) } };
}

const probable = (pair) => pair.outcome === "probable";
const inconclusive = (pair) => pair.outcome === "inconclusive";
const direction = (pair) => (probable(pair) ? "probably " : "") + (better(pair.difference, 0) ? "better" : "worse");
const kind = (pair) => inconclusive(pair) ? "inconclusive" : probable(pair) ? "unsure" : direction(pair);
const spread = (pair) => exists(pair.low) && exists(pair.high) ? pair.text.low + " to " + pair.text.high : DASH;
const NOISE = { "seeds and examples": "seeds, examples", examples: "examples alone" };
const sentence = (pair) =>
  (inconclusive(pair) ? `no significant difference between ${pair.a} and ${pair.b}: ` : `${pair.a} is ${direction(pair)} than ${pair.b}: difference `) +
  `${pair.text.difference} (95 % interval ${spread(pair)}), ` +
  (probable(pair) && exists(pair.adjusted_p_with_best) ? `p ${pair.text.adjusted_p_with_best} among the pairs with the best, ` : "") + `adjusted p ${pair.text.adjusted_p}` +
  (pair.covers === "examples" ? ", by the test examples alone" : "");

function matrix(names) {
  const details = make("p", { class: "note pair-details", role: "status" }, "Select a field for its interval and p.");
  const head = make("tr", {}, heading(make("span", { class: "quiet" }, "row against column")), ...names.map((name) => heading(familyLabel(name), { class: "turn" })));
  const rows = names.map((a) => make("tr", {}, rowHead(a), ...names.map((b) => {
    const pair = a === b ? null : findPair(a, b);
    if (!pair) return make("td", { class: "empty" }, a === b ? "" : DASH);
    const field = make("button", { type: "button", title: sentence(pair), "aria-label": sentence(pair) },
      number({ "data-family": a, "data-other": b, "data-key": "difference" }, pair.difference, pair.text.difference, "b"), make("small", {}, inconclusive(pair) ? "≈ not significant" : direction(pair)));
    field.addEventListener("click", () => details.replaceChildren(sentence(pair) + "."));
    return make("td", { class: "field " + kind(pair), "data-family": a, "data-other": b }, field);
  })));
  return [table("differences between families, row against column", head, rows, { class: "matrix" }), details];
}

function pairList() {
  const head = make("tr", {}, heading("Families"), heading("Outcome", { class: "words" }), heading("Difference", { class: "number" }), heading("95 % interval", { class: "number" }),
    heading("p", { class: "number", title: "two-sided, paired over the test examples" }),
    heading("p with the best", { class: "number", title: "after Holm, over the pairs with the best family" }),
    heading("adjusted p", { class: "number", title: "after Holm, over all pairs" }),
    heading("Noise included", { class: "words", title: "where a family was trained once, the noise of seeds is not known" }));
  const rows = comparedPairs.map((pair) => {
    const field = (key, tag = "td") => number({ "data-family": pair.a, "data-other": pair.b, "data-key": "pair." + key }, pair[key], pair.text[key], tag);
    const ahead = better(pair.difference, 0) ? pair.a : pair.b;
    const words = inconclusive(pair) ? [make("span", {}, "no significant difference")] : [make("bdi", {}, ahead), probable(pair) ? " is probably better" : " is better"];
    return make("tr", {}, make("th", { scope: "row" }, familyLabel(pair.a), make("span", { class: "quiet" }, " and "), familyLabel(pair.b)),
      make("td", { class: "words outcome" }, ...words), field("difference"),
      exists(pair.low) ? make("td", { class: "between" }, field("low", "span"), " to ", field("high", "span")) : make("td", {}, DASH),
      field("p"), field("adjusted_p_with_best"), field("adjusted_p"), make("td", { class: "words", "data-covers": pair.covers }, NOISE[pair.covers] ?? DASH));
  });
  return folded(plural(comparedPairs.length, "pair") + " with intervals and p", table("all pairs", head, rows));
}

function pairs() {
  if (comparedPairs.length === 0) return part("pairs", "Who beats whom", finished.length < 2 ? "There is no pair to compare." : "Pairs were not compared.");
  const names = finished.map((family) => family.name).filter((name) => comparedPairs.some((pair) => pair.a === name || pair.b === name));
  const significant = comparedPairs.filter((pair) => pair.significant).length, likely = comparedPairs.filter(probable).length;
  const among = (number) => `${number} of ${plural(comparedPairs.length, "pair")} ${number === 1 ? "differs" : "differ"}`;
  const lead = significant && likely ? `${among(significant)} significantly, ${likely} more probably.` : significant ? `${among(significant)} significantly.`
    : likely ? `No pair differs significantly; ${among(likely)} probably.`
    : "No pair differs significantly: this experiment does not separate these families.";
  return part("pairs", "Who beats whom", lead, ...matrix(names),
    note(`Differences are ${metric.name} of the row minus that of the column, in ${points}; ${lower ? "below" : "above"} 0 the row is better. `,
      "A difference counts as significant when its p, adjusted for the number of pairs, is below 0.05.",
      likely > 0 && " The families probably differ, but not certainly, where that holds among the pairs with the best alone, or where one of them was trained only once."), pairList());
}
