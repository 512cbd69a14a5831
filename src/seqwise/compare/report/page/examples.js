// Examples on which the families disagree.
import { draw, make } from "../../../page/components/elements.js";
import { DASH, isNumber, joinNames, shorten } from "../../../page/components/numbers.js";
import { makeLinePath } from "../../../page/components/paths.js";
import { addMargins, drawFrame, makeScale } from "../../../page/components/scales.js";
import { drawFamilyLine, makeFamilyChart } from "./charts.js";
import { makeBar } from "./costs.js";
import { makeCell, makeFamilyLabel, makeHeading, makePart, makeRowHead } from "./parts.js";

const NUM_UNFOLDED = 3;  // examples
const TEXT_TASKS = new Set(["language", "masked"]);  // tasks that read one long text
const STREAM_TASKS = new Set([...TEXT_TASKS, "forecast"]);  // and a series: examples are pieces of it

// Right or wrong for shares, otherwise the value.
function makeJudgement({ isRatio }, value, best, text) {
  if (!isNumber(value)) return make("span", { class: "judged" }, DASH);
  if (isRatio && value === 1) return make("span", { class: "judged right" }, "✓ right");
  if (isRatio && value === 0) return make("span", { class: "judged wrong" }, "✗ wrong");
  return make("span", { class: "judged" + (value === best ? " top" : "") }, text, value === best ? make("small", {}, "best here") : "");
}

function makeAnswersTable(report, example) {
  const { metric } = report, { isRatio } = metric;
  const own = report.families.filter((family) => Object.hasOwn(example.answers ?? {}, family.name));
  const values = own.map((family) => example.answers[family.name].value).filter(isNumber);
  const best = values.length > 1 && new Set(values).size > 1 ? (metric.lower ? Math.min : Math.max)(...values) : null;
  const maximum = Math.max(...values.map(Math.abs), 1e-300);
  const texts = own.some((family) => example.answers[family.name].text);
  const rows = own.map((family) => {
    const { text, value, value_text } = example.answers[family.name];
    const correctness = isRatio && value === 1 ? "right" : isRatio && value === 0 ? "wrong" : "";
    return make("tr", { class: correctness }, makeRowHead(report, family.name),
      !texts && !isRatio && make("td", { class: "bars", "aria-hidden": "true" }, isNumber(value) ? makeBar(report, family.name, value / maximum) : ""),
      texts && make("td", { class: "text" }, make("div", { class: "passage", dir: "auto" }, text || DASH)),
      makeCell(family.name, "example", value, makeJudgement(metric, value, best, value_text)));
  });
  const head = make("tr", {}, makeHeading("Family"), texts && makeHeading("Answer"), !texts && !isRatio && makeHeading("bar", { "aria-hidden": "true" }), makeHeading(isRatio ? "" : metric.name, { class: "number", "aria-label": metric.name }));
  return make("table", { class: "answers" + (texts ? "" : " bare") }, make("caption", { class: "unseen" }, "answers"), make("thead", { class: "unseen" }, head), make("tbody", {}, ...rows));
}

// Where line breaks are predicted too, they are marked.
const markLineBreaks = (text, task) => TEXT_TASKS.has(task) ? text.split("\n").flatMap((line, at) => at ? [make("span", { class: "break", "aria-hidden": "true" }, "↵"), "\n", line] : [line]) : [text];

const makeQuote = (name, text, task) => make("div", { class: "quoted" }, make("span", { class: "label" }, name),
  make("div", { class: "passage", dir: "auto", tabindex: text.length > 400 ? "0" : null }, ...markLineBreaks(text, task)));

// The actual values of a series and each family's forecast of them, after the values before.
function makeForecastChart(report, example) {
  const own = report.families.filter((family) => (example.answers?.[family.name]?.values ?? []).length > 0);
  const past = example.history ?? [], actual = example.actual ?? [];
  if (own.length === 0 || actual.length === 0) return null;
  // A missing value is left out.
  const makeLine = (values, start) => {
    const known = [...values.keys()].filter((at) => isNumber(values[at]));
    return { x: known.map((at) => start + at), y: known.map((at) => values[at]) };
  };
  const truth = makeLine([...past, ...actual], -past.length);
  const lines = own.map((family) => ({ name: family.name, ...makeLine(example.answers[family.name].values, 0) }));
  const drawing = makeFamilyChart("forecast", `The actual values and the forecasts of ${joinNames(own.map((family) => family.name))}`, 260, (svg, width, height) => {
    const area = { left: 58, right: width - 12, top: 34, bottom: height - 46 }, all = [truth, ...lines];
    const x = makeScale(all.flatMap((line) => line.x), area.left, area.right), y = makeScale(addMargins(all.flatMap((line) => line.y), false), area.bottom, area.top);
    svg.append(drawFrame(area, x, y, { x: "steps from the start of the forecast", y: "value" }),
      draw("line", { class: "cursor", x1: x(0), x2: x(0), y1: area.top, y2: area.bottom }),
      draw("path", { class: "mark actual", d: makeLinePath(truth.x, truth.y, x, y, {}) }), ...lines.map((line) => drawFamilyLine(report, line.name, line, x, y)));
  });
  const actualLabel = make("span", { class: "named" }, draw("svg", { class: "chip", viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" },
    draw("line", { x1: 1, y1: 6, x2: 25, y2: 6, style: "stroke: var(--ink)", "stroke-width": 2 })), "actual");
  return make("div", {}, make("div", { class: "legend" }, actualLabel, ...own.map((family) => makeFamilyLabel(report, family.name))), drawing.box);
}

function makeExampleCard(report, example, number) {
  const start = (example.input || example.expected || "").replace(/\s+/g, " ").trim();
  return make("details", { class: "example", open: number < NUM_UNFOLDED },
    make("summary", {}, make("span", { class: "quiet" }, `Example ${number + 1} `), make("bdi", { dir: "auto" }, shorten(start, 90))),
    makeForecastChart(report, example),
    example.input && makeQuote(TEXT_TASKS.has(report.task) ? "Passage" : "Input", example.input, report.task),
    example.expected && makeQuote("Expected", example.expected, report.task), makeAnswersTable(report, example));
}

function explainNoExamples(report) {
  const { metric } = report;
  if (report.finished.length < 2) return "There are no two families to compare.";
  if (report.num_disagreements !== 0) return "None selected. --examples N selects the N on which the families differ most.";
  return "Nowhere: " + (metric.isRatio && report.verdict.solved ? `all families are right on every ${metric.split} example.` : `all families have the same ${metric.name} on every ${metric.split} example.`);
}

export function makeExamples(report) {
  const disagreements = report.examples ?? [], { split } = report.metric;
  if (disagreements.length === 0) return makePart("examples", "Where they disagree", explainNoExamples(report));
  return makePart("examples", "Where they disagree",
    `The ${disagreements.length === 1 ? split + " example" : `${disagreements.length} ${split} examples`} on which the families differ most${STREAM_TASKS.has(report.task) ? `, from all over the ${split} split` : ""}. They show how the families differ, not how good they are.` +
      (report.hasSingleSeed ? "" : " An answer is that of the first seed; the value beside it is the mean over all seeds."),
    ...disagreements.map((example, number) => makeExampleCard(report, example, number)));
}
