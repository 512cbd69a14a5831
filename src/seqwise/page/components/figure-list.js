// `drawFigures` draws the packed figures of a view into an element that is part of the page.
import { drawFigure, isNarrow } from "./figure.js";
import { decodeFigure } from "./matrix.js";
import { drawCharts } from "./scales.js";

// Two narrow figures that follow each other stand side by side; two charts of one kind get the same height.
function arrangeFigures(figures) {
  const classes = figures.map(() => "wide");
  for (let at = 0; at + 1 < figures.length; at++) {
    if (!isNarrow(figures[at]) || !isNarrow(figures[at + 1])) continue;
    const isEven = figures[at].kind === figures[at + 1].kind && !["BarChart", "Table"].includes(figures[at].kind);
    classes[at] = classes[at + 1] = isEven ? "even" : "half";
    at++;
  }
  return classes;
}

// `scales` are those of the palette; figures that share `pins` highlight the same tokens, layers and units.
export function drawFigures(grid, figures, { scales, pins }) {
  const context = { scales, pins, findFigure: (identifier) => [...grid.children].find((figure) => figure.id === identifier) };
  const classes = arrangeFigures(figures);
  grid.classList.add("figures");
  grid.replaceChildren(...figures.map((figure, at) => {
    const element = drawFigure(decodeFigure(figure), context);
    element.classList.add(classes[at]);
    return element;
  }));
  drawCharts(grid);
}
