// The map of words: similar words are close together, and colours are clusters.
import { make, makeButton, makeChoice, makeId } from "../../../page/components/elements.js";
import { decodeFigure } from "../../../page/components/matrix.js";
import { formatWhole } from "../../../page/components/numbers.js";
import { createPins } from "../../../page/components/pins.js";
import { createScatterPlot } from "../../../page/components/scatter.js";
import { drawCharts } from "../../../page/components/scales.js";
import { makeUnknown } from "./vectors-words.js";

const COUNTS = [100, 300, 500, 1000, 2000, 5000], DEFAULT_COUNT = 500;
const MAX_TSNE = 2000;  // words; more are projected by PCA

// `ask(name, values, options)` calls a function of the server; `onWord(word)` is what a click on a word does.
export function makeMap(ask, onWord, studio) {
  const id = makeId("count"), titleId = makeId("map");
  const count = make("select", { id }, ...COUNTS.map((each) => make("option", { value: each, selected: each === DEFAULT_COUNT }, formatWhole(each))));
  let method = "tsne", around = null, plot = null, indices = new Map(), selected = [], controller = null, numWords = Infinity;
  const methods = makeChoice("projection", [["tsne", "t-SNE"], ["pca", "PCA"]], method, (value) => { method = value; load(); });
  const wholeButton = makeButton("Most frequent words", () => { around = null; load(); }, { class: "small" });
  const title = make("h2", { id: titleId }, "Map"), place = make("div", { class: "vectors-plot" }), about = make("p", { class: "hint" }), note = make("p", { class: "vectors-note", role: "status" });
  const bar = make("progress", { max: 1, "aria-label": "The map is computed" }), busy = make("div", { class: "row vectors-busy", hidden: true }, bar, make("span", { class: "hint" }, "Computing the map …"),
    makeButton("Cancel", () => controller?.abort(), { class: "small" }));
  const element = make("section", { class: "card vectors-map", "aria-labelledby": titleId },
    make("div", { class: "row" }, title, make("div", { class: "row vectors-options" }, wholeButton, make("label", { for: id }, "words"), count, methods)), busy, note, place, about);
  count.addEventListener("change", () => load());

  function draw({ figure, description, unknown }) {
    if (unknown) return place.replaceChildren(makeUnknown(unknown, (word, other) => { around = other; load(); }));
    const decoded = decodeFigure(figure), pins = createPins();
    indices = new Map(decoded.names.map((word, at) => [word, at]));
    plot = createScatterPlot(decoded, { scales: studio.scales, pins }, { isMap: true, open: (at) => onWord(decoded.names[at]) });
    title.textContent = decoded.title;
    about.textContent = `${description}. Colours are clusters, named by their two most central words. Drag a rectangle to zoom; a click on a word lists its neighbours.`;
    place.replaceChildren(plot.element);
    drawCharts(place);
    showSelected();
  }
  // The selected word and those neighbours of it that are on the map.
  function showSelected() {
    const [word] = selected;
    if (!plot) return;
    plot.select(indices.has(word) ? selected.filter((each) => indices.has(each)).map((each) => indices.get(each)) : []);
    const isMissing = word !== undefined && !indices.has(word);
    note.replaceChildren(...isMissing ? [make("bdi", {}, word), " is not on this map. ", makeButton(`Map around it`, () => { around = word; load(); }, { class: "small" })] : []);
  }
  async function load() {
    controller?.abort();
    const own = controller = new AbortController(), words = Math.min(Number(count.value), numWords);
    busy.hidden = false;
    bar.removeAttribute("value");
    wholeButton.hidden = around === null;
    const onEvent = ({ progress }) => { if (progress) bar.value = progress[0] / Math.max(1, progress[1]); };
    const isTooLarge = words > MAX_TSNE && around === null;
    methods.querySelector("[data-choice=tsne]").disabled = isTooLarge;
    try {
      const answer = await ask("map_vectors", { count: Math.max(10, words), around, method: isTooLarge ? "pca" : method }, { onEvent, signal: own.signal });
      if (own === controller) draw(answer);
    } catch (error) {
      if (own === controller && error.name !== "AbortError") place.replaceChildren(studio.makeError(error));
    }
    if (own === controller) busy.hidden = true;
  }
  return {
    element,
    // Shows other vectors.
    open(words) { numWords = words; around = null; plot = null; selected = []; place.replaceChildren(); note.replaceChildren(); title.textContent = "Map"; about.textContent = ""; return load(); },
    select(words) { selected = words; showSelected(); },
    close: () => controller?.abort(),
  };
}
