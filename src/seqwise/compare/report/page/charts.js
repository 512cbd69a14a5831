// Charts of families. Switching a family off in one legend hides it in all charts.
import { draw, make, makeLegend } from "../../../page/components/elements.js";
import { formatDuration, trimZeros } from "../../../page/components/numbers.js";
import { makeLinePath } from "../../../page/components/paths.js";
import { drawCharts, followWidth } from "../../../page/components/scales.js";
import { makeFamilyLabel } from "./parts.js";

// Draws all charts of the report again that an element belongs to.
export const redrawCharts = (element) => drawCharts(element.closest(".report"));

// Draws when the box gets a width, and again when that changes.
export function makeFamilyChart(kind, label, height, paint) {
  const svg = draw("svg", { class: "chart", "data-chart": kind, role: "img", "aria-label": label });
  const box = make("div", { class: "plot" }, svg);
  const redraw = followWidth(box, (width) => {
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    paint(svg, width, height);
  });
  return { box, svg, redraw };
}

export function makeFamilyLegend(report, names) {
  const { hidden } = report.choices;
  const press = (element) => {
    for (const button of element.querySelectorAll("[data-toggle]")) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.toggle)));
  };
  const legend = makeLegend("families shown", names.map((name) => [name, report.getStyle(name)]), hidden, () => {
    press(legend.closest(".report"));
    redrawCharts(legend);
  });
  if (legend) press(legend);
  return legend ?? make("div", { class: "legend" }, ...names.map((name) => makeFamilyLabel(report, name)));
}

// Draws the line of a family through points: { x, y } are lists of numbers.
export const drawFamilyLine = (report, name, line, x, y) => draw("path", { class: "mark line", d: makeLinePath(line.x, line.y, x, y, {}),
  style: `stroke: ${report.getStyle(name).colour}`, "stroke-dasharray": report.getStyle(name).dash, "data-family": name });

// Labels of an x axis. Long times are round in minutes or hours, not in hundreds of seconds.
export function makeTicks(format, x) {
  const timeUnit = x.log && x.maximum / x.minimum > 1000 ? 1 : x.maximum > 7200 ? 3600 : x.maximum > 120 ? 60 : 1;
  return { x: (ticks) => ticks.map((tick) => trimZeros(format(tick))), xUnit: format === formatDuration ? timeUnit : 1 };
}
