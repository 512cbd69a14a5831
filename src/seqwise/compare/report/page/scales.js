// --- scales, axes and the frame of a chart. A chart is drawn in pixels of its box, and again when the box changes.
const findExtent = (numbers) => numbers.reduce(([minimum, maximum], number) => [Math.min(minimum, number), Math.max(maximum, number)],
  [Infinity, -Infinity]);

// Room around a single number ends at `bounds`.
function makeScale(numbers, start, end, log = false, bounds = [-Infinity, Infinity]) {
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

// A little room on both sides, so that no mark lies upon the frame.
function addMargins(numbers, log, amount = 0.06) {
  const [minimum, maximum] = findExtent(numbers);
  if (!Number.isFinite(minimum) || minimum === maximum) return numbers;
  const room = log ? (maximum / minimum) ** amount : (maximum - minimum) * amount;
  return log ? [minimum / room, maximum * room] : [minimum - room, maximum + room];
}

// The scale of an axis for the metric, with margins that end at its bounds.
function makeQualityScale(numbers, start, end, log, margin = 0.06) {
  const [minimum, maximum] = findExtent(numbers), [low, high] = findExtent(addMargins(numbers, log, margin));
  const bounds = [Math.min(qualityBounds[0], minimum), Math.max(qualityBounds[1], maximum)];
  return makeScale(minimum < maximum ? [Math.max(low, bounds[0]), Math.min(high, bounds[1])] : numbers, start, end, log, bounds);
}

function makeLinearTicks(minimum, maximum, tickCount) {
  const rough = (maximum - minimum) / Math.max(1, tickCount), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((multiple) => multiple * power).find((one) => one >= rough * 0.999) ?? 10 * power;
  const ticks = [];
  for (let n = Math.ceil(minimum / step - 1e-9); n * step <= maximum + step * 1e-9; n++) ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
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
function formatTicks(ticks) {
  let digits = 0;
  while (digits < 9 && ticks.some((tick) => Math.abs(tick - Number(tick.toFixed(digits))) > 1e-6 * Math.abs(tick))) digits++;
  const isExtreme = (tick) => Math.abs(tick) >= 1e6 || (tick !== 0 && Math.abs(tick) < 1e-5);
  const formatTick = (tick) => tick.toLocaleString("en-GB", { maximumFractionDigits: digits }).replace(/^-/, "−");
  return ticks.map((tick) => isExtreme(tick) ? formatScientific(tick, 2).replace(".0 ", " ").replace(/^(−?)1 × /, "$1") : formatTick(tick));
}

const formatQualityTicks = (ticks) => isRatio ? formatTicks(ticks.map((tick) => tick * 100)).map((text) => text + " %") : formatTicks(ticks);

// Long times are round in minutes or hours, not in hundreds of seconds.
const chooseTimeUnit = (x) => x.log && x.maximum / x.minimum > 1000 ? 1 : x.maximum > 7200 ? 3600 : x.maximum > 120 ? 60 : 1;

// Grid, ticks and titles. `area` is { left, right, top, bottom } in pixels.
function drawFrame(area, x, y, names, labels) {
  const layer = draw("g", { class: "frame" });
  const unit = names.time ? chooseTimeUnit(x) : 1, tickCount = Math.max(3, Math.floor((area.right - area.left) / 80));
  const xTicks = x.ticks(tickCount, unit), yTicks = y.ticks(5);
  let free = -Infinity;  // where the next name below the axis may begin
  labels.y(yTicks).forEach((text, at) => layer.append(
    draw("line", { class: "grid", x1: area.left, x2: area.right, y1: y(yTicks[at]), y2: y(yTicks[at]) }),
    draw("text", { x: area.left - 8, y: y(yTicks[at]) + 4, "text-anchor": "end" }, text)));
  labels.x(xTicks).forEach((text, at) => {
    const middle = x(xTicks[at]), half = 3.8 * text.length;
    layer.append(draw("line", { class: "tick", x1: middle, x2: middle, y1: area.bottom, y2: area.bottom + 5 }));
    if (middle - half < free) return;
    layer.append(draw("text", { x: middle, y: area.bottom + 19, "text-anchor": "middle" }, text));
    free = middle + half + 10;
  });
  layer.append(
    draw("line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }),
    draw("text", { class: "name", x: 0, y: area.top - 12 }, shorten(names.y, Math.floor((area.right + 10) / 7.4))),
    draw("text", { class: "name", x: area.right, y: area.bottom + 38, "text-anchor": "end" }, shorten(names.x, Math.floor((area.right + 10) / 7.4))));
  return layer;
}

const qualityName = metric.name + (lower ? " ↓ lower is better" : " ↑ higher is better");

// Draws now, and again when the width of the box changes.
function makeChart(kind, label, height, paint) {
  const svg = draw("svg", { class: "chart", "data-chart": kind, role: "img", "aria-label": label });
  const box = make("div", { class: "plot" }, svg);
  let width = 0;
  const redraw = () => {
    width = Math.max(240, Math.floor(box.clientWidth));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    paint(svg, width, height);
  };
  new ResizeObserver(() => { if (Math.floor(box.clientWidth) !== width) requestAnimationFrame(redraw); }).observe(box);
  return { box, svg, redraw };
}
