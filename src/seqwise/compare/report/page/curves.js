// --- learning curves: the validation metric against what was spent, a line per family and a faint one per seed
const hidden = new Set();  // families switched off in the legend
const redrawFunctions = [];  // of the charts, called when that changes
const curveState = { x: "linear", y: "linear", seeds: true };

const familiesWithCurves = families.filter((family) => (family.curves ?? []).some((curve) => getPoints(curve, "tokens").length > 0));

function getPoints(curve, by) {
  return curve.points.filter((point) => isNumber(point[by]) && isNumber(point.value)).map((point) => [point[by], point.value]);
}

// The value of a line between its points; null outside.
function interpolate(points, x) {
  if (points.length === 0 || x < points[0][0] || x > points.at(-1)[0]) return null;
  const after = points.findIndex((point) => point[0] >= x);
  const [x2, y2] = points[after], [x1, y1] = points[Math.max(0, after - 1)];
  return x2 === x1 ? y2 : y1 + (y2 - y1) * (x - x1) / (x2 - x1);
}

// The mean over the seeds at each share of their training. On a busy machine one seed may have come much further than
// another in the same time: by share all of them have a value everywhere, and the line ends where they end on average.
function averageLines(lines) {
  if (lines.length < 2) return lines[0] ?? [];
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const ends = lines.map((line) => line.at(-1)[0] || 1);
  const shares = lines.map((line, number) => line.map(([x, y]) => [x / ends[number], y]));
  const from = Math.max(...shares.map((line) => line[0][0]));
  const allShares = [...new Set(shares.flatMap((line) => line.map((point) => point[0])))].filter((share) => share >= from);
  return allShares.sort((a, b) => a - b).map((share) => [share * mean(ends), mean(shares.map((line) => interpolate(line, share)))]);
}

function getLines(by) {
  return familiesWithCurves.map((family) => {
    const seedLines = family.curves.map((curve) => getPoints(curve, by)).filter((points) => points.length > 0);
    return { name: family.name, seeds: seedLines, mean: averageLines(seedLines) };
  }).filter((line) => line.seeds.length > 0);
}

const makePath = (points, x, y) => "M" + points.map(([a, b]) => x(a).toFixed(1) + " " + y(b).toFixed(1)).join("L");
const dropUnplottable = (points) => points.filter(([a, b]) => (curveState.x !== "log" || a > 0) && (curveState.y !== "log" || b > 0));

// A name beside the end of each line, moved down, or else up, until it lies upon no other.
function drawEndLabels(lines, x, y, area) {
  const step = 14, obstacles = [];
  const free = (label) => obstacles.every((other) => other.right < label.left || label.right < other.left || Math.abs(other.at - label.at) >= step);
  const ends = lines.map((line) => ({ name: line.name, text: shorten(line.name, 14), end: line.mean.at(-1) }));
  return ends.sort((a, b) => y(a.end[1]) - y(b.end[1])).map(({ name, text, end }) => {
    const left = x(end[0]) + 8, label = { left, right: left + 8 * text.length, at: y(end[1]) };
    while (!free(label) && label.at < area.bottom) label.at += 1;
    while (!free(label) && label.at > area.top) label.at -= 1;
    obstacles.push(label);
    return draw("text", { class: "end", x: left, y: label.at + 4, style: `fill: ${getColour(name)}` }, text);
  });
}

function paintCurves(by, svg, width, height) {
  const all = getLines(by).filter((line) => !hidden.has(line.name))
    .map((line) => ({ ...line, mean: dropUnplottable(line.mean), seeds: line.seeds.map(dropUnplottable).filter((one) => one.length) }))
    .filter((line) => line.mean.length > 0);
  const hasEndLabels = width >= 430;
  const area = { left: 58, right: width - (hasEndLabels ? 112 : 12), top: 34, bottom: height - 46 };
  const allPoints = all.flatMap((line) => [line.mean, ...(curveState.seeds ? line.seeds : [])]).flat();
  const x = makeScale(allPoints.map((point) => point[0]), area.left, area.right, curveState.x === "log");
  const y = makeQualityScale(allPoints.map((point) => point[1]), area.bottom, area.top, curveState.y === "log", 0.04);
  const units = by === "tokens" ? (ticks) => ticks.map((tick) => trimZeros(formatCount(tick))) : (ticks) => ticks.map((tick) => trimZeros(formatDuration(tick)));
  svg.append(drawFrame(area, x, y, { x: by === "tokens" ? report.unit + " trained on" : "time spent training", y: qualityName, time: by === "seconds" },
    { x: units, y: formatQualityTicks }));
  if (all.length === 0)
    svg.append(draw("text", { class: "name", x: width / 2, y: height / 2, "text-anchor": "middle" }, "every family is switched off"));
  for (const line of all) {
    const attributes = { style: `stroke: ${getColour(line.name)}`, "data-family": line.name };
    if (curveState.seeds && line.seeds.length > 1)
      for (const seed of line.seeds) svg.append(draw("path", { class: "mark faint", d: makePath(seed, x, y), ...attributes }));
    svg.append(draw("path", { class: "mark line", d: makePath(line.mean, x, y), "stroke-dasharray": getDash(line.name), ...attributes }));
    svg.append(drawMark(line.name, x(line.mean.at(-1)[0]), y(line.mean.at(-1)[1]), 4));
  }
  if (hasEndLabels) svg.append(...drawEndLabels(all, x, y, area));
  const rule = draw("line", { class: "cursor", y1: area.top, y2: area.bottom, visibility: "hidden" });
  svg.append(rule);
  return { lines: all, x, y, area, rule, width };
}

