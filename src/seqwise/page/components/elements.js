// Elements of a page. Text is only ever set as text: a token may be called anything.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") element.style.cssText = value;  // the content security policy of a server forbids the attribute
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// `make` creates elements of HTML, `draw` elements of SVG; children that are null, undefined or false are left out.
export const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Builds the children of an element again, but only if `signature` is another than before: what did not change is neither laid
// out nor painted again, and a button that has the focus stays.
const signatures = new WeakMap();
export function replaceIfChanged(parent, signature, build) {
  const text = JSON.stringify(signature);
  if (signatures.get(parent) === text) return;
  signatures.set(parent, text);
  parent.replaceChildren(...[build()].flat().filter(Boolean));
}

// An identifier that no other element of the page has, for labels.
let numIdentifiers = 0;
export const makeId = (prefix) => prefix + "-" + ++numIdentifiers;

// --- marks. A style is { colour, shape, dash }, as `palette.py` chooses it: no information depends on colour alone.
const makePolygon = (x, y, r, angles) => "M" + angles.map((angle) => {
  const radians = angle * Math.PI / 180;
  return (x + r * Math.cos(radians)).toFixed(2) + " " + (y + r * Math.sin(radians)).toFixed(2);
}).join("L") + "Z";

export function computeOutline(shape, x, y, r) {
  if (shape === "square") return makePolygon(x, y, 1.25 * r, [45, 135, 225, 315]);
  if (shape === "diamond") return makePolygon(x, y, 1.35 * r, [0, 90, 180, 270]);
  if (shape === "up") return makePolygon(x, y + 0.2 * r, 1.4 * r, [-90, 30, 150]);
  if (shape === "down") return makePolygon(x, y - 0.2 * r, 1.4 * r, [90, 210, 330]);
  if (shape === "hexagon") return makePolygon(x, y, 1.2 * r, [0, 60, 120, 180, 240, 300]);
  if (shape === "cross") {
    const a = 1.25 * r, b = 0.45 * r;
    return `M${x - a} ${y - b}H${x - b}V${y - a}H${x + b}V${y - b}H${x + a}V${y + b}H${x + b}V${y + a}H${x - b}V${y + b}H${x - a}Z`;
  }
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
}

export const drawMark = (style, x, y, r, attributes = {}) => draw("path", {
  class: "mark", d: computeOutline(style.shape, x, y, r), style: `fill: ${style.colour}; stroke: ${style.colour}`, ...attributes });

// A sample of a mark and, with `hasLine`, of its line, for legends and tooltips.
export function drawChip(style, hasLine = true) {
  const width = hasLine ? 26 : 14, stroke = { style: `stroke: ${style.colour}`, "stroke-width": 2, "stroke-dasharray": style.dash };
  return draw("svg", { class: "chip", viewBox: `0 0 ${width} 12`, width, height: 12, "aria-hidden": "true" },
    hasLine && draw("line", { x1: 1, y1: 6, x2: 25, y2: 6, ...stroke }), drawMark(style, width / 2, 6, 4));
}

export const makeNamedChip = (style, name, hasLine = true) => make("span", { class: "named" }, drawChip(style, hasLine), make("bdi", {}, name));

// --- controls
// A group of buttons of which one is pressed.
export function makeChoice(label, options, selected, onSelect) {
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

export function makeButton(text, onClick, attributes = {}) {
  const button = make("button", { type: "button", ...attributes }, text);
  button.addEventListener("click", onClick);
  return button;
}

// Copies a command. Where the clipboard is not available, as in some frames, the command is selected instead.
export function makeCopyButton(source) {
  const show = (text) => { button.textContent = text; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
  const button = makeButton("Copy", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      show("Copied");
    } catch {
      getSelection().selectAllChildren(source);
      show("Selected");
    }
  }, { class: "copy", "aria-label": "Copy the command" });
  return button;
}

// Buttons that hide and show series; `entries` are [name, style], `hidden` is the set of names that is changed.
export function makeLegend(label, entries, hidden, onChange, hasLine = true) {
  if (entries.length < 2) return null;
  return make("div", { class: "legend", role: "group", "aria-label": label }, ...entries.map(([name, style]) => {
    const button = makeButton(makeNamedChip(style, name, hasLine), () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      onChange();
    }, { "aria-pressed": "true", title: "show or hide", "data-toggle": name });
    return button;
  }));
}
