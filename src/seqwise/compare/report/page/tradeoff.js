// Quality against cost: which families are worth their price.
import { draw, make, makeChoice } from "../../../page/components/elements.js";
import { placeNames } from "../../../page/components/labels.js";
import { formatBytes, formatCount, formatDuration, isNumber, joinNames, shorten } from "../../../page/components/numbers.js";
import { drawWhisker } from "../../../page/components/paths.js";
import { addMargins, drawFrame, makeScale, measureText } from "../../../page/components/scales.js";
import { makeFamilyChart, makeTicks } from "./charts.js";
import { drawFamilyMark, makeNote, makePart } from "./parts.js";
import { getInterval, getLatencyRange } from "./report.js";

const PRICES = [
  { key: "latency", name: "one prediction", axis: "median latency of one prediction", getValue: (f) => f.latency, format: formatDuration, range: getLatencyRange },
  { key: "seconds", name: "training time", axis: "time of one training run", getValue: (f) => f.training?.seconds, format: formatDuration },
  { key: "parameters", name: "parameters", axis: "parameters", getValue: (f) => f.parameters, format: formatCount },
  { key: "memory", name: "memory", axis: "peak memory while training", getValue: (f) => f.memory, format: formatBytes },
  { key: "weights", name: "size on disk", axis: "size of the saved weights", getValue: (f) => f.weights, format: formatBytes },
];
const listMeasured = (report, price) => report.finished.filter((family) => isNumber(price.getValue(family)) && price.getValue(family) > 0);

// The families for which no other is better at the same cost, or as good and cheaper; cheapest first. Costs whose ranges
// overlap are the same cost: none of them is certainly lower.
function findEfficient(points, { isBetter }) {
  const isCheaper = (a, b) => a.costs[1] < b.costs[0];
  const hasBetterMean = (a, b) => isBetter(a.family.mean, b.family.mean);
  const dominates = (a, b) => isCheaper(a, b) ? !hasBetterMean(b, a) : hasBetterMean(a, b) && !isCheaper(b, a);
  return points.filter((point) => !points.some((other) => dominates(other, point))).sort((a, b) => a.cost - b.cost);
}

const findOverlapping = (points) => points.filter((a) => points.some((b) => a !== b && a.costs[0] <= b.costs[1] && b.costs[0] <= a.costs[1]));

function makeStaircase(efficient, x, y, area) {
  const steps = efficient.map((point, at) => (at ? "H" : "M") + x(point.cost).toFixed(1) + (at ? "V" : " ") + y(point.family.mean).toFixed(1));
  return steps.join("") + "H" + area.right;
}

// Each name beside its mark, where it lies upon nothing else; the list below the chart names all.
function drawNames(report, points, area) {
  const named = points.map(({ family: { name }, at: [x, y] }) => {
    const text = shorten(name, 18);
    return { x, y, name, text, width: measureText(text, "600 12px system-ui, sans-serif") };
  });
  const obstacles = points.flatMap(({ at: [x, y], costRange }) => [[x - 8, y - 8, x + 8, y + 8], ...costRange ? [[costRange[0], y - 4, costRange[1], y + 4]] : []]);
  const boxes = placeNames(named, { left: 0, right: area.right + 8, top: area.top - 14, bottom: area.bottom }, obstacles, 11);
  return named.flatMap(({ name, text }, at) => !boxes[at] ? [] : [draw("text", { class: "end", x: boxes[at][0], y: boxes[at][1] + 11, style: `fill: ${report.getStyle(name).colour}` }, text)]);
}

