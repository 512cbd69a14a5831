// Continuations of one text: samples, and branches from a token of another one. All of them can be returned to.
import { make, makeButton } from "../../../page/components/elements.js";
import { shorten, showToken } from "../../../page/components/numbers.js";

const MAX_BRANCHES = 40;
const joinSteps = (steps) => steps.map(({ text, token }) => text || token).join("");

// A branch is { number, parent, at, steps, name }: its first `at` tokens are those of its parent.
export function createBranches(onReturn) {
  const list = make("ol", { class: "use-branches" });
  const element = make("nav", { "aria-label": "Continuations", hidden: true }, make("h3", {}, "Continuations"), list);
  let branches = [], current = null, count = 0;
  const listChildren = (parent) => branches.filter((branch) => branch.parent === parent);
  const makeItem = (branch) => {
    const from = branch.parent ? branch.steps.slice(branch.at) : branch.steps, children = listChildren(branch.number);
    const button = makeButton("", () => { current = branch; draw(); onReturn(branch); }, { class: "use-branch", "aria-current": branch === current ? "true" : null });
    button.replaceChildren(make("b", {}, branch.name), " ", make("bdi", {}, shorten(joinSteps(from).replace(/\s+/g, " ").trim() || "…", 90)));
    return make("li", {}, button, children.length > 0 && make("ol", {}, ...children.map(makeItem)));
  };
  function draw() {
    element.hidden = branches.length < 2;
    list.replaceChildren(...branches.filter(({ parent }) => !branches.some(({ number }) => number === parent)).map(makeItem));
  }
  return {
    element, draw,
    get current() { return current; },
    clear() { branches = []; current = null; draw(); },
    // Adds a continuation; with a step in the place of token `at` of the current one, a branch of that.
    add(name, at = null, step = null) {
      const steps = at === null ? [] : [...current.steps.slice(0, at), ...step ? [step] : []];
      const branch = { number: ++count, parent: at === null || !step ? null : current.number, at: at ?? 0, steps, name: step ? `“${showToken(step.token)}”` : name };
      branches = [...branches, branch].slice(-MAX_BRANCHES);
      current = branch;
      draw();
      return branch;
    },
    getText: () => joinSteps(current?.steps ?? []),
  };
}
