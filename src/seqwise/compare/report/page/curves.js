// Learning curves: the validation metric against what was spent, a line per family and a faint one per seed.
import { draw, make, makeChoice } from "../../../page/components/elements.js";
import { explore } from "../../../page/components/explore.js";
import { drawEndLabels } from "../../../page/components/labels.js";
import { formatCount, formatDuration, isNumber, joinNames } from "../../../page/components/numbers.js";
import { findValue, isPlottable, makeLinePath } from "../../../page/components/paths.js";
import { createPins } from "../../../page/components/pins.js";
import { drawFrame, findExtent, makeScale } from "../../../page/components/scales.js";
import { drawFamilyLine, makeFamilyChart, makeFamilyLegend, makeTicks, redrawCharts } from "./charts.js";
import { drawFamilyMark, makeFamilyLabel, makeNote, makePart } from "./parts.js";

// A line is { x, y }, two lists of numbers.
const makeLine = (points) => ({ x: points.map((point) => point[0]), y: points.map((point) => point[1]) });
function getLine(curve, by) {
  return makeLine(curve.points.filter((point) => isNumber(point[by]) && isNumber(point.value)).map((point) => [point[by], point.value]));
}

const listFamiliesWithCurves = (report) => report.families.filter((family) => (family.curves ?? []).some((curve) => getLine(curve, "tokens").x.length > 0));

function dropUnplottable(report, { x, y }) {
  const { curves } = report.choices, log = { x: curves.x === "log", y: curves.y === "log" };
  return makeLine(x.map((value, at) => [value, y[at]]).filter((point) => isPlottable(...point, log)));
}

// The mean over the seeds at each share of their training. On a busy machine one seed may have come much further than
// another in the same time: by share all of them have a value everywhere, and the line ends where they end on average.
function averageLines(lines) {
  if (lines.length < 2) return lines[0];
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const ends = lines.map((line) => line.x.at(-1) || 1);
  const shares = lines.map(({ x, y }, number) => ({ x: x.map((value) => value / ends[number]), y }));
  const from = Math.max(...shares.map((line) => line.x[0]));
  const allShares = [...new Set(shares.flatMap((line) => line.x))].filter((share) => share >= from).sort((a, b) => a - b);
  return makeLine(allShares.map((share) => [share * mean(ends), mean(shares.map((line) => findValue(line, share)?.value ?? line.y.at(-1)))]));
}

// While a comparison runs, some seeds are not trained to the end: they are not part of the mean if others are.
const isWaiting = (report, { name }, { seed }) => (report.trials ?? []).some((trial) => trial.kind === "train" && trial.family === name && trial.seed === seed && trial.status === "waiting");

function getLines(report, by) {
  const drop = (line) => dropUnplottable(report, line);
  return listFamiliesWithCurves(report).filter((family) => !report.choices.hidden.has(family.name)).map((family) => {
    const seeds = family.curves.map((curve) => ({ ...getLine(curve, by), isWaiting: isWaiting(report, family, curve) })).filter((line) => line.x.length > 0);
    const trained = seeds.filter((line) => !line.isWaiting), averaged = trained.length ? trained : seeds;
    return { name: family.name, seeds: seeds.map(drop), ...seeds.length ? drop(averageLines(averaged)) : makeLine([]) };
  }).filter((line) => line.x.length > 0);
}

function paintCurves(report, by, svg, width, height) {
  const { metric, getStyle } = report, { curves } = report.choices, lines = getLines(report, by), hasEndLabels = width >= 430;
  const area = { left: 58, right: width - (hasEndLabels ? 112 : 12), top: 34, bottom: height - 46 };
  const all = lines.flatMap((line) => [line, ...(curves.seeds ? line.seeds : [])]);
  const x = makeScale(all.flatMap((line) => line.x), area.left, area.right, curves.x === "log");
  const y = metric.makeScale(all.flatMap((line) => line.y), area.bottom, area.top, curves.y === "log", 0.04);
  svg.append(drawFrame(area, x, y, { x: by === "tokens" ? report.unit + " trained on" : "time spent training", y: metric.label },
    { ...makeTicks(by === "tokens" ? formatCount : formatDuration, x), y: metric.formatTicks }));
  if (lines.length === 0)
    svg.append(draw("text", { class: "name", x: width / 2, y: height / 2, "text-anchor": "middle" }, "every family is switched off"));
  const ends = lines.map((line) => ({ name: line.name, style: getStyle(line.name), x: x(line.x.at(-1)), y: y(line.y.at(-1)) }));
  for (const [at, line] of lines.entries()) {
    if (curves.seeds && line.seeds.length > 1)
      svg.append(...line.seeds.filter((seed) => seed.x.length > 0).map((seed) => draw("path", { class: "mark faint", d: makeLinePath(seed.x, seed.y, x, y, {}),
        style: `stroke: ${getStyle(line.name).colour}`, "data-family": line.name })));
    svg.append(drawFamilyLine(report, line.name, line, x, y), drawFamilyMark(report, line.name, ends[at].x, ends[at].y, 4));
  }
  const cursor = draw("line", { class: "cursor", y1: area.top, y2: area.bottom, visibility: "hidden" });
  svg.append(...hasEndLabels ? drawEndLabels(ends, area) : [], cursor);
  return { lines, x, area, cursor };
}

