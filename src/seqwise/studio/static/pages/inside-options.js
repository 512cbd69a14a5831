// The options of a view as controls, from what the server says about each: its kind, choices, limits and help.
import { make, makeButton, makeId } from "../../../page/components/elements.js";
import { nameItem } from "../../../page/components/pins.js";

const DELAY = 450;  // milliseconds after the last key

// What a view that shows a sample of the data can read instead, by name of the view.
const WORDS = {
  neighbours: ["words", "frequent words with close neighbours"], senses: ["sentences, one per line", "validation examples"],
  states: ["texts, one per line", "validation examples"], horizon: ["text", "validation examples"],
};

// Calls a function after a pause.
export function debounce(onPause, delay = DELAY) {
  let timer = null;
  const call = () => { clearTimeout(timer); timer = setTimeout(onPause, delay); };
  return Object.assign(call, { cancel: () => clearTimeout(timer), now: () => { clearTimeout(timer); onPause(); } });
}

function makeInput({ name, kind, choices, minimum, default: initial, unset }, value) {
  if (kind === "switch") return make("input", { type: "checkbox", checked: value ?? initial });
  if (choices.length) return make("select", {}, ...initial === null ? [make("option", { value: "" }, unset)] : [],
    ...choices.map((choice) => make("option", { value: choice.value, selected: choice.value === String(value ?? initial) }, choice.name)));
  const isNumber = kind === "whole" || kind === "number";
  return make("input", { type: isNumber ? "number" : "text", min: minimum, step: kind === "number" ? "any" : null, maxlength: isNumber ? null : 1000,
    value: value ?? "", placeholder: initial ?? unset, "data-option": name });
}

// The value of a control; undefined if it is not set.
function readInput({ kind, default: initial }, input) {
  if (kind === "switch") return input.checked === initial ? undefined : input.checked;
  const text = input.value.trim();
  if (text === "" || text === String(initial)) return undefined;
  return kind === "whole" || kind === "number" ? Number(text) : text;
}

// `values` is changed in place. An option with one choice is left out. Returns null if there is nothing to choose.
export function makeOptions(view, values, { pins, getText, onChange }) {
  const change = debounce(onChange);
  const controls = view.options.filter(({ choices }) => choices.length !== 1).map((option) => {
    const input = makeInput(option, values[option.name]), id = makeId("option");
    input.id = id;
    if (option.help) input.title = option.help;
    input.name = option.name;
    input.addEventListener("input", () => {
      if (!input.checkValidity()) return input.reportValidity();
      const value = readInput(option, input);
      if (value === undefined) delete values[option.name];
      else values[option.name] = value;
      if (input.tagName === "SELECT" || option.kind === "switch") change.now();
      else change();
    });
    const label = make("label", { for: id }, option.name.replace(/_/g, " "));
    return make("span", { class: "inside-option" }, ...option.kind === "switch" ? [input, label] : [label, input]);
  });
  if (view.reads === "sample") controls.push(makeWords(view, values, getText, change));
  if (!controls.length) return null;
  const form = make("form", { class: "inside-options", "aria-label": `Options of ${view.name}` }, ...controls);
  form.addEventListener("submit", (event) => { event.preventDefault(); change.now(); });
  followPins(form, view, pins);
  return form;
}

// The options for which a pinned item can be the value: [option, value].
function listPinned(view, { axis, index, key }) {
  const has = (name) => view.options.some((option) => option.name === name), number = /^unit (\d+)$/.exec(key);
  if (number) return has("unit") ? [["unit", number[1]]] : [];
  if (!has("query") || !/token|query|key/.test(axis.label)) return [];
  return [[/key/.test(axis.label) ? "key" : "query", String(index)]];
}

// Buttons that set an option to what is pinned, such as a unit.
function followPins(form, view, pins) {
  const buttons = make("span", { class: "inside-pinned row" });
  const read = () => pins.getItems().flatMap((item) => listPinned(view, item).map(([option, value]) => [option, value, nameItem(item.axis, item.index)]));
  const fill = () => buttons.replaceChildren(...read().map(([option, value, name]) => makeButton(option === "unit" ? `unit ${value}` : `${option} ${name}`, () => {
    const input = form.elements[option];
    input.value = value;
    input.dispatchEvent(new Event("input"));
  }, { class: "small", title: `Set ${option} to what is pinned` })));
  form.append(buttons);
  fill();
  pins.follow(form, read, fill);
}

// A field for a text of the view's own; empty, it shows a sample of the data.
function makeWords(view, values, getText, change) {
  const [name, empty] = WORDS[view.name], id = makeId("option");
  const input = make("textarea", { id, rows: 1, maxlength: 100_000, placeholder: `empty: ${empty}` });
  input.value = values.text ?? "";
  const read = () => {
    if (input.value.trim()) values.text = input.value.trim();
    else delete values.text;
  };
  input.addEventListener("input", () => { read(); change(); });
  const copy = make("button", { type: "button", class: "small" }, "Use the text above");
  copy.addEventListener("click", () => { input.value = getText(); read(); change.now(); });
  return make("span", { class: "inside-option inside-words" }, make("label", { for: id }, name), input, copy);
}
