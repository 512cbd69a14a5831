// --- who beats whom: every pair of families, with the uncertainty of the difference
const comparedPairs = (report.pairs ?? []).filter((pair) => exists(pair.difference));
const points = isRatio ? "percentage points" : metric.name;

function findPair(a, b) {
  const pair = comparedPairs.find((pair) => pair.a === a && pair.b === b);
  if (pair) return pair;
  const other = comparedPairs.find((pair) => pair.a === b && pair.b === a);
  const negateNumber = (value) => exists(value) ? 0 - value : null;
  return other && { ...other, a, b, difference: negateNumber(other.difference), low: negateNumber(other.high), high: negateNumber(other.low),
    text: { ...other.text, difference: negate(other.text.difference), low: negate(other.text.high), high: negate(other.text.low) } };
}

const isProbable = (pair) => pair.outcome === "probable";
const isInconclusive = (pair) => pair.outcome === "inconclusive";
const describeDirection = (pair) => (isProbable(pair) ? "probably " : "") + (better(pair.difference, 0) ? "better" : "worse");
const getCellClass = (pair) => isInconclusive(pair) ? "inconclusive" : isProbable(pair) ? "unsure" : describeDirection(pair);
const decidesAdjustment = (pair) => exists(pair.p) && pair.p < 0.05 && pair.adjusted_p >= 0.05;
const formatPairInterval = (pair) => exists(pair.low) && exists(pair.high) ? pair.text.low + " to " + pair.text.high : DASH;
const NOISE = { "seeds and examples": "seeds, examples", examples: "examples alone" };
const describePair = (pair) =>
  (isInconclusive(pair) ? `the difference between ${pair.a} and ${pair.b} may be chance: ` : `${pair.a} is ${describeDirection(pair)} than ${pair.b}: difference `) +
  `${pair.text.difference} (95 % interval ${formatPairInterval(pair)}), ` +
  (decidesAdjustment(pair) ? `p ${pair.text.p}, but ` : "p ") + `${pair.text.adjusted_p} adjusted for ${plural(comparedPairs.length, "pair")}` +
  (pair.covers === "examples" ? ", by the test examples alone" : "");

function matrix(names) {
  const details = make("p", { class: "note pair-details", role: "status" }, "Select a field for its interval and p.");
  const head = make("tr", {}, heading(make("span", { class: "quiet" }, "row against column")), ...names.map((name) => heading(familyLabel(name))));
  const rows = names.map((a) => make("tr", {}, rowHead(a), ...names.map((b) => {
    const pair = a === b ? null : findPair(a, b);
    if (!pair) return make("td", { class: "empty" }, a === b ? "" : DASH);
    const field = make("button", { type: "button", title: describePair(pair), "aria-label": describePair(pair) },
      number({ "data-family": a, "data-other": b, "data-key": "difference" }, pair.difference, pair.text.difference, "b"), make("small", {}, isInconclusive(pair) ? "may be chance" : describeDirection(pair)));
    field.addEventListener("click", () => details.replaceChildren(describePair(pair) + "."));
    return make("td", { class: "field " + getCellClass(pair), "data-family": a, "data-other": b }, field);
  })));
  return [table("differences between families, row against column", head, rows, { class: "matrix" }), details];
}

function pairList() {
  const head = make("tr", {}, heading("Families"), heading("Outcome", { class: "words" }), heading("Difference", { class: "number" }), heading("95 % interval", { class: "number" }),
    heading("p", { class: "number", title: "two-sided, paired over the test examples" }),
    heading("adjusted p", { class: "number", title: "for the number of pairs (Shaffer 1986)" }),
    heading("Noise included", { class: "words", title: "where a family was trained once, the noise of seeds is not known" }));
  const rows = comparedPairs.map((pair) => {
    const field = (key, tag = "td") => number({ "data-family": pair.a, "data-other": pair.b, "data-key": "pair." + key }, pair[key], pair.text[key], tag);
    const ahead = better(pair.difference, 0) ? pair.a : pair.b;
    const words = isInconclusive(pair) ? [make("span", {}, "may be chance")] : [make("bdi", {}, ahead), isProbable(pair) ? " is probably better" : " is better"];
    if (decidesAdjustment(pair)) words.push(make("small", {}, "the adjustment decides"));
    return make("tr", {}, make("th", { scope: "row" }, familyLabel(pair.a), make("span", { class: "quiet" }, " and "), familyLabel(pair.b)),
      make("td", { class: "words outcome" }, ...words), field("difference"),
      exists(pair.low) ? make("td", { class: "between" }, field("low", "span"), " to ", field("high", "span")) : make("td", {}, DASH),
      field("p"), field("adjusted_p"), make("td", { class: "words", "data-covers": pair.covers }, NOISE[pair.covers] ?? DASH));
  });
  return foldable(plural(comparedPairs.length, "pair") + " with intervals and p", table("all pairs", head, rows));
}

function pairs() {
  if (comparedPairs.length === 0) return part("pairs", "Who beats whom", finished.length < 2 ? "There is no pair to compare." : "Pairs were not compared.");
  const names = finished.map((family) => family.name).filter((name) => comparedPairs.some((pair) => pair.a === name || pair.b === name));
  const significant = comparedPairs.filter((pair) => pair.significant).length, likely = comparedPairs.filter(isProbable).length;
  const differ = (number) => number === 1 ? "differs" : "differ";
  const among = (number) => `${number} of ${plural(comparedPairs.length, "pair")}`;
  const lead = significant && likely ? `${among(significant)} certainly ${differ(significant)}; ${likely} more probably ${differ(likely)}.` : significant ? `${among(significant)} certainly ${differ(significant)}.`
    : likely ? `No pair certainly differs; ${among(likely)} probably ${differ(likely)}.`
    : "No pair certainly differs: this experiment does not separate these families.";
  return part("pairs", "Who beats whom", lead, ...matrix(names),
    note(`Differences are ${metric.name} of the row minus that of the column, in ${points}; ${lower ? "below" : "above"} 0 the row is better. `,
      "A difference is certain when its p, adjusted for the number of pairs, is below 0.05.",
      likely > 0 && " The families probably differ, but not certainly, where only the p before adjustment is, or where one of them was trained only once."), pairList());
}
