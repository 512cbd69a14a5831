// All runs and comparisons: a table with search, and the curves and settings of those that are selected.
import { make, makeButton, replaceIfChanged } from "../../../page/components/elements.js";
import { formatPlural } from "../../../page/components/numbers.js";
import { canDelete, canResume, canStop, createActions } from "../actions.js";
import { makeEmpty } from "../choices.js";
import { loadStyle } from "../styles.js";
import { createCurves } from "./runs-curves.js";
import { openMenu } from "./runs-menu.js";
import { editNotes } from "./runs-notes.js";
import { COLUMNS } from "./runs-search.js";
import { buildSettings } from "./runs-settings.js";
import { createTable } from "./runs-table.js";
import { createTrash } from "./runs-trash.js";

const MAX_CURVES = 100, AGE_SECONDS = 30, STATES = ["running", "failed", "stopped", "finished"];

function readView(parameters) {
  const [column, direction] = (parameters.get("sort") ?? "changed-down").split("-");
  return {
    search: parameters.get("q") ?? "",
    sort: column in COLUMNS ? { column, isDescending: direction === "down" } : { column: "changed", isDescending: true },
    open: new Set(parameters.getAll("open")), selected: new Set(parameters.getAll("run")),
    y: parameters.get("y") ?? "loss", x: ["tokens", "seconds"].find((x) => x === parameters.get("x")) ?? "step",
    smoothing: ["light", "strong"].find((one) => one === parameters.get("smoothing")) ?? "off", log: parameters.get("log") ?? "",
  };
}

