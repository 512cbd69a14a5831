// Paths of lines and intervals, and the value of a line at a position.
import { draw } from "./elements.js";
import { isNumber } from "./numbers.js";

const MAX_EXACT_POINTS = 3000;  // of a line that is drawn point by point

// `log` says which axes are logarithmic: { x, y }.
export const isPlottable = (x, y, log) => isNumber(x) && isNumber(y) && (!log.x || x > 0) && (!log.y || y > 0);

// Returns the path of a line, interrupted where there is no value. Of a dense line only the lowest and the highest point
// of each pixel are drawn.
export function makeLinePath(xs, ys, x, y, log) {
  const parts = [], isDense = xs.length > MAX_EXACT_POINTS;
  let isOpen = false, lowest = null, highest = null;
  const add = ([px, py]) => { parts.push((isOpen ? "L" : "M") + px.toFixed(1) + " " + py.toFixed(1)); isOpen = true; };
  const flush = () => {
    if (lowest) for (const point of lowest === highest ? [lowest] : [lowest, highest].sort((a, b) => a[2] - b[2])) add(point);
    lowest = highest = null;
  };
  for (let i = 0; i < xs.length; i++) {
    if (!isPlottable(xs[i], ys[i], log)) { flush(); isOpen = false; continue; }
    const point = [x(xs[i]), y(ys[i]), i];
    if (lowest && (!isDense || Math.round(point[0]) !== Math.round(lowest[0]))) flush();
    if (!lowest || point[1] > lowest[1]) lowest = point;
    if (!highest || point[1] < highest[1]) highest = point;
  }
  flush();
  return parts.join("");
}

// Returns the path of an interval: along its upper bound, and back along its lower one.
export function makeBandPath({ x: xs, low, high }, x, y, log) {
  const at = [...xs.keys()].filter((i) => isPlottable(xs[i], low[i], log) && isPlottable(xs[i], high[i], log));
  if (at.length === 0) return "";
  const point = (i, bound) => x(xs[i]).toFixed(1) + " " + y(bound[i]).toFixed(1);
  return "M" + [...at.map((i) => point(i, high)), ...at.reverse().map((i) => point(i, low))].join("L") + "Z";
}

// Returns the last position of a sorted list that is at most `value`, or 0.
export function findPosition(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (low < high) { const middle = low + high + 1 >> 1; if (sorted[middle] <= value) low = middle; else high = middle - 1; }
  return low;
}

// The value of a line at x, with the index of its point; between two points it is interpolated and the index is −1.
export function findValue({ x: xs, y: ys }, x) {
  if (xs.length === 0 || x < xs[0] || x > xs.at(-1)) return null;
  const at = findPosition(xs, x);
  if (xs[at] === x) return isNumber(ys[at]) ? { value: ys[at], index: at } : null;
  if (!isNumber(ys[at]) || !isNumber(ys[at + 1])) return null;
  return { value: ys[at] + (ys[at + 1] - ys[at]) * (x - xs[at]) / (xs[at + 1] - xs[at]), index: -1 };
}

// Draws an interval with a line of `2 * size` pixels across each end, which is never dashed.
export function drawWhisker(low, high, middle, size, { isVertical = false, dash = null, ...attributes } = {}) {
  const [line, ends] = isVertical ? [`M${middle} ${low}V${high}`, [low, high].map((y) => `M${middle - size} ${y}h${2 * size}`)]
    : [`M${low} ${middle}H${high}`, [low, high].map((x) => `M${x} ${middle - size}v${2 * size}`)];
  return [draw("path", { class: "whisker", d: line, "stroke-dasharray": dash, ...attributes }), draw("path", { class: "whisker", d: ends.join(""), ...attributes })];
}
