// The head of a report: the best family, and the conditions.
import { draw, make } from "../../../page/components/elements.js";
import { DASH, formatPlural, isNumber, keepUnitsTogether } from "../../../page/components/numbers.js";
import { drawFamilyMark, makeFamilyLabel } from "./parts.js";

function makeWinner(report) {
  const { verdict, finished } = report, best = report.byName.get(verdict.best);
  if (!best) return [make("p", { class: "label" }, "Result"), make("p", { class: "winner none" }, "No family finished")];
  const equal = verdict.equal ?? [], tied = (verdict.tied ?? []).filter((name) => !equal.includes(name)), unsure = verdict.unsure ?? [];
  const names = [best.name, ...equal], length = names.join(", ").length;
  const solved = "Solved by " + (names.length === finished.length ? "all" : `${names.length} of ${finished.length}`);
  const headline = finished.length === 1 ? "Only one finished" : equal.length ? (verdict.solved ? solved : "Exactly equal")
    : tied.length ? "Ahead by little" : unsure.length ? "Ahead, but not certainly" : "Best";
  return [
    make("p", { class: "label" }, headline),
    make("p", { class: "winner" + (length > 26 ? " longest" : length > 9 ? " long" : "") }, ...names.flatMap((name, at) => [at ? ", " : "", make("span", {}, drawWinnerMark(report, name), make("bdi", {}, name))])),
    make("p", { class: "score" }, report.metric.name + " ", make("b", {}, best.text.mean)),
    tied.length > 0 && make("p", { class: "equals" }, "tied: ", ...joinElements(tied)),
    unsure.length > 0 && make("p", { class: "equals" }, "behind, but not certainly: ", ...joinElements(unsure)),
  ].filter(Boolean);
}

const drawWinnerMark = (report, name) => draw("svg", { class: "crest", viewBox: "0 0 24 24", "aria-hidden": "true" }, drawFamilyMark(report, name, 12, 12, 8.5));
const joinElements = (names) => names.flatMap((name, at) => [at ? ", " : "", make("bdi", {}, name)]);

// The fastest and the smallest of several leaders.
function makeDistinctions(report) {
  const { verdict, byName } = report;
  const kinds = [["fastest", "Fastest predictions among the best"], ["smallest", "Smallest among the best"]];
  return kinds.filter(([key]) => byName.has(verdict[key]) && (verdict.tied ?? []).length > 0).map(([key, text]) => {
    const family = byName.get(verdict[key]);
    const size = verdict[key + "_text"] + (key === "fastest" ? " each" : "");
    return make("div", {}, make("dt", {}, text), make("dd", {}, makeFamilyLabel(report, family.name), " ", make("small", {}, size)));
  });
}

// The conditions that were equal for all families.
export function makeConditions(report) {
  const { families, rules, seeds } = report;
  const names = families.length === 1 ? "1 family" : families.length + " families";
  const matchNames = { parameters: "equal parameters", time: "equal time", tokens: "equal " + (report.unit ?? "tokens") };
  const rows = [
    ["Budget", (rules.budget ?? DASH) + " for each family and seed"],
    ["Compared", names + ", " + formatPlural(seeds.length, "seed")],
    ["Matched by", (matchNames[rules.match] ?? rules.match ?? DASH) + (rules.match === "parameters" && isNumber(rules.parameters) ? " (" + rules.parameters_text + ")" : "")],
    ["Machine", report.machine?.in_words ?? DASH],
  ];
  return make("dl", { class: "facts" }, ...rows.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text))));
}

// The best family and the sentences about the result.
export function makeVerdict(report) {
  const fastestAndSmallest = makeDistinctions(report);
  return make("div", { class: "verdict" },
    make("div", { class: "winner-box" }, ...makeWinner(report)),
    make("div", { class: "sentences-box" }, ...(report.verdict.sentences ?? []).map((sentence) => make("p", {}, keepUnitsTogether(sentence))),
      fastestAndSmallest.length > 0 && make("dl", { class: "prizes" }, ...fastestAndSmallest)));
}
