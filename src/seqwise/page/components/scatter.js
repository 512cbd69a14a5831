// Points with names, coloured by group or by value.
import { colourBar, createColours, followTheme } from "./colours.js";
import { draw, getSeriesStyle, make, makeButton, makeLegend, outline } from "./elements.js";
import { explore } from "./explore.js";
import { createFormat, exists, formatDigits, plural, shorten, showToken } from "./numbers.js";
import { makeAxis, makeItem, nameItem } from "./pins.js";
import { addMargins, extent, followWidth, frame, measureText, scale } from "./scales.js";

const REACH = 24, MAX_LABELS = 500;  // pixels from which a point is found; labels that are tried

// Colour and shape of each point: by group, by value, or all alike.
function createPointStyle(figure, scales) {
  const groups = [...new Set(figure.groups ?? [])];  // in the order of the points, as in images
  const styles = new Map(groups.map((group, index) => [group, getSeriesStyle(index)]));
  if (groups.length) return { groups, styles, get: (i) => styles.get(figure.groups[i]) };
  if (!figure.values) return { groups, styles, get: () => getSeriesStyle(0) };
  const [low, high] = extent(figure.values), size = Math.max(-low, high), isDiverging = low < 0 && high > 0;
  const limits = isDiverging ? { scale: "diverging", low: -size, high: size } : { scale: "sequential", low, high };
  const colours = createColours(scales, { role: "", ...limits });
  return { groups, styles, colours, get: (i) => ({ colour: colours.css(figure.values[i]), shape: "circle" }) };
}

// Names beside points, each at the first free position, or none: `order` has the most important points first.
function placeLabels(order, at, names, area) {
  const boxes = [], labels = [];
  const isFree = (box) => boxes.every((other) => other[0] >= box[2] || other[2] <= box[0] || other[1] >= box[3] || other[3] <= box[1]);
  for (const i of order.slice(0, MAX_LABELS)) { const [x, y] = at(i); boxes.push([x - 3, y - 3, x + 3, y + 3]); }
  for (const i of order.slice(0, MAX_LABELS)) {
    const [x, y] = at(i), text = shorten(showToken(names[i]), 20), w = measureText(text) + 4, h = 14;
    const corners = [[x + 5, y - h / 2], [x - 5 - w, y - h / 2], [x - w / 2, y - 6 - h], [x - w / 2, y + 6]];
    const isInside = (one) => one[0] >= area.left && one[2] <= area.right && one[1] >= area.top - 6;
    const box = corners.map(([a, b]) => [a, b, a + w, b + h]).find((one) => isInside(one) && isFree(one));
    if (!box) continue;
    boxes.push(box);
    labels.push(draw("text", { class: "point-name", x: box[0] + 2, y: box[3] - 3 }, text));
  }
  return labels;
}

