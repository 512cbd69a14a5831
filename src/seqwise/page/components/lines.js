// Lines over a common axis, with intervals, reference lines and a legend that hides and shows them.
//
// A series may have `faint` lines behind it, such as those of single seeds. `update(figure)` of the returned element shows other
// values in the same chart; with `onZoom` in the context, which gets the range of x or null, they may be finer ones.
import { draw, drawMark, make, makeButton, makeChoice, makeLegend } from "./elements.js";
import { explore } from "./explore.js";
import { drawEndLabels, measureEndLabel } from "./labels.js";
import { MAX_TIP_ROWS, createReader, makeTickLabels } from "./line-reader.js";
import { clamp, formatPlural, isNumber, shorten, showToken } from "./numbers.js";
import { isPlottable, makeBandPath, makeLinePath } from "./paths.js";
import { makeAxis, makeItem } from "./pins.js";
import { addMargins, drawFrame, findExtent, makeChart, makeScale, measureText } from "./scales.js";

const MAX_END_LABELS = 12, MAX_MARKS = 40;  // lines with a name beside them, marks on a line
const NAME_ROOM = 15, TIME_ROOM = 54, TIME = /^\d[\d\-:/. T]*$/;  // pixels from one label of the x axis to the next; a number, date or time
const REACH = 12;  // pixels from which a click pins a line
const MAX_NAME = 14, MAX_END_LABEL = 0.25;  // characters; share of the width for the names beside the lines, otherwise only in the legend

const isWithin = (value, range) => !range || value >= range[0] && value <= range[1];

function sortByX(series) {
  if (series.x.every((x, i) => i === 0 || series.x[i - 1] <= x)) return series;
  const order = [...series.x.keys()].sort((a, b) => series.x[a] - series.x[b]);
  const sort = (list) => list && order.map((i) => list[i]);
  return { ...series, x: sort(series.x), y: sort(series.y), low: sort(series.low), high: sort(series.high) };
}

// --- parts of the drawing
function measureArea(width, lines, names) {
  const nameHeight = names ? Math.min(80, 0.71 * Math.max(...names.map((name) => measureText(shorten(showToken(name), MAX_NAME))))) : 0;
  const height = (width < 560 ? 290 : 350) + nameHeight, bottom = height - (names ? 36 + nameHeight : 46);
  const room = Math.max(0, ...lines.map((line) => measureEndLabel(line.name)));
  const hasEndLabels = width >= 480 && lines.length > 1 && lines.length <= MAX_END_LABELS && room <= MAX_END_LABEL * width;
  const right = width - (hasEndLabels ? room : 14);
  return { height, hasEndLabels, area: { left: 58, right, top: 34, bottom } };
}

function makeScales(shown, references, range, log, area) {
  const lines = shown.flatMap((line) => [line, ...line.faint ?? []]);
  const xs = range ?? lines.flatMap((line) => findExtent(line.x.filter((value) => isNumber(value) && (!log.x || value > 0))));
  const ys = lines.flatMap((line) => [line.y, line.low ?? [], line.high ?? []].flatMap((list) =>
    findExtent(list.filter((value, i) => isPlottable(line.x[i], value, log) && isWithin(line.x[i], range)))));
  const heights = references.filter(({ axis, value }) => axis === "y" && (!log.y || value > 0)).map(({ value }) => value);
  const y = addMargins([...ys.filter(Number.isFinite), ...heights], log.y, 0.04);
  return { x: makeScale(xs, area.left, area.right, log.x), y: makeScale(y, area.bottom, area.top, log.y) };
}

