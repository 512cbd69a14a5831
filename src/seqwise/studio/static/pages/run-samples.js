// What the model predicted in the course of training, the newest first.
import { make, makeChoice } from "../../../page/components/elements.js";
import { formatDuration, formatPlural, formatWhole } from "../../../page/components/numbers.js";

const EXPLANATIONS = {
  language: "A fixed beginning of a validation text, continued with a fixed seed and temperature 0.8.",
  masked: "A validation text in which every sixth token is masked, with the model's most probable tokens filled in.",
  classify: "The most probable label of fixed validation texts.",
  tag: "The predicted spans or tags of fixed validation sentences.",
  translate: "Greedy translations of fixed validation sources.",
  caption: "Greedy captions of fixed validation images.",
  forecast: "The first values of forecasts from fixed windows of the validation split.",
};

function makeEmpty(run) {
  const text = run.parent ? "Runs of a comparison write no samples: they are timed."
    : run.state === "running" ? "The first sample follows a validation after ten seconds of training."
    : "This run has no samples: it was trained by an earlier version, or its model is fitted in one pass.";
  return make("p", { class: "hint" }, text);
}

// The parts of a prediction that differ from what was expected are not marked: a continuation need not be the same.
function makeOutput(sample, run) {
  const isRight = sample.expected && sample.output.replace(/ \(\d+%\)$/, "") === sample.expected;
  const mark = run.task === "language" || !sample.expected ? null : make("span", { class: isRight ? "run-right" : "run-wrong", title: isRight ? "as expected" : "not as expected", role: "img", "aria-label": isRight ? "as expected" : "not as expected" }, isRight ? "✓" : "≠");
  if (run.task === "language") return make("p", { class: "run-output", dir: "auto" }, make("span", { class: "run-prompt" }, sample.input), make("mark", {}, sample.output));
  return make("p", { class: "run-output", dir: "auto" }, mark, sample.output || "(nothing)");
}

export function createSamples(initial, { studio }) {
  const inputs = make("section", { class: "card run-inputs" }), list = make("ol", { class: "run-timeline" });
  const element = make("div", {}, inputs, list);
  let run = initial, order = "newest", shown = "";

  const choice = makeChoice("first", [["newest", "newest"], ["oldest", "oldest"]], order, (next) => { order = next; shown = ""; draw(run); });
  const makeRow = (row) => make("li", { "data-step": row.step },
    make("div", { class: "run-when" }, make("b", {}, "step " + formatWhole(row.step)), make("span", {}, formatDuration(row.seconds))),
    make("div", {}, ...row.samples.map((sample) => makeOutput(sample, run))));
  const draw = (next) => {
    run = next;
    const key = JSON.stringify([order, run.samples.length, run.samples[0]?.step, run.state]);
    if (key === shown) return;
    shown = key;
    if (run.samples.length === 0) {
      inputs.replaceChildren(makeEmpty(run));
      return list.replaceChildren();
    }
    const [{ samples }] = run.samples;
    inputs.replaceChildren(make("div", { class: "row run-sample-head" }, make("p", { class: "hint" }, EXPLANATIONS[run.task] ?? ""), choice),
      ...samples.map(({ input, expected }) => make("dl", {},
        make("dt", {}, run.task === "language" ? "prompt" : run.task === "caption" ? "image" : "input"), make("dd", { dir: "auto" }, input),
        expected && make("dt", {}, run.task === "language" ? "the text continues" : "expected"), expected && make("dd", { dir: "auto" }, expected))),
      make("p", { class: "unseen", role: "status" }, formatPlural(run.samples.length, "sample")));
    const rows = order === "newest" ? run.samples : [...run.samples].reverse();
    list.replaceChildren(...rows.map(makeRow));
  };
  draw(run);
  return { element, update: (next, row) => draw({ ...next, state: row.state }) };
}
