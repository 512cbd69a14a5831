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

// Names beside points, as many as there is room for: the first points are the most important; `strong` ones are bold.
function drawNames(order, place, names, { left, right, top, bottom }, strong = new Set()) {
  const points = order.slice(0, MAX_LABELS).map((i) => {
    const [x, y] = place(i), text = shorten(showToken(names[i]), 20);
    const isStrong = strong.has(i);
    return { x, y, text, isStrong, width: measureText(text, isStrong ? "650 12px system-ui, sans-serif" : undefined) + 4 };
  });
  const boxes = placeNames(points, { left, right, top: top - 6, bottom: bottom + 20 }, points.map(({ x, y }) => [x - 3, y - 3, x + 3, y + 3]), strong.size ? 9 : 5);
  return points.map(({ text, isStrong }, at) => boxes[at] && draw("text", { class: isStrong ? "strong" : "point-name", x: boxes[at][0] + 2, y: boxes[at][3] - 3 }, text)).filter(Boolean);
}

const roundPixels = (value) => Math.round(10 * value) / 10;

// Ranges of x and y of which a unit is equally many pixels on both axes.
function equalizeUnits({ x, y }, { left, right, top, bottom }) {
  const unit = Math.max((x[1] - x[0]) / (right - left), (y[1] - y[0]) / (bottom - top));
  const widen = ([low, high], pixels) => [(low + high - unit * pixels) / 2, (low + high + unit * pixels) / 2];
  return { x: widen(x, right - left), y: widen(y, bottom - top) };
}

export const drawScatterPlot = (figure, context) => createScatterPlot(figure, context).element;