// Pointing, touching, or the arrow keys show the values of all families at one position.
function showValuesAtCursor(box, svg, by, state) {
  const tip = make("div", { class: "tip", role: "status", hidden: true });
  box.append(tip);
  let share = 1;  // of the width, at the cursor
  const show = (pointerX) => {
    const { lines, x, area, rule, width } = state.now;
    const cursorX = Math.max(area.left, Math.min(area.right, pointerX)), xValue = x.invert(cursorX);
    const rows = lines.map((line) => [line.name, interpolate(line.mean, Math.min(xValue, line.mean.at(-1)[0] * 1.0000001 >= xValue ? xValue : Infinity))])
      .filter(([, value]) => value !== null).sort((a, b) => isBetter(a[1], b[1]) ? -1 : 1);
    share = (cursorX - area.left) / (area.right - area.left);
    rule.setAttribute("x1", cursorX); rule.setAttribute("x2", cursorX); rule.setAttribute("visibility", "visible");
    tip.replaceChildren(make("b", {}, by === "tokens" ? formatCount(Math.round(xValue)) + " " + report.unit : formatDuration(xValue)),
      ...rows.map(([name, value]) => make("div", {}, makeFamilyLabel(name), make("span", {}, formatQuality(value)))));
    tip.hidden = false;
    const left = cursorX > (area.left + area.right) / 2 ? cursorX - tip.offsetWidth - 12 : cursorX + 12;
    tip.style.left = Math.max(0, Math.min(width - tip.offsetWidth, left)) + "px";
  };
  const hide = () => { tip.hidden = true; state.now.rule.setAttribute("visibility", "hidden"); };
  const getPointerX = (event) => (event.clientX - svg.getBoundingClientRect().left) * state.now.width / svg.getBoundingClientRect().width;
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("pointermove", (event) => show(getPointerX(event)));
  svg.addEventListener("pointerdown", (event) => show(getPointerX(event)));
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    share = Math.max(0, Math.min(1, tip.hidden ? share : share + (event.key === "ArrowLeft" ? -0.02 : 0.02)));
    show(state.now.area.left + share * (state.now.area.right - state.now.area.left));
  });
}

function makeCurveChart(by) {
  const label = `Learning curves: validation ${metric.name} of ${joinNames(familiesWithCurves.map((family) => family.name))} against ` +
    (by === "tokens" ? report.unit : "seconds of training");
  const state = { now: null };
  const drawing = makeChart("curves-" + by, label, 330, (svg, width, height) => { state.now = paintCurves(by, svg, width, height); });
  showValuesAtCursor(drawing.box, drawing.svg, by, state);
  redrawFunctions.push(drawing.redraw);
  const name = by === "tokens" ? "By " + report.unit : "By time";
  return make("figure", {}, make("figcaption", {}, name), drawing.box);
}

function makeLegend(names) {
  const buttons = names.map((name) => {
    const button = make("button", { type: "button", "aria-pressed": "true", title: "show or hide", "data-toggle": name }, makeFamilyLabel(name));
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      for (const same of document.querySelectorAll("[data-toggle]"))
        if (same.dataset.toggle === name) same.setAttribute("aria-pressed", String(!hidden.has(name)));
      for (const redraw of redrawFunctions) redraw();
    });
    return button;
  });
  return make("div", { class: "legend", role: "group", "aria-label": "families shown" }, ...buttons);
}

function addCurves() {
  if (familiesWithCurves.length === 0) return addPart("curves", "Learning curves", "There is no learning curve: nothing was validated during training.");
  const values = familiesWithCurves.flatMap((family) => family.curves.flatMap((curve) => getPoints(curve, "tokens").map((point) => point[1])));
  const [minimum, maximum] = findExtent(values), canLog = allowsLog && minimum > 0;
  if (canLog && maximum / minimum > 3) curveState.y = "log";
  const change = (key) => (value) => { curveState[key] = value; for (const redraw of redrawFunctions) redraw(); };
  const kinds = [["linear", "linear"], ["log", "log"]];
  const hasSeveralSeeds = familiesWithCurves.some((family) => family.curves.length > 1);
  const withoutCurve = families.filter((family) => !familiesWithCurves.includes(family) && isNumber(family.mean)).map((family) => family.name);
  return addPart("curves", "Learning curves",
    "The validation metric while training. A curve that is still moving at the end would gain from a larger budget; one that is flat would not.",
    make("div", { class: "controls" }, makeLegend(familiesWithCurves.map((family) => family.name)),
      make("div", { class: "choices" }, makeChoice(report.unit + ", time", kinds, curveState.x, change("x")), canLog && makeChoice(metric.name, kinds, curveState.y, change("y")),
        hasSeveralSeeds && makeChoice("seeds", [["shown", "shown"], ["hidden", "hidden"]], "shown", (value) => change("seeds")(value === "shown")))),
    make("div", { class: "pair" }, makeCurveChart("tokens"), makeCurveChart("seconds")),
    makeNote((hasSeveralSeeds ? "Strong lines are means over the seeds, faint lines the seeds. " : "") +
      (withoutCurve.length ? "Without a curve: " + joinNames(withoutCurve) + ". " : "") + "Point at a chart, touch it, or use the arrow keys for values."));
}