function paintTradeoff(report, price, svg, width, height) {
  const { metric } = report, visible = listMeasured(report, price).filter((family) => !report.choices.hidden.has(family.name));
  const area = { left: 58, right: width - 16, top: 34, bottom: height - 46 };
  const ends = visible.flatMap((family) => { const range = getInterval(family); return [family.mean, ...(range ? [range.low, range.high] : [])]; });
  const costs = visible.flatMap((family) => [price.getValue(family), ...(price.range?.(family) ?? [])]);
  const x = makeScale(addMargins(costs, true, 0.12), area.left, area.right, true);
  const y = metric.makeScale(ends, area.bottom, area.top, metric.needsLog(ends, 8));
  svg.append(drawFrame(area, x, y, { x: price.axis + (x.maximum / x.minimum > 5 ? " (log)" : ""), y: metric.label }, { ...makeTicks(price.format, x), y: metric.formatTicks }));
  const points = visible.map((family) => {
    const cost = price.getValue(family), range = price.range?.(family);
    return { family, cost, costs: range ?? [cost, cost], at: [x(cost), y(family.mean)], costRange: range?.map(x) };
  });
  const efficient = findEfficient(points, metric);
  if (efficient.length) svg.append(draw("path", { class: "mark frontier", d: makeStaircase(efficient, x, y, area) }));
  for (const { family, at: [cx, cy], costRange } of points) {
    const range = getInterval(family), { colour } = report.getStyle(family.name), style = `stroke: ${colour}`;
    if (range) svg.append(...drawWhisker(y(range.low), y(range.high), cx, 4, { style, isVertical: true, dash: range.source === "seeds" ? null : "3 2" }));
    if (costRange) svg.append(...drawWhisker(...costRange, cy, 4, { style }));
    const isEfficient = efficient.some((one) => one.family === family);
    const symbol = drawFamilyMark(report, family.name, cx, cy, 5.5, isEfficient ? {} : { style: `fill: var(--card); stroke: ${colour}; stroke-width: 2` });
    symbol.append(draw("title", {}, `${family.name}: ${metric.name} ${family.text.mean}, ${family.text[price.key]}`));
    svg.append(symbol);
  }
  svg.append(...drawNames(report, points, area));
  return efficient;
}

// The order of the efficient families, as far as it is certain.
function describeOrder(efficient, price) {
  if (efficient.length === 0) return "";
  const getNames = (points) => points.map((point) => point.family.name), overlapping = findOverlapping(efficient);
  const meaning = "Filled marks, joined by the line: no other family is better at the same cost, or as good and cheaper. ";
  if (price.range && overlapping.length > 1)
    return meaning + `Cheapest first by the median: ${getNames(efficient).join(", ")}. The ranges of ${joinNames(getNames(overlapping))} overlap, so that which of them is cheaper is not certain.`;
  return meaning + `Cheapest first: ${getNames(efficient).join(", ")}.`;
}

export function makeTradeoff(report) {
  const { choices, finished, metric } = report, prices = PRICES.filter((price) => listMeasured(report, price).length > 0);
  if (prices.length === 0) return makePart("tradeoff", "Quality against cost", "No family finished, so there is nothing to weigh.");
  let price = prices.find(({ key }) => key === choices.price) ?? prices[0];
  const explanation = makeNote();
  const label = (one) => `${metric.name} against ${one.axis}`;
  const drawing = makeFamilyChart("tradeoff", label(price), 380, (svg, width, height) => {
    svg.setAttribute("aria-label", label(price));
    const efficient = paintTradeoff(report, price, svg, width, height);
    const notMeasured = finished.filter((family) => !listMeasured(report, price).includes(family)).map((family) => family.name);
    explanation.replaceChildren(describeOrder(efficient, price),
      price.range && finished.some(price.range) ? " Lines across: the range of latencies over several rounds." : "",
      notMeasured.length ? " Not measured: " + joinNames(notMeasured) + "." : "");
  });
  return makePart("tradeoff", "Quality against cost",
    "The best family may not be worth its price. " + (metric.lower ? "Lower" : "Higher") + " is better, further left is cheaper.",
    make("div", { class: "controls" }, makeChoice("cost", prices.map((one) => [one.key, one.name]), price.key, (key) => {
      price = prices.find((one) => one.key === key);
      choices.price = key;
      drawing.redraw();
    })),
    make("figure", { class: "wide" }, drawing.box), explanation);
}
