// Describe an image: its caption, the regions that each word attends to, and the other captions of the search.
import { make, makeButton } from "../../../page/components/elements.js";
import { drawFigure } from "../../../page/components/figure.js";
import { decodeFigure } from "../../../page/components/matrix.js";
import { paintWeights } from "../../../page/components/overlay.js";
import { drawCharts, findExtent } from "../../../page/components/scales.js";
import { createChanges } from "./use-changes.js";
import { makeDrop } from "./use-drop.js";
import { makeCard, makeDetails, makeWarnings } from "./use-parts.js";
import { createSearchOptions, describeStep, makeHypotheses, makeTree } from "./use-search.js";
import { createInspector, createTokenColours, createTokenLine, makeTokenLegend } from "./use-tokens.js";

const SIDE = 320;  // pixels of the image

// The image; `show(index)` dims what the word with this index does not attend to, `show(null)` nothing.
function createImage(figure, label) {
  const canvas = make("canvas", { class: "use-image", role: "img", "aria-label": label });
  const source = make("canvas"), { width, height } = figure.image, scale = SIDE / Math.max(width, height);
  Object.assign(source, { width, height });
  source.getContext("2d").putImageData(figure.image, 0, 0);
  Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
  const show = (index) => {
    const pen = canvas.getContext("2d"), matrix = index === null ? null : figure.weights[index];
    pen.imageSmoothingEnabled = width > 100;
    pen.drawImage(source, 0, 0, canvas.width, canvas.height);
    if (matrix) paintWeights(pen, canvas, matrix, Math.max(0, findExtent(matrix.values)[1]));
  };
  show(null);
  return { canvas, show };
}

export function create(about, context) {
  const { studio, session, run, parameters } = context, colours = createTokenColours(studio.scales);
  const changes = createChanges({ input: "image and forced start", answer: "caption" }), output = make("div"), warnings = make("div");
  const options = createSearchOptions(about, parameters, () => use("edit"));
  let image = { number: Number(parameters.get("number") ?? 0) }, name = "";

  function draw(result) {
    const { steps, prefix } = result, side = make("div", { class: "use-side", "aria-live": "polite" }), offset = prefix.length;
    const figure = result.figure && decodeFigure(result.figure), view = figure && createImage(figure, `The image: ${result.hypotheses[0].text}`);
    let selected = null;
    const showRegions = (index) => view?.show(index ?? selected);
    const line = createTokenLine("Caption", { colours,
      onPoint: (index) => { showRegions(index); if (index !== null && index >= offset) inspector.point(index - offset); },
      onSelect: (index) => { selected = selected === index ? null : index; showRegions(index); if (index >= offset) inspector.select(index - offset); } });
    line.fill([...prefix.map((each) => ({ ...each, className: "is-forced", description: "forced" })),
      ...steps.map((step) => ({ ...step, text: step.is_end ? " ■" : step.text, description: step.is_end ? "the end" : "" }))]);
    const inspector = createInspector(side, (at) => describeStep(steps[at], at, options), (at) => line.mark(at === null ? null : at + offset));
    if (steps.length) inspector.point(0);
    const all = result.figure && makeDetails("The regions of all words", (element) => {
      element.append(drawFigure(figure, { scales: studio.scales, pins: context.pins }));
      drawCharts(element);
    });
    const truth = result.truth.length > 0 && make("p", { class: "use-truth" }, make("b", {}, "In the data: "), make("bdi", {}, result.truth.join(" / ")));
    output.replaceChildren(
      makeCard("Caption", make("p", { class: "use-best" }, result.hypotheses[0].text), truth, make("div", { class: "use-picture" }, view?.canvas, make("div", {}, line.element,
        make("p", { class: "hint" }, view ? "Point at a word: the regions that it attends to stay bright." : "There is no image to show."), makeTokenLegend(colours)), side), all),
      makeCard("Search", makeHypotheses(result.hypotheses), makeTree(result.tree, context)));
  }
  async function use(reason) {
    context.showProblem(null);
    const values = options.read();
    context.keep({ ...values, number: image.number ?? null });
    try {
      const result = await session.call("caption", { run, ...image, ...values });
      if (!result) return;
      name = image.upload ? name : result.name;
      warnings.replaceChildren(...[makeWarnings(result.warnings)].filter(Boolean));
      draw(result);
      changes.update({ input: `${name} ${values.start}`.trim(), answer: result.hypotheses[0].text, rows: [] }, reason === "example");
    } catch (error) {
      context.showProblem(error);
    }
  }
  const drop = makeDrop("Drop an image here, or choose a file", "image/*,.npy", async (file) => {
    context.showProblem(null);
    try {
      image = { upload: await studio.upload(file) };
      name = file.name;
      await use("example");
    } catch (error) {
      context.showProblem(error);
    }
  });
  const another = makeButton("Another example", () => { image = { number: (image.number ?? 0) + 1 }; use("example"); }, { class: "small", "data-action": "example" });
  return {
    input: make("div", {}, make("p", { class: "use-name" }, "Image"), drop, make("div", { class: "row use-buttons" }, another, makeButton("Stop", session.stop, { class: "use-stop" })), options.element),
    output: make("div", {}, warnings, output, changes.element), start: () => use("example"),
  };
}
