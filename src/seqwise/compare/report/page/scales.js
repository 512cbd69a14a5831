// --- scales, axes and the frame of a chart. A chart is drawn in pixels of its box, and again when the box changes.
const within = (numbers) => numbers.reduce(([least, most], number) => [Math.min(least, number), Math.max(most, number)],
  [Infinity, -Infinity]);

function scale(numbers, start, end, log = false) {
  let [least, most] = within(numbers);
  if (!Number.isFinite(least)) [least, most] = log ? [1, 10] : [0, 1];
  if (least === most) {
    const room = log ? 1.5 : Math.abs(least) * 0.1 || 1;
    [least, most] = log ? [least / room, most * room] : [least - room, most + room];
  }
  const bend = log ? Math.log : (value) => value;
  const from = bend(least), span = bend(most) - from;
  const at = (value) => start + (end - start) * (bend(value) - from) / span;
  const back = (place) => {
    const value = from + span * (place - start) / (end - start);
    return log ? Math.exp(value) : value;
  };
  return Object.assign(at, { back, least, most, log, ticks: (wanted, unit = 1) =>
    (log ? logTicks : linearTicks)(least / unit, most / unit, wanted).map((tick) => tick * unit) });
}

// A little room on both sides, so that no mark lies upon the frame.
function padded(numbers, log, amount = 0.06) {
  const [least, most] = within(numbers);
  if (!Number.isFinite(least) || least === most) return numbers;
  const room = log ? (most / least) ** amount : (most - least) * amount;
  return log ? [least / room, most * room] : [least - room, most + room];
}

function linearTicks(least, most, wanted) {
  const rough = (most - least) / Math.max(1, wanted), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * power).find((one) => one >= rough * 0.999) ?? 10 * power;
  const ticks = [];
  for (let n = Math.ceil(least / step - 1e-9); n * step <= most + step * 1e-9; n++) ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
}

function logTicks(least, most, wanted) {
  const decades = Math.log10(most / least);
  if (decades < 0.7) return linearTicks(least, most, wanted);
  const every = Math.max(1, Math.ceil(decades / wanted));
  const times = decades < wanted / 3 ? [1, 2, 3, 5, 7] : decades < wanted / 1.8 ? [1, 2, 5] : decades < wanted ? [1, 3] : [1];
  const ticks = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power++)
    for (const time of power % every === 0 ? times : []) {
      const tick = Number((time * 10 ** power).toPrecision(12));
      if (tick >= least * 0.9999 && tick <= most * 1.0001) ticks.push(tick);
    }
  return ticks.length > 1 ? ticks : linearTicks(least, most, wanted);
}

// As few digits as all ticks need.
function tickLabels(ticks) {
  let digits = 0;
  while (digits < 9 && ticks.some((tick) => Math.abs(tick - Number(tick.toFixed(digits))) > 1e-6 * Math.abs(tick))) digits++;
  const odd = (tick) => Math.abs(tick) >= 1e6 || (tick !== 0 && Math.abs(tick) < 1e-5);
  const each = (tick) => tick.toLocaleString("en-GB", { maximumFractionDigits: digits }).replace(/^-/, "−");
  return ticks.map((tick) => odd(tick) ? scientific(tick, 2).replace(".0 ", " ").replace(/^(−?)1 × /, "$1") : each(tick));
}

const qualityTicks = (ticks) => share ? tickLabels(ticks.map((tick) => tick * 100)).map((text) => text + " %") : tickLabels(ticks);

// Long times are round in minutes or hours, not in hundreds of seconds.
const timeUnit = (x) => x.log && x.most / x.least > 1000 ? 1 : x.most > 7200 ? 3600 : x.most > 120 ? 60 : 1;

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
