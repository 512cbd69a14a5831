// The model card, the sizes of the parts of the model, its checkpoints, and the machine that trained it.
import { make } from "../../../page/components/elements.js";
import { formatBytes, formatCount, formatDigits, formatDuration, formatWhole } from "../../../page/components/numbers.js";
import { renderMarkdown } from "./run-markdown.js";

const formatTime = (seconds) => new Date(1000 * seconds).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

function makeTable(title, columns, rows) {
  const makeCell = (value, at) => make(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: columns[at].isText ? "words" : null }, value);
  return make("div", { class: "scroller box" }, make("table", {}, make("caption", { class: "unseen" }, title),
    make("thead", {}, make("tr", {}, ...columns.map(({ name, isText }) => make("th", { scope: "col", class: isText ? "words" : null }, name)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(makeCell))))));
}

function makeParameters({ total, parts, types, bytes }) {
  const rows = parts.map(({ name, count }) => [make("code", {}, name), formatWhole(count), formatDigits(100 * count / Math.max(1, total)) + " %"]);
  return make("section", { class: "card" }, make("h2", {}, "Parameters"),
    make("p", {}, `${formatWhole(total)} (${formatCount(total)}) in ${formatBytes(bytes)}, ${types.join(", ")}`),
    makeTable("Parameters of each part", [{ name: "part", isText: true }, { name: "parameters" }, { name: "share" }], rows));
}

function makeCheckpoints(run) {
  const { checkpoints, parameters, best_step } = run;
  const rows = checkpoints.map(({ step, bytes, changed }) => [formatWhole(step) + (step === best_step ? " (best)" : ""), formatTime(changed), formatBytes(bytes)]);
  if (parameters) rows.unshift([best_step === null ? "best weights" : `${formatWhole(best_step)}: best weights`, formatTime(parameters.changed), formatBytes(parameters.bytes)]);
  return make("section", { class: "card" }, make("h2", {}, "Checkpoints"), ...rows.length === 0
    ? [make("p", { class: "hint" }, "There are none yet: the first one is written at the first validation.")]
    : [make("p", { class: "hint" }, "A checkpoint is what resuming needs; the best weights are what predictions use."),
      makeTable("Checkpoints", [{ name: "step", isText: true }, { name: "written", isText: true }, { name: "size" }], rows)]);
}

function makeTimes({ seconds }) {
  const rows = Object.entries(seconds ?? {}).map(([stage, value]) => [stage, formatDuration(value)]);
  return rows.length > 0 && make("section", { class: "card" }, make("h2", {}, "Time"), makeTable("Time of each stage", [{ name: "stage", isText: true }, { name: "time" }], rows));
}

export function createModel(initial) {
  const element = make("div", { class: "run-model" });
  let shown = "";
  const draw = (run) => {
    const key = JSON.stringify([run.card, run.parameters, run.checkpoints, run.environment, run.summary, run.best_step]);
    if (key === shown) return;
    shown = key;
    const card = make("section", { class: "card run-card", "aria-label": "Model card" }, ...run.card
      ? renderMarkdown(run.card) : [make("p", { class: "hint" }, "The model card is written with the first checkpoint.")]);
    const environment = make("section", { class: "card" }, make("h2", {}, "Machine"), make("dl", { class: "run-environment" },
      ...run.environment.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
    element.replaceChildren(make("div", {}, card, run.environment.length > 0 && environment),
      make("div", {}, ...[run.parameters && makeParameters(run.parameters), makeCheckpoints(run), makeTimes(run.summary ?? {})].filter(Boolean)));
  };
  draw(initial);
  return { element, update: draw };
}
