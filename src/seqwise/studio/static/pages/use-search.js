// What translations and captions share: the options of the search, its results and its tree.
import { make, makeButton } from "../../../page/components/elements.js";
import { drawFigure } from "../../../page/components/figure.js";
import { formatDigits, showToken } from "../../../page/components/numbers.js";
import { drawCharts } from "../../../page/components/scales.js";
import { makeAlternatives, makeDetails, makeField, makeNumber, EDIT_SECONDS } from "./use-parts.js";

const MAX_BEAM = 20;

export function createSearchOptions(about, parameters, onChange) {
  const read = (name, initial) => parameters.has(name) ? Number(parameters.get(name)) : initial;
  const beam = makeNumber("Beam size", { value: read("beam", about.beam), minimum: 1, maximum: MAX_BEAM }, onChange);
  const penalty = makeNumber("Length penalty", { value: read("length_penalty", about.length_penalty), minimum: 0, maximum: 5, step: 0.1 }, onChange);
  const start = make("input", { type: "text", maxlength: 2000, placeholder: "anything", spellcheck: "false" });
  start.value = parameters.get("start") ?? "";
  let timer = null;
  start.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(onChange, 1000 * EDIT_SECONDS); });
  const clear = makeButton("Clear", () => force(""), { class: "small", "aria-label": "Clear the forced start" });
  const force = (text) => { clearTimeout(timer); start.value = text; onChange(); };
  return {
    element: make("fieldset", { class: "use-options" }, make("legend", {}, "Search"), make("div", { class: "use-grid" }, beam.element, penalty.element),
      make("div", { class: "use-start" }, makeField("It must begin with", start), clear)),
    force,
    read: () => ({ beam: beam.read() ?? about.beam, length_penalty: penalty.read() ?? about.length_penalty, start: start.value }),
  };
}

// The alternatives of a step; a click forces the output to begin with the words so far and the alternative.
export const describeStep = (step, at, options) => makeAlternatives(
  { ...step, title: step.is_end ? "The end" : `Token ${at + 1}: “${showToken(step.token)}”` },
  { action: "Begin with", hint: "Click an alternative: the search starts again from the words up to it.", canChoose: ({ start }) => start !== null, onChoose: ({ start }) => options.force(start) });

export function makeHypotheses(hypotheses) {
  if (hypotheses.length < 2) return null;
  return make("div", { class: "scroller" }, make("table", { class: "use-table" }, make("caption", {}, "Best outputs of the search"),
    make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "words" }, "output"), make("th", { scope: "col" }, "score"), make("th", { scope: "col" }, "log-probability"))),
    make("tbody", {}, ...hypotheses.map(({ text, score, log_probability: value, ended }, at) => make("tr", { class: at ? "" : "is-best" },
      make("td", { class: "words" }, make("bdi", {}, text), ended ? "" : " … (cut)"), make("td", {}, formatDigits(score)), make("td", {}, formatDigits(value)))))));
}

export const makeTree = (tree, { studio, pins }) => tree && makeDetails("The beam search as a tree", (element) => {
  element.append(drawFigure(tree, { scales: studio.scales, pins }));
  drawCharts(element);
});
