// --- building the page. Text is only ever set as text: a family may be called anything.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const find = (id) => document.getElementById(id);

// --- colour, mark and dash of a family, so that no information depends on colour alone. Model families have the same
// in every report; variants take the others.
const NUM_COLOURS = 8;
const SHAPES = ["circle", "square", "diamond", "up", "down", "cross", "hexagon"];
const DASHES = ["", "8 3", "2 3", "10 3 2 3", "5 3", "1 4", "12 4 4 4"];
const MODEL_FAMILIES = ["gru", "lstm", "transformer", "rnn", "attentive-rnn", "feedforward", "ngram"];
const families = report.families;
const finished = families.filter((family) => exists(family.mean));
const styleIndices = new Map();
{
  for (const { name } of families) if (MODEL_FAMILIES.includes(name)) styleIndices.set(name, MODEL_FAMILIES.indexOf(name));
  const used = new Set(styleIndices.values());
  let next = 0;
  for (const family of families) {
    if (styleIndices.has(family.name)) continue;
    while (used.has(next)) next++;
    styleIndices.set(family.name, next);
    used.add(next);
  }
}
const styleIndex = (name) => styleIndices.get(name) ?? 0;
const colour = (name) => `var(--c${styleIndex(name) % NUM_COLOURS})`;
const dash = (name) => DASHES[(styleIndex(name) + Math.floor(styleIndex(name) / NUM_COLOURS)) % DASHES.length];
const shape = (name) => SHAPES[(styleIndex(name) + Math.floor(styleIndex(name) / NUM_COLOURS)) % SHAPES.length];

const polygon = (x, y, r, angles) => "M" + angles.map((angle) => {
  const radians = angle * Math.PI / 180;
  return (x + r * Math.cos(radians)).toFixed(2) + " " + (y + r * Math.sin(radians)).toFixed(2);
}).join("L") + "Z";

function outline(kind, x, y, r) {
  if (kind === "square") return polygon(x, y, 1.25 * r, [45, 135, 225, 315]);
  if (kind === "diamond") return polygon(x, y, 1.35 * r, [0, 90, 180, 270]);
  if (kind === "up") return polygon(x, y + 0.2 * r, 1.4 * r, [-90, 30, 150]);
  if (kind === "down") return polygon(x, y - 0.2 * r, 1.4 * r, [90, 210, 330]);
  if (kind === "hexagon") return polygon(x, y, 1.2 * r, [0, 60, 120, 180, 240, 300]);
  if (kind === "cross") {
    const a = 1.25 * r, b = 0.45 * r;
    return `M${x - a} ${y - b}H${x - b}V${y - a}H${x + b}V${y - b}H${x + a}V${y + b}H${x + b}V${y + a}H${x - b}V${y + b}H${x - a}Z`;
  }
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
}

const mark = (name, x, y, r, attributes = {}) => draw("path", {
  class: "mark", d: outline(shape(name), x, y, r), style: `fill: ${colour(name)}; stroke: ${colour(name)}`,
  "data-family": name, ...attributes });

const chip = (name) => draw("svg", { class: "chip", viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" },
  draw("line", { x1: 1, y1: 6, x2: 25, y2: 6, style: `stroke: ${colour(name)}`, "stroke-width": 2, "stroke-dasharray": dash(name) }),
  mark(name, 13, 6, 4));

const familyLabel = (name) => make("span", { class: "family", title: name.length > 12 ? name : null }, chip(name), make("bdi", {}, name));

// --- tables
// A number of the report: formatted, and unformatted in an attribute.
const number = (about, value, text, tag = "span") => make(tag, { class: "value", ...about, "data-value": exists(value) ? String(value) : null }, text);
const cell = (family, key, value, text, ...more) => make("td", { "data-family": family, "data-key": key },
  number({ "data-family": family, "data-key": key }, value, text), ...more);
const heading = (content, attributes = {}) => make("th", { scope: "col", ...attributes }, content);
const rowHead = (name) => make("th", { scope: "row" }, familyLabel(name));

function table(label, head, rows, attributes = {}) {
  return make("div", { class: "box", tabindex: "0", role: "region", "aria-label": label },
    make("table", attributes, make("caption", { class: "unseen" }, label), make("thead", {}, head), make("tbody", {}, ...rows)));
}

// --- parts of the page
const parts = [];
function part(id, name, lead, ...content) {
  const section = make("section", { id, "aria-labelledby": id + "-title" },
    make("h2", { id: id + "-title" }, name), lead && make("p", { class: "lead" }, keepUnitsTogether(lead)), ...content);
  parts.push({ id, name, section });
  return section;
}

const foldable = (summary, ...content) => make("details", {}, make("summary", {}, summary), ...content);
const note = (...content) => make("p", { class: "note" }, ...content.map((one) => typeof one === "string" ? keepUnitsTogether(one) : one));

// A group of buttons of which one is pressed.
function choice(label, options, selected, onSelect) {
  const buttons = options.map(([value, text]) => {
    const button = make("button", { type: "button", "aria-pressed": String(value === selected), "data-choice": value }, text);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      onSelect(value);
    });
    return button;
  });
  return make("div", { class: "choice", role: "group", "aria-label": label }, make("span", {}, label), ...buttons);
}