function drawLine(line, { x, y, log, range }, emphasis) {
  const own = { "data-series": line.name, opacity: emphasis === "faint" ? 0.25 : null }, { colour, dash } = line.style;
  const hasMarks = line.x.length <= MAX_MARKS, size = line.x.length === 1 ? 4 : 2.6;
  const points = hasMarks ? [...line.x.keys()].filter((i) => isPlottable(line.x[i], line.y[i], log) && isWithin(line.x[i], range)) : [];
  return [
    ...(line.faint ?? []).map((one) => draw("path", { class: "line behind", d: makeLinePath(one.x, one.y, x, y, log), style: `stroke: ${colour}`, ...own })),
    line.low && line.high && draw("path", { class: "interval", d: makeBandPath(line, x, y, log), style: `fill: ${colour}`, ...own }),
    draw("path", { class: emphasis === "strong" ? "line strong" : "line", d: makeLinePath(line.x, line.y, x, y, log),
      style: `stroke: ${colour}`, "stroke-dasharray": dash, ...own }),
    ...points.map((i) => drawMark(line.style, x(line.x[i]), y(line.y[i]), size, own)),
  ].filter(Boolean);
}

// A layer that shows only what is inside the area.
function makeWindow({ left, right, top, bottom }) {
  const box = { x: left - 3, y: top - 5, width: right - left + 6, height: bottom - top + 10 };
  return draw("svg", { ...box, viewBox: `${box.x} ${box.y} ${box.width} ${box.height}` });
}

// Where the visible part of each line ends; its name is written beside the area.
function findEnds(lines, { x, y, area, log }) {
  const findEnd = (line) => line.x.findLastIndex((value, i) => isPlottable(value, line.y[i], log) && value <= x.maximum);
  const ends = lines.map((line) => [line, findEnd(line)]).filter(([, last]) => last >= 0);
  return ends.map(([line, last]) => ({ name: line.name, style: line.style, x: area.right, y: y(line.y[last]) }));
}

// The names of x = 0, 1, 2, …, rotated, as many as there is room for.
function drawNameTicks({ area, x }, names, pinned) {
  const from = Math.max(0, Math.ceil(x.minimum)), to = Math.min(names.length - 1, Math.floor(x.maximum));
  // Of times a few suffice, since those between them can be inferred; of tokens as many as can be read.
  const room = names.every((name) => TIME.test(name)) ? TIME_ROOM : NAME_ROOM;
  const every = Math.max(1, Math.ceil(room / Math.max(0.01, x(1) - x(0)))), ticks = [];
  for (let at = from; at <= to; at++) {
    if (at % every && !pinned.includes(at)) continue;
    const rotated = { "text-anchor": "end", transform: `translate(${x(at) + 4} ${area.bottom + 14}) rotate(-45)` };
    ticks.push(draw("line", { class: "tick", x1: x(at), x2: x(at), y1: area.bottom, y2: area.bottom + 4 }),
      draw("text", { class: pinned.includes(at) ? "strong" : null, ...rotated }, shorten(showToken(names[at]), MAX_NAME)));
  }
  return ticks;
}

// Labels of vertical lines stand below each other where they would overlap. `taken` are the places of those drawn before.
function drawReference({ axis, value, label }, { area, x, y, log }, taken) {
  const along = axis === "x" ? x : y;
  if (log[axis] && value <= 0 || value < along.minimum || value > along.maximum) return [];
  const at = along(value), isNearEnd = at > (area.left + area.right) / 2;
  const line = axis === "x" ? { x1: at, x2: at, y1: area.top, y2: area.bottom } : { x1: area.left, x2: area.right, y1: at, y2: at };
  const place = axis === "x" ? { x: at + (isNearEnd ? -6 : 6), y: findFreeLine(at, label, isNearEnd, area, taken), "text-anchor": isNearEnd ? "end" : "start" }
    : { x: area.right - 4, y: at - 5, "text-anchor": "end" };
  return [draw("line", { class: "reference", ...line }), draw("text", { class: "reference-label", ...place }, label)];
}

function findFreeLine(at, label, isNearEnd, area, taken) {
  const width = measureText(label) + 10, [left, right] = isNearEnd ? [at - width, at] : [at, at + width];
  let y = area.top + 11;
  while (taken.some((other) => other.y === y && other.left < right && left < other.right)) y += 15;
  taken.push({ left, right, y });
  return y;
}