// `isMap`: only distances have a meaning, so there are no axes, and a unit is equally long on both. `open(index)` is what a click
// does instead of pinning. Returns the element, and `select(indices)`, which pins points and shows the first of them.
export function createScatterPlot(figure, { scales, pins }, { isMap = false, open = null } = {}) {
  const axis = makeAxis(figure.names), style = createPointStyle(figure, scales), hidden = new Set();
  const back = draw("svg", { class: "chart", "aria-hidden": "true" }), front = draw("svg", { class: "chart overlay", "aria-hidden": "true" });
  const canvas = make("canvas", { class: "points", "aria-hidden": "true" });
  const plot = make("div", { class: "plot scatter", "data-chart": "scatter", "aria-roledescription": "scatter plot",
    "aria-label": `${figure.title}: ${isMap ? "" : `${figure.y_label} against ${figure.x_label}, `}${formatPlural(figure.names.length, "point")}` }, back, canvas, front);
  const labels = draw("g"), pinned = draw("g", { class: "pinned" }), hovered = draw("g", { class: "hovered" });
  front.append(labels, pinned, hovered);
  const all = [...figure.x.keys()].filter((i) => isNumber(figure.x[i]) && isNumber(figure.y[i]));
  const formatValue = createFormat(figure.values ?? []);
  let view = null, layout = null;  // the ranges of x and y after zooming; the scales of the last drawing

  const place = (i) => [layout.x(figure.x[i]), layout.y(figure.y[i])];
  const isInside = ([x, y]) => x >= layout.area.left - 1 && x <= layout.area.right + 1 && y >= layout.area.top - 1 && y <= layout.area.bottom + 1;

  function paint(width) {
    const height = width < 560 ? 340 : isMap ? 600 : 480;
    const area = isMap ? { left: 8, right: width - 8, top: 8, bottom: height - 8 } : { left: 58, right: width - 14, top: 34, bottom: height - 48 };
    const visible = all.filter((i) => !hidden.has(figure.groups?.[i]));
    const ranges = view ?? { x: addMargins(visible.map((i) => figure.x[i]), false, 0.04), y: addMargins(visible.map((i) => figure.y[i]), false, 0.05) };
    const { x: rangeX, y: rangeY } = isMap && visible.length ? equalizeUnits({ x: findExtent(ranges.x), y: findExtent(ranges.y) }, area) : ranges;
    const x = makeScale(rangeX, area.left, area.right), y = makeScale(rangeY, area.bottom, area.top);
    layout = { x, y, area, width, height };
    layout.points = visible.filter((i) => isInside(place(i)));
    layout.isVisible = new Set(layout.points);
    for (const svg of [back, front]) { svg.setAttribute("viewBox", `0 0 ${width} ${height}`); svg.setAttribute("height", height); }
    back.replaceChildren(...isMap ? [] : [drawFrame(area, x, y, { x: figure.x_label, y: figure.y_label })]);
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
    // Marks that look alike are one path, so that thousands of points stay fluent.
    const outlines = new Map();
    for (const i of layout.points) {
      const { colour, shape } = style.get(i), outline = computeOutline(shape, ...place(i).map(roundPixels), size);
      if (outlines.has(colour)) outlines.get(colour).push(outline); else outlines.set(colour, [outline]);
    }
    Object.assign(pen, { globalAlpha: pins.find(axis).length > 0 ? 0.45 : 0.9, strokeStyle: resolve(style.colours ? "var(--grey)" : "var(--card)"), lineWidth: 0.6 });
    for (const [colour, parts] of outlines) {
      const path = new Path2D(parts.join(""));
      pen.fillStyle = resolve(colour);
      pen.fill(path);
      pen.stroke(path);
    }
    labels.replaceChildren(...figure.is_labelled ? drawNames(...orderNames()) : []);
    paintPins();
  }

  // On a map the names of pinned points are placed before the others, none over another; elsewhere they are beside their rings.
  const orderNames = () => {
    const strong = isMap ? pins.find(axis).filter((i) => layout.isVisible.has(i)) : [], others = new Set(strong);
    return [[...strong, ...layout.points.filter((i) => !others.has(i))], place, figure.names, layout.area, others];
  };
  const drawRing = (i, layer, isNamed, r = 8) => {
    const [x, y] = place(i), isLeft = x > (layout.area.left + layout.area.right) / 2;
    layer.append(draw("circle", { cx: x, cy: y, r }));
    if (!isNamed) return;
    const beside = { x: x + (isLeft ? -12 : 12), y: y + 4, "text-anchor": isLeft ? "end" : "start" };
    layer.append(draw("text", { class: "strong", ...beside }, shorten(showToken(figure.names[i]), 20)));
  };
  function paintPins() {
    pinned.replaceChildren();
    if (!layout) return;
    const visible = pins.find(axis).filter((i) => layout.isVisible.has(i));
    visible.forEach((i, at) => drawRing(i, pinned, !isMap, isMap && at > 0 ? 5.5 : 8));
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
  const zoomAt = (factor, cx, cy) => {
    const half = (at) => (at.maximum - at.minimum) / 2 / factor;
    setView({ x: [cx - half(layout.x), cx + half(layout.x)], y: [cy - half(layout.y), cy + half(layout.y)] });
  };
  const getCentre = () => [(layout.x.minimum + layout.x.maximum) / 2, (layout.y.minimum + layout.y.maximum) / 2];
  const isZoomed = () => view !== null;
  const pan = (dx, dy) => {
    const move = (at, pixels) => [at.invert(at(at.minimum) + pixels), at.invert(at(at.maximum) + pixels)];
    setView({ x: move(layout.x, dx), y: move(layout.y, dy) });
  };
  explore(plot, {
    find: (x, y) => findNearest(x, y, () => true, REACH),
    describe({ i }) {
      if (!layout.isVisible.has(i)) return null;
      const [x, y] = place(i), rows = isMap ? [] : [[figure.x_label, formatDigits(figure.x[i])], [figure.y_label, formatDigits(figure.y[i])]];
      if (figure.groups?.length) rows.push(["group", figure.groups[i]]);
      if (figure.values) rows.push([figure.value_label || "value", formatValue(figure.values[i])]);
      return { title: nameItem(axis, i), at: { x, y }, rows };
    },
    highlight(mark) {
      hovered.replaceChildren();
      if (mark && layout.isVisible.has(mark.i)) drawRing(mark.i, hovered, false);
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
      zoomAt(factor, ...mark ? [figure.x[mark.i], figure.y[mark.i]] : getCentre());
    },
    ...open && { open: ({ i }) => open(i) },
    ...isMap && { pan, isZoomed },
  }, pins);
  const zoomButtons = isMap ? [["+", 2, "Zoom in"], ["−", 0.5, "Zoom out"]].map(([text, factor, label]) =>
    makeButton(text, () => zoomAt(factor, ...getCentre()), { class: "small", "aria-label": label })) : [];
  const wholeButton = makeButton("Whole", () => setView(null), { class: "small", "aria-label": "Show all points", hidden: true });
  const redraw = followWidth(plot, paint);
  const setView = (next) => { view = next; wholeButton.hidden = next === null; redraw(); };
  followTheme(plot, paintPoints);
  pins.follow(plot, () => isMap ? pins.find(axis) : pins.find(axis).length > 0, paintPoints);
  pins.follow(plot, () => pins.find(axis), paintPins);

  const legend = makeLegend("groups shown", [...style.styles], hidden, redraw, false);
  const element = make("div", {}, make("div", { class: "controls" }, legend, make("div", { class: "choices" }, ...zoomButtons, wholeButton)), plot,
    style.colours && make("div", { class: "below" }, makeColourBar(style.colours, figure.value_label)));
  // Pins the points; a view that does not have the first of them moves to it.
  const select = (indices) => {
    pins.clear();
    if (!indices.length) return;
    pins.select(indices.map((i) => makeItem(axis, i)));
    if (layout && !layout.isVisible.has(indices[0]) && !hidden.has(figure.groups?.[indices[0]])) zoomAt(1, figure.x[indices[0]], figure.y[indices[0]]);
  };
  return { element, select };
}
