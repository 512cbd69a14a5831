// --- learning curves: the validation metric against what was spent, a line per family and a faint one per seed
const hidden = new Set();  // families switched off in the legend
const listeners = [];      // charts to draw again then
const curveState = { x: "linear", y: "linear", seeds: true };

const curved = families.filter((family) => (family.curves ?? []).some((curve) => pointsOf(curve, "tokens").length > 0));

function pointsOf(curve, by) {
  return curve.points.filter((point) => exists(point[by]) && exists(point.value)).map((point) => [point[by], point.value]);
}

// The value of a line between its points; null outside.
function valueAt(points, x) {
  if (points.length === 0 || x < points[0][0] || x > points.at(-1)[0]) return null;
  const after = points.findIndex((point) => point[0] >= x);
  const [x2, y2] = points[after], [x1, y1] = points[Math.max(0, after - 1)];
  return x2 === x1 ? y2 : y1 + (y2 - y1) * (x - x1) / (x2 - x1);
}

// The mean over the seeds at each share of their training. On a busy machine one seed may have come much further than
// another in the same time: by share all of them have a value everywhere, and the line ends where they end on average.
function meanLine(lines) {
  if (lines.length < 2) return lines[0] ?? [];
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const ends = lines.map((line) => line.at(-1)[0] || 1);
  const shares = lines.map((line, number) => line.map(([x, y]) => [x / ends[number], y]));
  const from = Math.max(...shares.map((line) => line[0][0]));
  const places = [...new Set(shares.flatMap((line) => line.map((point) => point[0])))].filter((share) => share >= from);
  return places.sort((a, b) => a - b).map((share) => [share * mean(ends), mean(shares.map((line) => valueAt(line, share)))]);
}

function linesOf(by) {
  return curved.map((family) => {
    const own = family.curves.map((curve) => pointsOf(curve, by)).filter((points) => points.length > 0);
    return { name: family.name, seeds: own, mean: meanLine(own) };
  }).filter((line) => line.seeds.length > 0);
}

const path = (points, x, y) => "M" + points.map(([a, b]) => x(a).toFixed(1) + " " + y(b).toFixed(1)).join("L");
const clean = (points) => points.filter(([a, b]) => (curveState.x !== "log" || a > 0) && (curveState.y !== "log" || b > 0));

// A name beside the end of each line, moved down, or else up, until it lies upon no other.
function endLabels(lines, x, y, place) {
  const step = 14, taken = [];
  const free = (label) => taken.every((other) => other.right < label.left || label.right < other.left || Math.abs(other.at - label.at) >= step);
  const ends = lines.map((line) => ({ name: line.name, text: shorten(line.name, 14), end: line.mean.at(-1) }));
  return ends.sort((a, b) => y(a.end[1]) - y(b.end[1])).map(({ name, text, end }) => {
    const left = x(end[0]) + 8, label = { left, right: left + 8 * text.length, at: y(end[1]) };
    while (!free(label) && label.at < place.bottom) label.at += 1;
    while (!free(label) && label.at > place.top) label.at -= 1;
    taken.push(label);
    return draw("text", { class: "end", x: left, y: label.at + 4, style: `fill: ${colour(name)}` }, text);
  });
}

function paintCurves(by, svg, width, height) {
  const all = linesOf(by).filter((line) => !hidden.has(line.name))
    .map((line) => ({ ...line, mean: clean(line.mean), seeds: line.seeds.map(clean).filter((one) => one.length) }))
    .filter((line) => line.mean.length > 0);
  const named = width >= 430;
  const place = { left: 58, right: width - (named ? 112 : 12), top: 34, bottom: height - 46 };
  const drawn = all.flatMap((line) => [line.mean, ...(curveState.seeds ? line.seeds : [])]).flat();
  const x = scale(drawn.map((point) => point[0]), place.left, place.right, curveState.x === "log");
  const y = scale(padded(drawn.map((point) => point[1]), curveState.y === "log", 0.04), place.bottom, place.top, curveState.y === "log");
  const units = by === "tokens" ? (ticks) => ticks.map((tick) => trimZeros(count(tick))) : (ticks) => ticks.map((tick) => trimZeros(duration(tick)));
  svg.append(frame(place, x, y, { x: by === "tokens" ? report.unit + " trained on" : "time spent training", y: qualityName, time: by === "seconds" },
    { x: units, y: qualityTicks }));
  if (all.length === 0)
    svg.append(draw("text", { class: "name", x: width / 2, y: height / 2, "text-anchor": "middle" }, "every family is switched off"));
  for (const line of all) {
    const own = { style: `stroke: ${colour(line.name)}`, "data-family": line.name };
    if (curveState.seeds && line.seeds.length > 1)
      for (const seed of line.seeds) svg.append(draw("path", { class: "mark faint", d: path(seed, x, y), ...own }));
    svg.append(draw("path", { class: "mark line", d: path(line.mean, x, y), "stroke-dasharray": dash(line.name), ...own }));
    svg.append(mark(line.name, x(line.mean.at(-1)[0]), y(line.mean.at(-1)[1]), 4));
  }
  if (named) svg.append(...endLabels(all, x, y, place));
  const rule = draw("line", { class: "cursor", y1: place.top, y2: place.bottom, visibility: "hidden" });
  svg.append(rule);
  return { lines: all, x, y, place, rule, width };
}

