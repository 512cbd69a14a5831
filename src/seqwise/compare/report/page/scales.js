// --- scales, axes and the frame of a chart. A chart is drawn in pixels of its box, and again when the box changes.
const extent = (numbers) => numbers.reduce(([minimum, maximum], number) => [Math.min(minimum, number), Math.max(maximum, number)],
  [Infinity, -Infinity]);

function scale(numbers, start, end, log = false) {
  let [minimum, maximum] = extent(numbers);
  if (!Number.isFinite(minimum)) [minimum, maximum] = log ? [1, 10] : [0, 1];
  if (minimum === maximum) {
    const room = log ? 1.5 : Math.abs(minimum) * 0.1 || 1;
    [minimum, maximum] = log ? [minimum / room, maximum * room] : [minimum - room, maximum + room];
  }
  const transform = log ? Math.log : (value) => value;
  const from = transform(minimum), span = transform(maximum) - from;
  const at = (value) => start + (end - start) * (transform(value) - from) / span;
  const invert = (place) => {
    const value = from + span * (place - start) / (end - start);
    return log ? Math.exp(value) : value;
  };
  return Object.assign(at, { invert, minimum, maximum, log, ticks: (wanted, unit = 1) =>
    (log ? logTicks : linearTicks)(minimum / unit, maximum / unit, wanted).map((tick) => tick * unit) });
}

// A little room on both sides, so that no mark lies upon the frame.
function padded(numbers, log, amount = 0.06) {
  const [minimum, maximum] = extent(numbers);
  if (!Number.isFinite(minimum) || minimum === maximum) return numbers;
  const room = log ? (maximum / minimum) ** amount : (maximum - minimum) * amount;
  return log ? [minimum / room, maximum * room] : [minimum - room, maximum + room];
}

function linearTicks(minimum, maximum, wanted) {
  const rough = (maximum - minimum) / Math.max(1, wanted), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * power).find((one) => one >= rough * 0.999) ?? 10 * power;
  const ticks = [];
  for (let n = Math.ceil(minimum / step - 1e-9); n * step <= maximum + step * 1e-9; n++) ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
}

function logTicks(minimum, maximum, wanted) {
  const decades = Math.log10(maximum / minimum);
  if (decades < 0.7) return linearTicks(minimum, maximum, wanted);
  const every = Math.max(1, Math.ceil(decades / wanted));
  const times = decades < wanted / 3 ? [1, 2, 3, 5, 7] : decades < wanted / 1.8 ? [1, 2, 5] : decades < wanted ? [1, 3] : [1];
  const ticks = [];
  for (let power = Math.floor(Math.log10(minimum)); power <= Math.ceil(Math.log10(maximum)); power++)
    for (const time of power % every === 0 ? times : []) {
      const tick = Number((time * 10 ** power).toPrecision(12));
      if (tick >= minimum * 0.9999 && tick <= maximum * 1.0001) ticks.push(tick);
    }
  return ticks.length > 1 ? ticks : linearTicks(minimum, maximum, wanted);
}

// As few digits as all ticks need.
function tickLabels(ticks) {
  let digits = 0;
  while (digits < 9 && ticks.some((tick) => Math.abs(tick - Number(tick.toFixed(digits))) > 1e-6 * Math.abs(tick))) digits++;
  const odd = (tick) => Math.abs(tick) >= 1e6 || (tick !== 0 && Math.abs(tick) < 1e-5);
  const each = (tick) => tick.toLocaleString("en-GB", { maximumFractionDigits: digits }).replace(/^-/, "−");
  return ticks.map((tick) => odd(tick) ? scientific(tick, 2).replace(".0 ", " ").replace(/^(−?)1 × /, "$1") : each(tick));
}

const qualityTicks = (ticks) => isRatio ? tickLabels(ticks.map((tick) => tick * 100)).map((text) => text + " %") : tickLabels(ticks);

// Long times are round in minutes or hours, not in hundreds of seconds.
const timeUnit = (x) => x.log && x.maximum / x.minimum > 1000 ? 1 : x.maximum > 7200 ? 3600 : x.maximum > 120 ? 60 : 1;

// Grid, ticks and titles. `place` is { left, right, top, bottom } in pixels.
function frame(place, x, y, names, labels) {
  const layer = draw("g", { class: "frame" });
  const unit = names.time ? timeUnit(x) : 1, wanted = Math.max(3, Math.floor((place.right - place.left) / 80));
  const across = x.ticks(wanted, unit), up = y.ticks(5);
  let free = -Infinity;  // where the next name below the axis may begin
  labels.y(up).forEach((text, at) => layer.append(
    draw("line", { class: "grid", x1: place.left, x2: place.right, y1: y(up[at]), y2: y(up[at]) }),
    draw("text", { x: place.left - 8, y: y(up[at]) + 4, "text-anchor": "end" }, text)));
  labels.x(across).forEach((text, at) => {
    const middle = x(across[at]), half = 3.8 * text.length;
    layer.append(draw("line", { class: "tick", x1: middle, x2: middle, y1: place.bottom, y2: place.bottom + 5 }));
    if (middle - half < free) return;
    layer.append(draw("text", { x: middle, y: place.bottom + 19, "text-anchor": "middle" }, text));
    free = middle + half + 10;
  });
  layer.append(
    draw("line", { class: "axis", x1: place.left, x2: place.right, y1: place.bottom, y2: place.bottom }),
    draw("text", { class: "name", x: 0, y: place.top - 12 }, shorten(names.y, Math.floor((place.right + 10) / 7.4))),
    draw("text", { class: "name", x: place.right, y: place.bottom + 38, "text-anchor": "end" }, shorten(names.x, Math.floor((place.right + 10) / 7.4))));
  return layer;
}

const qualityName = metric.name + (lower ? " ↓ lower is better" : " ↑ higher is better");

// Draws now, and again when the width of the box changes.
function chart(kind, label, height, paint) {
  const svg = draw("svg", { class: "chart", "data-chart": kind, role: "img", "aria-label": label });
  const box = make("div", { class: "plot" }, svg);
  let width = 0;
  const again = () => {
    width = Math.max(240, Math.floor(box.clientWidth));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    paint(svg, width, height);
  };
  new ResizeObserver(() => { if (Math.floor(box.clientWidth) !== width) requestAnimationFrame(again); }).observe(box);
  return { box, svg, again };
}
