// The fields of a form, from the descriptions of the server: a switch, a choice, or a text or number that is typed.
// The server converts and checks what is typed; this module shows what it says.
import { make, makeId } from "../../../page/components/elements.js";

const TITLES = { lr_trials: "Learning rates", nproc: "Processes", crf: "CRF", ema: "EMA decay", init: "Start from run", max_text_mb: "Max text MB" };

export function makeTitle(name) {
  const last = name.split(".").at(-1), words = TITLES[last] ?? last.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

export const makeOption = (name) => "--" + name.replaceAll("_", "-");

// "at least 1, below 2" from { ge: 1, lt: 2 }; limits that only exclude mistakes are left out.
function describeLimits(limits) {
  const words = { ge: "at least", gt: "above", le: "at most", lt: "below" };
  return Object.entries(limits).filter(([, limit]) => Math.abs(limit) < 1e6).map(([key, limit]) => `${words[key]} ${limit}`).join(", ");
}

const capitalise = (text) => text[0].toUpperCase() + text.slice(1);
const isSet = (field, value) => value !== undefined && value !== null && value !== "" && String(value) !== String(field.default ?? "");

function makeSelect(field, attributes, options) {
  return make("select", attributes, ...options.map(([value, text]) => make("option", { value }, text)));
}

function makeControl(field, attributes) {
  const unset = field.name === "task" ? "automatic" : field.empty || "not set";
  if (field.kind === "bool" && field.default !== null) return make("input", { type: "checkbox", ...attributes });
  if (field.kind === "bool") return makeSelect(field, attributes, [["", unset], ["true", "on"], ["false", "off"]]);
  if (field.kind === "choice") {
    const options = field.choices.map((value) => [value, value + (value === field.default ? " (default)" : "")]);
    return makeSelect(field, attributes, field.default === null ? [["", unset], ...options] : options);
  }
  const isNumber = field.kind === "int" || field.kind === "float";
  const placeholder = field.default === null ? field.empty || examples[field.name] || "" : String(field.default);
  return make("input", { type: "text", inputmode: isNumber ? "decimal" : "text", autocomplete: "off", spellcheck: "false", placeholder, ...attributes });
}

const examples = { budget: "10m", columns: "text,label", target: "de", horizon: "24" };

// Returns { element, control, name, set(value), get(), showProblem(text), matches(words), isSet() }. `get` returns undefined for
// a value that is the default. `onChange` is called with the field.
export function makeField(field, onChange, { label = makeTitle(field.name), hasHelp = true, help = field.help } = {}) {
  const id = makeId("field"), isSwitch = field.kind === "bool" && field.default !== null, limits = describeLimits(field.limits ?? {});
  const text = help + (limits ? (help ? " " : "") + capitalise(limits) + "." : "");
  const control = makeControl(field, { id, name: field.name, "aria-describedby": `${id}-help ${id}-problem` });
  const choices = field.kind === "text" && field.choices.length ? make("datalist", { id: id + "-list" }, ...field.choices.map((value) => make("option", { value }))) : null;
  if (choices) control.setAttribute("list", choices.id);
  const problem = make("p", { id: id + "-problem", class: "new-problem", "aria-live": "polite" });
  const note = make("p", { id: id + "-help", class: hasHelp ? "new-help" : "unseen" }, text);
  const caption = make("label", { for: id, title: field.section ? makeOption(field.name) : null }, label);
  const element = make("div", { class: "new-field" + (isSwitch ? " is-switch" : ""), "data-name": field.name },
    ...(isSwitch ? [make("div", {}, control, caption)] : [caption, control]), choices, note, problem);
  const words = `${field.name} ${makeOption(field.name)} ${label} ${field.help} ${field.choices.join(" ")}`.toLowerCase();

  const get = () => {
    const value = isSwitch ? control.checked : control.value.trim();
    return isSet(field, value) ? value : undefined;
  };
  const mark = () => element.classList.toggle("is-set", get() !== undefined);
  const set = (value) => {
    if (isSwitch) control.checked = String(value ?? field.default) === "true";
    else control.value = value ?? (field.kind === "choice" && field.default !== null ? field.default : "");
    mark();
  };
  control.addEventListener(control.type === "text" ? "input" : "change", () => { mark(); onChange(field); });
  set(undefined);
  return {
    element, control, name: field.name, section: field.section, set, get,
    matches: (query) => query.every((word) => words.includes(word)),
    showProblem(message) {
      problem.textContent = message ?? "";
      if (message) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    },
  };
}

// The families of a comparison: a box for each. It has the same interface as a field.
export function makeFamilyBoxes(field, families, onChange) {
  const id = makeId("families"), problem = make("p", { class: "new-problem", "aria-live": "polite" });
  const boxes = families.map((family) => {
    const box = make("input", { type: "checkbox", id: `${id}-${family}`, value: family });
    box.addEventListener("change", () => onChange(field));
    return box;
  });
  const get = () => boxes.filter((box) => box.checked).map((box) => box.value).join(",");
  const set = (value) => {
    const chosen = new Set((value ?? field.default).split(","));
    for (const box of boxes) box.checked = chosen.has(box.value);
  };
  set(undefined);
  const element = make("fieldset", { class: "new-field new-families", "data-name": field.name }, make("legend", {}, "Models"),
    ...boxes.map((box) => make("span", {}, box, make("label", { for: box.id }, box.value))), problem);
  return {
    element, name: field.name, section: "", set,
    get: () => get() === field.default ? undefined : get() || "none",
    matches: () => false,
    showProblem: (message) => { problem.textContent = message ?? ""; },
  };
}
