// The head of the page: name, state, result, progress, what can be done with the run, and its commands.
import { make, makeCopyButton, replaceIfChanged } from "../../../page/components/elements.js";
import { formatBytes, formatCount, formatDigits, formatDuration, formatWhole, isNumber } from "../../../page/components/numbers.js";
import { canDelete, canResume, canStop, createActions, makeActionButton } from "../actions.js";
import { formatMetric, nameMetric } from "../metrics.js";

const PURPOSES = { train: "Trained with", predict: "Predict", evaluate: "Evaluate", inspect: "Look inside", resume: "Resume" };

export function makeCommand(command, title = null) {
  const code = make("pre", {}, make("code", {}, command));
  return make("div", { class: "run-command" }, title && make("span", { class: "run-purpose" }, title), make("div", { class: "command" }, code, makeCopyButton(code)));
}

function makeFact(name, value, title = null) {
  return value === null || value === undefined || value === "" ? null
    : make("div", { title }, make("dt", {}, name), make("dd", {}, make("bdi", {}, String(value))));
}

function makeProgress(row) {
  if (!isNumber(row.progress) || row.state === "finished") return null;
  const share = Math.min(1, row.progress), left = share > 0.002 ? row.seconds * (1 - share) / share : null;
  const isRunning = row.state === "running";
  const text = `${formatDigits(100 * share, share < 0.1 ? 2 : 3)} % of the budget` + (isRunning && left !== null ? `, about ${formatDuration(Math.round(left))} left` : "");
  const bar = make("div", { class: "run-bar", role: "progressbar", "aria-label": "progress", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * share), "aria-valuetext": text },
    make("span", { style: `width: ${100 * share}%` }));
  return make("div", { class: "run-progress" }, bar, make("span", {}, text));
}

export function createHeader(initial, { studio, id }) {
  const state = make("span"), facts = make("dl", { class: "run-facts" }), progress = make("div"), problem = make("div");
  const result = make("div", { class: "run-result" }), actions = make("div", { class: "row run-actions" }), commands = make("details", { class: "run-commands" }), trained = make("div", { class: "run-trained" });
  const parent = initial.parent && make("p", { class: "run-parent" }, "A run of the comparison ", make("a", { href: studio.makeAddress("compare", { id: initial.parent }) }, make("bdi", {}, initial.parent)));
  const element = make("header", { class: "run-header" },
    make("div", { class: "run-title" }, make("div", {}, make("h1", {}, make("bdi", {}, initial.name)), make("div", { class: "row" }, state, actions)), result),
    parent, progress, problem, facts, trained, commands);
  let shownState = null, shownCommands = null;

  const changes = createActions(studio);
  const makeAction = (text, busyText, change, attributes) => makeActionButton(text, busyText, () => change([studio.rows.get(id) ?? initial]), attributes);
  const remove = async (rows) => { if (await changes.remove(rows, () => studio.go("run", { id }))) studio.go("runs"); };
  const drawActions = (run, row) => {
    const hadFocus = actions.contains(document.activeElement);
    const link = (text, page) => run.parameters && make("a", { class: "button", href: studio.makeAddress(page, { id }) }, text);
    actions.replaceChildren(...[
      link("Use", "use"), link("Look inside", "inside"),
      canStop(row) && makeAction("Stop", "Stopping …", changes.stop, { "aria-label": "Stop the training" }),
      canResume(row) && makeAction("Resume", "Resuming …", changes.resume, { "aria-label": "Resume the training" }),
      canDelete(row) && makeAction("Delete", "Deleting …", remove, { class: "danger", "aria-label": "Delete the run" }),
    ].filter(Boolean));
    if (hadFocus) actions.querySelector("button:not(.danger), a")?.focus();
  };
  const drawCommands = (run) => {
    const entries = Object.entries(run.commands).filter(([purpose]) => purpose !== "resume" || run.state !== "finished");
    const [first, ...others] = entries;
    trained.replaceChildren(makeCommand(first[1], PURPOSES[first[0]]));
    commands.replaceChildren(make("summary", {}, "More commands"), ...others.map(([purpose, command]) => makeCommand(command, PURPOSES[purpose])));
  };
  const update = (run, row) => {
    state.className = `state is-${row.state}`;
    state.textContent = row.state + (row.ended && row.state === "finished" ? `: ${row.ended}` : "");
    replaceIfChanged(result, [row.metric, row.value, run.best_step], () => isNumber(row.value) ? [make("b", {}, formatMetric(row.metric, row.value)),
      make("span", {}, `validation ${nameMetric(row.metric)}`), run.best_step !== null && make("span", { class: "hint" }, `best at step ${formatWhole(run.best_step)}`)]
      : [make("span", { class: "hint" }, "not validated yet")]);
    replaceIfChanged(progress, [row.progress, row.state, row.seconds], () => makeProgress(row));
    const text = row.problem || (row.state === "failed" ? run.failure?.problem : "");
    problem.replaceChildren(...text ? [studio.makeError({ problem: text, fix: run.failure?.fix ?? "", file: run.failure?.file, line: run.failure?.line })] : []);
    replaceIfChanged(facts, [row, run.parameters], () => [
      makeFact("task", row.task), makeFact("model", row.model), makeFact("data", row.data), makeFact("seed", row.seed),
      makeFact("parameters", run.parameters && formatCount(run.parameters.total), run.parameters && formatWhole(run.parameters.total)),
      makeFact("steps", isNumber(row.step) ? formatWhole(row.step) : null), makeFact(row.unit, isNumber(row.tokens) ? formatCount(row.tokens) : null, isNumber(row.tokens) ? formatWhole(row.tokens) : null),
      makeFact("time", isNumber(row.seconds) ? formatDuration(row.seconds) : null), makeFact("size", formatBytes(row.bytes)),
      makeFact("process", row.process && `${row.process.pid} on ${row.process.host}`), makeFact("tags", (row.tags ?? []).join(", ")), makeFact("note", row.note),
    ]);
    const nextState = [row.state, Boolean(run.parameters)].join(), nextCommands = JSON.stringify([run.commands, row.state]);
    if (nextState !== shownState) drawActions(run, row);  // a button that is focused stays
    if (nextCommands !== shownCommands) drawCommands({ ...run, state: row.state });
    [shownState, shownCommands] = [nextState, nextCommands];
  };
  update(initial, studio.rows.get(id) ?? initial);
  return {
    element, update,
    showError: (error) => problem.replaceChildren(studio.makeError(error)),
    showGone() {
      state.className = "state";
      state.textContent = "deleted or moved";
      actions.replaceChildren(make("a", { class: "button", href: studio.makeAddress("runs") }, "All runs"));
      progress.replaceChildren();
    },
  };
}
