// Points with names, coloured by group or by value.
import { createColours, followTheme, makeColourBar } from "./colours.js";
import { computeOutline, draw, make, makeButton, makeLegend } from "./elements.js";
import { explore } from "./explore.js";
import { placeNames } from "./labels.js";
import { createFormat, formatDigits, formatPlural, isNumber, shorten, showToken } from "./numbers.js";
import { makeAxis, makeItem, nameItem } from "./pins.js";
import { addMargins, drawFrame, findExtent, followWidth, makeScale, measureText } from "./scales.js";

const REACH = 24, MAX_LABELS = 500;  // pixels from which a point is found; points whose names are placed where there is room

// Colour and shape of each point: by group, by value, or all alike.
function createPointStyle(figure, scales) {
  const styles = new Map(figure.styles);  // by group, in the order of the points
  if (styles.size) return { styles, get: (i) => styles.get(figure.groups[i]) };
  if (!figure.values) return { styles, get: () => ({ colour: "var(--c0)", shape: "circle" }) };
  const [low, high] = findExtent(figure.values), size = Math.max(-low, high), isDiverging = low < 0 && high > 0;
  const limits = isDiverging ? { scale: "diverging", low: -size, high: size } : { scale: "sequential", low, high };
  const colours = createColours(scales, { role: "", ...limits });
  return { styles, colours, get: (i) => ({ colour: colours.css(figure.values[i]), shape: "circle" }) };
}

// Names beside points, as many as there is room for: the first points are the most important.
function drawNames(order, place, names, { left, right, top, bottom }) {
  const points = order.slice(0, MAX_LABELS).map((i) => {
    const [x, y] = place(i), text = shorten(showToken(names[i]), 20);
    return { x, y, text, width: measureText(text) + 4 };
  });
  const boxes = placeNames(points, { left, right, top: top - 6, bottom: bottom + 20 }, points.map(({ x, y }) => [x - 3, y - 3, x + 3, y + 3]), 5);
  return points.map(({ text }, at) => boxes[at] && draw("text", { class: "point-name", x: boxes[at][0] + 2, y: boxes[at][3] - 3 }, text)).filter(Boolean);
}

