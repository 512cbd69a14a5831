// --- quality against cost: which families are worth their price
const PRICES = [
  { key: "latency", name: "one prediction", axis: "median latency of one prediction", getValue: (f) => f.latency, format: formatDuration, range: getLatencyRange },
  { key: "seconds", name: "training time", axis: "time of one training run", getValue: (f) => f.training?.seconds, format: formatDuration },
  { key: "parameters", name: "parameters", axis: "parameters", getValue: (f) => f.parameters, format: formatCount },
  { key: "memory", name: "memory", axis: "peak memory while training", getValue: (f) => f.memory, format: formatBytes },
  { key: "weights", name: "size on disk", axis: "size of the saved weights", getValue: (f) => f.weights, format: formatBytes },
];
const listMeasured = (price) => finished.filter((family) => isNumber(price.getValue(family)) && price.getValue(family) > 0);

// The families for which no other is better at the same cost, or as good and cheaper; cheapest first. Costs whose ranges
// overlap are the same cost: none of them is certainly lower.
function findEfficient(points) {
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

// Each name beside its mark, at the first position where it lies upon nothing else.
function nameMarks(svg, points, area) {
  const obstacles = points.flatMap(({ at: [x, y], costRange }) => [[x - 8, y - 8, x + 8, y + 8], ...(costRange ? [[costRange[0], y - 4, costRange[1], y + 4]] : [])]);
  const free = (box) => box[0] >= 0 && box[2] <= area.right + 8 && box[1] >= area.top - 14 && box[3] <= area.bottom &&
    obstacles.every((other) => other[0] >= box[2] || other[2] <= box[0] || other[1] >= box[3] || other[3] <= box[1]);
  for (const { family: { name }, at: [x, y] } of points) {
    const text = draw("text", { class: "end", style: `fill: ${getColour(name)}` }, shorten(name, 18));
    svg.append(text);
    const wide = text.getComputedTextLength(), tall = 14;
    const positions = [[x + 11, y - 8], [x - 11 - wide, y - 8], [x + 6, y - 24], [x + 6, y + 9], [x - 6 - wide, y - 24], [x - 6 - wide, y + 9],
      [x - wide / 2, y - 28], [x - wide / 2, y + 14]];
    const [left, up] = positions.find(([a, b]) => free([a, b, a + wide, b + tall])) ?? [];
    if (left === undefined) { text.remove(); continue; }  // the list below the chart still names it
    obstacles.push([left, up, left + wide, up + tall]);
    text.setAttribute("x", left); text.setAttribute("y", up + 11);
  }
}

function paintTradeoff(price, svg, width, height) {
  const visible = listMeasured(price).filter((family) => !hidden.has(family.name));
  const area = { left: 58, right: width - 16, top: 34, bottom: height - 46 };
  const ends = visible.flatMap((family) => { const range = getInterval(family); return [family.mean, ...(range ? [range.low, range.high] : [])]; });
  const [minimum, maximum] = findExtent(ends), log = allowsLog && minimum > 0 && maximum / minimum > 8;
  const costs = visible.flatMap((family) => [price.getValue(family), ...(price.range?.(family) ?? [])]);
  const x = makeScale(addMargins(costs, true, 0.12), area.left, area.right, true);
  const y = makeQualityScale(ends, area.bottom, area.top, log);
  svg.append(drawFrame(area, x, y, { x: price.axis + (x.maximum / x.minimum > 5 ? " (log)" : ""), y: qualityName, time: price.format === formatDuration },
    { x: (ticks) => ticks.map((tick) => trimZeros(price.format(tick))), y: formatQualityTicks }));
  const points = visible.map((family) => {
    const cost = price.getValue(family), range = price.range?.(family);
    return { family, cost, costs: range ?? [cost, cost], at: [x(cost), y(family.mean)], costRange: range?.map(x) };
  });
  const efficient = findEfficient(points);
  if (efficient.length) svg.append(draw("path", { class: "mark frontier", d: makeStaircase(efficient, x, y, area) }));
  for (const { family, at: [cx, cy], costRange } of points) {
    const range = getInterval(family), own = { class: "whisker", style: `stroke: ${getColour(family.name)}` };
    if (range) {
      svg.append(draw("line", { ...own, x1: cx, x2: cx, y1: y(range.low), y2: y(range.high), "stroke-dasharray": range.source === "seeds" ? null : "3 2" }));
      for (const end of [range.low, range.high]) svg.append(draw("line", { ...own, x1: cx - 4, x2: cx + 4, y1: y(end), y2: y(end) }));
    }
    if (costRange) {
      svg.append(draw("line", { ...own, x1: costRange[0], x2: costRange[1], y1: cy, y2: cy }));
      for (const end of costRange) svg.append(draw("line", { ...own, x1: end, x2: end, y1: cy - 4, y2: cy + 4 }));
    }
    const symbol = drawMark(family.name, cx, cy, 5.5, efficient.some((one) => one.family === family) ? {}
      : { style: `fill: var(--card); stroke: ${getColour(family.name)}; stroke-width: 2` });
    symbol.append(draw("title", {}, `${family.name}: ${metric.name} ${family.text.mean}, ${family.text[price.key]}`));
    svg.append(symbol);
  }
  nameMarks(svg, points, area);
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

function addTradeoff() {
  const prices = PRICES.filter((price) => listMeasured(price).length > 0);
  if (prices.length === 0) return addPart("tradeoff", "Quality against cost", "No family finished, so there is nothing to weigh.");
  let price = prices[0];
  const explanation = makeNote();
  const label = (one) => `${metric.name} against ${one.axis}`;
  const drawing = makeChart("tradeoff", label(price), 380, (svg, width, height) => {
    svg.setAttribute("aria-label", label(price));
    const efficient = paintTradeoff(price, svg, width, height);
    const notMeasured = finished.filter((family) => !listMeasured(price).includes(family)).map((family) => family.name);
    explanation.replaceChildren(describeOrder(efficient, price),
      price.range && finished.some(price.range) ? " Lines across: the range of latencies over several rounds." : "",
      notMeasured.length ? " Not measured: " + joinNames(notMeasured) + "." : "");
  });
  redrawFunctions.push(drawing.redraw);
  return addPart("tradeoff", "Quality against cost",
    "The best family may not be worth its price. " + (lower ? "Lower" : "Higher") + " is better, further left is cheaper.",
    make("div", { class: "controls" }, makeChoice("cost", prices.map((one) => [one.key, one.name]), price.key, (key) => {
      price = prices.find((one) => one.key === key);
      drawing.redraw();
    })),
    make("figure", { class: "wide" }, drawing.box), explanation);
}
