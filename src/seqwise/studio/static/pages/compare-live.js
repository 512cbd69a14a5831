// The head of a comparison that is not finished: who is ahead so far, the stages, and the order of the families.
import { draw, drawMark, make, makeNamedChip } from "../../../page/components/elements.js";
import { DASH, formatPlural } from "../../../page/components/numbers.js";
import { makeHeading, makeNote, makePart, makeTable } from "../../../compare/report/page/parts.js";
import { makeProgress } from "./compare-elements.js";

const STAGES = { speed: "Measure the speed", "learning rates": "Learning-rate search", training: "Training", test: "Evaluation", latency: "Latency of predictions" };
const countRuns = ({ num_seeds: trained, num_runs: all }) => `${trained} of ${formatPlural(all, "training run")}`;

const findStyle = (comparison, name) => comparison.families.find((family) => family.name === name).style;

function makeLeader(comparison) {
  const { leader: first, metric } = comparison;
  if (!first) return [make("p", { class: "label" }, "Provisional"), make("p", { class: "winner none compare-none" }, "No order yet"),
    make("p", { class: "equals" }, "It begins when two families are validated.")];
  const drawCrest = (name) => draw("svg", { class: "crest", viewBox: "0 0 24 24", "aria-hidden": "true" }, drawMark(findStyle(comparison, name), 12, 12, 8.5));
  const basis = first.source === "seeds" ? `the best validations so far of ${countRuns(first)}` : "the learning-rate search";
  return [
    make("p", { class: "label" }, (first.names.length > 1 ? "Equal" : "Ahead") + " so far – provisional"),
    make("p", { class: "winner" + (first.names.join().length > 9 ? " long" : "") }, ...first.names.flatMap((name, at) => [at ? ", " : "", make("span", {}, drawCrest(name), make("bdi", {}, name))])),
    make("p", { class: "score" }, `validation ${metric.name} `, make("b", {}, first.text)),
    make("p", { class: "equals" }, `By ${basis}. The verdict follows once all models are evaluated.`),
  ];
}

function makeStages({ stages, state, remaining }) {
  const current = stages.find(({ done, total }) => done < total);
  return make("ol", { class: "compare-stages" }, ...stages.map((stage) => {
    const { name, done, total } = stage, isDone = done >= total, isCurrent = stage === current;
    const text = total === 1 ? isDone ? "done" : isCurrent && state === "running" ? "running" : "waiting" : `${done} of ${total}`;
    return make("li", { class: isDone ? "is-done" : isCurrent ? "is-current" : "", "aria-current": isCurrent ? "step" : null },
      make("span", {}, isDone ? "✓ " : "", STAGES[name]), makeProgress(done / total, text));
  }), remaining && make("li", { class: "compare-soft" }, `about ${remaining} left`));
}

export function makeLiveHead(comparison, sentences = []) {
  const { num_done: done, num_trials: total, state } = comparison;
  return make("div", { class: "verdict compare-live" }, make("div", { class: "winner-box" }, ...makeLeader(comparison)),
    make("div", {}, state === "stopped" && make("p", { class: "compare-stopped" }, `Stopped: ${done} of ${formatPlural(total, "trial")} done. Resume it to get a verdict.`),
      ...sentences.map((sentence) => make("p", { class: "compare-soft" }, sentence)), makeStages(comparison)));
}

// The families by their validation so far.
export function makeRanking(comparison) {
  const { ranking, metric } = comparison;
  const names = ["", "Family", "Validation " + metric.name, "From", "Learning rate", "Parameters", "Trials"];
  const head = make("tr", {}, ...names.map((name, at) => makeHeading(name, { class: at === 1 || at === 3 || at === 6 ? "words" : "number", "aria-label": name ? null : "place" })));
  const rows = ranking.map((row, at) => make("tr", { "data-row": row.name }, make("td", { class: "place" }, row.source === "seeds" ? String(at + 1) : DASH),
    make("th", { scope: "row" }, makeNamedChip(findStyle(comparison, row.name), row.name), row.reason && make("small", { class: "compare-reason" }, row.reason)),
    make("td", { class: "value" }, make("b", {}, row.text)),
    make("td", { class: "words" }, row.source === "seeds" ? countRuns(row) : row.source === "search" ? "learning-rate search" : "nothing yet"),
    make("td", {}, row.rate), make("td", {}, row.parameters),
    make("td", { class: "words" }, makeProgress(row.progress, [`${row.num_finished} of ${row.num_trials}`, row.num_running ? `${row.num_running} running` : "", row.num_failed ? `${row.num_failed} failed` : ""].filter(Boolean).join(", ")))));
  return makePart("ranking", "Order so far", `Provisional: by the validation split, while trials are at different points of their training. ${metric.lower_is_better ? "Lower" : "Higher"} is better.`,
    makeTable("order of the families so far", head, rows, { class: "compare-ranking" }), makeNote("Mean over the training runs of a family; those that still train count with their best validation so far."));
}