export function drawScatterPlot(figure, { scales, pins }) {
  const axis = makeAxis(figure.names), style = createPointStyle(figure, scales), hidden = new Set();
  const back = draw("svg", { class: "chart", "aria-hidden": "true" }), front = draw("svg", { class: "chart overlay", "aria-hidden": "true" });
  const canvas = make("canvas", { class: "points", "aria-hidden": "true" });
  const plot = make("div", { class: "plot scatter", "data-chart": "scatter", "aria-roledescription": "scatter plot",
    "aria-label": `${figure.title}: ${figure.y_label} against ${figure.x_label}, ${plural(figure.names.length, "point")}` }, back, canvas, front);
  const labels = draw("g"), pinned = draw("g", { class: "pinned" }), hovered = draw("g", { class: "hovered" });
  front.append(labels, pinned, hovered);
  const all = [...figure.x.keys()].filter((i) => exists(figure.x[i]) && exists(figure.y[i]));
  const formatValue = createFormat(figure.values ?? []);
  let window = null, now = null;

  const place = (i) => [now.x(figure.x[i]), now.y(figure.y[i])];
  const isInside = ([x, y]) => x >= now.area.left - 1 && x <= now.area.right + 1 && y >= now.area.top - 1 && y <= now.area.bottom + 1;

  function paint(width) {
    const height = width < 560 ? 340 : 480, area = { left: 58, right: width - 14, top: 34, bottom: height - 48 };
    const visible = all.filter((i) => !hidden.has(figure.groups?.[i]));
    const x = scale(window?.x ?? addMargins(visible.map((i) => figure.x[i]), false, 0.04), area.left, area.right);
    const y = scale(window?.y ?? addMargins(visible.map((i) => figure.y[i]), false, 0.05), area.bottom, area.top);
    now = { x, y, area, width, height };
    now.points = visible.filter((i) => isInside(place(i)));
    for (const svg of [back, front]) { svg.setAttribute("viewBox", `0 0 ${width} ${height}`); svg.setAttribute("height", height); }
    back.replaceChildren(frame(area, x, y, { x: figure.x_label, y: figure.y_label }));
    paintPoints();
  }

  function paintPoints() {
    if (!now) return;
    const ratio = devicePixelRatio || 1, pen = canvas.getContext("2d"), styleOf = getComputedStyle(plot);
    const size = now.points.length > 1500 ? 2.4 : now.points.length > 300 ? 3.2 : 4.2;
    Object.assign(canvas, { width: now.width * ratio, height: now.height * ratio });
    Object.assign(canvas.style, { width: now.width + "px", height: now.height + "px" });
    pen.scale(ratio, ratio);
    const resolve = (colour) => colour.startsWith("var(") ? styleOf.getPropertyValue(colour.slice(4, -1)).trim() : colour;
    const colours = new Map(), edge = resolve("var(--card)"), faint = pins.find(axis).length > 0 ? 0.45 : 0.9;
    for (const i of now.points) {
      const { colour, shape } = style.get(i), path = new Path2D(outline(shape, ...place(i), size));
      if (!colours.has(colour)) colours.set(colour, resolve(colour));
      pen.globalAlpha = faint;
      pen.fillStyle = colours.get(colour);
      pen.fill(path);
      pen.strokeStyle = style.colours ? resolve("var(--grey)") : edge;
      pen.lineWidth = 0.6;
      pen.stroke(path);
    }
    labels.replaceChildren(...figure.is_labelled ? placeLabels(now.points, place, figure.names, now.area) : []);
    paintPins();
  }

  const ring = (i, layer, isNamed) => {
    const [x, y] = place(i), isLeft = x > (now.area.left + now.area.right) / 2;
    layer.append(draw("circle", { cx: x, cy: y, r: 8 }));
    if (!isNamed) return;
    const beside = { x: x + (isLeft ? -12 : 12), y: y + 4, "text-anchor": isLeft ? "end" : "start" };
    layer.append(draw("text", { class: "strong", ...beside }, shorten(showToken(figure.names[i]), 20)));
  };
  function paintPins() {
    pinned.replaceChildren();
    if (now) for (const i of pins.find(axis)) if (now.points.includes(i)) ring(i, pinned, true);
  }

  const makeMark = (i) => i < 0 ? null : { key: String(i), i };
  const nearest = (x, y, isCandidate, reach) => {
    let best = -1, minimum = reach * reach;
    for (const i of now.points) {
      const [a, b] = place(i), distance = (a - x) ** 2 + (b - y) ** 2;
      if (distance < minimum && isCandidate(a - x, b - y)) { minimum = distance; best = i; }
    }
    return makeMark(best);
  };
  explore(plot, {
    find: (x, y) => nearest(x, y, () => true, REACH),
    describe({ i }) {
      if (!now.points.includes(i)) return null;
      const [x, y] = place(i), rows = [[figure.x_label, formatDigits(figure.x[i])], [figure.y_label, formatDigits(figure.y[i])]];
      if (figure.groups?.length) rows.push(["group", figure.groups[i]]);
      if (figure.values) rows.push([figure.value_label || "value", formatValue(figure.values[i])]);
      return { title: nameItem(axis, i), at: { x, y }, rows };
    },
    highlight(mark) {
      hovered.replaceChildren();
      if (mark && now.points.includes(mark.i)) ring(mark.i, hovered, false);
    },
    first: () => makeMark(now.points[0] ?? -1),
    step: ({ i }, dx, dy) => {
      const isAhead = (along, across) => along > 0 && Math.abs(across) <= 1.5 * along;
      return nearest(...place(i), (a, b) => dx ? isAhead(a * dx, b) : isAhead(b * dy, a), Infinity);
    },
    items: ({ i }) => [makeItem(axis, i)],
    zoom({ left, right, top, bottom }) { setWindow({ x: [now.x.invert(left), now.x.invert(right)], y: [now.y.invert(bottom), now.y.invert(top)] }); },
    zoomBy(factor, mark) {
      if (factor === 0) return setWindow(null);
      const [cx, cy] = mark ? [figure.x[mark.i], figure.y[mark.i]] : [(now.x.minimum + now.x.maximum) / 2, (now.y.minimum + now.y.maximum) / 2];
      const half = (at) => (at.maximum - at.minimum) / 2 / factor;
      setWindow({ x: [cx - half(now.x), cx + half(now.x)], y: [cy - half(now.y), cy + half(now.y)] });
    },
  }, pins);
  const wholeButton = makeButton("Whole", () => setWindow(null), { class: "small", "aria-label": "Show all points", hidden: true });
  const redraw = followWidth(plot, paint);
  const setWindow = (next) => { window = next; wholeButton.hidden = next === null; redraw(); };
  followTheme(plot, paintPoints);
  pins.follow(plot, () => pins.find(axis).length > 0, paintPoints);
  pins.follow(plot, () => pins.find(axis), paintPins);

  const legend = makeLegend("groups shown", style.groups.map((group) => [group, style.styles.get(group)]), hidden, redraw, false);
  return make("div", {}, make("div", { class: "controls" }, legend, make("div", { class: "choices" }, wholeButton)), plot,
    style.colours && make("div", { class: "below" }, colourBar(style.colours, figure.value_label)));
}
