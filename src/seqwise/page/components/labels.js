// Names beside lines and points, where they cover nothing else.
import { draw } from "./elements.js";
import { measureText } from "./scales.js";

const HEIGHT = 14, GAP = 8, CELL = 48;  // pixels: of a line of text, between the end of a line and its name, of a cell

// The width of a name beside the end of a line, with its gap.
export const measureEndLabel = (name) => GAP + 5 + measureText(name, "600 12px system-ui, sans-serif");

// Draws a name beside the end of each line, moved down, and near the bottom up, until it covers no other; their order stays. An
// end is { name, style, x, y }, with its position in pixels.
export function drawEndLabels(ends, area) {
  const labels = [...ends].sort((a, b) => a.y - b.y).map(({ name, style, x, y }) =>
    ({ name, style, left: x + GAP, right: x + measureEndLabel(name), at: Math.max(area.top, Math.min(area.bottom, y)) }));
  const listNeighbours = (label, others) => others.filter((other) => other.left <= label.right && label.left <= other.right).map(({ at }) => at);
  labels.forEach((label, index) => { label.at = Math.max(label.at, ...listNeighbours(label, labels.slice(0, index)).map((at) => at + HEIGHT)); });
  for (const [index, label] of [...labels.entries()].reverse())
    label.at = Math.min(label.at, area.bottom, ...listNeighbours(label, labels.slice(index + 1)).map((at) => at - HEIGHT));
  return labels.map(({ name, style, left, at }) => draw("text", { class: "end", x: left, y: at + 4, style: `fill: ${style.colour}`, "data-series": name }, name));
}

// Boxes by the cells of the page that they touch, so that one is compared with those around it only.
function createBoxIndex(boxes) {
  const cells = new Map();
  const listKeys = ([left, top, right, bottom]) => {
    const keys = [];
    for (let column = Math.floor(left / CELL); column <= Math.floor(right / CELL); column++)
      for (let row = Math.floor(top / CELL); row <= Math.floor(bottom / CELL); row++) keys.push(column * 65536 + row);
    return keys;
  };
  const add = (box) => { for (const key of listKeys(box)) if (cells.has(key)) cells.get(key).push(box); else cells.set(key, [box]); };
  boxes.forEach(add);
  const covers = (box, other) => other[0] < box[2] && other[2] > box[0] && other[1] < box[3] && other[3] > box[1];
  return { add, isFree: (box) => listKeys(box).every((key) => !cells.get(key)?.some((other) => covers(box, other))) };
}

// Returns a box [left, top, right, bottom] for the name of each point, at the first place beside it that covers neither
// `obstacles` nor another name, or null. A point is { x, y, width }; `gap` is the distance from its centre.
export function placeNames(points, area, obstacles, gap) {
  const taken = createBoxIndex(obstacles);
  const isFree = (box) => box[0] >= area.left && box[2] <= area.right && box[1] >= area.top && box[3] <= area.bottom && taken.isFree(box);
  return points.map(({ x, y, width }) => {
    const beside = y - HEIGHT / 2, near = gap / 2, above = y - near - 3.5 - HEIGHT, below = y + near + 3.5;
    const corners = [[x + gap, beside], [x - gap - width, beside], [x + near, above], [x + near, below],
      [x - near - width, above], [x - near - width, below], [x - width / 2, above], [x - width / 2, below]];
    const box = corners.map(([a, b]) => [a, b, a + width, b + HEIGHT]).find(isFree);
    if (box) taken.add(box);
    return box ?? null;
  });
}
