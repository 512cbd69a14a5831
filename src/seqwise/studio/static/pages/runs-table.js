// The table of runs: rows are built once, and only those that have changed are updated. Arrow keys move, space selects.
import { make, makeButton } from "../../../page/components/elements.js";
import { COLUMNS, arrangeRows } from "./runs-search.js";
import { createRow } from "./runs-row.js";

// `view` is { search, sort, open: Set, selected: Set }. `on` has select(), open(row), menu(row, button), edit(row), remove(row),
// sort() and tag(name).
export function createTable(studio, view, on) {
  const built = new Map();  // id → row of the table
  let shown = [], order = "", current = null;  // id of the row that the arrow keys have reached
  let anchor = null;  // the row from which shift selects a range

  const heads = Object.entries(COLUMNS).map(([column, { title }]) => make("th", { scope: "col", role: "columnheader", "data-column": column, class: "runs-cell-" + column },
    makeButton(title, () => sortBy(column), { class: "sort" })));
  const all = make("input", { type: "checkbox", "aria-label": "Select all runs that are shown" });
  const body = make("tbody", { role: "rowgroup" });
  const table = make("table", { class: "runs-table", role: "treegrid", "aria-multiselectable": "true", "aria-label": "Runs and comparisons" },
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, make("th", { scope: "col", role: "columnheader", class: "runs-cell-box" }, all), ...heads,
      make("th", { scope: "col", role: "columnheader", class: "runs-cell-menu" }, make("span", { class: "unseen" }, "Actions")))), body);
  const sorting = make("select", {}, ...Object.entries(COLUMNS).map(([column, { title }]) => make("option", { value: column }, title)));
  sorting.addEventListener("change", () => sortBy(sorting.value));

  const getRow = (id) => shown.find(({ row }) => row.id === id)?.row;
  const getElement = (id) => built.get(id)?.element;

  function sortBy(column) {
    const isAgain = view.sort.column === column;
    view.sort = { column, isDescending: isAgain ? !view.sort.isDescending : Boolean(COLUMNS[column].isDescending) };
    update();
    on.sort();
  }

  function setCurrent(id, hasFocus = false) {
    getElement(current)?.setAttribute("tabindex", "-1");
    current = id;
    const element = getElement(id);
    element?.setAttribute("tabindex", "0");
    if (hasFocus) { element?.focus({ preventScroll: true }); element?.scrollIntoView({ block: "nearest" }); }
  }

  function select(ids, isSelected) {
    for (const id of ids) {
      view.selected[isSelected ? "add" : "delete"](id);
      built.get(id)?.select(isSelected);
    }
    showAll();
    on.select();
  }

  function selectTo(id) {
    const ids = shown.map(({ row }) => row.id), [from, to] = [ids.indexOf(anchor ?? id), ids.indexOf(id)].sort((a, b) => a - b);
    select(ids.slice(Math.max(0, from), to + 1), true);
  }

  const showAll = () => {
    const num = shown.filter(({ row }) => view.selected.has(row.id)).length;
    all.checked = num > 0 && num === shown.length;
    all.indeterminate = num > 0 && num < shown.length;
  };

  const setOpen = (id, isOpen) => { view.open[isOpen ? "add" : "delete"](id); update(); on.sort(); };

  // Draws what has changed. `changed` are ids; without them all rows.
  function update(changed = null) {
    shown = arrangeRows(studio.rows.list(), view);
    for (const one of shown) {
      const id = one.row.id, isNew = !built.has(id);
      if (isNew) built.set(id, createRow(studio));
      if (isNew || !changed || changed.has(id)) built.get(id).update(one);
      if (isNew || !changed) built.get(id).select(view.selected.has(id));
    }
    if (changed) for (const id of changed) if (!studio.rows.get(id)) built.delete(id);
    const next = shown.map(({ row }) => row.id).join("\n");
    if (next !== order) {
      const hasFocus = body.contains(document.activeElement) ? document.activeElement : null;
      order = next;
      body.replaceChildren(...shown.map(({ row }) => built.get(row.id).element));
      if (hasFocus?.isConnected) hasFocus.focus({ preventScroll: true });
    }
    for (const head of heads) {
      const isSorted = head.dataset.column === view.sort.column;
      head.setAttribute("aria-sort", !isSorted ? "none" : view.sort.isDescending ? "descending" : "ascending");
    }
    sorting.value = view.sort.column;
    if (!getRow(current)) setCurrent(shown[0]?.row.id ?? null);
    showAll();
  }

  // --- pointer
  all.addEventListener("change", () => select(shown.map(({ row }) => row.id), all.checked));
  body.addEventListener("click", (event) => {
    const element = event.target.closest("tr"), id = element?.dataset.id, row = getRow(id);
    if (!row || event.target.closest(".runs-editor")) return;
    setCurrent(id);
    const action = event.target.closest("[data-action]")?.dataset.action, tag = event.target.closest("[data-tag]")?.dataset.tag;
    if (tag !== undefined) on.tag(tag);
    else if (action === "fold") setOpen(id, !view.open.has(id));
    else if (action === "menu") on.menu(row, event.target.closest("button"));
    else if (!event.target.closest("a")) {
      if (event.shiftKey) selectTo(id);
      else { select([id], !view.selected.has(id)); anchor = id; }
    }
  });
  body.addEventListener("dblclick", (event) => {
    const row = getRow(event.target.closest("tr")?.dataset.id);
    if (row && event.target.closest(".runs-cell-name") && !event.target.closest("a, button, .runs-editor")) on.edit(row);
  });

  // --- keyboard
  const KEYS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
  body.addEventListener("keydown", (event) => {
    if (event.target !== getElement(current) || event.altKey || event.ctrlKey || event.metaKey) return;
    const row = getRow(current), at = shown.findIndex((one) => one.row.id === current), numTrials = shown[at]?.numTrials;
    if (event.key in KEYS) {
      anchor ??= current;
      setCurrent(shown[Math.max(0, Math.min(shown.length - 1, at + KEYS[event.key]))].row.id, true);
      if (event.shiftKey) selectTo(current);
      else anchor = current;
    } else if (event.key === " ") { select([current], !view.selected.has(current)); anchor = current; }
    else if (event.key === "Enter") on.open(row);
    else if (event.key === "ArrowRight" && numTrials) setOpen(current, true);
    else if (event.key === "ArrowLeft" && numTrials) setOpen(current, false);
    else if (event.key === "ArrowLeft" && row.parent) setCurrent(row.parent, true);
    else if (event.key === "Delete") on.remove(row);
    else if (event.key === "e") on.edit(row);
    else if (event.key === "ContextMenu" || event.key === "F10" && event.shiftKey || event.key === "m") on.menu(row, getElement(current).querySelector("[data-action=menu]"));
    else if (event.key === "Escape" && view.selected.size) select([...view.selected], false);
    else return;
    event.preventDefault();
  });

  return {
    element: make("div", { class: "runs-scroller", tabindex: "-1" }, table),
    sorting: make("label", { class: "runs-sorting" }, make("span", {}, "Sort by"), sorting),
    update, select,
    count: () => shown.filter(({ level }) => level === 1).length,
    getCell: (id) => built.get(id),
    focus: (id) => setCurrent(id ?? current, true),
  };
}
