// Horizontal bars with optional intervals.
import { draw, make, makeButton } from "./elements.js";
import { explore } from "./explore.js";
import { clamp, createFormat, formatDigits, formatPlural, isNumber, shorten, showToken } from "./numbers.js";
import { drawWhisker } from "./paths.js";
import { makeAxis, makeItem, nameItem } from "./pins.js";
import { fitText, formatTicks, makeChart, makeScale, measureText } from "./scales.js";

const ROW = 24, THICKNESS = 12, TOP = 30, MAX_BARS = 30;  // pixels, pixels, pixels, bars shown at first

export function drawBarChart(figure, { pins }) {
  const axis = makeAxis(figure.names, "");
  let count = Math.min(figure.names.length, MAX_BARS + 5), layout = null;  // the sizes and the scale of the last drawing
  if (count < figure.names.length) count = MAX_BARS;
  const format = createFormat(figure.values), hovered = draw("g", { class: "hovered" });

  function paint(svg, width) {
    const shown = [...figure.names.keys()].slice(0, count), label = (i) => shorten(showToken(figure.names[i]), 40);
    const left = Math.ceil(Math.min(width * (width < 560 ? 0.5 : 0.42), Math.max(20, ...shown.map((i) => measureText(label(i)))))) + 12;
    const texts = shown.map((i) => format(figure.values[i])), right = width - Math.max(...texts.map((text) => measureText(text))) - 14;
    const ends = [0, ...[figure.values, figure.low ?? [], figure.high ?? []].flatMap((list) => list.slice(0, count).filter(isNumber))];
    const x = makeScale(ends, left, right), bottom = TOP + ROW * shown.length, ticks = x.ticks(Math.max(2, Math.floor((right - left) / 60)));
    layout = { width, left, right, bottom, x, shown };
    svg.append(draw("text", { class: "name", x: 0, y: 14 }, shorten(figure.value_label, Math.floor(width / 6.6))));
    formatTicks(ticks).forEach((text, at) => svg.append(draw("line", { class: "grid", x1: x(ticks[at]), x2: x(ticks[at]), y1: TOP - 4, y2: bottom }),
      draw("text", { x: x(ticks[at]), y: bottom + 16, "text-anchor": "middle" }, text)));
    const pinned = pins.find(axis);
    for (const i of shown) svg.append(...drawBar(i, label(i), texts[i], pinned.includes(i)));
    svg.append(draw("line", { class: "axis", x1: x(0), x2: x(0), y1: TOP - 4, y2: bottom }), hovered);
    return bottom + 24;
  }

  function drawBar(i, label, text, isPinned) {
    const { x, left, right, width } = layout, top = TOP + ROW * i, middle = top + ROW / 2, value = figure.values[i];
    const name = draw("text", { class: isPinned ? "strong" : "name", x: left - 10, y: middle + 4, "text-anchor": "end" }, fitText(label, left - 12));
    if (!isNumber(value)) return [name, draw("text", { x: x(0) + 6, y: middle + 4 }, text)];
    const [from, to] = [x(0), x(value)].sort((a, b) => a - b), low = figure.low?.[i], high = figure.high?.[i];
    return [
      isPinned && draw("rect", { class: "pinned-row", x: 0, y: top + 1, width, height: ROW - 2, rx: 4 }), name,
      draw("rect", { class: "mark", x: from, y: middle - THICKNESS / 2, width: Math.max(1, to - from), height: THICKNESS, rx: 1.5,
        style: `fill: ${figure.colours[i]}`, "data-name": figure.names[i] }),
      ...isNumber(low) && isNumber(high) ? drawWhisker(x(low), x(high), middle, 4) : [],
      draw("text", { class: isPinned ? "strong" : "name", x: right + 8, y: middle + 4 }, text),
    ].filter(Boolean);
  }

  const drawing = makeChart("bars", `${figure.title}: ${figure.value_label} of ${formatPlural(figure.names.length, "item")}`, paint);
  drawing.box.setAttribute("aria-roledescription", "bar chart");
  const makeMark = (i) => ({ key: String(i), i });
  explore(drawing.box, {
    find(x, y) {
      const i = Math.floor((y - TOP) / ROW);
      return i >= 0 && i < layout.shown.length ? makeMark(i) : null;
    },
    describe({ i }) {
      const low = figure.low?.[i], high = figure.high?.[i], value = figure.values[i];
      const interval = isNumber(low) && isNumber(high) ? [["interval", `${formatDigits(low)} to ${formatDigits(high)}`]] : [];
      return { value: format(value), title: figure.value_label, rows: [[nameItem(axis, i), ""], ...interval],
        at: { x: layout.x(Math.max(0, value ?? 0)), y: TOP + ROW * (i + 0.5) } };
    },
    highlight(mark) {
      hovered.replaceChildren();
      if (mark) hovered.append(draw("rect", { x: 0.5, y: TOP + ROW * mark.i + 0.5, width: layout.width - 1, height: ROW - 1, rx: 4 }));
    },
    first: () => makeMark(0),
    step: ({ i }, dx, dy) => makeMark(clamp(i + (dy || dx), 0, layout.shown.length - 1)),
    items: ({ i }) => [makeItem(axis, i)],
  }, pins);
  pins.follow(drawing.box, () => pins.find(axis), drawing.redraw);
  const showAll = () => { count = figure.names.length; more.remove(); drawing.redraw(); };
  const more = count < figure.names.length && makeButton(`Show all ${figure.names.length}`, showAll, { class: "small" });
  return make("div", {}, drawing.box, more);
}
