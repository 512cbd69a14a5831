// The text that a model gets: it can be edited, and replaced by an example of the data.
import { make, makeButton } from "../../../page/components/elements.js";
import { EDIT_SECONDS, makeField } from "./use-parts.js";

// `onUse(reason)` is called when the text is to be used: "edit", "submit" or "example". `label` names the text, `submit` the button.
export function createTextInput(about, context, { label, submit, hint = "", rows = 5, onUse }) {
  const { studio, session, run, parameters } = context;
  const area = make("textarea", { rows, spellcheck: "false", maxlength: 20_000 }), truth = make("p", { class: "use-truth", hidden: true });
  let timer = null, number = 0, example = "";
  const use = (reason) => { clearTimeout(timer); truth.hidden = area.value !== example; return onUse(reason); };
  area.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => use("edit"), 1000 * EDIT_SECONDS);
  });
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    use("submit");
  });
  async function chooseExample() {
    const chosen = await session.call("choose_example", { run, number: number++ });
    if (!chosen) return false;
    area.value = example = chosen.text;
    truth.replaceChildren(...chosen.truth ? [make("b", {}, chosen.truth_label + ": "), make("bdi", {}, chosen.truth)] : []);
    return true;
  }
  const showExample = async () => {
    context.showProblem(null);
    try {
      if (await chooseExample()) use("example");
    } catch (error) {
      context.showProblem(error);
    }
  };
  const stop = makeButton("Stop", session.stop, { class: "use-stop" });
  const element = make("div", {}, makeField(label, area, hint),
    make("div", { class: "row use-buttons" }, makeButton(submit, () => use("submit"), { class: "primary", "data-action": "submit" }), stop,
      makeButton("Another example", showExample, { class: "small", "data-action": "example" })), truth);
  return {
    element, area,
    get text() { return area.value; },
    replace(text) { area.value = text; use("edit"); },
    // The text of the address, or an example.
    async start() {
      area.value = parameters.get("text") ?? about.example;
      if (!parameters.has("text") && about.is_generic) await chooseExample().catch(() => {});  // without its data, the general example
      use("example");
    },
  };
}
