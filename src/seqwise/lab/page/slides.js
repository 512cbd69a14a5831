// Slides of a chapter: of each statement the question, the answer with its first figure, and further figures.
import { make, makeButton } from "../../page/components/elements.js";
import { decodeFigure } from "../../page/components/matrix.js";
import { clamp, formatPlural, keepUnitsTogether } from "../../page/components/numbers.js";
import { createPins } from "../../page/components/pins.js";
import { drawCharts } from "../../page/components/scales.js";
import { drawWithTitles } from "./axes.js";
import { GUESSES, makeVerdict } from "./verdicts.js";

const WIDTH = 960, HEIGHT = 540, NARROW = 700;  // pixels: of a slide before it is enlarged; below which slides are a page
const BESIDE_TEXT = [556, 478], WHOLE = [880, 440];  // room for a figure, in pixels of the slide
const FIGURE_WIDTHS = [440, 500, 560, 640, 740, 860], MAX_SCALE = 1.5;  // widths that are tried; the largest type that is needed
const LONG_CLAIM = 110, LONG_EQUATION = 70, LONG_ANSWER = 330;  // characters, from which type is smaller
const NEXT = ["ArrowRight", "ArrowDown", "PageDown", " ", "Enter", "n"], PREVIOUS = ["ArrowLeft", "ArrowUp", "PageUp", "Backspace", "p"];

const { title, records, scales } = JSON.parse(document.getElementById("data").textContent);
const isNarrow = () => innerWidth <= NARROW && !matchMedia("print").matches;

// Draws a figure at the width at which it fits into the room with the largest type; of several, at the largest width.
function fitFigure(figure, box, [width, height]) {
  if (isNarrow()) {
    figure.style.cssText = box.style.cssText = "";
    drawCharts(figure);
    return;
  }
  const setWidth = (own) => {
    figure.style.width = own + "px";
    drawCharts(figure);
    return Math.min(width / own, height / figure.offsetHeight, MAX_SCALE);
  };
  let best = 0, scale = 0;
  for (const own of FIGURE_WIDTHS) {
    const reached = setWidth(own);
    if (reached >= scale - 0.005) [best, scale] = [own, reached];
  }
  scale = setWidth(best);
  figure.style.transform = `scale(${scale})`;
  box.style.width = figure.offsetWidth * scale + "px";
  box.style.height = figure.offsetHeight * scale + "px";
}

function makeSlide(kind, name, ...content) {
  return { element: make("section", { class: `slide ${kind}-slide`, "aria-label": name, tabindex: "-1" }, make("div", { class: "stage" }, ...content)), prepare() {} };
}

const makeTitle = () => makeSlide("title", title, make("p", { class: "label" }, "Seqwise lab"), make("h1", {}, title),
  make("p", {}, `${formatPlural(records.length, "statement")}: true, false, or depends?`));

function makeQuestion({ id, claim, equation }) {
  return makeSlide("question", `${id}: question`, make("p", { class: "number" }, id),
    make("h2", { class: claim.length > LONG_CLAIM ? "long" : null }, claim),
    make("p", { class: equation.length > LONG_EQUATION ? "equation long" : "equation" }, equation),
    make("div", { class: "guesses", role: "group", "aria-label": `Predict ${id}` }, ...GUESSES.map(([, text]) => makeButton(text, () => show(current + 1)))));
}

// A slide with a figure, which is drawn when the slide is first shown and when the size of the screen changes.
function addFigure(slide, place, packed, room) {
  let figure = null;
  slide.prepare = () => {
    figure ??= drawWithTitles(decodeFigure(packed), { scales, pins: createPins(), findFigure: () => null });
    if (!figure.isConnected) place.append(figure);
    fitFigure(figure, place, room);
  };
  return slide;
}

function makeAnswers(record) {
  const place = make("div", { class: "fitted" }), length = record.evidence.length + (record.instead ?? record.condition ?? "").length + record.claim.length;
  const slide = makeSlide("answer", `${record.id}: verdict`, make("div", { class: length > LONG_ANSWER ? "is-small" : null },
    make("p", { class: "number" }, record.id), make("p", { class: "claim" }, keepUnitsTogether(record.claim)), makeVerdict(record)), place);
  const [first, ...others] = record.figures;
  if (first) addFigure(slide, place, first, BESIDE_TEXT);
  return [slide, ...others.map((figure) => {
    const box = make("div", { class: "fitted" });
    const head = make("p", { class: "head" }, make("b", { class: "number" }, record.id), " ", keepUnitsTogether(record.claim));
    return addFigure(makeSlide("figure", `${record.id}: ${figure.title}`, head, box), box, figure, WHOLE);
  })];
}

const slides = [makeTitle(), ...records.flatMap((record) => [makeQuestion(record), ...makeAnswers(record)])];
const number = make("span", { role: "status" }), back = makeButton("‹", () => show(current - 1), { "aria-label": "Previous slide" });
const forward = makeButton("›", () => show(current + 1), { "aria-label": "Next slide" });
let current = -1;

function show(index) {
  const next = clamp(index, 0, slides.length - 1);
  if (next === current) return;
  slides[current]?.element.classList.remove("is-current");
  current = next;
  slides[current].element.classList.add("is-current");
  slides[current].prepare();
  number.textContent = `${current + 1} / ${slides.length}`;
  back.disabled = current === 0;
  forward.disabled = current === slides.length - 1;
  scrollTo(0, 0);
  if (location.hash !== "#" + (current + 1)) history.replaceState(null, "", "#" + (current + 1));
}

function fitScreen() {
  document.documentElement.style.setProperty("--scale", String(Math.min(innerWidth / WIDTH, innerHeight / HEIGHT)));
  slides[current]?.prepare();
}

const readAddress = () => (parseInt(location.hash.slice(1), 10) || 1) - 1;
const prepareAll = () => { for (const slide of slides) slide.prepare(); };

// Arrow keys inside a figure move from mark to mark, and Space presses a button; the figure or browser handles those.
addEventListener("keydown", (event) => {
  const isPress = [" ", "Enter"].includes(event.key) && event.target.closest?.("button");
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || isPress) return;
  if (event.key === "Escape") document.activeElement?.blur();
  else if (event.key === "Home") show(0);
  else if (event.key === "End") show(slides.length - 1);
  else if (PREVIOUS.includes(event.key) || event.key === " " && event.shiftKey) show(current - 1);
  else if (NEXT.includes(event.key)) show(current + 1);
  else return;
  event.preventDefault();
});
addEventListener("hashchange", () => show(readAddress()));
addEventListener("resize", fitScreen);
addEventListener("beforeprint", prepareAll);
matchMedia("print").addEventListener("change", ({ matches }) => { if (matches) prepareAll(); else fitScreen(); });

document.querySelector("main").replaceChildren(...slides.map(({ element }) => element));
document.getElementById("controls").append(back, number, forward);
show(readAddress());
fitScreen();
document.documentElement.dataset.ready = "true";