// Pointing, touching, or the arrow keys show the values of all families at one position.
function showValuesAtCursor(report, { box, svg }, by, getDrawn) {
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const makeMark = (position) => { const { area } = getDrawn(), at = clamp(position, area.left, area.right); return { key: String(at), at }; };
  svg.setAttribute("tabindex", "0");
  const explorer = explore(box, {
    isHorizontal: true,
    find: makeMark,
    describe({ at }) {
      const { lines, x, area } = getDrawn(), position = clamp(x.invert(at), x.minimum, x.maximum);
      const values = lines.map((line) => [line.name, findValue(line, position)?.value]).filter(([, value]) => isNumber(value));
      return { title: by === "tokens" ? formatCount(Math.round(position)) + " " + report.unit : formatDuration(position), at: { x: at, y: area.top },
        rows: values.sort((a, b) => report.metric.isBetter(a[1], b[1]) ? -1 : 1).map(([name, value]) => [makeFamilyLabel(report, name), report.metric.format(value)]) };
    },
    highlight(mark) {
      const { cursor } = getDrawn();
      cursor.setAttribute("visibility", mark ? "visible" : "hidden");
      if (mark) for (const end of ["x1", "x2"]) cursor.setAttribute(end, mark.at);
    },
    first: () => makeMark(getDrawn().area.right),
    step: ({ at }, dx) => makeMark(at + 0.02 * dx * (getDrawn().area.right - getDrawn().area.left)),
  }, createPins(), false);
  svg.addEventListener("blur", explorer.leave);
}

function makeCurveChart(report, by) {
  const label = `Learning curves: validation ${report.metric.name} of ${joinNames(listFamiliesWithCurves(report).map((family) => family.name))} against ` +
    (by === "tokens" ? report.unit : "seconds of training");
  let drawn = null;
  const drawing = makeFamilyChart("curves-" + by, label, 330, (svg, width, height) => { drawn = paintCurves(report, by, svg, width, height); });
  showValuesAtCursor(report, drawing, by, () => drawn);
  return make("figure", {}, make("figcaption", {}, by === "tokens" ? "By " + report.unit : "By time"), drawing.box);
}

export function makeCurves(report) {
  const { families, metric } = report, { curves } = report.choices, familiesWithCurves = listFamiliesWithCurves(report);
  if (familiesWithCurves.length === 0) return makePart("curves", "Learning curves", "There is no learning curve: nothing was validated during training.");
  const [minimum, maximum] = findExtent(familiesWithCurves.flatMap((family) => family.curves.flatMap((curve) => getLine(curve, "tokens").y)));
  const canLog = metric.allowsLog && minimum > 0;
  if (curves.y === null || !canLog) curves.y = canLog && maximum / minimum > 3 ? "log" : "linear";
  const change = (key) => (value) => { curves[key] = value; redrawCharts(part.section); };
  const kinds = [["linear", "linear"], ["log", "log"]];
  const hasSeveralSeeds = familiesWithCurves.some((family) => family.curves.length > 1);
  const withoutCurve = families.filter((family) => !familiesWithCurves.includes(family) && isNumber(family.mean)).map((family) => family.name);
  const part = makePart("curves", "Learning curves",
    "The validation metric while training. A curve that is still moving at the end would gain from a larger budget; one that is flat would not.",
    make("div", { class: "controls" }, makeFamilyLegend(report, familiesWithCurves.map((family) => family.name)),
      make("div", { class: "choices" }, makeChoice(report.unit + ", time", kinds, curves.x, change("x")), canLog && makeChoice(metric.name, kinds, curves.y, change("y")),
        hasSeveralSeeds && makeChoice("seeds", [["shown", "shown"], ["hidden", "hidden"]], curves.seeds ? "shown" : "hidden", (value) => change("seeds")(value === "shown")))),
    make("div", { class: "pair" }, makeCurveChart(report, "tokens"), makeCurveChart(report, "seconds")),
    makeNote((hasSeveralSeeds ? "Strong lines are means over the seeds, faint lines the seeds. " : "") +
      (withoutCurve.length ? "Without a curve: " + joinNames(withoutCurve) + ". " : "") + "Point at a chart, touch it, or use the arrow keys for values."));
  return part;
}
