// Who beats whom: every pair of families, with the uncertainty of the difference.
import { make } from "../../../page/components/elements.js";
import { DASH, formatPlural, isNumber } from "../../../page/components/numbers.js";
import { makeFamilyLabel, makeFoldable, makeHeading, makeNote, makeNumber, makePart, makeRowHead, makeTable } from "./parts.js";

// Changes the sign of a formatted difference.
const negate = (text) => text.replace(/^[+−]/, (sign) => sign === "+" ? "−" : "+");

function findPair(comparedPairs, a, b) {
  const pair = comparedPairs.find((pair) => pair.a === a && pair.b === b);
  if (pair) return pair;
  const other = comparedPairs.find((pair) => pair.a === b && pair.b === a);
  const negateNumber = (value) => isNumber(value) ? 0 - value : null;
  return other && { ...other, a, b, difference: negateNumber(other.difference), low: negateNumber(other.high), high: negateNumber(other.low),
    text: { ...other.text, difference: negate(other.text.difference), low: negate(other.text.high), high: negate(other.text.low) } };
}

const isProbable = (pair) => pair.outcome === "probable";
const isInconclusive = (pair) => pair.outcome === "inconclusive";
const describeInconclusive = (pair) => pair.difference === 0 ? "equal" : "may be chance";
const describeDirection = (pair, metric) => (isProbable(pair) ? "probably " : "") + (metric.isBetter(pair.difference, 0) ? "better" : "worse");
const getCellClass = (pair, metric) => isInconclusive(pair) ? "inconclusive" : isProbable(pair) ? "unsure" : describeDirection(pair, metric);
const isDecidedByAdjustment = (pair) => isNumber(pair.p) && pair.p < 0.05 && pair.adjusted_p >= 0.05;
const formatPairInterval = (pair) => isNumber(pair.low) && isNumber(pair.high) ? pair.text.low + " to " + pair.text.high : DASH;
const NOISE = { "seeds and examples": "seeds, examples", examples: "examples alone" };
const describePair = (pair, metric, numPairs) =>
  (pair.difference === 0 ? `${pair.a} and ${pair.b} are equal: difference ` : isInconclusive(pair) ? `the difference between ${pair.a} and ${pair.b} may be chance: ` : `${pair.a} is ${describeDirection(pair, metric)} than ${pair.b}: difference `) +
  `${pair.text.difference} (95 % interval ${formatPairInterval(pair)}), ` +
  (isDecidedByAdjustment(pair) ? `p ${pair.text.p}, but ` : "p ") + `${pair.text.adjusted_p} adjusted for ${formatPlural(numPairs, "pair")}` +
  (pair.covers === "examples" ? `, by the ${metric.split} examples alone` : "");

function makeMatrix(report, comparedPairs, names) {
  const { metric } = report;
  const details = make("p", { class: "note pair-details", role: "status" }, "Select a field for its interval and p.");
  const head = make("tr", {}, makeHeading(make("span", { class: "quiet" }, "row against column")), ...names.map((name) => makeHeading(makeFamilyLabel(report, name))));
  const rows = names.map((a) => make("tr", {}, makeRowHead(report, a), ...names.map((b) => {
    const pair = a === b ? null : findPair(comparedPairs, a, b);
    if (!pair) return make("td", { class: "empty" }, a === b ? "" : DASH);
    const description = describePair(pair, metric, comparedPairs.length);
    const field = make("button", { type: "button", title: description, "aria-label": description },
      makeNumber({ "data-family": a, "data-other": b, "data-key": "difference" }, pair.difference, pair.text.difference, "b"), make("small", {}, isInconclusive(pair) ? describeInconclusive(pair) : describeDirection(pair, metric)));
    field.addEventListener("click", () => details.replaceChildren(description + "."));
    return make("td", { class: "field " + getCellClass(pair, metric), "data-family": a, "data-other": b }, field);
  })));
  return [makeTable("differences between families, row against column", head, rows, { class: "matrix" }), details];
}

function makePairList(report, comparedPairs) {
  const head = make("tr", {}, makeHeading("Families"), makeHeading("Outcome", { class: "words" }), makeHeading("Difference", { class: "number" }), makeHeading("95 % interval", { class: "number" }),
    makeHeading("p", { class: "number", title: `two-sided, paired over the ${report.metric.split} examples` }),
    makeHeading("adjusted p", { class: "number", title: "for the number of pairs (Shaffer 1986)" }),
    makeHeading("Noise included", { class: "words", title: "where a family was trained once, the noise of seeds is not known" }));
  const rows = comparedPairs.map((pair) => {
    const field = (key, tag = "td") => makeNumber({ "data-family": pair.a, "data-other": pair.b, "data-key": "pair." + key }, pair[key], pair.text[key], tag);
    const ahead = report.metric.isBetter(pair.difference, 0) ? pair.a : pair.b;
    const words = isInconclusive(pair) ? [make("span", {}, describeInconclusive(pair))] : [make("bdi", {}, ahead), isProbable(pair) ? " is probably better" : " is better"];
    if (isDecidedByAdjustment(pair)) words.push(make("small", {}, "the adjustment decides"));
    return make("tr", {}, make("th", { scope: "row" }, makeFamilyLabel(report, pair.a), make("span", { class: "quiet" }, " and "), makeFamilyLabel(report, pair.b)),
      make("td", { class: "words outcome" }, ...words), field("difference"),
      isNumber(pair.low) ? make("td", { class: "between" }, field("low", "span"), " to ", field("high", "span")) : make("td", {}, DASH),
      field("p"), field("adjusted_p"), make("td", { class: "words", "data-covers": pair.covers }, NOISE[pair.covers] ?? DASH));
  });
  return makeFoldable(formatPlural(comparedPairs.length, "pair") + " with intervals and p", makeTable("all pairs", head, rows));
}

export function makePairs(report) {
  const { finished, metric } = report, comparedPairs = (report.pairs ?? []).filter((pair) => isNumber(pair.difference));
  if (comparedPairs.length === 0) return makePart("pairs", "Who beats whom", finished.length < 2 ? "There is no pair to compare." : "Pairs were not compared.");
  const names = finished.map((family) => family.name).filter((name) => comparedPairs.some((pair) => pair.a === name || pair.b === name));
  const significant = comparedPairs.filter((pair) => pair.significant).length, likely = comparedPairs.filter(isProbable).length;
  const differ = (number) => number === 1 ? "differs" : "differ";
  const among = (number) => `${number} of ${formatPlural(comparedPairs.length, "pair")}`;
  const lead = significant && likely ? `${among(significant)} certainly ${differ(significant)}; ${likely} more probably ${differ(likely)}.` : significant ? `${among(significant)} certainly ${differ(significant)}.`
    : likely ? `No pair certainly differs; ${among(likely)} probably ${differ(likely)}.`
    : "No pair certainly differs: this experiment does not separate these families.";
  return makePart("pairs", "Who beats whom", lead, ...makeMatrix(report, comparedPairs, names),
    makeNote(`Differences are ${metric.name} of the row minus that of the column, in ${metric.isRatio ? "percentage points" : metric.name}; ${metric.lower ? "below" : "above"} 0 the row is better. `,
      "A difference is certain when its p, adjusted for the number of pairs, is below 0.05.",
      likely > 0 && " The families probably differ, but not certainly, where only the p before adjustment is, or where one of them was trained only once."), makePairList(report, comparedPairs));
}
