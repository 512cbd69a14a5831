// `drawFigure` draws any kind of figure.
import { make, makeId } from "./elements.js";
import { drawBarChart } from "./bars.js";
import { drawFindings } from "./findings.js";
import { drawHeatmapGrid } from "./heatmap-grid.js";
import { drawHeatmap } from "./heatmap.js";
import { drawImageOverlay } from "./overlay.js";
import { drawLineChart } from "./lines.js";
import { keepUnitsTogether } from "./numbers.js";
import { drawScatterPlot } from "./scatter.js";
import { drawTable } from "./table.js";
import { drawTokenText } from "./tokens.js";
import { drawTree } from "./tree.js";

const KINDS = {
  Heatmap: drawHeatmap, HeatmapGrid: drawHeatmapGrid, LineChart: drawLineChart, ScatterPlot: drawScatterPlot, BarChart: drawBarChart,
  TokenText: drawTokenText, Table: drawTable, Tree: drawTree, ImageOverlay: drawImageOverlay, Findings: drawFindings,
};

const MAX_NARROW_TEXT = 40;  // characters in a cell of a table that gets half the width
const hasLongText = ({ rows }) => rows.some((row) => row.some((value) => typeof value === "string" && value.length > MAX_NARROW_TEXT));

// Whether a figure needs no more than half the width of a wide page.
export function isNarrow(figure) {
  if (figure.kind === "Heatmap") return figure.columns.length <= 14 && figure.rows.length <= 24;
  if (figure.kind === "LineChart") return !figure.x_names?.length || figure.x_names.length <= 30;
  return figure.kind === "BarChart" || figure.kind === "ScatterPlot" || figure.kind === "Table" && figure.columns.length <= 4 && !hasLongText(figure);
}

// The part of each kind without which there is nothing to draw.
const CONTENTS = {
  Heatmap: ({ rows, columns }) => rows.length * columns.length, HeatmapGrid: ({ panels }) => panels.length,
  LineChart: ({ series }) => series.some(({ x }) => x.length), ScatterPlot: ({ names }) => names.length,
  BarChart: ({ names }) => names.length, TokenText: ({ tokens }) => tokens.length, Table: ({ rows }) => rows.length,
  Tree: ({ nodes }) => nodes.length, ImageOverlay: ({ captions }) => captions.length, Findings: ({ findings }) => findings.length,
};

// Draws a decoded figure with its title and note. `context` has the palette's `scales` and the `pins` that the figures
// of a page share.
export function drawFigure(figure, context) {
  const titleId = makeId("figure");
  const role = figure.role && make("i", { class: "role", style: `background: var(--role-${figure.role})`, "aria-hidden": "true" });
  const content = CONTENTS[figure.kind](figure) ? KINDS[figure.kind](figure, context) : make("p", { class: "hint" }, "There is nothing to show.");
  const target = figure.identifier ? { id: figure.identifier, tabindex: "-1" } : {};
  return make("figure", { "aria-labelledby": titleId, "data-kind": figure.kind, ...target },
    make("figcaption", { id: titleId }, role, make("span", {}, figure.title)), content,
    figure.note && make("p", { class: "note" }, keepUnitsTogether(figure.note)));
}
