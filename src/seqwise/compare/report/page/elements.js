// --- building the page. Text is only ever set as text: a family may be called anything.
const SVG = "http://www.w3.org/2000/svg";

function setContent(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const make = (tag, attributes = {}, ...children) => setContent(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => setContent(document.createElementNS(SVG, tag), attributes, children);
const getElement = (id) => document.getElementById(id);

// --- colour, mark and dash of a family, so that no information depends on colour alone. Model families have the same
// in every report; variants take the others.
const NUM_COLOURS = 8;
const SHAPES = ["circle", "square", "diamond", "up", "down", "cross", "hexagon"];
const DASHES = ["", "8 3", "2 3", "10 3 2 3", "5 3", "1 4", "12 4 4 4"];
const MODEL_FAMILIES = ["gru", "lstm", "transformer", "rnn", "attentive-rnn", "feedforward", "ngram"];
const families = report.families;
const finished = families.filter((family) => isNumber(family.mean));
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
const getStyleIndex = (name) => styleIndices.get(name) ?? 0;
const getColour = (name) => `var(--c${getStyleIndex(name) % NUM_COLOURS})`;
const getDash = (name) => DASHES[(getStyleIndex(name) + Math.floor(getStyleIndex(name) / NUM_COLOURS)) % DASHES.length];
const getShape = (name) => SHAPES[(getStyleIndex(name) + Math.floor(getStyleIndex(name) / NUM_COLOURS)) % SHAPES.length];

const makePolygon = (x, y, r, angles) => "M" + angles.map((angle) => {
  const radians = angle * Math.PI / 180;
  return (x + r * Math.cos(radians)).toFixed(2) + " " + (y + r * Math.sin(radians)).toFixed(2);
}).join("L") + "Z";

function computeOutline(kind, x, y, r) {
  if (kind === "square") return makePolygon(x, y, 1.25 * r, [45, 135, 225, 315]);
  if (kind === "diamond") return makePolygon(x, y, 1.35 * r, [0, 90, 180, 270]);
  if (kind === "up") return makePolygon(x, y + 0.2 * r, 1.4 * r, [-90, 30, 150]);
  if (kind === "down") return makePolygon(x, y - 0.2 * r, 1.4 * r, [90, 210, 330]);
  if (kind === "hexagon") return makePolygon(x, y, 1.2 * r, [0, 60, 120, 180, 240, 300]);
  if (kind === "cross") {
    const a = 1.25 * r, b = 0.45 * r;
    return `M${x - a} ${y - b}H${x - b}V${y - a}H${x + b}V${y - b}H${x + a}V${y + b}H${x + b}V${y + a}H${x - b}V${y + b}H${x - a}Z`;
  }
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
}

const drawMark = (name, x, y, r, attributes = {}) => draw("path", {
  class: "mark", d: computeOutline(getShape(name), x, y, r), style: `fill: ${getColour(name)}; stroke: ${getColour(name)}`,
  "data-family": name, ...attributes });

const drawChip = (name) => draw("svg", { class: "chip", viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" },
  draw("line", { x1: 1, y1: 6, x2: 25, y2: 6, style: `stroke: ${getColour(name)}`, "stroke-width": 2, "stroke-dasharray": getDash(name) }),
  drawMark(name, 13, 6, 4));

const makeFamilyLabel = (name) => make("span", { class: "family", title: name.length > 12 ? name : null }, drawChip(name), make("bdi", {}, name));

// --- tables
// A number of the report: formatted, and unformatted in an attribute.
const makeNumber = (about, value, text, tag = "span") => make(tag, { class: "value", ...about, "data-value": isNumber(value) ? String(value) : null }, text);
const makeCell = (family, key, value, text, ...more) => make("td", { "data-family": family, "data-key": key },
  makeNumber({ "data-family": family, "data-key": key }, value, text), ...more);
const makeHeading = (content, attributes = {}) => make("th", { scope: "col", ...attributes }, content);
const makeRowHead = (name) => make("th", { scope: "row" }, makeFamilyLabel(name));

function makeTable(label, head, rows, attributes = {}) {
  return make("div", { class: "box", tabindex: "0", role: "region", "aria-label": label },
    make("table", attributes, make("caption", { class: "unseen" }, label), make("thead", {}, head), make("tbody", {}, ...rows)));
}

// --- parts of the page
const parts = [];
function addPart(id, name, lead, ...content) {
  const section = make("section", { id, "aria-labelledby": id + "-title" },
    make("h2", { id: id + "-title" }, name), lead && make("p", { class: "lead" }, keepUnitsTogether(lead)), ...content);
  parts.push({ id, name, section });
  return section;
}

const makeFoldable = (summary, ...content) => make("details", {}, make("summary", {}, summary), ...content);
const makeNote = (...content) => make("p", { class: "note" }, ...content.map((one) => typeof one === "string" ? keepUnitsTogether(one) : one));

// A group of buttons of which one is pressed.
function makeChoice(label, options, selected, onSelect) {
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