export function drawScatterPlot(figure, { scales, pins }) {
  const axis = makeAxis(figure.names), style = createPointStyle(figure, scales), hidden = new Set();
  const back = draw("svg", { class: "chart", "aria-hidden": "true" }), front = draw("svg", { class: "chart overlay", "aria-hidden": "true" });
  const canvas = make("canvas", { class: "points", "aria-hidden": "true" });
  const plot = make("div", { class: "plot scatter", "data-chart": "scatter", "aria-roledescription": "scatter plot",
    "aria-label": `${figure.title}: ${figure.y_label} against ${figure.x_label}, ${formatPlural(figure.names.length, "point")}` }, back, canvas, front);
  const labels = draw("g"), pinned = draw("g", { class: "pinned" }), hovered = draw("g", { class: "hovered" });
  front.append(labels, pinned, hovered);
  const all = [...figure.x.keys()].filter((i) => isNumber(figure.x[i]) && isNumber(figure.y[i]));
  const formatValue = createFormat(figure.values ?? []);
  let view = null, layout = null;  // the ranges of x and y after zooming; the scales of the last drawing

  const place = (i) => [layout.x(figure.x[i]), layout.y(figure.y[i])];
  const isInside = ([x, y]) => x >= layout.area.left - 1 && x <= layout.area.right + 1 && y >= layout.area.top - 1 && y <= layout.area.bottom + 1;

  function paint(width) {
    const height = width < 560 ? 340 : 480, area = { left: 58, right: width - 14, top: 34, bottom: height - 48 };
    const visible = all.filter((i) => !hidden.has(figure.groups?.[i]));
    const x = makeScale(view?.x ?? addMargins(visible.map((i) => figure.x[i]), false, 0.04), area.left, area.right);
    const y = makeScale(view?.y ?? addMargins(visible.map((i) => figure.y[i]), false, 0.05), area.bottom, area.top);
    layout = { x, y, area, width, height };
    layout.points = visible.filter((i) => isInside(place(i)));
    for (const svg of [back, front]) { svg.setAttribute("viewBox", `0 0 ${width} ${height}`); svg.setAttribute("height", height); }
    back.replaceChildren(drawFrame(area, x, y, { x: figure.x_label, y: figure.y_label }));
    paintPoints();
  }

  function paintPoints() {
    if (!layout) return;
    const ratio = devicePixelRatio || 1, pen = canvas.getContext("2d"), styleOf = getComputedStyle(plot);
    const size = layout.points.length > 1500 ? 2.4 : layout.points.length > 300 ? 3.2 : 4.2;
    Object.assign(canvas, { width: layout.width * ratio, height: layout.height * ratio });
    Object.assign(canvas.style, { width: layout.width + "px", height: layout.height + "px" });
    pen.scale(ratio, ratio);
    const resolve = (colour) => colour.startsWith("var(") ? styleOf.getPropertyValue(colour.slice(4, -1)).trim() : colour;
    const colours = new Map(), edge = resolve("var(--card)"), faint = pins.find(axis).length > 0 ? 0.45 : 0.9;
    for (const i of layout.points) {
      const { colour, shape } = style.get(i), path = new Path2D(computeOutline(shape, ...place(i), size));
      if (!colours.has(colour)) colours.set(colour, resolve(colour));
      pen.globalAlpha = faint;
      pen.fillStyle = colours.get(colour);
      pen.fill(path);
      pen.strokeStyle = style.colours ? resolve("var(--grey)") : edge;
      pen.lineWidth = 0.6;
      pen.stroke(path);
    }
    labels.replaceChildren(...figure.is_labelled ? drawNames(layout.points, place, figure.names, layout.area) : []);
    paintPins();
  }

  const drawRing = (i, layer, isNamed) => {
    const [x, y] = place(i), isLeft = x > (layout.area.left + layout.area.right) / 2;
    layer.append(draw("circle", { cx: x, cy: y, r: 8 }));
    if (!isNamed) return;
    const beside = { x: x + (isLeft ? -12 : 12), y: y + 4, "text-anchor": isLeft ? "end" : "start" };
    layer.append(draw("text", { class: "strong", ...beside }, shorten(showToken(figure.names[i]), 20)));
  };
  function paintPins() {
    pinned.replaceChildren();
    if (layout) for (const i of pins.find(axis)) if (layout.points.includes(i)) drawRing(i, pinned, true);
  }

  const makeMark = (i) => i < 0 ? null : { key: String(i), i };
  const findNearest = (x, y, isCandidate, reach) => {
    let best = -1, minimum = reach * reach;
    for (const i of layout.points) {
      const [a, b] = place(i), distance = (a - x) ** 2 + (b - y) ** 2;
      if (distance < minimum && isCandidate(a - x, b - y)) { minimum = distance; best = i; }
    }
    return makeMark(best);
  };
  explore(plot, {
    find: (x, y) => findNearest(x, y, () => true, REACH),
    describe({ i }) {
      if (!layout.points.includes(i)) return null;
      const [x, y] = place(i), rows = [[figure.x_label, formatDigits(figure.x[i])], [figure.y_label, formatDigits(figure.y[i])]];
      if (figure.groups?.length) rows.push(["group", figure.groups[i]]);
      if (figure.values) rows.push([figure.value_label || "value", formatValue(figure.values[i])]);
      return { title: nameItem(axis, i), at: { x, y }, rows };
    },
    highlight(mark) {
      hovered.replaceChildren();
      if (mark && layout.points.includes(mark.i)) drawRing(mark.i, hovered, false);
    },
    first: () => makeMark(layout.points[0] ?? -1),
    step: ({ i }, dx, dy) => {
      const isAhead = (along, across) => along > 0 && Math.abs(across) <= 1.5 * along;
      return findNearest(...place(i), (a, b) => dx ? isAhead(a * dx, b) : isAhead(b * dy, a), Infinity);
    },
    items: ({ i }) => [makeItem(axis, i)],
    zoom({ left, right, top, bottom }) { setView({ x: [layout.x.invert(left), layout.x.invert(right)], y: [layout.y.invert(bottom), layout.y.invert(top)] }); },
    zoomBy(factor, mark) {
      if (factor === 0) return setView(null);
      const [cx, cy] = mark ? [figure.x[mark.i], figure.y[mark.i]] : [(layout.x.minimum + layout.x.maximum) / 2, (layout.y.minimum + layout.y.maximum) / 2];
      const half = (at) => (at.maximum - at.minimum) / 2 / factor;
      setView({ x: [cx - half(layout.x), cx + half(layout.x)], y: [cy - half(layout.y), cy + half(layout.y)] });
    },
  }, pins);
  const wholeButton = makeButton("Whole", () => setView(null), { class: "small", "aria-label": "Show all points", hidden: true });
  const redraw = followWidth(plot, paint);
  const setView = (next) => { view = next; wholeButton.hidden = next === null; redraw(); };
  followTheme(plot, paintPoints);
  pins.follow(plot, () => pins.find(axis).length > 0, paintPoints);
  pins.follow(plot, () => pins.find(axis), paintPins);

  const legend = makeLegend("groups shown", [...style.styles], hidden, redraw, false);
  return make("div", {}, make("div", { class: "controls" }, legend, make("div", { class: "choices" }, wholeButton)), plot,
    style.colours && make("div", { class: "below" }, makeColourBar(style.colours, figure.value_label)));
}
