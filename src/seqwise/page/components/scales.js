// Scales, axes and the frame of a chart. A chart is drawn in pixels of its box, and again when the box changes.
import { draw, make } from "./elements.js";
import { formatScientific } from "./numbers.js";

const printMode = matchMedia("print");

// The smallest and the largest of those that are numbers.
export function findExtent(numbers) {
  let minimum = Infinity, maximum = -Infinity;
  for (const number of numbers) {
    if (number === null || !Number.isFinite(number)) continue;
    if (number < minimum) minimum = number;
    if (number > maximum) maximum = number;
  }
  return [minimum, maximum];
}

// Returns a function from numbers to positions between `start` and `end`; the margin around a single number ends at `bounds`.
export function makeScale(numbers, start, end, log = false, bounds = [-Infinity, Infinity]) {
  let [minimum, maximum] = findExtent(numbers);
  if (!Number.isFinite(minimum)) [minimum, maximum] = log ? [1, 10] : [0, 1];
  if (minimum === maximum) {
    const room = log ? 1.5 : Math.abs(minimum) * 0.1 || 1;
    [minimum, maximum] = log ? [minimum / room, maximum * room] : [minimum - room, maximum + room];
    [minimum, maximum] = [Math.max(minimum, bounds[0]), Math.min(maximum, bounds[1])];
  }
  const transform = log ? Math.log : (value) => value;
  const from = transform(minimum), span = transform(maximum) - from;
  const at = (value) => start + (end - start) * (transform(value) - from) / span;
  const invert = (position) => {
    const value = from + span * (position - start) / (end - start);
    return log ? Math.exp(value) : value;
  };
  return Object.assign(at, { invert, minimum, maximum, log, ticks: (tickCount, unit = 1) =>
    (log ? makeLogTicks : makeLinearTicks)(minimum / unit, maximum / unit, tickCount).map((tick) => tick * unit) });
}

// A margin on both sides, so that no mark covers the frame.
export function addMargins(numbers, log, amount = 0.06) {
  const [minimum, maximum] = findExtent(numbers);
  if (!Number.isFinite(minimum) || minimum === maximum) return numbers;
  const room = log ? (maximum / minimum) ** amount : (maximum - minimum) * amount;
  return log ? [minimum / room, maximum * room] : [minimum - room, maximum + room];
}

function makeLinearTicks(minimum, maximum, tickCount) {
  const rough = (maximum - minimum) / Math.max(1, tickCount), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((multiple) => multiple * power).find((one) => one >= rough * 0.999) ?? 10 * power;
  const ticks = [];
  for (let n = Math.ceil(minimum / step - 1e-9); n * step <= maximum + step * 1e-9; n++) ticks.push(Number((n * step).toPrecision(12)));
  return ticks.length < 2 && tickCount < 8 ? makeLinearTicks(minimum, maximum, 2 * tickCount) : ticks;
}

function makeLogTicks(minimum, maximum, tickCount) {
  const decades = Math.log10(maximum / minimum);
  if (decades < 0.7) return makeLinearTicks(minimum, maximum, tickCount);
  const every = Math.max(1, Math.ceil(decades / tickCount));
  const multiples = decades < tickCount / 3 ? [1, 2, 3, 5, 7] : decades < tickCount / 1.8 ? [1, 2, 5] : decades < tickCount ? [1, 3] : [1];
  const ticks = [];
  for (let power = Math.floor(Math.log10(minimum)); power <= Math.ceil(Math.log10(maximum)); power++)
    for (const multiple of power % every === 0 ? multiples : []) {
      const tick = Number((multiple * 10 ** power).toPrecision(12));
      if (tick >= minimum * 0.9999 && tick <= maximum * 1.0001) ticks.push(tick);
    }
  return ticks.length > 1 ? ticks : makeLinearTicks(minimum, maximum, tickCount);
}

// As few digits as all ticks need.
export function formatTicks(ticks) {
  let digits = 0;
  while (digits < 9 && ticks.some((tick) => Math.abs(tick - Number(tick.toFixed(digits))) > 1e-6 * Math.abs(tick))) digits++;
  const isExtreme = (tick) => Math.abs(tick) >= 1e6 || (tick !== 0 && Math.abs(tick) < 1e-5);
  const formatTick = (tick) => tick.toLocaleString("en-GB", { maximumFractionDigits: digits }).replace(/^-/, "−");
  return ticks.map((tick) => isExtreme(tick) ? formatScientific(tick, 2).replace(".0 ", " ").replace(/^(−?)1 × /, "$1") : formatTick(tick));
}

