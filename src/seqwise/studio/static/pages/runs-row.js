// The cells of one row. A cell is built again only if what it shows has changed.
import { make, replaceIfChanged } from "../../../page/components/elements.js";
import { DASH, formatBytes, formatCount, formatDuration, formatWhole, isNumber } from "../../../page/components/numbers.js";
import { formatMetric, nameMetric } from "../metrics.js";

export function formatAge(seconds) {
  const age = Date.now() / 1000 - seconds;
  if (age < 60) return "just now";
  if (age < 3600) return Math.floor(age / 60) + " min ago";
  if (age < 86400) return Math.floor(age / 3600) + " h ago";
  return age < 30 * 86400 ? Math.floor(age / 86400) + " d ago" : new Date(1000 * seconds).toLocaleDateString("en-GB");
}

// From five minutes on, seconds do not matter.
const formatTime = (seconds) => formatDuration(seconds >= 300 ? 60 * Math.round(seconds / 60) : seconds >= 10 ? Math.round(seconds) : seconds);

const two = (first, second, title = null) => [make("span", { class: "runs-main", title }, first), second ? make("span", { class: "runs-more" }, second) : null];

function makeState({ state, progress, problem, trials, ended }) {
  const label = make("span", { class: "state is-" + state }, state + (state === "running" && isNumber(progress) ? ` ${Math.floor(100 * progress)} %` : ""));
  const bar = state === "running" && isNumber(progress) ? make("span", { class: "runs-bar", "aria-hidden": "true" }, make("i", { style: `width: ${(100 * Math.min(1, progress)).toFixed(1)}%` })) : null;
  const counts = trials && trials.total ? `${trials.done} of ${trials.total} trials` + (trials.failed ? `, ${trials.failed} failed` : "") : "";
  const more = problem || counts || (state === "finished" && ended !== "the budget is spent" ? ended : "");
  return [label, bar, more ? make("span", { class: "runs-more" + (problem ? " is-bad" : ""), title: more }, more) : null];
}

function makeMetric({ metric, value, higher_is_better: isHigher, trials }) {
  if (!metric || !isNumber(value)) return [make("span", { class: "runs-more" }, DASH)];
  const direction = make("span", { title: isHigher ? "higher is better" : "lower is better" }, isHigher ? "↑" : "↓", make("span", { class: "unseen" }, isHigher ? " higher is better" : " lower is better"));
  const best = trials?.best, split = trials?.is_test ? "test" : "validation";
  return [make("span", { class: "runs-main", title: `${value}, ${split}` }, formatMetric(metric, value)), make("span", { class: "runs-more" }, nameMetric(metric) + " ", direction, best ? ` (${best})` : ""),
    best && make("span", { class: "runs-more", title: `the mean of the ${split} results of ${best}, the best family` }, trials.seeds === 1 ? "one seed" : `mean of ${trials.seeds} seeds`)];
}

const shortenPath = (path) => path.replace(/\/+$/, "").split("/").at(-1);

// Column → [what decides whether it has changed, the content]
const CELLS = {
  task: (row) => [row.task, () => two(row.task || DASH)],
  model: (row) => [row.model, () => two(row.model || DASH, null, row.model)],
  data: (row) => [row.data, () => two(shortenPath(row.data) || DASH, null, row.data)],
  state: (row) => [[row.state, row.state === "running" && Math.floor(1000 * row.progress), row.problem, row.ended, row.trials], () => makeState(row)],
  metric: (row) => [[row.metric, row.value, row.trials], () => makeMetric(row)],
  step: (row) => [[row.step, row.tokens], () => isNumber(row.step) ? two(formatWhole(row.step), isNumber(row.tokens) ? `${formatCount(row.tokens)} ${row.unit}` : null) : [DASH]],
  seconds: (row) => [row.seconds, () => two(formatTime(row.seconds), null, formatDuration(row.seconds))],
  bytes: (row) => [row.bytes, () => two(formatBytes(row.bytes))],
  changed: (row) => [formatAge(row.changed), () => two(formatAge(row.changed), null, new Date(1000 * row.changed).toLocaleString("en-GB"))],
};
export const CELL_NAMES = Object.keys(CELLS);

// The name with its link, the tags and the note.
function makeName({ row, level, numTrials, isOpen }, studio) {
  const page = row.kind === "comparison" ? "compare" : "run";
  const link = make("a", { class: "runs-link", href: studio.makeAddress(page, { id: row.id }), title: row.id, tabindex: "-1" }, make("bdi", {}, row.name));
  const fold = numTrials > 0 && make("button", { type: "button", class: "runs-fold", "data-action": "fold", tabindex: "-1", "aria-label": `${isOpen ? "Hide" : "Show"} the trials of ${row.name}` }, isOpen ? "▾" : "▸");
  const tags = row.tags.map((tag) => make("button", { type: "button", class: "runs-tag", "data-tag": tag, title: "show the runs with this tag", tabindex: "-1" }, make("bdi", {}, tag)));
  const notes = tags.length || row.note ? make("span", { class: "runs-notes" }, ...tags, row.note && make("bdi", { class: "runs-more", title: row.note }, row.note)) : null;
  return make("div", { class: "runs-name" + (level === 2 ? " is-trial" : "") }, make("span", { class: "runs-title" }, fold, link), notes);
}

export function createRow(studio) {
  const box = make("input", { type: "checkbox", tabindex: "-1", "aria-label": "Select" });
  const name = make("td", { class: "runs-cell-name", role: "gridcell" });
  const cells = Object.fromEntries(CELL_NAMES.map((column) => [column, make("td", { role: "gridcell", class: "runs-cell-" + column })]));
  const menu = make("button", { type: "button", class: "runs-menu-button", "data-action": "menu", "aria-haspopup": "menu", tabindex: "-1" }, "⋯");
  const element = make("tr", { role: "row", tabindex: "-1" }, make("td", { role: "gridcell", class: "runs-cell-box" }, box), name,
    ...Object.values(cells), make("td", { role: "gridcell", class: "runs-cell-menu" }, menu));
  let numEdits = 0;  // after each, the name is drawn again
  return {
    element, name,
    update(shown) {
      const { row, level, numTrials, isOpen } = shown;
      element.dataset.id = row.id;
      element.classList.toggle("is-trial", level === 2);
      element.setAttribute("aria-level", level);
      if (numTrials) element.setAttribute("aria-expanded", String(isOpen));
      else element.removeAttribute("aria-expanded");
      box.setAttribute("aria-label", "Select " + row.name);
      menu.setAttribute("aria-label", "Actions for " + row.name);
      if (!element.classList.contains("is-edited")) replaceIfChanged(name, [numEdits, row.name, row.tags, row.note, numTrials > 0, isOpen, level], () => makeName(shown, studio));
      for (const column of CELL_NAMES) replaceIfChanged(cells[column], ...CELLS[column](row));
    },
    // The name is drawn again, after it was edited.
    forget: () => { numEdits++; },
    select(isSelected) {
      box.checked = isSelected;
      element.setAttribute("aria-selected", String(isSelected));
    },
  };
}
