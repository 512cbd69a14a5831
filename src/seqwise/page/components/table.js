// A table that can be sorted by its columns.
import { make, makeButton } from "./elements.js";
import { explore } from "./explore.js";
import { createFormat, isNumber } from "./numbers.js";
import { makeAxis, makeItem } from "./pins.js";

const MAX_ROWS = 50;  // shown at first

const compare = (a, b) => isNumber(a) && isNumber(b) ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });

export function drawTable(figure, { pins }) {
  const names = figure.rows.map((row) => String(row[0] ?? "")), axis = makeAxis(names, figure.columns[0] ?? "");
  const isNumeric = figure.columns.map((_, column) => figure.rows.every((row) => row[column] === null || isNumber(row[column])));
  const formats = figure.columns.map((_, column) => createFormat(figure.rows.map((row) => row[column])));
  const makeContent = (value, column) => value === null ? "" : isNumber(value) ? formats[column](value) : make("bdi", {}, String(value));
  // A number is formatted; unformatted it is in an attribute and shown when the pointer rests on it.
  const makeCell = (value, column) => {
    const about = { class: isNumeric[column] ? null : "words", "data-value": isNumber(value) ? value : null, title: isNumber(value) ? String(value) : null };
    return column === 0 ? make("th", { scope: "row", ...about }, makeContent(value, column)) : make("td", about, makeContent(value, column));
  };
  const rows = figure.rows.map((row, index) => make("tr", { "data-index": index }, ...row.map(makeCell)));
  const body = make("tbody");
  let sorted = -1, isDescending = false, limit = MAX_ROWS;

  const sortIndices = () => {
    const indices = [...figure.rows.keys()];
    if (sorted < 0) return indices;
    const isEmpty = (index) => figure.rows[index][sorted] === null || figure.rows[index][sorted] === "";
    return indices.sort((a, b) => isEmpty(a) - isEmpty(b) || (isDescending ? -1 : 1) * compare(figure.rows[a][sorted], figure.rows[b][sorted]) || a - b);
  };
  const fill = () => {
    body.replaceChildren(...sortIndices().slice(0, limit).map((index) => rows[index]));
    heads.forEach((head, column) => head.setAttribute("aria-sort", column !== sorted ? "none" : isDescending ? "descending" : "ascending"));
  };
  // Numbers first descend, words first ascend; the third click restores the original order.
  const sortBy = (column) => {
    const startsDescending = isNumeric[column];
    if (sorted !== column) [sorted, isDescending] = [column, startsDescending];
    else if (isDescending === startsDescending) isDescending = !isDescending;
    else sorted = -1;
    fill();
  };
  const heads = figure.columns.map((name, column) => make("th", { scope: "col", class: isNumeric[column] ? null : "words", "aria-sort": "none" },
    makeButton(name, () => sortBy(column), { class: "sort" })));
  const table = make("table", {}, make("caption", { class: "unseen" }, figure.title), make("thead", {}, make("tr", {}, ...heads)), body);
  const plot = make("div", { class: "plot scroller box", "data-chart": "table", "aria-label": `${figure.title}: table` }, table);
  const listVisible = () => [...body.children].map((row) => Number(row.dataset.index));
  const makeMark = (index) => ({ key: String(index), index });
  explore(plot, {
    find(x, y, event) {
      const row = event.target.closest?.("tbody tr");
      return row ? makeMark(Number(row.dataset.index)) : null;
    },
    describe: () => null,
    highlight: (mark) => rows.forEach((row, index) => row.classList.toggle("is-hovered", mark?.index === index)),
    first: () => listVisible().length ? makeMark(listVisible()[0]) : null,
    step(mark, dx, dy) {
      const shown = listVisible(), next = shown[shown.indexOf(mark.index) + dy];
      if (next !== undefined) rows[next].scrollIntoView({ block: "nearest" });
      if (dx) plot.scrollBy({ left: 60 * dx });
      return next === undefined ? mark : makeMark(next);
    },
    items: ({ index }) => [makeItem(axis, index)],
  }, pins);
  plot.setAttribute("role", "region");
  pins.follow(plot, () => pins.find(axis), () => {
    const pinned = pins.find(axis);
    rows.forEach((row, index) => row.classList.toggle("is-pinned", pinned.includes(index)));
  });
  fill();
  const more = rows.length > limit && makeButton(`Show all ${rows.length} rows`, () => { limit = Infinity; more.remove(); fill(); }, { class: "small" });
  return make("div", {}, plot, more);
}
