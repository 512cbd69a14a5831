// The choice of a run, and what is shown where there is none: the same on all pages.
import { make, makeCopyButton } from "../../page/components/elements.js";

const TASKS = { language: "continue text", masked: "fill in [MASK]", classify: "classify", tag: "tag", translate: "translate", caption: "describe images", forecast: "forecast" };

// Runs of the same name are told apart by their folders.
function nameRun(row, rows) {
  const about = [row.kind === "comparison" ? "best trial" : row.model, row.state === "running" && "being trained"];
  return [rows.filter(({ name }) => name === row.name).length > 1 ? row.id : row.name, ...about].filter(Boolean).join(" · ");
}

// The run that a page shows if the address names none: the newest of the finished ones. Others may have no model yet.
export const chooseRun = (rows) => [...rows].sort((a, b) => (b.state === "finished") - (a.state === "finished") || b.changed - a.changed)[0];

// A list of runs by task; with `empty`, also that none is chosen.
export function makeRunSelect(rows, selected, onSelect, { empty = null, ...attributes } = {}) {
  const groups = [...new Set(rows.map(({ task }) => task))].map((task) => make("optgroup", { label: TASKS[task] ?? task ?? "comparisons" },
    ...rows.filter((row) => row.task === task).map((row) => make("option", { value: row.id, selected: row.id === selected }, nameRun(row, rows)))));
  const select = make("select", attributes, empty && make("option", { value: "" }, empty), ...groups);
  select.addEventListener("change", () => onSelect(select.value));
  return select;
}

// Says what is missing and how to start it: on the page New, with these parameters, or with a command.
export function makeEmpty(studio, text, command, parameters = {}) {
  const code = make("code", {}, command);
  return make("div", { class: "card empty" }, make("p", {}, text + " ", make("a", { href: studio.makeAddress("new", parameters) }, "Start one"), ", or use the command line:"),
    make("div", { class: "command" }, make("pre", {}, code), makeCopyButton(code)));
}
