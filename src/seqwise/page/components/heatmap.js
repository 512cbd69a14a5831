// A matrix as coloured cells.
import { createColours, followTheme, makeColourBar, NO_VALUE } from "./colours.js";
import { draw, make, makeButton } from "./elements.js";
import { explore } from "./explore.js";
import { clamp, createFormat, formatFixed, formatRounded, isNumber, shorten, showToken } from "./numbers.js";
import { makeAxis, makeItem, nameItem } from "./pins.js";
import { encodeCells, paintCells } from "./raster.js";
import { fitText, followWidth, measureText } from "./scales.js";

const MAX_CELL = 46, FLAT_CELL = 20, MIN_READABLE_CELL = 9;  // pixels: of square cells, of rows, below which one can zoom
const MAX_HEIGHT = 760, MAX_FLAT_HEIGHT = 560;  // pixels
const TITLE_HEIGHT = 22, NUMBER_HEIGHT = 17;  // pixels
const ROW_LINE = 14, ROTATED_LINE = 17, INDEX_LINE = 48;  // pixels that a label of a row, of a column, and an index of a column need
const MAX_LABEL = 18;  // characters
const MIN_SKIPPED = 4, ROUND = [5, 10, 20, 50, 100, 200, 500];  // where one of so many labels fits, round indices are shown
const MIN_CELLS = 4;  // that remain visible when zooming in

const sample = (count, limit) => Array.from({ length: Math.min(count, limit) }, (_, at) => Math.floor(at * Math.max(1, count / limit)));

// --- a matrix with its axes
export function prepareHeatmap(figure, scales) {
  const { values: matrix } = figure, colours = createColours(scales, figure), cells = encodeCells(matrix, colours);
  return {
    matrix, colours, cells, valueLabel: figure.value_label,
    rows: makeSide(makeAxis(figure.rows, figure.row_label), matrix.rows, matrix.block[0]),
    columns: makeSide(makeAxis(figure.columns, figure.column_label), matrix.columns, matrix.block[1]),
    hasMissing: cells.codes.includes(NO_VALUE),
    format: createFormat(matrix.values), formatCell: createCellFormat(matrix.values, colours),
  };
}

// An axis of which each stored cell may stand for a block of several names.
function makeSide(axis, length, block) {
  const start = (at) => at * block, end = (at) => Math.min(axis.names.length, start(at + 1)) - 1, show = (index) => showToken(axis.names[index]);
  return { axis, length, block, label: axis.label,
    name: (at) => block === 1 ? nameItem(axis, at) : `${show(start(at))} … ${show(end(at))} [${start(at)}–${end(at)}]`,
    short: (at) => shorten(show(start(at)), MAX_LABEL),
    item: (at) => makeItem(axis, start(at)),
    pinned: (pins, other) => [...new Set(pins.find(axis, other.axis).map((index) => Math.floor(index / block)))] };
}

// Returns a function that formats values inside cells: all with the same few decimals, none where nothing is left.
function createCellFormat(values, { low, high, isDiverging }) {
  const size = Math.max(Math.abs(low), Math.abs(high)) || 1, areWhole = values.every((value) => !isNumber(value) || Number.isInteger(value));
  const decimals = areWhole ? 0 : Math.max(0, 1 - Math.floor(Math.log10(0.999 * size))), zero = isDiverging || areWhole ? "0" : "";
  return (value) => {
    if (!isNumber(value) || decimals > 6) return "";
    return Math.abs(value) < 0.5 * 10 ** -decimals ? zero : formatFixed(value, decimals);
  };
}

// What the tooltip says about a cell; of a whole row the column is −1, of a whole column the row.
export function describeCell({ matrix, rows, columns, valueLabel, format }, row, column) {
  const names = [row >= 0 && [rows.label, rows.name(row)], column >= 0 && [columns.label, columns.name(column)]].filter(Boolean);
  if (row < 0 || column < 0) return { rows: names };
  const [height, width] = matrix.block, value = matrix.values[row * matrix.columns + column];
  return { value: isNumber(value) && matrix.step ? formatRounded(value, matrix.step) : format(value), title: valueLabel, rows: names,
    text: height * width > 1 ? `mean of ${height} × ${width} cells` : "" };
}

