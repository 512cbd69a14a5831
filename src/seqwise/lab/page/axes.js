// Charts cut titles of axes that are longer than the chart is wide, as on a phone. Those are repeated in full below the chart.
import { make } from "../../page/components/elements.js";
import { drawFigure } from "../../page/components/figure.js";

const TITLES = {
  LineChart: ({ x_label, y_label }) => [["y axis", y_label], ["x axis", x_label]],
  ScatterPlot: ({ x_label, y_label }) => [["y axis", y_label], ["x axis", x_label]],
  BarChart: ({ value_label }) => [["bars", value_label]],
  Heatmap: ({ row_label, column_label }) => [["rows", row_label], ["columns", column_label]],
};

// Whether a text of a chart is the beginning of a title.
const isCut = (text, title) => text.endsWith("…") && title.startsWith(text.slice(0, -1).replace(/^↓ /, "").trimEnd());

// Draws a figure as `drawFigure` does.
export function drawWithTitles(figure, context) {
  const element = drawFigure(figure, context), titles = TITLES[figure.kind]?.(figure) ?? [];
  const lines = titles.map(([axis, title]) => make("p", { class: "axis-title", hidden: true }, `${axis}: ${title}`));
  const update = () => {
    const texts = [...element.querySelectorAll("svg text.name")].map((text) => text.textContent);
    titles.forEach(([, title], at) => { lines[at].hidden = !texts.some((text) => isCut(text, title)); });
  };
  for (const line of lines) element.insertBefore(line, element.querySelector(":scope > .note"));
  const observer = new MutationObserver(update);  // a chart is drawn again when its width changes
  for (const plot of element.querySelectorAll(".plot")) observer.observe(plot, { childList: true, subtree: true });
  return element;
}
