// Controls and small parts that the inputs of several tasks share.
import { make, makeButton, makeId } from "../../../page/components/elements.js";
import { formatDigits, formatFixed, showToken } from "../../../page/components/numbers.js";

export const EDIT_SECONDS = 0.45;  // without a keystroke, after which an edited text is used

// A probability as a percentage with as many digits as say something.
export function formatShare(probability) {
  const percent = 100 * probability;
  if (percent >= 99.95 && probability < 1) return "> 99.9 %";
  if (percent < 0.01 && probability > 0) return "< 0.01 %";
  return (percent >= 9.95 || percent === 0 ? formatFixed(percent, percent % 1 && percent < 99.95 ? 1 : 0) : formatDigits(percent, 2)) + "\u00a0%";
}

export const makeField = (label, control, hint = "") => {
  control.id ||= makeId("use");
  return make("div", { class: "use-field" }, make("label", { for: control.id }, label), control, hint && make("span", { class: "hint" }, hint));
};

// A number that may be empty; `read` returns null then.
export function makeNumber(label, { value, minimum, maximum, step = 1, placeholder = "" }, onChange) {
  const input = make("input", { type: "number", min: minimum, max: maximum, step, placeholder, inputmode: "decimal" });
  if (value !== null && value !== undefined) input.value = value;
  let timer = null;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    const isValid = input.checkValidity();
    input.setAttribute("aria-invalid", String(!isValid));
    if (isValid) timer = setTimeout(onChange, 1000 * EDIT_SECONDS);
  });
  const read = () => input.value === "" || !input.checkValidity() ? null : Number(input.value);
  return { element: makeField(label, input), input, read, set: (next) => { input.value = next ?? ""; } };
}

export function makeToggle(label, isOn, onChange) {
  const input = make("input", { type: "checkbox" });
  input.checked = isOn;
  input.addEventListener("change", onChange);
  return { element: make("label", { class: "use-toggle" }, input, " " + label), input, read: () => input.checked };
}

export function makeSelect(label, names, selected, onChange) {
  const select = make("select", {}, ...names.map((name) => make("option", { value: name }, name)));
  if (selected !== null) select.value = selected;
  select.addEventListener("change", () => onChange(select.value));
  return { element: makeField(label, select), select, read: () => select.value };
}

export const makeWarnings = (warnings) => warnings?.length
  ? make("ul", { class: "use-warnings", "aria-label": "warnings" }, ...warnings.map((text) => make("li", {}, text))) : null;

export const makeCard = (title, ...children) => {
  const id = makeId("use");
  return make("section", { class: "card use-card", "aria-labelledby": id }, make("h2", { id }, title), ...children);
};

export const makeDetails = (title, fill) => {
  const details = make("details", { class: "use-details" }, make("summary", {}, title));
  details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) fill(details); });
  return details;
};

// A row of a list: a name, a bar and a probability. With `onChoose` it is a button; `before` marks an earlier value.
export function makeBar(name, probability, { isChosen = false, onChoose = null, label = "", before = null } = {}) {
  const bar = make("span", { class: "use-track", "aria-hidden": "true" }, make("i", { style: `width: ${(100 * probability).toFixed(2)}%` }),
    before !== null && make("b", { style: `left: ${(100 * before).toFixed(2)}%` }));
  const parts = [make("bdi", { class: "use-bar-name", title: name }, name), bar, make("span", { class: "use-share" }, formatShare(probability))];
  const attributes = { class: "use-bar" + (isChosen ? " is-chosen" : "") };
  if (!onChoose) return make("div", attributes, ...parts);
  const button = makeButton("", onChoose, { ...attributes, "aria-label": label || null });
  button.replaceChildren(...parts);
  return button;
}

// The most probable tokens at a position; `onChoose(alternative)` for those that can be chosen.
export function makeAlternatives({ title, token, probability, rank, alternatives }, { onChoose = null, canChoose = () => true, action = "", hint = "" } = {}) {
  const isIn = alternatives.some((each) => each.token === token);
  const rows = [...alternatives, ...isIn || probability === null ? [] : [{ token, probability, isExtra: true }]];
  return make("div", { class: "use-alternatives" },
    make("h3", {}, title),
    make("p", { class: "hint" }, probability === null ? "The first token has no probability: nothing is before it."
      : `probability ${formatShare(probability)}, rank ${rank}`),
    make("ul", {}, ...rows.map((each) => {
      const isChosen = each.token === token, isButton = onChoose && !isChosen && !each.isExtra && canChoose(each);
      return make("li", {}, makeBar(showToken(each.token), each.probability, { isChosen,
        onChoose: isButton ? () => onChoose(each) : null, label: `${action} ${showToken(each.token)}, ${formatShare(each.probability)}` }));
    })),
    hint && rows.length > 1 && make("p", { class: "hint use-how" }, hint));
}