// Grid, ticks and titles. `area` is { left, right, top, bottom } in pixels; `labels` has functions from ticks to
// texts, and `xUnit`, of which the ticks of x are round multiples.
// With `names.xNames`, the names of x = 0, 1, 2, … are written below the axis, as many as fit.
export function drawFrame(area, x, y, names, labels = {}) {
  const layer = draw("g", { class: "frame" });
  const tickCount = Math.max(3, Math.floor((area.right - area.left) / 80)), yTicks = y.ticks(5);
  (labels.y ?? formatTicks)(yTicks).forEach((text, at) => layer.append(
    draw("line", { class: "grid", x1: area.left, x2: area.right, y1: y(yTicks[at]), y2: y(yTicks[at]) }),
    draw("text", { x: area.left - 8, y: y(yTicks[at]) + 4, "text-anchor": "end" }, text)));
  if (!names.xNames) layer.append(...drawNumberTicks(area, x, x.ticks(tickCount, labels.xUnit), labels.x ?? formatTicks));
  layer.append(
    draw("line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }),
    draw("text", { class: "name", x: 0, y: area.top - 12 }, fitText(names.y, area.right)),
    draw("text", { class: "name", x: area.right, y: names.titleY ?? area.bottom + 38, "text-anchor": "end" }, fitText(names.x, area.right)));
  return layer;
}

function drawNumberTicks(area, x, ticks, toTexts) {
  let free = -Infinity;  // where the next label may begin
  return toTexts(ticks).flatMap((text, at) => {
    const middle = x(ticks[at]), half = 3.8 * text.length;
    const line = draw("line", { class: "tick", x1: middle, x2: middle, y1: area.bottom, y2: area.bottom + 5 });
    if (middle - half < free) return [line];
    free = middle + half + 10;
    return [line, draw("text", { x: middle, y: area.bottom + 19, "text-anchor": "middle" }, text)];
  });
}

// Draws now, and again when the width of the box changes. `paint(svg, width)` returns the height.
export function makeChart(kind, label, paint) {
  const svg = draw("svg", { class: "chart", "aria-hidden": "true" });
  const box = make("div", { class: "plot", "data-chart": kind, role: "img", "aria-label": label }, svg);
  const redraw = followWidth(box, (width) => {
    svg.replaceChildren();
    const height = paint(svg, width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
  });
  return { box, svg, redraw };
}

// Calls `paint(width)` when the box gets a width, and when that changes; returns a function that paints again. It does not measure
// the box: that would lay out the page once for each of several charts that are painted together.
export function followWidth(box, paint) {
  let width = 0;
  const redraw = () => {
    width = Math.floor(box.clientWidth);
    if (width > 0) paint(Math.max(200, width));
  };
  new ResizeObserver(() => { if (Math.floor(box.clientWidth) !== width) requestAnimationFrame(redraw); }).observe(box);
  box.addEventListener("draw", redraw);
  followMedia(printMode, box, redraw);  // before a page is printed, there is no next frame
  return () => { if (width > 0) paint(Math.max(200, width)); else redraw(); };
}

// Draws all charts inside an element now. Otherwise that takes until the next frames, which a screenshot does not wait for.
export function drawCharts(element) {
  for (const plot of element.querySelectorAll(".plot")) plot.dispatchEvent(new Event("draw"));
}

// Calls `onChange` when a media query changes, for as long as the element is part of the page. Elements that were part of it
// are forgotten when others follow, so that a figure that is drawn again and again leaves nothing behind.
const followers = new Map();
export function followMedia(query, element, onChange) {
  if (!followers.has(query)) {
    followers.set(query, []);
    query.addEventListener("change", () => {
      for (const follower of followers.get(query)) if (follower.element.isConnected) follower.onChange();
    });
  }
  for (const follower of followers.get(query)) follower.wasConnected ||= follower.element.isConnected;
  followers.set(query, [...followers.get(query).filter((one) => one.element.isConnected || !one.wasConnected), { element, onChange, wasConnected: false }]);
}

const measuringPen = document.createElement("canvas").getContext("2d");
export function measureText(text, font = "12px system-ui, sans-serif") {
  measuringPen.font = font;
  return measuringPen.measureText(text).width;
}

// Shortens a text until it fits into so many pixels.
export function fitText(text, room) {
  let short = text;
  while (short.length > 2 && measureText(short) > room) short = [...short].slice(0, -2).join("") + "…";
  return short;
}