// Pointing, touching, or the arrow keys show the values of all families at one place.
function explore(box, svg, by, state) {
  const tip = make("div", { class: "tip", role: "status", hidden: true });
  box.append(tip);
  let at = 1;
  const show = (spot) => {
    const { lines, x, place, rule, width } = state.now;
    const reached = Math.max(place.left, Math.min(place.right, spot)), where = x.invert(reached);
    const rows = lines.map((line) => [line.name, valueAt(line.mean, Math.min(where, line.mean.at(-1)[0] * 1.0000001 >= where ? where : Infinity))])
      .filter(([, value]) => value !== null).sort((a, b) => better(a[1], b[1]) ? -1 : 1);
    at = (reached - place.left) / (place.right - place.left);
    rule.setAttribute("x1", reached); rule.setAttribute("x2", reached); rule.setAttribute("visibility", "visible");
    tip.replaceChildren(make("b", {}, by === "tokens" ? count(Math.round(where)) + " " + report.unit : duration(where)),
      ...rows.map(([name, value]) => make("div", {}, familyLabel(name), make("span", {}, quality(value)))));
    tip.hidden = false;
    const left = reached > (place.left + place.right) / 2 ? reached - tip.offsetWidth - 12 : reached + 12;
    tip.style.left = Math.max(0, Math.min(width - tip.offsetWidth, left)) + "px";
  };
  const hide = () => { tip.hidden = true; state.now.rule.setAttribute("visibility", "hidden"); };
  const spotOf = (event) => (event.clientX - svg.getBoundingClientRect().left) * state.now.width / svg.getBoundingClientRect().width;
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("pointermove", (event) => show(spotOf(event)));
  svg.addEventListener("pointerdown", (event) => show(spotOf(event)));
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    at = Math.max(0, Math.min(1, tip.hidden ? at : at + (event.key === "ArrowLeft" ? -0.02 : 0.02)));
    show(state.now.place.left + at * (state.now.place.right - state.now.place.left));
  });
}

function curveChart(by) {
  const label = `Learning curves: validation ${metric.name} of ${joinNames(curved.map((family) => family.name))} against ` +
    (by === "tokens" ? report.unit : "seconds of training");
  const state = { now: null };
  const drawing = chart("curves-" + by, label, 330, (svg, width, height) => { state.now = paintCurves(by, svg, width, height); });
  explore(drawing.box, drawing.svg, by, state);
  listeners.push(drawing.again);
  const name = by === "tokens" ? "By " + report.unit : "By time";
  return make("figure", {}, make("figcaption", {}, name), drawing.box);
}

function legend(names) {
  const buttons = names.map((name) => {
    const button = make("button", { type: "button", "aria-pressed": "true", title: "show or hide", "data-toggle": name }, familyLabel(name));
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      for (const same of document.querySelectorAll("[data-toggle]"))
        if (same.dataset.toggle === name) same.setAttribute("aria-pressed", String(!hidden.has(name)));
      for (const again of listeners) again();
    });
    return button;
  });
  return make("div", { class: "legend", role: "group", "aria-label": "families shown" }, ...buttons);
}

function curves() {
  if (curved.length === 0) return part("curves", "Learning curves", "There is no learning curve: nothing was validated during training.");
  const values = curved.flatMap((family) => family.curves.flatMap((curve) => pointsOf(curve, "tokens").map((point) => point[1])));
  const [minimum, maximum] = extent(values), canLog = allowsLog && minimum > 0;
  if (canLog && maximum / minimum > 3) curveState.y = "log";
  const change = (key) => (value) => { curveState[key] = value; for (const again of listeners) again(); };
  const kinds = [["linear", "linear"], ["log", "log"]];
  const several = curved.some((family) => family.curves.length > 1);
  const left = families.filter((family) => !curved.includes(family) && exists(family.mean)).map((family) => family.name);
  return part("curves", "Learning curves",
    "The validation metric while training. A curve that is still moving at the end would gain from a larger budget; one that is flat would not.",
    make("div", { class: "controls" }, legend(curved.map((family) => family.name)),
      make("div", { class: "choices" }, choice(report.unit + ", time", kinds, curveState.x, change("x")), canLog && choice(metric.name, kinds, curveState.y, change("y")),
        several && choice("seeds", [["shown", "shown"], ["hidden", "hidden"]], "shown", (value) => change("seeds")(value === "shown")))),
    make("div", { class: "pair" }, curveChart("tokens"), curveChart("seconds")),
    note((several ? "Strong lines are means over the seeds, faint lines the seeds. " : "") +
      (left.length ? "Without a curve: " + joinNames(left) + ". " : "") + "Point at a chart, touch it, or use the arrow keys for values."));
}
