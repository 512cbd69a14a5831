// A task with a text as input and one answer: draws the answer, and what changed in it.
import { make } from "../../../page/components/elements.js";
import { createChanges } from "./use-changes.js";
import { createTextInput } from "./use-input.js";
import { makeWarnings } from "./use-parts.js";

// call: the function of the server; read(): further arguments; controls: elements below the text
// draw(result, text, baseline): elements, the answer first; summarize(result): { answer, rows } for what changed
export function createTextTask(about, context, { label, submit, hint, call, read = () => ({}), controls = [], draw, summarize, names }) {
  const changes = createChanges(names), answer = make("div", { class: "use-answer" }), further = make("div"), warnings = make("div");
  async function use(reason) {
    context.showProblem(null);
    const text = input.text, values = read();
    context.keep({ text, ...values });
    try {
      const result = await context.session.call(call, { run: context.run, text, ...values });
      if (!result) return;
      warnings.replaceChildren(...[makeWarnings(result.warnings)].filter(Boolean));
      const [first, ...others] = draw(result, text, changes.getBaseline());
      answer.replaceChildren(first);
      further.replaceChildren(...others);
      changes.update({ input: text, ...summarize(result, text) }, reason === "example");
    } catch (error) {
      context.showProblem(error);
    }
  }
  const input = createTextInput(about, context, { label, submit, hint, onUse: use });
  return {
    input: make("div", {}, input.element, ...controls), output: make("div", {}, warnings, answer, changes.element, further),
    start: input.start, use, textInput: input,
  };
}