// A sentence about a matrix that was reduced to fewer cells, or null.
export const describePooling = ({ block: [rows, columns] }) => rows * columns > 1
  ? make("p", { class: "note" }, `To keep this page small, each cell is the mean of ${rows} × ${columns} values.`) : null;

// A rectangle that can be seen on light and dark cells.
export const drawOutline = (x, y, width, height) => ["halo", "frame-line"].map((name) => draw("rect", { class: name, x, y, width, height }));

// --- layout
// Sizes in pixels for a width: where the cells begin, and how large the whole matrix is.
function measure({ rows, columns }, width) {
  const longest = (side) => Math.max(0, ...sample(side.length, 200).map((at) => measureText(side.short(at))));
  const indexWidth = rows.length > 30 ? measureText(`[${rows.axis.names.length}]`) : 0, columnLabel = longest(columns);
  const left = Math.ceil(Math.min(Math.max(longest(rows), indexWidth), width * 0.27) + 10);
  const right = Math.max(2, Math.ceil(measureText(columns.short(columns.length - 1)) * 0.71) - 4);  // of the last label, rotated
  const cell = measureCell(rows, columns, width - left - Math.min(right, width * 0.2)), isHorizontal = columnLabel + 6 <= cell.width;
  return { left, isHorizontal, top: TITLE_HEIGHT + (isHorizontal ? 18 : Math.ceil(columnLabel * 0.71) + 12),
    isSmall: Math.min(cell.width, cell.height) < MIN_READABLE_CELL,
    width: Math.max(1, Math.round(cell.width * columns.length)), height: Math.max(1, Math.round(cell.height * rows.length)) };
}

// Cells are square where rows and columns are alike, such as tokens and tokens; units over tokens have flat ones.
function measureCell(rows, columns, room) {
  const width = Math.min(MAX_CELL, room / columns.length), ratio = rows.length / columns.length;
  const isSquare = ratio <= 2 && ratio >= 0.5 && (rows.axis.identity === columns.axis.identity || !rows.axis.isNumbered);
  if (!isSquare) return { width, height: Math.min(FLAT_CELL, MAX_FLAT_HEIGHT / rows.length) };
  const size = Math.min(width, MAX_HEIGHT / rows.length);
  return { width: size, height: size };
}

// The labels of one side, as many as there is room for: [position, text]. Where most words would be left out, these are
// round indices instead, which need `indexLine` pixels each.
function listLabels(side, from, to, size, line, indexLine) {
  const every = Math.ceil(line / size), hasIndices = every >= MIN_SKIPPED && !side.axis.isNumbered, labels = [];
  const block = hasIndices ? side.block : 1, minimum = indexLine / size * block;
  const step = hasIndices ? ROUND.find((one) => one >= minimum) ?? 1000 * Math.ceil(minimum / 1000) : every;
  for (let at = from; at < to; at++) if (at * block % step === 0) labels.push([at, hasIndices ? `[${at * block}]` : side.short(at)]);
  return { hasIndices, labels };
}

// The window of a matrix that is shown, in cells; `right` and `bottom` are the first ones outside.
function createView({ rows, columns }) {
  const view = { left: 0, top: 0, right: columns.length, bottom: rows.length };
  const place = (centre, count, length) => {
    const size = clamp(Math.round(count), Math.min(MIN_CELLS, length), length), from = clamp(Math.round(centre - size / 2), 0, length - size);
    return [from, from + size];
  };
  const getWidth = () => view.right - view.left, getHeight = () => view.bottom - view.top;
  const getCentre = () => [(view.left + view.right) / 2, (view.top + view.bottom) / 2];
  const set = ([x, y], width, height) => {
    [view.left, view.right] = place(x, width, columns.length);
    [view.top, view.bottom] = place(y, height, rows.length);
  };
  return Object.assign(view, { getWidth, getHeight, getCentre, set,
    move: (dx, dy) => set([getCentre()[0] + dx, getCentre()[1] + dy], getWidth(), getHeight()),
    isWhole: () => getWidth() === columns.length && getHeight() === rows.length,
    contains: (row, column) => (row < 0 || row >= view.top && row < view.bottom) && (column < 0 || column >= view.left && column < view.right) });
}

