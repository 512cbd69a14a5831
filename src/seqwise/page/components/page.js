// The page of a view: title, sentences, figures. The data are in a script element of the page.
import { make } from "./elements.js";
import { drawFigure, isNarrow } from "./figure.js";
import { decodeFigure } from "./matrix.js";
import { keepUnitsTogether } from "./numbers.js";
import { createPins, drawPinBar } from "./pins.js";
import { drawCharts } from "./scales.js";

const HINT = "Point at a figure, or move to it with Tab and use the arrow keys, for the number behind each mark. " +
  "A click or Enter pins a token, layer or unit in all figures; Shift adds another; Escape unpins.";

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

function showPage() {
  const { title, summary, figures, scales } = JSON.parse(document.getElementById("data").textContent);
  const pins = createPins(), main = document.querySelector("main"), grid = make("div", { class: "figures" });
  const context = { scales, pins, findFigure: (identifier) => [...grid.children].find((figure) => figure.id === identifier) };
  document.querySelector("header").append(make("p", { class: "label" }, "Seqwise"), make("h1", {}, title),
    make("div", { class: "sentences" }, ...summary.map((sentence) => make("p", {}, keepUnitsTogether(sentence)))),
    figures.some((figure) => figure.kind !== "Findings") && make("p", { class: "hint how" }, HINT));
  main.replaceChildren(grid, drawPinBar(pins));
  addEventListener("keydown", (event) => { if (event.key === "Escape") pins.clear(); });
  const classes = arrangeFigures(figures);
  for (const [at, figure] of figures.entries()) {
    const element = drawFigure(decodeFigure(figure), context);
    element.classList.add(classes[at]);
    grid.append(element);
  }
  drawCharts(grid);
  document.documentElement.dataset.ready = "true";
}

// Inside a notebook, the frame gets the height of the page.
function fitFrame() {
  let frame = null;
  try { frame = window.frameElement; } catch { /* the notebook is of another origin: the frame scrolls */ }
  if (frame) new ResizeObserver(() => { frame.style.height = document.documentElement.offsetHeight + 4 + "px"; }).observe(document.documentElement);
}

fitFrame();
showPage();
