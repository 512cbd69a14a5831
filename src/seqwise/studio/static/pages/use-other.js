// A task of the user's own: a text in, its prediction out.
import { make } from "../../../page/components/elements.js";
import { makeCard } from "./use-parts.js";
import { createTextTask } from "./use-text.js";

export const create = (about, context) => createTextTask(about, context, {
  label: "Input", submit: "Predict", hint: "", call: "predict", names: { input: "input", answer: "prediction" },
  draw: ({ text }) => [makeCard("Prediction", make("pre", { class: "use-plain" }, text))],
  summarize: ({ text }) => ({ answer: text, rows: [] }),
});