// --- the figure
export function drawHeatmap(figure, { scales, pins }) {
  const heatmap = prepareHeatmap(figure, scales), { rows, columns, matrix, colours } = heatmap, view = createView(heatmap);
  const numberWidth = Math.max(...sample(matrix.values.length, 2000).map((at) => measureText(heatmap.formatCell(matrix.values[at]))));
  const canvas = make("canvas", { class: "cells", "aria-hidden": "true" }), overlay = draw("svg", { class: "chart overlay", "aria-hidden": "true" });
  const labels = draw("g"), pinned = draw("g", { class: "pinned" }), hovered = draw("g", { class: "hovered" });
  overlay.append(labels, pinned, hovered);
  const size = `${figure.row_label} (${figure.rows.length}) and ${figure.column_label} (${figure.columns.length})`;
  const plot = make("div", { class: "plot heatmap", "data-chart": "heatmap", "aria-roledescription": "heatmap",
    "aria-label": `${figure.title}: ${figure.value_label} by ${size}` }, canvas, overlay);
  let layout = null;

  const cellWidth = () => layout.width / view.getWidth(), cellHeight = () => layout.height / view.getHeight();
  const xAt = (column) => layout.left + (column - view.left) * cellWidth(), yAt = (row) => layout.top + (row - view.top) * cellHeight();
  const columnAt = (x) => view.left + (x - layout.left) / cellWidth(), rowAt = (y) => view.top + (y - layout.top) / cellHeight();

  function paint(width) {
    layout = measure(heatmap, width);
    const height = layout.top + layout.height + 4;
    overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
    Object.assign(overlay.style, { width: width + "px", height: height + "px" });
    plot.style.height = height + "px";
    Object.assign(canvas.style, { left: layout.left + "px", top: layout.top + "px" });
    paintView();
  }

  function paintView() {
    if (!layout) return;
    paintCells(canvas, layout.width, layout.height, heatmap.cells, view, colours);
    const beside = listLabels(rows, view.top, view.bottom, cellHeight(), ROW_LINE, ROW_LINE);
    const above = listLabels(columns, view.left, view.right, cellWidth(), layout.isHorizontal ? 1 : ROTATED_LINE, INDEX_LINE);
    labels.replaceChildren(...drawTitles(), ...beside.labels.map(([row, text]) => drawRowLabel(row, text)),
      ...above.labels.map(([column, text]) => drawColumnLabel(column, text, {}, above.hasIndices)), ...drawNumbers());
    paintPins();
    toolbar.hidden = !layout.isSmall && view.isWhole();
    wholeButton.disabled = view.isWhole();
    plot.classList.toggle("is-zoomed", !view.isWhole());
  }

  const drawRowLabel = (row, text, attributes = {}) =>
    draw("text", { x: layout.left - 6, y: yAt(row + 0.5) + 4, "text-anchor": "end", ...attributes }, fitText(text, layout.left - 8));
  function drawColumnLabel(column, text, attributes = {}, isHorizontal = false) {
    const x = xAt(column + 0.5), y = layout.top - 6;
    return isHorizontal || layout.isHorizontal ? draw("text", { x, y, "text-anchor": "middle", ...attributes }, text)
      : draw("text", { transform: `translate(${x + 3} ${y}) rotate(-45)`, ...attributes }, text);
  }
  function drawTitles() {
    const left = "↓ " + rows.label, right = columns.label + " →", width = measureText(left);
    const end = Math.min(plot.clientWidth, Math.max(layout.left + layout.width, width + measureText(right) + 24));
    return [draw("text", { class: "name", x: 0, y: 12 }, fitText(left, end / 2 - 8)),
      draw("text", { class: "name", x: end, y: 12, "text-anchor": "end" }, fitText(right, end - Math.min(width, end / 2) - 10))];
  }
  // Numbers inside the cells, where they fit.
  function drawNumbers() {
    if (cellWidth() < numberWidth + 4 || cellHeight() < NUMBER_HEIGHT) return [];
    const texts = [];
    for (let row = view.top; row < view.bottom; row++)
      for (let column = view.left; column < view.right; column++) {
        const value = matrix.values[row * matrix.columns + column], text = heatmap.formatCell(value);
        const at = { x: xAt(column + 0.5), y: yAt(row + 0.5) + 4, "text-anchor": "middle" };
        if (text) texts.push(draw("text", { class: "number", ...at, style: `fill: ${colours.ink(value)}` }, text));
      }
    return texts;
  }

  // An outline around a cell, or around a whole row (column −1) or column (row −1), with strong labels.
  function drawMark(row, column) {
    if (!view.contains(row, column)) return [];
    const x = column >= 0 ? xAt(column) : layout.left, y = row >= 0 ? yAt(row) : layout.top;
    const width = column >= 0 ? cellWidth() : layout.width, height = row >= 0 ? cellHeight() : layout.height;
    return [...drawOutline(x - 0.5, y - 0.5, Math.max(2, width), Math.max(2, height)),
      ...row >= 0 ? [drawRowLabel(row, rows.short(row), { class: "strong" })] : [],
      ...column >= 0 ? [drawColumnLabel(column, columns.short(column), { class: "strong" })] : []];
  }
  const readPins = () => [...rows.pinned(pins, columns).map((row) => [row, -1]), ...columns.pinned(pins, rows).map((column) => [-1, column])];
  const paintPins = () => pinned.replaceChildren(...layout ? readPins().flatMap(([row, column]) => drawMark(row, column)) : []);

  const makeMark = (row, column) => ({ key: `${row},${column}`, row, column });
  const marks = {
    find(x, y) {
      const column = Math.floor(columnAt(x)), row = Math.floor(rowAt(y));
      const isAcross = column >= view.left && column < view.right, isAlong = row >= view.top && row < view.bottom;
      if (isAcross && isAlong) return makeMark(row, column);
      if (isAlong && x < layout.left) return makeMark(row, -1);
      return isAcross && y > TITLE_HEIGHT && y < layout.top ? makeMark(-1, column) : null;
    },
    describe({ row, column }) {
      if (!view.contains(row, column)) return null;
      const at = { x: column >= 0 ? xAt(column + 0.5) : layout.left, y: row >= 0 ? yAt(row + 0.5) : layout.top };
      return { ...describeCell(heatmap, row, column), at };
    },
    highlight: (mark) => hovered.replaceChildren(...mark ? drawMark(mark.row, mark.column) : []),
    first: () => makeMark(view.top, view.left),
    step({ row, column }, dx, dy) {
      const next = makeMark(clamp(Math.max(row, 0) + dy, 0, rows.length - 1), clamp(Math.max(column, 0) + dx, 0, columns.length - 1));
      if (!view.contains(next.row, next.column)) { view.move(dx, dy); paintView(); }
      return next;
    },
    items: ({ row, column }) => [...row >= 0 ? [rows.item(row)] : [], ...column >= 0 ? [columns.item(column)] : []],
    zoom({ left, right, top, bottom }) {
      const x = [columnAt(left), columnAt(right)], y = [rowAt(top), rowAt(bottom)];
      view.set([(x[0] + x[1]) / 2, (y[0] + y[1]) / 2], Math.ceil(x[1]) - Math.floor(x[0]), Math.ceil(y[1]) - Math.floor(y[0]));
      paintView();
    },
    zoomBy(factor, mark = null) {
      const centre = view.getCentre();
      if (mark?.column >= 0) centre[0] = mark.column + 0.5;
      if (mark?.row >= 0) centre[1] = mark.row + 0.5;
      view.set(centre, factor ? view.getWidth() / factor : columns.length, factor ? view.getHeight() / factor : rows.length);
      paintView();
    },
    pan(dx, dy) { view.move(dx / cellWidth(), dy / cellHeight()); paintView(); },
    isZoomed: () => !view.isWhole(),
  };

  const makeZoom = (text, label, factor) => makeButton(text, () => marks.zoomBy(factor), { class: "small", "aria-label": label });
  const wholeButton = makeZoom("Whole", "Show the whole matrix", 0);
  const toolbar = make("div", { class: "toolbar", hidden: true }, make("span", {}, "Drag over cells to enlarge them"),
    makeZoom("+", "Enlarge", 2), makeZoom("−", "Reduce", 0.5), wholeButton);
  explore(plot, marks, pins);
  followTheme(plot, paintView);
  pins.follow(plot, readPins, paintPins);
  followWidth(plot, paint);
  const bar = makeColourBar(colours, figure.value_label, heatmap.hasMissing);
  return make("div", {}, plot, make("div", { class: "below" }, bar, toolbar), describePooling(matrix));
}
