// The leaderboard: a row per family, best first, with its interval drawn on an axis they all share.
import { draw, make } from "../../../page/components/elements.js";
import { DASH, formatWhole, isNumber, joinNames } from "../../../page/components/numbers.js";
import { drawWhisker } from "../../../page/components/paths.js";
import { drawFamilyMark, makeCell, makeFamilyLabel, makeFoldable, makeHeading, makeLatencyRange, makeNote, makeNumber, makePart, makeRowHead, makeTable } from "./parts.js";
import { getInterval, getLatencyRange, getSpeed } from "./report.js";

const MARKS = { best: "best", equal: "equal to the best", tied: "tied with the best", unsure: "behind, but not certainly" };
const INTERVAL_CHART = { width: 170, height: 34, margin: 10 };

const listColumns = (report) => [
  { key: "parameters", name: "Parameters", title: "Numbers that training adjusts", getValue: (f) => f.parameters },
  { key: "tokens_per_second", name: "Training speed", title: `${report.unit} per second of training`,
    getValue: getSpeed, suffix: "/s" },
  { key: "seconds", name: "Trained for", title: "Time of one training run, mean over the seeds", getValue: (f) => f.training?.seconds },
  { key: "tokens", name: "Trained on", title: `${report.unit} of one training run, mean over the seeds`, getValue: (f) => f.training?.tokens },
  { key: "memory", name: "Memory", title: "Peak memory while training", getValue: (f) => f.memory },
  { key: "latency", name: "One prediction", title: "Latency of a single prediction: median and range over several rounds", getValue: (f) => f.latency, makeDetails: (f) => getLatencyRange(f) && makeLatencyRange(f) },
  { key: "learning_rate", name: "Learning rate", title: "The learning rate with the best validation", getValue: (f) => f.learning_rate },
];

function makeSharedAxis({ finished, metric }) {
  const numbers = finished.flatMap((family) => {
    const range = getInterval(family);
    return [family.mean, ...(range ? [range.low, range.high] : []), ...(family.values ?? []).map((one) => one.value)];
  }).filter(isNumber);
  return metric.makeScale(numbers, INTERVAL_CHART.margin, INTERVAL_CHART.width - INTERVAL_CHART.margin, metric.needsLog(numbers, 5));
}

// Mean, interval, and a faint dot for each seed.
function drawIntervalChart(report, family, axis, ticks) {
  const middle = INTERVAL_CHART.height / 2, range = getInterval(family), { colour } = report.getStyle(family.name);
  const description = !range ? "" : family.text.interval.startsWith("the same ") ? ", " + family.text.interval
    : `, 95 % interval over the ${range.source} ${family.text.interval}`;
  const svg = draw("svg", { class: "chart", "data-chart": "interval", "data-family": family.name, role: "img",
    viewBox: `0 0 ${INTERVAL_CHART.width} ${INTERVAL_CHART.height}`, "aria-label": `${family.name}: ${family.text.mean}${description}` });
  report.metric.formatTicks(ticks).forEach((text, at) => svg.append(
    draw("line", { class: "grid", x1: axis(ticks[at]), x2: axis(ticks[at]), y1: 0, y2: INTERVAL_CHART.height }),
    draw("text", { class: "below", x: axis(ticks[at]), y: INTERVAL_CHART.height + 8, "text-anchor": "middle" }, text)));
  for (const { value } of (family.values ?? []).filter((one) => isNumber(one.value)))
    svg.append(draw("circle", { class: "seed", cx: axis(value), cy: middle + 9, r: 2.6, style: `fill: ${colour}` }));
  if (range) svg.append(...drawWhisker(axis(range.low), axis(range.high), middle, 5, { style: `stroke: ${colour}`, dash: range.source === "seeds" ? null : "3 2" }));
  svg.append(drawFamilyMark(report, family.name, axis(family.mean), middle, 4.6));
  return svg;
}

function drawAxisHead({ metric }, axis, ticks) {
  const labels = metric.formatTicks(ticks);
  return draw("svg", { class: "chart", "data-chart": "axis", role: "img", "aria-label": `axis of ${metric.name}`,
    viewBox: `0 0 ${INTERVAL_CHART.width} 20` }, ...ticks.map((tick, at) =>
    draw("text", { class: "mark", x: Math.max(12, Math.min(INTERVAL_CHART.width - 12, axis(tick))), y: 15, "text-anchor": "middle" }, labels[at])));
}

function makeFamilyPills({ verdict, finished }, family) {
  const marks = [];
  if (family.is_baseline) marks.push(make("span", { class: "pill" }, "baseline, fitted by counting"));
  const rank = (verdict.equal ?? []).includes(family.name) ? "equal" : family.rank;
  if (MARKS[rank] && finished.length > 1) marks.push(make("span", { class: "pill " + family.rank }, MARKS[rank]));
  if (family.status === "partly") marks.push(make("span", { class: "pill warn" }, family.reason || "not all of it worked"));
  return marks;
}

