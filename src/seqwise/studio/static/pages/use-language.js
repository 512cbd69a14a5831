// Continue a text, token by token: each shows its probability and its alternatives, from which one can branch.
import { make, makeButton } from "../../../page/components/elements.js";
import { showToken } from "../../../page/components/numbers.js";
import { createBranches } from "./use-branches.js";
import { createChanges } from "./use-changes.js";
import { createTextInput } from "./use-input.js";
import { makeAlternatives, makeCard, makeNumber, makeToggle, makeWarnings } from "./use-parts.js";
import { createInspector, createTokenColours, createTokenLine, makeTokenLegend } from "./use-tokens.js";

const MAX_TOKENS = 500;

function createOptions(defaults, parameters, onChange) {
  const read = (name) => parameters.has(name) ? Number(parameters.get(name)) : defaults[name] ?? null;
  const controls = {
    length: makeNumber("Tokens", { value: read("length"), minimum: 1, maximum: MAX_TOKENS }, onChange),
    temperature: makeNumber("Temperature", { value: read("temperature"), minimum: 0.05, maximum: 10, step: 0.05 }, onChange),
    top_k: makeNumber("Top-k", { value: read("top_k"), minimum: 1, maximum: 100_000, placeholder: "all" }, onChange),
    top_p: makeNumber("Top-p", { value: read("top_p"), minimum: 0.01, maximum: 1, step: 0.01, placeholder: "all" }, onChange),
    seed: makeNumber("Seed", { value: read("seed"), minimum: 0, maximum: 2 ** 31 }, onChange),
  };
  const greedy = makeToggle("Greedy: always the most probable token", parameters.get("greedy") === "true", () => { disable(); onChange(); });
  const disable = () => { for (const name of ["temperature", "top_k", "top_p", "seed"]) controls[name].input.disabled = greedy.read(); };
  disable();
  const readAll = () => ({ ...Object.fromEntries(Object.entries(controls).map(([name, control]) => [name, control.read() ?? defaults[name] ?? null])), greedy: greedy.read() });
  return {
    element: make("fieldset", { class: "use-options" }, make("legend", {}, "Options"),
      make("div", { class: "use-grid" }, ...Object.values(controls).map(({ element }) => element)), greedy.element),
    read: readAll, setSeed: (seed) => controls.seed.set(seed),
    name: () => greedy.read() ? "greedy" : `seed ${readAll().seed}`,
  };
}

export function create(about, context) {
  const { studio, session, run, parameters } = context;
  const changes = createChanges({ input: "text", answer: "continuation" }), warnings = make("div"), side = make("div", { class: "use-side", "aria-live": "polite" });
  const colours = createTokenColours(studio.scales), defaults = { length: about.num_tokens, temperature: 1, seed: 0 };
  const line = createTokenLine("Text and its continuation", { colours, onPoint: (index) => inspector.point(index), onSelect: (index) => inspector.select(index) });
  const inspector = createInspector(side, describe, (index) => line.mark(index));
  const branches = createBranches((branch) => { session.stop(); drawTokens(branch); });
  const hint = make("p", { class: "hint" }, "Point at a token to see its alternatives, click to keep them open.");
  let prompt = [];

  const listTokens = (branch) => [...prompt.map((each) => ({ ...each, token: each.text, isPrompt: true, className: each.is_unknown ? "is-unknown" : "" })),
    ...branch.steps.map((step, at) => ({ ...step, className: branch.parent && at === branch.at ? "is-branch" : "" }))];
  function drawTokens(branch) {
    line.fill(listTokens(branch));
    inspector.clear(hint);
  }
  function describe(index) {
    if (index < prompt.length) {
      const { text, start, stop, alternatives, probability, rank } = prompt[index], word = input.text.slice(start, stop);
      return makeAlternatives({ title: `“${showToken(text)}” in your text`, token: word, probability, rank, alternatives },
        { action: "Replace it by", hint: "Click an alternative to put it into your text.", canChoose: ({ token }) => !token.startsWith("<"), onChoose: ({ text: other }) =>
          input.replace(input.text.slice(0, start) + (word.match(/^\s*/)[0] && !/^\s/.test(other) ? " " : "") + other + input.text.slice(stop)) });
    }
    const at = index - prompt.length, step = branches.current.steps[at];
    return step && makeAlternatives({ ...step, title: `Token ${at + 1}: “${showToken(step.token)}”` }, { action: "Continue with", hint: "Click an alternative to continue from there.", onChoose: (other) => branch(at, other) });
  }
  function branch(at, alternative) {
    const step = branches.current.steps[at], rank = 1 + step.alternatives.findIndex(({ id }) => id === alternative.id);
    session.stop();
    branches.add("", at, { ...alternative, rank, alternatives: step.alternatives });
    drawTokens(branches.current);
    line.focus(prompt.length + at);
    generate();
  }
  // Continues the current branch.
  async function generate(isNew = false) {
    const own = branches.current, text = input.text, options = settings.read(), length = Math.min(options.length, MAX_TOKENS - own.steps.length);
    context.showProblem(null);
    context.keep({ text, ...Object.fromEntries(Object.entries(options).filter(([name, value]) => value !== (defaults[name] ?? null) && value !== false)) });
    if (length < 1) return;
    more.disabled = true;
    try {
      await session.call("continue_text", { run, text, prefix: own.steps.map(({ id }) => id), ...options, length }, ({ emitted }) => {
        if (!emitted) return;
        if (emitted.prompt) {
          prompt = emitted.prompt;
          warnings.replaceChildren(...[makeWarnings(emitted.warnings)].filter(Boolean));
          if (!own.steps.length) drawTokens(own);  // else they are drawn, and one may be selected
        } else {
          own.steps.push(emitted.step);
          line.add(emitted.step);
        }
      });
      branches.draw();
      changes.update({ input: text, answer: branches.getText().trim(), rows: [] }, isNew);
    } catch (error) {
      context.showProblem(error);
    } finally {
      more.disabled = own.steps.length >= MAX_TOKENS || own.steps.length === 0;
    }
  }
  let lastText = null;
  function use(reason) {
    if (input.text !== lastText) branches.clear();
    lastText = input.text;
    session.stop();
    branches.add(settings.name());
    return generate(reason === "example");
  }
  const settings = createOptions(defaults, parameters, () => use("edit"));
  const input = createTextInput(about, context, { label: "Text to continue", submit: "Continue", rows: 6, hint: "Edit a word and see what changes.", onUse: use });
  const more = makeButton("Continue further", () => generate(), { class: "small", disabled: true, "data-action": "more" });
  const another = makeButton("Another sample", () => { settings.setSeed((settings.read().seed + 1) % 2 ** 31); use("edit"); }, { class: "small" });
  const stop = makeButton("Stop", session.stop, { class: "small use-stop" });
  return {
    input: make("div", {}, input.element, settings.element),
    output: make("div", {}, warnings, makeCard("Continuation", make("div", { class: "use-split" }, make("div", {},
      make("div", { class: "row use-above" }, more, another, stop),  // above, since the text grows
      line.element, makeTokenLegend(colours),
      make("p", { class: "hint" }, "Your text is underlined in the colour of its surprise; what the model writes is filled.")), side), branches.element), changes.element),
    start: input.start,
  };
}
