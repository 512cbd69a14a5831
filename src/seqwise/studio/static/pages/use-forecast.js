// Forecast the steps after the end of a table: a chart with a band between quantiles, and the values. The table can be edited.
import { make, makeButton } from "../../../page/components/elements.js";
import { drawFigure } from "../../../page/components/figure.js";
import { formatWhole } from "../../../page/components/numbers.js";
import { drawCharts } from "../../../page/components/scales.js";
import { makeDrop } from "./use-drop.js";
import { EDIT_SECONDS, makeField, makeSelect, makeWarnings } from "./use-parts.js";

export function create(about, context) {
  const { studio, session, run, parameters } = context;
  const area = make("textarea", { rows: 12, spellcheck: "false", wrap: "off", class: "use-csv" }), output = make("div"), warnings = make("div");
  const description = make("p", { class: "hint" }), chooser = make("div");
  let number = Number(parameters.get("number") ?? 0), series = parameters.get("series"), truth = {}, original = "", baseline = {}, timer = null;

  async function use() {
    clearTimeout(timer);
    context.showProblem(null);
    context.keep({ series, number });
    const isEdited = area.value !== original;
    try {
      const values = { run, text: area.value, series, truth: truth[series] ?? [], before: isEdited ? baseline[series] ?? [] : [] };
      let result = await session.call("forecast", values);
      if (result && series === null) {  // the truth is known by the name of the series
        series = result.series;
        if (truth[series]) result = await session.call("forecast", { ...values, series, truth: truth[series] });
      }
      if (!result) return;
      if (!isEdited) baseline[result.series] = result.point;
      draw(result, isEdited);
    } catch (error) {
      context.showProblem(error);
    }
  }
  function draw(result, isEdited) {
    const drawing = { scales: studio.scales, pins: context.pins };
    chooser.replaceChildren(...result.names.length > 1 ? [makeSelect("Series", result.names, result.series, (name) => { series = name; use(); }).element] : []);
    warnings.replaceChildren(...[makeWarnings(result.warnings)].filter(Boolean));
    const note = make("p", { class: "hint" }, "The table was edited: “before” is the forecast for the table as it was.");
    output.replaceChildren(drawFigure(result.chart, drawing), ...isEdited ? [note] : [], drawFigure(result.table, drawing));
    drawCharts(output);
  }
  async function read(values) {
    context.showProblem(null);
    try {
      const table = await session.call("read_table", { run, ...values });
      if (!table) return;
      area.value = original = table.text;
      truth = table.truth;
      baseline = {};
      const numRows = table.text.split("\n").length - 2;
      description.textContent = `${formatWhole(numRows)} rows of ${table.source} (${formatWhole(table.num_steps)} steps). The model reads the last ${formatWhole(about.lookback)} and forecasts ${formatWhole(about.horizon)}.`;
      area.scrollTop = area.scrollHeight;
      await use();
    } catch (error) {
      context.showProblem(error);
    }
  }
  area.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(use, 1000 * EDIT_SECONDS); });
  const drop = makeDrop("Drop a CSV file here, or choose one", ".csv,.tsv,.txt,.jsonl", async (file) => {
    context.showProblem(null);
    try {
      await read({ upload: await studio.upload(file) });
    } catch (error) {
      context.showProblem(error);
    }
  });
  return {
    input: make("div", {}, drop, chooser, makeField("Table: edit a value and see what changes", area), description,
      make("div", { class: "row use-buttons" }, makeButton("Forecast", use, { class: "primary", "data-action": "submit" }), makeButton("Stop", session.stop, { class: "use-stop" }),
        makeButton("Another example", () => { number++; read({ number }); }, { class: "small", "data-action": "example" }))),
    output: make("div", { class: "use-forecast" }, warnings, output), start: () => read({ number }),
  };
}
