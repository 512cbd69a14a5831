// All trials of a comparison, with links to their runs.
import { make, makeNamedChip } from "../../../page/components/elements.js";
import { DASH, formatPlural } from "../../../page/components/numbers.js";
import { makeFoldable, makeHeading, makePart, makeTable } from "../../../compare/report/page/parts.js";
import { makeProgress, makeState } from "./compare-elements.js";

function makeLinks({ id, name, has_weights: hasWeights }, studio) {
  const link = (page, text) => make("a", { href: studio.makeAddress(page, { id }), "aria-label": `${text} ${name}` }, text);
  return make("td", { class: "compare-links" }, id ? link("run", "Run") : DASH, hasWeights && link("use", "Use"), hasWeights && link("inside", "Inside"));
}

function makeStatus({ state, progress, reason, is_tested: isTested }, isRunning) {
  const texts = { finished: isTested ? "tested" : "trained", waiting: isRunning ? "waiting" : "not started" };
  return make("td", { class: "words compare-status" }, makeState(state, texts[state]),
    (state === "running" || state === "stopped") && makeProgress(progress, Math.round(100 * progress) + " %"), reason && make("small", { class: "compare-reason" }, reason));
}

function makeTrialTable(label, trials, comparison, studio) {
  const styles = new Map(comparison.families.map(({ name, style }) => [name, style]));
  const names = ["Trial", "State", "Learning rate", "Validation " + comparison.metric.name, comparison.unit, "Time", "Open"];
  const head = make("tr", {}, ...names.map((name, at) => makeHeading(name, { class: at === 0 || at === 1 || at === 6 ? "words" : "number" })));
  const rows = trials.map((trial) => make("tr", { "data-trial-row": trial.name, "data-state": trial.state },
    make("th", { scope: "row" }, make("span", { class: "compare-trial" }, makeNamedChip(styles.get(trial.family), trial.family, false), make("span", { class: "compare-soft" }, trial.name.slice(trial.family.length + 1)))),
    makeStatus(trial, comparison.state === "running"), make("td", {}, trial.rate), make("td", {}, trial.text), make("td", {}, trial.tokens || DASH), make("td", {}, trial.seconds || DASH),
    makeLinks(trial, studio)));
  return makeTable(label, head, rows, { class: "compare-trials" });
}

export function makeTrials(comparison, studio) {
  const groups = [["training runs", "train"], ["learning-rate search", "lr"]];
  const folds = groups.map(([label, kind]) => [label, comparison.trials.filter((trial) => trial.kind === kind)]).filter(([, trials]) => trials.length).map(([label, trials]) => {
    const done = trials.filter(({ state }) => state === "finished").length, failed = trials.filter(({ state }) => state === "failed").length;
    const text = `${label[0].toUpperCase()}${label.slice(1)}: ${done} of ${formatPlural(trials.length, "trial")} done` + (failed ? `, ${failed} failed` : "");
    const fold = makeFoldable(text, makeTrialTable(label, trials, comparison, studio));
    fold.open = label === "training runs" || trials.some(({ state }) => state === "running" || state === "failed");
    return fold;
  });
  return makePart("trials", "Trials", null, ...folds);
}