// Switches between linear and logarithmic axes, where the values allow that.
function makeAxisChoices(figure, log, onChange) {
  const kinds = [["linear", "linear"], ["log", "log"]];
  const spansDecades = (key) => {
    const [minimum, maximum] = findExtent(figure.series.flatMap((series) => findExtent(series[key])));
    return minimum > 0 && maximum / minimum > (figure.has_log_choices ? 1 : 10);
  };
  const axes = [["x", figure.x_log || !figure.x_names?.length && spansDecades("x")], ["y", figure.y_log || spansDecades("y")]];
  const select = (key) => (value) => { log[key] = value === "log"; onChange(); };
  return axes.filter(([, canBeLog]) => canBeLog).map(([key]) => makeChoice(key + " axis", kinds, log[key] ? "log" : "linear", select(key)));
}

const makeLines = (figure) => figure.series.map((series, index) => ({ ...sortByX(series), style: figure.styles[index] }));
const makeLabel = (figure) => `${figure.title}: ${figure.y_label} against ${figure.x_label}, ${formatPlural(figure.series.length, "line")}`;

export function drawLineChart(figure, { pins, onZoom = () => {}, onLog = () => {} }) {
  const names = figure.x_names?.length ? figure.x_names : null, references = figure.references ?? [];
  const log = { x: figure.x_log, y: figure.y_log }, hidden = new Set(), cursor = draw("g"), xAxis = names && makeAxis(names, figure.x_label);
  let lines = makeLines(figure), seriesAxis = makeAxis(lines.map((line) => line.name), "");
  let { list, findNearest, read, describe } = createReader(figure, lines, xAxis);
  let range = figure.range ?? null, layout = null, positions = list(log.x);  // the part of the x axis that is shown; the scales of the last drawing

  const drawing = makeChart("lines", makeLabel(figure), (svg, width) => {
    const shown = lines.filter((line) => !hidden.has(line.name)), { height, area, hasEndLabels } = measureArea(width, lines, names);
    layout = { area, shown, log, range, ...makeScales(shown, references, range, log, area) };
    const pinnedLines = pins.find(seriesAxis), pinnedX = xAxis ? pins.find(xAxis) : [], layer = makeWindow(area);
    const emphasis = (line) => pinnedLines.length === 0 ? "" : pinnedLines.includes(lines.indexOf(line)) ? "strong" : "faint";
    layer.append(...shown.flatMap((line) => drawLine(line, layout, emphasis(line))));
    const taken = [], drawRule = (at) => draw("line", { class: "pinned-rule", x1: layout.x(at), x2: layout.x(at), y1: area.top, y2: area.bottom });
    svg.append(drawFrame(area, layout.x, layout.y, { x: figure.x_label, y: figure.y_label, xNames: names, titleY: height - 6 }, makeTickLabels(figure.x_format, layout.x)),
      ...names ? drawNameTicks(layout, names, pinnedX) : [], layer,
      ...references.flatMap((reference) => drawReference(reference, layout, taken)), ...pinnedX.filter((at) => isWithin(at, range)).map(drawRule),
      ...hasEndLabels ? drawEndLabels(findEnds(shown, layout), area) : [], cursor);
    if (shown.length === 0) svg.append(draw("text", { class: "name", x: width / 2, y: height / 2, "text-anchor": "middle" }, "every line is switched off"));
    return height;
  });
  drawing.box.setAttribute("aria-roledescription", "line chart");

  const makeMark = (index, y = null) => ({ key: String(index), index, x: positions[index], y });
  // The values at a position, those closest to the pointer first.
  const readNear = ({ x, y }) => {
    const distance = ({ value }) => y === null ? 0 : Math.abs(layout.y(value) - y);
    return read(layout.shown, x).sort((a, b) => distance(a) - distance(b));
  };
  const setRange = (next) => {
    const isChanged = next !== range;
    range = next;
    wholeButton.hidden = next === null;
    drawing.redraw();
    if (isChanged) onZoom(next);
  };
  const explorer = explore(drawing.box, {
    find(x, y) {
      const { left, right } = layout.area;
      return positions.length && x >= left - 10 && x <= right + 10 ? makeMark(findNearest(positions, layout.x.invert(clamp(x, left, right))), y) : null;
    },
    describe(target) {
      const values = read(layout.shown, target.x);
      return { ...describe(target.x, values.length > MAX_TIP_ROWS ? readNear(target) : values), at: { x: layout.x(target.x), y: layout.area.top } };
    },
    highlight(target) {
      cursor.replaceChildren();
      if (!target) return;
      const at = { x1: layout.x(target.x), x2: layout.x(target.x), y1: layout.area.top, y2: layout.area.bottom };
      cursor.append(draw("line", { class: "cursor", ...at }), ...read(layout.shown, target.x).filter(({ value }) => !log.y || value > 0).map(({ line, value }) =>
        draw("circle", { class: "point", cx: at.x1, cy: layout.y(value), r: 4.5, style: `stroke: ${line.style.colour}` })));
    },
    first: () => positions.length ? makeMark(0) : null,
    step({ index }, dx) {
      const stride = Math.max(1, Math.ceil(positions.length / (layout.area.right - layout.area.left)));
      return makeMark(clamp(index + dx * stride, 0, positions.length - 1));
    },
    items(target) {
      const [closest] = target.y === null ? [] : readNear(target).filter(({ value }) => Math.abs(layout.y(value) - target.y) <= REACH);
      return [...names?.[target.x] !== undefined ? [makeItem(xAxis, target.x)] : [], ...closest ? [makeItem(seriesAxis, lines.indexOf(closest.line))] : []];
    },
    zoom: ({ left, right }) => setRange([left, right].map((x) => layout.x.invert(clamp(x, layout.area.left, layout.area.right)))),
    zoomBy(factor, target) {
      const { left, right } = layout.area, middle = target ? layout.x(target.x) : (left + right) / 2, half = (right - left) / 2 / (factor || 1);
      const [first, last] = figure.x_extent ?? findExtent(positions);
      const next = [Math.max(first, layout.x.invert(middle - half)), Math.min(last, layout.x.invert(middle + half))];
      setRange(factor === 0 || next[0] >= next[1] || next[0] <= first && next[1] >= last ? null : next);
    },
  }, pins);
  const wholeButton = makeButton("Whole", () => setRange(null), { class: "small", "aria-label": "Show the whole x axis", hidden: range === null });
  pins.follow(drawing.box, () => [pins.find(seriesAxis), xAxis && pins.find(xAxis)], () => drawing.redraw());
  const buildLegend = () => makeLegend("lines shown", lines.map((line) => [line.name, line.style]), hidden, drawing.redraw) ?? make("div");
  const buildChoices = () => makeAxisChoices(figure, log, () => { explorer.show(null); positions = list(log.x); onLog({ ...log }); setRange(null); });
  let legend = buildLegend();
  const choices = make("div", { class: "choices" }, wholeButton, ...buildChoices());
  const update = (next) => {
    const isSame = next.series.length === lines.length && next.series.every(({ name }, at) => name === lines[at].name);
    figure = next;
    lines = makeLines(figure);
    ({ list, findNearest, read, describe } = createReader(figure, lines, xAxis));
    positions = list(log.x);
    drawing.box.setAttribute("aria-label", makeLabel(figure));
    if (!isSame) {
      seriesAxis = makeAxis(lines.map((line) => line.name), "");
      const old = legend;
      old.replaceWith(legend = buildLegend());
    }
    if (choices.childElementCount === 1) choices.append(...buildChoices());  // there were no values before
    drawing.redraw();
  };
  return Object.assign(make("div", {}, make("div", { class: "controls" }, legend, choices), drawing.box), { update });
}
