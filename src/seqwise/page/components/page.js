// The page of a view: title, sentences, figures. The data are in a script element of the page.
import { make } from "./elements.js";
import { drawFigures } from "./figure-list.js";
import { keepUnitsTogether } from "./numbers.js";
import { createPins, drawPinBar } from "./pins.js";

const HINT = "Point at a figure, or move to it with Tab and use the arrow keys, for the number behind each mark. " +
  "A click or Enter pins a token, layer or unit in all figures; Shift adds another; Escape unpins.";

function showPage() {
  const { title, summary, figures, scales } = JSON.parse(document.getElementById("data").textContent);
  const pins = createPins(), main = document.querySelector("main"), grid = make("div");
  document.querySelector("header").append(make("p", { class: "label" }, "Seqwise"), make("h1", {}, title),
    make("div", { class: "sentences" }, ...summary.map((sentence) => make("p", {}, keepUnitsTogether(sentence)))),
    figures.some((figure) => figure.kind !== "Findings") && make("p", { class: "hint how" }, HINT));
  main.replaceChildren(grid, drawPinBar(pins));
  addEventListener("keydown", (event) => { if (event.key === "Escape") pins.clear(); });
  drawFigures(grid, figures, { scales, pins });
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
