// Attention between two lines of tokens: links and shades for the token that is pointed at, and all weights as a heatmap.
import { draw, make, makeChoice } from "../../../page/components/elements.js";
import { drawFigure } from "../../../page/components/figure.js";
import { decodeFigure } from "../../../page/components/matrix.js";
import { followWidth, drawCharts } from "../../../page/components/scales.js";
import { makeDetails } from "./use-parts.js";

const MIN_LINK = 0.03;  // weight below which no link is drawn
const NUM_SHADES = 10;

const averageLayers = (layers) => layers[0].weights.map((row, i) => row.map((_, j) => layers.reduce((sum, { weights }) => sum + weights[i][j], 0) / layers.length));

// `layers` are [{ label, weights }] with weights[target][source]; `getLines` returns { source, target } with their spans.
export function createAttention(layers, box, { source, target }, context) {
  const names = layers.map(({ label }) => label);
  let weights = averageLayers(layers);
  const svg = draw("svg", { class: "use-links", "aria-hidden": "true" });
  box.append(svg);
  const clear = () => {
    svg.replaceChildren();
    for (const span of [...source, ...target]) span.removeAttribute("data-shade");
  };
  const shade = (span, weight) => { if (weight >= MIN_LINK) span.dataset.shade = String(Math.min(NUM_SHADES, Math.ceil(weight * NUM_SHADES))); };
  function link(from, to, weight) {
    if (weight < MIN_LINK || !from || !to) return null;
    const own = box.getBoundingClientRect(), a = from.getClientRects()[0], b = to.getClientRects()[0];
    if (!a || !b) return null;
    const x1 = a.left + a.width / 2 - own.left, y1 = a.bottom - own.top, x2 = b.left + b.width / 2 - own.left, y2 = b.top - own.top, middle = (y1 + y2) / 2;
    return draw("path", { d: `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`, "stroke-width": 1 + 5 * weight, opacity: 0.25 + 0.75 * weight });
  }
  const showTarget = (index) => {
    clear();
    const row = weights[index];
    if (!row) return;
    row.forEach((weight, at) => source[at] && shade(source[at], weight));
    svg.append(...row.map((weight, at) => link(source[at], target[index], weight)).filter(Boolean));
  };
  const showSource = (index) => {
    clear();
    weights.forEach((row, at) => target[at] && shade(target[at], row[index]));
    svg.append(...weights.map((row, at) => link(source[index], target[at], row[index])).filter(Boolean));
  };
  followWidth(box, clear);
  const choose = (name) => {
    weights = name === "mean" ? averageLayers(layers) : layers.find(({ label }) => label === name).weights;
    clear();
    details.open = false;
    details.querySelector("figure")?.remove();
  };
  const details = makeDetails("All weights as a heatmap", (element) => {
    const getNames = (spans) => spans.map((span) => span.textContent);
    const figure = { kind: "Heatmap", title: "Attention of the translation to the source", note: "", identifier: "", values: weights, rows: getNames(target), columns: getNames(source),
      row_label: "token of the translation", column_label: "token of the source", value_label: "attention weight", scale: "sequential", low: 0, high: 1, role: "" };
    element.append(drawFigure(decodeFigure(figure), { scales: context.studio.scales, pins: context.pins }));
    drawCharts(element);
  });
  const choice = layers.length > 1 && makeChoice("attention of", [["mean", "all layers"], ...names.map((name) => [name, name.replace(/^decoder, |, cross$/g, "")])], "mean", choose);
  return { showTarget, showSource, clear, controls: [choice, details].filter(Boolean) };
}
