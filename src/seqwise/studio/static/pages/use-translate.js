// Translate: source and translation with the attention between their words, the best outputs and the tree of the search.
import { make } from "../../../page/components/elements.js";
import { createAttention } from "./use-attention.js";
import { makeCard, makeSelect } from "./use-parts.js";
import { createSearchOptions, describeStep, makeHypotheses, makeTree } from "./use-search.js";
import { createTextTask } from "./use-text.js";
import { createInspector, createTokenColours, createTokenLine, makeTokenLegend } from "./use-tokens.js";

export function create(about, context) {
  const { studio, parameters } = context, colours = createTokenColours(studio.scales);
  const options = createSearchOptions(about, parameters, () => task.use("edit"));
  const target = about.targets.length > 1 ? makeSelect("Into", about.targets, parameters.get("target") ?? about.targets[0], () => task.use("edit")) : null;

  function draw(result, text) {
    const { steps, source, prefix, attention } = result, box = make("div", { class: "use-aligned" }), side = make("div", { class: "use-side", "aria-live": "polite" });
    let links = null;  // the token whose links stay: { line, index }
    const point = (name, index) => {
      if (index !== null) (name === "source" ? view?.showSource : view?.showTarget)?.(index);
      else if (links) point(links.name, links.index);
      else view?.clear();
    };
    const select = (name, index) => { links = links?.name === name && links.index === index ? null : { name, index }; point(name, index); };
    const sourceLine = createTokenLine("Source", { onPoint: (index) => point("source", index), onSelect: (index) => select("source", index) });
    let end = 0;
    sourceLine.fill(source.map(({ start, stop }) => { const piece = { text: text.slice(end, stop) }; end = stop; return piece; }));
    const offset = prefix.length;
    const targetLine = createTokenLine("Translation", { colours,
      onPoint: (index) => { point("target", index); if (index !== null && index >= offset) inspector.point(index - offset); },
      onSelect: (index) => { select("target", index); if (index >= offset) inspector.select(index - offset); } });
    targetLine.fill([...prefix.map((each, at) => ({ ...each, text: each.text, className: "is-forced", description: at ? "" : "forced" })),
      ...steps.map((step) => ({ ...step, text: step.is_end ? " ■" : step.text, description: step.is_end ? "the end" : "" }))]);
    const inspector = createInspector(side, (at) => describeStep(steps[at], at, options), (at) => targetLine.mark(at === null ? null : at + offset));
    box.append(make("p", { class: "label" }, "Source"), sourceLine.element, make("p", { class: "label" }, "Translation"), targetLine.element);
    const view = attention.length ? createAttention(attention, box, { source: sourceLine.spans, target: targetLine.spans }, context) : null;
    if (steps.length) inspector.point(0);
    return [makeCard("Translation", make("p", { class: "use-best", dir: "auto", lang: about.targets.length === 1 && about.targets[0].length === 2 ? about.targets[0] : null }, result.hypotheses[0].text),
      make("div", { class: "use-split" }, make("div", {}, box, make("div", { class: "use-below" }, makeTokenLegend(colours)),
        make("p", { class: "hint" }, view ? "Point at a word, in either line, to see what it attends to; click to keep it." : "This model has no attention between source and translation."),
        ...view?.controls ?? []), side)),
    makeCard("Search", makeHypotheses(result.hypotheses), makeTree(result.tree, context), result.hypotheses.length < 2 && make("p", { class: "hint" }, "A beam of 1 finds one output. Widen it to see others."))];
  }
  const task = createTextTask(about, context, {
    label: "Text to translate", submit: "Translate", hint: "Edit a word and see what changes.", call: "translate", draw,
    controls: [target?.element, options.element].filter(Boolean), read: () => ({ ...options.read(), ...target ? { target: target.read() } : {} }),
    names: { input: "source", answer: "translation" },
    summarize: ({ hypotheses }) => ({ answer: hypotheses[0].text, rows: [] }),
  });
  return task;
}
