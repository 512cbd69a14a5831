// Curves of a run, redrawn while it trains. Zooming fetches the exact points of the part that is shown.
import { make, makeChoice, makeId } from "../../../page/components/elements.js";
import { drawLineChart } from "../../../page/components/lines.js";
import { formatDuration, formatWhole, isNumber } from "../../../page/components/numbers.js";
import { createPins, drawPinBar } from "../../../page/components/pins.js";
import { drawCharts } from "../../../page/components/scales.js";
import { nameMetric } from "../metrics.js";

const AXES = { step: ["steps", "count", "step"], tokens: ["tokens", "count", "tokens"], seconds: ["time", "duration", "time of training"] };
const FIRST = { colour: "var(--c0)", shape: "circle", dash: null }, SECOND = { colour: "var(--c1)", shape: "square", dash: null };
const MAX_MARKED = 9;  // notes that are marked in a chart

function listCharts(run) {
  const metric = run.metric && run.metric !== "loss" && run.metrics.includes(run.metric) ? run.metric : null;
  return [
    { title: "Loss", label: "loss per target", isWide: true, series: [["training", "loss", FIRST], ["validation", "valid.loss", SECOND]], hasNotes: true },
    metric && { title: "Validation " + nameMetric(metric), label: nameMetric(metric), series: [[nameMetric(metric), "valid." + metric, SECOND]] },
    { title: "Learning rate", label: "learning rate", series: [["learning rate", "learning_rate", FIRST]] },
    { title: "Gradient norm", label: "norm of the gradients, before clipping", series: [["gradient norm", "gradient_norm", FIRST]] },
    { title: "Speed", label: "tokens per second", series: [["tokens per second", "tokens_per_second", FIRST]] },
  ].filter(Boolean);
}

// A chart of some series. `load` fetches what the visible range shows.
function createChart(about, { studio, id, pins }) {
  let range = null, chart = null, axis = null, marks = "";
  const box = make("div", { class: "run-chart-box" }), titleId = makeId("chart");
  const element = make("figure", { class: about.isWide ? "run-wide" : null, "aria-labelledby": titleId, "data-chart-title": about.title },
    make("figcaption", { id: titleId }, about.title), box);

  const load = async (run, x) => {
    const [start, stop] = range ?? [null, null];
    const answers = await Promise.all(about.series.map(([, y]) => studio.get("/api/curves", { id, x, y, start, stop })));
    const series = about.series.map(([name], at) => ({ name, ...answers[at][id] }));
    const shown = series.filter(({ y }) => y.some(isNumber));
    if (shown.length === 0) {
      chart = null;
      box.replaceChildren(make("p", { class: "hint" }, "There are no values yet."));
      return;
    }
    const notes = about.hasNotes ? run.notes.filter((note) => isNumber(note[x])).slice(0, MAX_MARKED) : [];
    const figure = {
      kind: "LineChart", title: about.title, x_label: AXES[x][2], y_label: about.label, x_format: AXES[x][1], x_log: false, y_log: false,
      series: shown, styles: shown.map(({ name }) => about.series.find(([other]) => other === name)[2]), has_log_choices: false,
      references: notes.map((note) => ({ axis: "x", value: note[x], label: String(note.number) })), range,
    };
    const nextMarks = JSON.stringify(figure.references);
    if (chart && axis === x && nextMarks === marks) return chart.update(figure);
    [axis, marks] = [x, nextMarks];
    chart = drawLineChart(figure, { pins, onZoom: (next) => { range = next; load(run, x).catch(studio.showError); } });
    box.replaceChildren(chart);
    drawCharts(box);
  };
  return { element, load, reset: () => { range = null; } };
}

function drawNotes(list, run) {
  if (run.notes.length === 0) return list.replaceChildren();
  const describe = ({ step, seconds }) => `step ${formatWhole(step)}` + (isNumber(seconds) ? `, ${formatDuration(seconds)}` : "");
  list.replaceChildren(make("h2", {}, "Notes of the training"), make("ol", { class: "run-note-list" }, ...run.notes.map((note) => make("li", {},
    make("b", { "aria-hidden": "true" }, String(note.number)), make("span", { class: "run-when" }, describe(note)), make("span", {}, note.text)))));
}

export function createCurves(initial, { studio, id, state, keep }) {
  const pins = createPins(), charts = new Map(), grid = make("div", { class: "run-charts" }), notes = make("section", { class: "run-notes", "aria-label": "Notes of the training" });
  const choice = makeChoice("over", Object.entries(AXES).map(([x, [name]]) => [x, name]), state.x, (x) => {
    state.x = x;
    keep();
    for (const chart of charts.values()) chart.reset();
    draw(latest).catch(studio.showError);
  });
  const hint = make("p", { class: "hint" }, "Drag across a chart to zoom in; the points are exact there.");
  const element = make("div", {}, make("div", { class: "row run-controls" }, choice, hint), grid, notes, drawPinBar(pins));
  let latest = initial;

  const draw = async (run) => {
    latest = { ...run, notes: run.notes.map((note, at) => ({ ...note, number: at + 1 })) };
    const wanted = listCharts(run);
    for (const about of wanted) {
      if (charts.has(about.title)) continue;
      charts.set(about.title, createChart(about, { studio, id, pins }));
      grid.replaceChildren(...wanted.map(({ title }) => charts.get(title)?.element).filter(Boolean));
    }
    drawNotes(notes, latest);
    await Promise.all([...charts.values()].map((chart) => chart.load(latest, state.x)));
  };
  draw(initial).catch(studio.showError);
  return { element, update: draw, show: () => drawCharts(grid) };
}