export async function show(element, parameters, studio) {
  await loadStyle("runs");
  const view = readView(parameters), actions = createActions(studio), trash = createTrash(studio, actions), settings = make("div");
  const keep = () => studio.keep("runs", { q: view.search, sort: view.sort.column === "changed" && view.sort.isDescending ? "" : view.sort.column + (view.sort.isDescending ? "-down" : "-up"),
    open: [...view.open], run: [...view.selected].slice(0, MAX_CURVES), y: view.y === "loss" ? "" : view.y, x: view.x === "step" ? "" : view.x,
    smoothing: view.smoothing === "off" ? "" : view.smoothing, log: view.log });
  const open = (row) => studio.go(row.kind === "comparison" ? "compare" : "run", { id: row.id });
  const edit = (row) => editNotes(studio, row, table.getCell(row.id), () => { table.update(); table.focus(row.id); });
  const remove = (row) => canDelete(row) ? actions.remove([row]) : studio.showMessage(row.parent ? "A trial is deleted with its comparison." : `${row.name} is running: stop it first.`);
  const setSearch = (text) => { search.value = view.search = text; update(); keep(); };
  const table = createTable(studio, view, { open, edit, remove, sort: keep, select: () => { showSelection(); keep(); },
    menu: (row, button) => openMenu(row, button, studio, actions, edit), tag: (tag) => setSearch(`tag:${/\s/.test(tag) ? `"${tag}"` : tag}`) });
  const curves = createCurves(studio, view, keep, (selection) => settings.replaceChildren(...[buildSettings(selection)].filter(Boolean)));

  // --- the head of the table
  const search = make("input", { type: "search", class: "runs-search", placeholder: "Search   task:tag   model:lstm   state:running   tag:…", value: view.search, "aria-label": "Search the runs", "aria-keyshortcuts": "/" });
  search.addEventListener("input", () => { view.search = search.value; update(); keep(); });
  search.addEventListener("keydown", (event) => { if (event.key === "ArrowDown" || event.key === "Enter") { table.focus(); event.preventDefault(); } });
  const counts = make("div", { class: "runs-counts", role: "group", "aria-label": "Runs by state" });
  const found = make("p", { class: "hint", role: "status" }), empty = make("div"), bar = make("div", { class: "runs-selection", role: "group", "aria-label": "Selected runs", hidden: true });

  function showCounts() {
    const rows = studio.rows.listTop(), terms = view.search.split(/\s+/);
    const numbers = STATES.map((state) => [state, rows.filter((row) => row.state === state).length]).filter(([, number]) => number);
    replaceIfChanged(counts, [numbers, view.search], () => numbers.map(([state, number]) => {
      const term = "state:" + state, isPressed = terms.includes(term);
      const others = terms.filter((one) => one && !one.startsWith("state:"));
      return makeButton(make("span", { class: "state is-" + state }, `${number} ${state}`), () => setSearch([...others, ...isPressed ? [] : [term]].join(" ")), { class: "small", "aria-pressed": String(isPressed) });
    }));
  }

  // --- the selection: of a comparison, the trainings of all seeds
  function listSelected() {
    const rows = [...view.selected].map(studio.rows.get).filter(Boolean);
    const trials = new Map();
    for (const row of studio.rows.list()) if (row.parent && /\/seed-/.test(row.name)) trials.set(row.parent, [...trials.get(row.parent) ?? [], row.id]);
    const ids = [...new Set(rows.flatMap((row) => row.kind === "comparison" ? trials.get(row.id) ?? [] : [row.id]))];
    return { rows, ids };
  }

  function showSelection() {
    const { rows, ids } = listSelected(), runs = rows.filter(({ kind }) => kind === "run");
    bar.hidden = rows.length === 0;
    element.classList.toggle("has-selection", rows.length > 0);
    const add = (text, chosen, act) => chosen.length > 0 && makeButton(chosen.length === rows.length ? text : `${text} ${chosen.length}`, () => act(chosen), { class: "small" });
    replaceIfChanged(bar, [rows.map((row) => [row.id, row.state]), ids.length], () => [make("b", { role: "status" }, formatPlural(rows.length, "run") + " selected" + (ids.length > MAX_CURVES ? `; the first ${MAX_CURVES} curves are drawn` : "")),
      runs.length > 0 && runs.length < 3 && make("a", { class: "button small", href: studio.makeAddress("inside", { id: runs.map(({ id }) => id) }) }, runs.length === 2 ? "Look inside both" : "Look inside"),
      add("Stop", rows.filter(canStop), actions.stop), add("Resume", rows.filter(canResume), actions.resume), add("Delete", rows.filter(canDelete), actions.remove),
      makeButton("Clear", () => table.select([...view.selected], false), { class: "small", "aria-label": "Clear the selection" })]);
    curves.show(ids.slice(0, MAX_CURVES));
  }

  function update(changed = null) {
    const numRuns = studio.rows.listTop().length;
    table.update(changed);
    showCounts();
    panel.hidden = numRuns === 0;
    empty.replaceChildren(...numRuns === 0 ? [makeEmpty(studio, "There are no runs yet; they appear here as soon as they start.", "seqwise train builtin:docs --model lstm")] : []);
    found.textContent = view.search && table.count() < numRuns ? table.count() ? `${table.count()} of ${formatPlural(numRuns, "run")} match.` : "No run matches the search." : "";
  }

  const hint = make("p", { class: "hint runs-keys" }, make("kbd", {}, "/"), " search ", make("kbd", {}, "↑ ↓"), " move ", make("kbd", {}, "space"), " select ", make("kbd", {}, "enter"), " open ",
    make("kbd", {}, "← →"), " trials ", make("kbd", {}, "e"), " tags and note ", make("kbd", {}, "m"), " actions ", make("kbd", {}, "del"), " delete");
  const panel = make("div", {}, make("div", { class: "runs-tools" }, search, counts, table.sorting, found), table.element, bar, hint, curves.element, settings);
  element.append(make("div", { class: "page-head" }, make("h1", {}, "Runs"), make("a", { class: "button primary", href: studio.makeAddress("new") }, "New training"), makeButton("Trash", trash.open)),
    empty, panel, trash.dialog);
  const focusSearch = (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
    search.focus();
    search.select();
    event.preventDefault();
  };
  document.addEventListener("keydown", focusSearch);
  const timer = setInterval(() => table.update(), 1000 * AGE_SECONDS);
  update();
  showSelection();
  return {
    update(rows) {
      const changed = new Set(rows.map(({ id }) => id));
      update(changed);
      curves.update(changed);
      if (rows.some((row) => row.is_gone || view.selected.has(row.id) || view.selected.has(row.parent))) showSelection();
    },
    change(next) {
      Object.assign(view, readView(next));
      search.value = view.search;
      update();
      showSelection();
    },
    close() { document.removeEventListener("keydown", focusSearch); clearInterval(timer); curves.close(); },
  };
}
