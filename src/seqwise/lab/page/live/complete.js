// Adds to a figure that was computed here what `packing.py` adds to one of Python: styles, and the limits of colour scales.
import { findExtent } from "../../../page/components/scales.js";

export function completeFigure(figure, styles) {
  const getStyle = (index, role) => ({ ...styles[index % styles.length], ...role && { colour: `var(--role-${role})` } });
  if (figure.kind === "LineChart") return { x_log: false, y_log: false, references: [], ...figure, styles: figure.series.map(({ role }, at) => getStyle(at, role)) };
  if (figure.kind === "BarChart") return { ...figure, colours: figure.names.map((_, at) => getStyle(0, figure.roles?.[at]).colour) };
  if (figure.kind === "ScatterPlot") {
    const groups = [...new Set(figure.groups ?? [])];
    return { values: null, value_label: "", is_labelled: false, ...figure, styles: groups.map((group, at) => [group, getStyle(at)]) };
  }
  if (figure.kind !== "Heatmap") return figure;
  const [least, largest] = findExtent(figure.values.flat()), low = figure.low ?? least, high = figure.high ?? largest;
  const size = Math.max(Math.abs(low), Math.abs(high));
  return { scale: "sequential", role: "", ...figure, ...figure.scale === "diverging" ? { low: -size, high: size } : { low, high } };
}
