// The parameters of an experiment as a form. Only those that differ from the chosen size are sent.
import { make, makeButton, makeChoice, makeCopyButton, makeId } from "../../../page/components/elements.js";

const showName = (name) => name.replaceAll("_", " ");
const showValue = (value) => Array.isArray(value) ? value.join(", ") : String(value);
const isList = ({ kind }) => kind.startsWith("tuple");

// What was typed, as a value; undefined if nothing was. What is no number stays a text, which the server refuses with a reason.
function readInput(parameter, input) {
  if (parameter.kind === "bool") return input.checked;
  const text = input.value.trim();
  if (text === "") return undefined;
  if (isList(parameter)) return text.split(/[\s,]+/).map((part) => Number.isNaN(Number(part)) ? part : Number(part));
  return parameter.kind === "str" ? text : Number(text);
}

function makeInput(parameter, id) {
  const { kind, minimum, maximum } = parameter;
  if (kind === "bool") return make("input", { type: "checkbox", id });
  if (kind === "str" || isList(parameter)) return make("input", { type: "text", id, maxlength: 200, spellcheck: "false", autocomplete: "off" });
  return make("input", { type: "number", id, min: minimum, max: maximum, step: kind === "int" ? 1 : "any" });
}

function formatOptions(parameters, changed) {
  return parameters.filter(({ name }) => name in changed).map(({ name }) => {
    const flag = name.replaceAll("_", "-"), value = changed[name];
    return typeof value === "boolean" ? `--${value ? "" : "no-"}${flag}` : `--${flag} ${[value].flat().join(" ")}`;
  });
}

// `onChange(isQuick)` is called when a value or the size has changed. `getValues()` returns what a run of the experiment needs.
export function makeParameters(statement, onChange) {
  const hasQuick = Object.keys(statement.quick).length > 0, changed = {};
  let isQuick = hasQuick;
  const getUsual = ({ name, default: value }) => isQuick && name in statement.quick ? statement.quick[name] : value;
  const rows = statement.parameters.map((parameter) => {
    const id = makeId("parameter"), input = makeInput(parameter, id), about = makeId("about");
    input.setAttribute("aria-describedby", about);
    input.addEventListener("input", () => {
      const value = readInput(parameter, input);
      if (value === undefined || showValue(value) === showValue(getUsual(parameter))) delete changed[parameter.name];
      else changed[parameter.name] = value;
      update();
    });
    const show = () => {
      if (parameter.kind === "bool") input.checked = getUsual(parameter);
      else input.value = showValue(getUsual(parameter));
    };
    const element = make("div", { class: "lab-parameter" }, make("label", { for: id }, showName(parameter.name)), input, make("small", { id: about }, parameter.text));
    return { parameter, element, show };
  });
  const code = make("pre"), reset = makeButton("Reset", () => { for (const name of Object.keys(changed)) delete changed[name]; showAll(); update(); }, { class: "small" });
  const size = hasQuick && makeChoice("Size", [["quick", "quick"], ["full", "full"]], "quick", (value) => { isQuick = value === "quick"; showAll(); update(); });
  const summary = make("summary", {}, "Parameters");
  const details = make("details", { class: "lab-parameters" }, summary, make("div", { class: "lab-grid" }, ...rows.map(({ element }) => element)),
    make("div", { class: "command" }, code, makeCopyButton(code)), reset);
  const showAll = () => { for (const { parameter, show } of rows) if (!(parameter.name in changed)) show(); };
  function update() {
    const number = Object.keys(changed).length;
    summary.textContent = "Parameters" + (number ? ` (${number} changed)` : "");
    reset.disabled = number === 0;
    code.textContent = ["seqwise lab run", statement.id, ...isQuick ? ["--quick"] : [], ...formatOptions(statement.parameters, changed)].join(" ");
    onChange(isQuick);
  }
  showAll();
  update();
  return { size, details, getValues: () => ({ is_quick: isQuick, parameters: { ...changed } }) };
}