function makeFamilyRow(report, columns, family, place, axis, ticks) {
  const head = make("th", { scope: "row" }, makeFamilyLabel(report, family.name), ...makeFamilyPills(report, family));
  const isEqual = (report.verdict.equal ?? []).includes(family.name);  // it shares the first place
  const number = make("td", { class: "place" }, String(isEqual ? 1 : place + 1));
  if (!isNumber(family.mean)) {
    return make("tr", { class: "failed", "data-row": family.name }, make("td", { class: "place" }, DASH), head,
      make("td", { colspan: columns.length + 2, class: "reason", "data-family": family.name, "data-key": "reason" },
        make("b", {}, family.status === "failed" ? "Failed. " : "Not ranked. "), family.reason || "No training run finished."));
  }
  const range = getInterval(family);
  const mean = makeCell(family.name, "mean", family.mean, make("b", {}, family.text.mean),
    range && make("small", { "data-family": family.name, "data-range": "interval" }, family.text.interval));
  mean.setAttribute("data-label", report.metric.name);
  const rest = columns.map((column) => {
    const hasValue = isNumber(column.getValue(family)), text = family.text[column.key];
    const field = makeCell(family.name, column.key, column.getValue(family), hasValue ? text + (column.suffix ?? "") : DASH, hasValue && column.makeDetails?.(family));
    field.setAttribute("data-label", column.name);
    field.classList.toggle("none", !hasValue);
    return field;
  });
  return make("tr", { class: family.rank, "data-row": family.name }, number, head, mean,
    make("td", { class: "drawn" }, drawIntervalChart(report, family, axis, ticks)), ...rest);
}

// A baseline, below the families.
function makeBaselineRow(report, columns, { name, value, about, value_text }) {
  const own = { "data-baseline": name };
  return make("tr", { class: "baseline", ...own }, make("td", { class: "place" }, DASH),
    make("th", { scope: "row" }, make("bdi", {}, name), make("span", { class: "pill" }, "baseline, not ranked")),
    make("td", { "data-key": "mean", "data-label": report.metric.name }, makeNumber({ ...own, "data-key": "value" }, value, make("b", {}, value_text))),
    make("td", { colspan: columns.length + 1, class: "reason" }, about));
}

function makeFootnotes({ metric, finished, hasSingleSeed }) {
  const whiskers = hasSingleSeed ? `One seed: the noise of training was not measured. Whiskers are 95 % intervals over the ${metric.split} examples alone.`
    : "Values are means over the seeds, whiskers their 95 % intervals, faint dots the seeds.";
  const findDashed = (isBaseline) => hasSingleSeed ? [] : finished.filter((family) => family.text.interval_source === "examples" && Boolean(family.is_baseline) === isBaseline).map((family) => family.name);
  const once = findDashed(false), baseline = (findDashed(true).length ? ` The baseline has no seeds: its whiskers, dashed, are over the ${metric.split} examples.` : "") +
    (once.length ? ` ${joinNames(once)} ${once.length === 1 ? "was tested with a single training run: its" : "were tested with a single training run each: their"} whiskers, dashed, are over the ${metric.split} examples and do not include the noise of seeds.` : "");
  const text = [make("b", {}, metric.name), ": ", metric.definition ?? "", /[.!?]$/.test(metric.definition ?? "") ? " " : ". ",
    metric.lower ? "Lower is better. " : "Higher is better. ", whiskers + baseline];
  const unitNote = !metric.example_unit ? "" : metric.num_examples === 1 ? ` There is one ${metric.split} example, counted in ${metric.example_unit}.`
    : ` ${metric.split === "test" ? "Test" : "Validation"} examples are ${isNumber(metric.num_examples) ? formatWhole(metric.num_examples) + " " : ""}${metric.example_unit}.`;
  return makeNote(...text, unitNote, ...(metric.warnings ?? []).map((warning) => " " + warning));
}

// Every number that was measured on the evaluated split.
function makeMetricsTable(report) {
  const { metric, finished } = report;
  const keys = [...new Set(finished.flatMap((family) => Object.keys(family.metrics ?? {})))];
  if (keys.length === 0) return null;
  const head = make("tr", {}, makeHeading("Family"), ...keys.map((key) => makeHeading(key.replaceAll("_", " "))),
    makeHeading("over seeds", { title: "95 % interval of " + metric.name + " over the seeds" }),
    makeHeading("over examples", { title: "95 % interval of " + metric.name + ` over the ${metric.split} examples` }));
  const rows = finished.map((family) => make("tr", {}, makeRowHead(report, family.name),
    ...keys.map((key) => makeCell(family.name, "metrics." + key, family.metrics?.[key], family.text.metrics[key] ?? DASH)),
    make("td", {}, family.text.seeds_interval), make("td", {}, family.text.examples_interval)));
  return makeFoldable(`Every metric of the ${metric.split} split`, makeTable(`every metric of the ${metric.split} split, mean over the seeds`, head, rows));
}

export function makeLeaderboard(report) {
  const { families, finished, metric, rules } = report, columns = listColumns(report), axis = makeSharedAxis(report), ticks = axis.ticks(3);
  const head = make("tr", {}, makeHeading("", { class: "place", "aria-label": "place" }), makeHeading("Family"),
    makeHeading(metric.name, { title: metric.definition, class: "number" }), makeHeading(finished.length ? drawAxisHead(report, axis, ticks) : "", { class: "drawn" }),
    ...columns.map((column) => makeHeading(column.name, { title: column.title, class: "number" })));
  const rows = [...families.map((family, place) => makeFamilyRow(report, columns, family, place, axis, ticks)),
    ...(report.baselines ?? []).map((baseline) => makeBaselineRow(report, columns, baseline))];
  return makePart("leaderboard", "Leaderboard", `Measured on the ${metric.split} split. ` + (rules.tested ?? ""),
    makeTable("leaderboard", head, rows, { class: "cards" }), makeFootnotes(report), makeMetricsTable(report));
}
