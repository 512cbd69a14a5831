// The curves of the selected runs in one chart, live while they train. Runs that differ only in the seed are one line.
import { make, makeChoice } from "../../../page/components/elements.js";
import { drawLineChart } from "../../../page/components/lines.js";
import { clamp, keepUnitsTogether } from "../../../page/components/numbers.js";
import { createPins } from "../../../page/components/pins.js";
import { drawCharts, findExtent } from "../../../page/components/scales.js";
import { nameMetric } from "../metrics.js";

const X_FORMATS = { step: null, tokens: "count", seconds: "duration" };
const SMOOTHING = { off: 0, light: 0.04, strong: 0.15 };  // share of the points of a curve that are averaged
const BATCH = 10;  // runs of one request
const MAX_TOTAL = 12_000;  // points of all lines
const REFRESH_SECONDS = 2, ZOOM_SECONDS = 0.12;


// `view` has x, y, smoothing and log; `onChange` is called when the user has chosen others. `onSelection` gets what the
// server says about the selected runs.
export function createCurves(studio, view, onChange, onSelection) {
  const pins = createPins(), plot = make("div", { class: "runs-plot" }), note = make("p", { class: "note", role: "status" });
  const controls = make("div", { class: "runs-controls row" });
  const element = make("figure", { class: "runs-curves", "aria-label": "Curves of the selected runs", hidden: true }, controls, plot, note);
  let groups = [], metrics = [], lines = new Map(), chart = null, range = null, extent = null;
  let ids = [], number = 0, stale = new Set(), timer = null, isBusy = false;

  // What all runs count: tokens, or values of a series.
  const getUnit = () => [...new Set(ids.map((id) => studio.rows.get(id)?.unit).filter(Boolean))].join(" or ") || "tokens";
  const nameX = (x) => ({ step: "step", tokens: `${getUnit()} trained on`, seconds: "time spent training" })[x];
  const nameTraining = () => ({ loss: "training loss", gradient_norm: "gradient norm", learning_rate: "learning rate", tokens_per_second: `${getUnit()} per second` });
  const nameY = (y) => nameTraining()[y] ?? "validation " + nameMetric(y.replace(/^valid\./, ""));
  const getKey = (group) => group.runs.join("\n");
  const chooseNumPoints = () => clamp(Math.floor(MAX_TOTAL / Math.max(1, ids.length)), 150, 600);

  // --- controls
  function buildControls() {
    const select = make("select", { "aria-label": "What the curves show" },
      make("optgroup", { label: "Training" }, ...Object.entries(nameTraining()).map(([value, text]) => make("option", { value }, text))),
      metrics.length > 0 && make("optgroup", { label: "Validation" }, ...metrics.map(({ name, higher_is_better: isHigher }) =>
        make("option", { value: "valid." + name }, `validation ${nameMetric(name)} ${isHigher ? "↑" : "↓"}`))));
    select.value = view.y;
    select.addEventListener("change", () => { view.y = select.value; restart(); });
    const change = (key) => (value) => { view[key] = value; restart(); };
    controls.replaceChildren(select, makeChoice("over", [["step", "steps"], ["tokens", getUnit()], ["seconds", "time"]], view.x, change("x")),
      makeChoice("smoothing", Object.keys(SMOOTHING).map((name) => [name, name]), view.smoothing, change("smoothing")));
  }

  function restart() {
    [chart, range, extent] = [null, null, null];
    lines.clear();
    onChange();
    fetchLines(groups);
  }

  // --- values
  // The first time in batches, since reading long files takes a while; later all at once.
  async function fetchLines(wanted) {
    const own = ++number, limit = wanted.some((group) => !lines.has(getKey(group))) ? BATCH : Infinity;
    isBusy = true;
    try {
      for (let at = 0; at < wanted.length;) {
        const batch = [wanted[at++]];
        while (at < wanted.length && batch.reduce((sum, { runs }) => sum + runs.length, 0) + wanted[at].runs.length <= limit) batch.push(wanted[at++]);
        const answer = await studio.send("/api/overlay", { groups: batch.map(({ runs }) => runs), x: view.x, y: view.y, smoothing: SMOOTHING[view.smoothing],
          points: chooseNumPoints(), start: range?.[0] ?? null, stop: range?.[1] ?? null });
        if (own !== number) return;
        batch.forEach((group, index) => lines.set(getKey(group), answer[index]));
        drawChart();
      }
      if (wanted.length === 0) drawChart();
    } catch (error) {
      if (own === number) note.replaceChildren(studio.makeError(error));
    } finally {
      if (own === number) isBusy = false;
    }
  }

  function buildFigure() {
    const drawn = groups.filter((group) => lines.has(getKey(group)));
    const series = drawn.map((group) => ({ name: group.name, ...lines.get(getKey(group)) }));
    if (!range) extent = findExtent(series.flatMap(({ x, faint }) => [x, ...faint.map((one) => one.x)].flatMap((list) => [list[0] ?? NaN, list.at(-1) ?? NaN])));
    return { kind: "LineChart", title: nameY(view.y), x_label: nameX(view.x), y_label: nameY(view.y), x_format: X_FORMATS[view.x], x_log: view.log.includes("x"),
      y_log: view.log.includes("y"), has_log_choices: true, x_extent: extent, series, styles: drawn.map(({ style }) => style) };
  }

  function drawChart() {
    const figure = buildFigure(), hasValues = figure.series.some(({ x, faint }) => x.length || faint.length);
    if (!hasValues) {
      chart = null;
      plot.replaceChildren();
      note.textContent = isBusy && lines.size < groups.length ? "Reading …" : `The selected runs have no ${nameY(view.y)} yet.`;
      return;
    }
    if (chart) chart.update(figure);
    else {
      chart = drawLineChart(figure, { pins, onZoom: zoom, onLog: (log) => { view.log = (log.x ? "x" : "") + (log.y ? "y" : ""); onChange(); } });
      plot.replaceChildren(chart);
      drawCharts(plot);
    }
    describe(figure.series);
  }

  function describe(series) {
    const numSeeds = groups.filter(({ runs }) => runs.length > 1).length, parts = [];
    if (numSeeds) parts.push("Strong lines are means over the seeds with a 95 % interval (Student's t), as far as all seeds have come; faint lines are single seeds.");
    if (view.smoothing !== "off") parts.push(`Smoothed over ${100 * SMOOTHING[view.smoothing]} % of each curve.`);
    parts.push(series.every((line) => line.is_exact) ? "All points are shown." : "Lowest and highest values of each interval are shown; drag over a part to see every point of it.");
    note.textContent = keepUnitsTogether(parts.join(" "));
  }

  // --- changes
  function zoom(next) {
    range = next;
    clearTimeout(timer);
    timer = setTimeout(() => { timer = null; fetchLines(groups); }, 1000 * ZOOM_SECONDS);
  }

  function refresh() {
    timer = null;
    if (isBusy || document.hidden) return schedule();
    const wanted = groups.filter(({ runs }) => runs.some((id) => stale.has(id)));
    stale.clear();
    if (wanted.length) fetchLines(wanted);
  }
  const schedule = () => { timer ??= setTimeout(refresh, 1000 * REFRESH_SECONDS); };

  return {
    element,
    // Draws the curves of these runs; those that are drawn already are not read again.
    async show(next) {
      if (next.join("\n") === ids.join("\n")) return;
      ids = next;
      element.hidden = ids.length === 0;
      if (ids.length === 0) { number++; groups = []; lines.clear(); chart = null; plot.replaceChildren(); return onSelection(null); }
      try {
        const selection = await studio.get("/api/selection", { id: ids });
        if (next !== ids) return;
        ({ groups, metrics } = selection);
        const isKnown = view.y in nameTraining() || metrics.some(({ name }) => "valid." + name === view.y);
        if (!isKnown) { view.y = "loss"; chart = null; lines.clear(); }
        const keys = new Set(groups.map(getKey));
        for (const key of lines.keys()) if (!keys.has(key)) lines.delete(key);
        buildControls();
        onSelection(selection);
        if (lines.size) drawChart();
        await fetchLines(groups.filter((group) => !lines.has(getKey(group))));
      } catch (error) {
        if (next === ids) ids = [];  // to be requested again
        note.replaceChildren(studio.makeError(error));
      }
    },
    update(changed) {
      for (const id of ids) if (changed.has(id)) stale.add(id);
      if (stale.size) schedule();
    },
    close() { number++; clearTimeout(timer); },
  };
}
