// Curves of a run, redrawn while it trains. Zooming fetches the exact points of the part that is shown.
import { make, makeChoice, makeId } from "../../../page/components/elements.js";
import { drawLineChart } from "../../../page/components/lines.js";
import { formatDuration, formatWhole, isNumber } from "../../../page/components/numbers.js";
import { createPins, drawPinBar } from "../../../page/components/pins.js";
import { drawCharts, followMedia } from "../../../page/components/scales.js";
import { nameMetric } from "../metrics.js";

// The unit is what the task counts: tokens, or values of a series.
const listAxes = (unit) => ({ step: ["steps", "count", "step"], tokens: [unit, "count", unit], seconds: ["time", "duration", "time of training"] });
const FIRST = { colour: "var(--c0)", shape: "circle", dash: null }, SECOND = { colour: "var(--c1)", shape: "square", dash: null };
const printMode = matchMedia("print");
const MAX_MARKED = 9;  // notes that are marked in a chart

function listCharts(run) {
  const metric = run.metric && run.metric !== "loss" && run.metrics.includes(run.metric) ? run.metric : null;
  return [
    { title: "Loss", label: "loss per target", isWide: true, series: [["training", "loss", FIRST], ["validation", "valid.loss", SECOND]], hasNotes: true },
    metric && { title: "Validation " + nameMetric(metric), label: nameMetric(metric), series: [[nameMetric(metric), "valid." + metric, SECOND]] },
    { title: "Learning rate", label: "learning rate", series: [["learning rate", "learning_rate", FIRST]] },
    { title: "Gradient norm", label: "norm of the gradients, before clipping", series: [["gradient norm", "gradient_norm", FIRST]] },
    { title: "Speed", label: `${run.unit} per second`, series: [[`${run.unit} per second`, "tokens_per_second", FIRST]] },
  ].filter(Boolean);
}

// A chart of some series, drawn again only if its points or the notes have changed, and once it can be seen. `fetchPoints(series,
// x, range)` returns the points of each series.
function createChart(about, fetchPoints, { studio, pins }) {
  let range = null, chart = null, axis = null, marks = "", drawn = "", isSeen = true, waiting = null;
  const names = about.series.map(([, y]) => y), box = make("div", { class: "run-chart-box" }), titleId = makeId("chart");
  const element = make("figure", { class: about.isWide ? "run-wide" : null, "aria-labelledby": titleId, "data-chart-title": about.title },
    make("figcaption", { id: titleId }, about.title), box);

  const draw = (run, x, points) => {
    waiting = isSeen || !chart ? null : [run, x, points];
    if (waiting) return;
    const notes = about.hasNotes ? run.notes.filter((note) => isNumber(note[x])).slice(0, MAX_MARKED) : [];
    const references = notes.map((note) => ({ axis: "x", value: note[x], label: String(note.number) }));
    const series = about.series.map(([name, y, style]) => ({ name, style, ...points[y] })).filter(({ y }) => y.some(isNumber));
    const nextMarks = JSON.stringify(references), next = JSON.stringify([x, range, series, references]);
    if (next === drawn) return;
    drawn = next;
    if (series.length === 0) {
      chart = null;
      box.replaceChildren(make("p", { class: "hint" }, "There are no values yet."));
      return;
    }
    const [, format, label] = listAxes(run.unit)[x];
    const figure = {
      kind: "LineChart", title: about.title, x_label: label, y_label: about.label, x_format: format, x_log: false, y_log: false,
      series, styles: series.map(({ style }) => style), has_log_choices: false, references, range,
    };
    if (chart && axis === x && nextMarks === marks) return chart.update(figure);
    [axis, marks] = [x, nextMarks];
    chart = drawLineChart(figure, { pins, onZoom: (next) => { range = next; zoom(run, x).catch(studio.showError); } });
    box.replaceChildren(chart);
    drawCharts(box);
  };
  const zoom = async (run, x) => {
    const shown = range, points = await fetchPoints(names, x, range);
    if (shown === range) draw(run, x, points);
  };
  const setSeen = (next) => {
    isSeen = next;
    if (isSeen && waiting) draw(...waiting);
  };
  new IntersectionObserver((entries) => setSeen(entries.at(-1).isIntersecting)).observe(element);
  followMedia(printMode, element, () => setSeen(true));
  return { element, names, draw, zoom, isZoomed: () => range !== null, reset: () => { range = null; } };
}

function drawNotes(list, run) {
  if (run.notes.length === 0) return list.replaceChildren();
  const describe = ({ step, seconds }) => `step ${formatWhole(step)}` + (isNumber(seconds) ? `, ${formatDuration(seconds)}` : "");
  list.replaceChildren(make("h2", {}, "Notes of the training"), make("ol", { class: "run-note-list" }, ...run.notes.map((note) => make("li", {},
    make("b", { "aria-hidden": "true" }, String(note.number)), make("span", { class: "run-when" }, describe(note)), make("span", {}, note.text)))));
}

export function createCurves(initial, { studio, id, state, keep }) {
  const pins = createPins(), charts = new Map(), grid = make("div", { class: "run-charts" }), notes = make("section", { class: "run-notes", "aria-label": "Notes of the training" });
  const choice = makeChoice("over", Object.entries(listAxes(initial.unit)).map(([x, [name]]) => [x, name]), state.x, (x) => {
    state.x = x;
    keep();
    for (const chart of charts.values()) chart.reset();
    draw(latest).catch(studio.showError);
  });
  const hint = make("p", { class: "hint" }, "Drag across a chart to zoom in; the points are exact there.");
  const element = make("div", {}, make("div", { class: "row run-controls" }, choice, hint), grid, notes, drawPinBar(pins));
  let latest = initial;
  const fetchPoints = async (y, x, range) => (await studio.get("/api/curves", { id, x, y, start: range?.[0], stop: range?.[1] }))[id];

  const listNames = () => [...charts.values()].flatMap(({ names }) => names);

  const draw = async (run) => {
    latest = { ...run, notes: run.notes.map((note, at) => ({ ...note, number: at + 1 })) };
    const wanted = listCharts(run);
    for (const about of wanted) {
      if (charts.has(about.title)) continue;
      charts.set(about.title, createChart(about, fetchPoints, { studio, pins }));
      grid.replaceChildren(...wanted.map(({ title }) => charts.get(title)?.element).filter(Boolean));
    }
    drawNotes(notes, latest);
    // Charts of the whole axis have their points from the run, or share one request.
    const all = [...charts.values()], whole = all.filter((chart) => !chart.isZoomed()), x = state.x;
    const drawWhole = async () => {
      const names = listNames(), isKnown = run.x === x && names.every((name) => name in run.curves);
      const points = isKnown ? run.curves : await fetchPoints(names, x, null);
      if (x === state.x) for (const chart of whole) if (!chart.isZoomed()) chart.draw(latest, x, points);
    };
    await Promise.all([whole.length > 0 && drawWhole(), ...all.filter((chart) => chart.isZoomed()).map((chart) => chart.zoom(latest, x))]);
  };
  draw(initial).catch(studio.showError);
  return { element, update: draw, getQuery: () => ({ x: state.x, y: listNames() }), show: () => drawCharts(grid) };
}
