// Classify: the probability of each label, and on demand the words that decide.
import { make, makeButton } from "../../../page/components/elements.js";
import { drawFigure } from "../../../page/components/figure.js";
import { makeBar, makeCard } from "./use-parts.js";
import { createTextTask } from "./use-text.js";

const MAX_LABELS = 20;  // shown at first

export function create(about, context) {
  const { studio, session, pins } = context;
  function draw({ labels }, text, baseline) {
    const before = new Map((baseline?.rows ?? []).map(({ name, value }) => [name, value]));
    const hasBefore = baseline && baseline.input !== text;
    const list = make("ul", { class: "use-bars" });
    const fill = (limit) => list.replaceChildren(...labels.slice(0, limit).map(({ name, probability }, at) =>
      make("li", {}, makeBar(name, probability, { isChosen: at === 0, before: hasBefore ? before.get(name) ?? null : null }))));
    fill(MAX_LABELS);
    const more = labels.length > MAX_LABELS && makeButton(`Show all ${labels.length} labels`, () => { fill(Infinity); more.remove(); }, { class: "small" });
    const reasons = make("div", { class: "use-reasons" });
    const select = make("select", { "aria-label": "label to explain" }, ...labels.map(({ name }) => make("option", { value: name }, name)));
    async function explain() {
      context.showProblem(null);
      try {
        const result = await session.call("explain_label", { run: context.run, text, label: select.value });
        if (result) reasons.replaceChildren(drawFigure(result.figure, { scales: studio.scales, pins }), make("p", { class: "note" }, result.summary.join(" ")));
      } catch (error) {
        context.showProblem(error);
      }
    }
    return [
      makeCard("Labels", list, more, hasBefore && make("p", { class: "hint" }, "A thin mark shows the probability before the change.")),
      makeCard("Which words matter", make("div", { class: "row" }, make("span", {}, "for the label"), select,
        makeButton("Show the words that decide", explain, { "data-action": "explain" })), reasons),
    ];
  }
  return createTextTask(about, context, {
    label: "Text", submit: "Classify", hint: "Edit a word and see what changes.", call: "classify", draw,
    names: { input: "text", answer: "label" },
    summarize: ({ labels }) => ({ answer: labels[0].name, rows: labels.map(({ name, probability }) => ({ name, value: probability })) }),
  });
}
