// What the parts of the report consist of: sections, notes, tables, and the names and marks of families.
import { drawMark, make, makeNamedChip } from "../../../page/components/elements.js";
import { isNumber, keepUnitsTogether } from "../../../page/components/numbers.js";
import { getStyle } from "./report.js";

export const parts = [];
export function addPart(id, name, lead, ...content) {
  const section = make("section", { id, "aria-labelledby": id + "-title" },
    make("h2", { id: id + "-title" }, name), lead && make("p", { class: "lead" }, keepUnitsTogether(lead)), ...content);
  parts.push({ id, name, section });
}

export const makeFoldable = (summary, ...content) => make("details", {}, make("summary", {}, summary), ...content);
export const makeNote = (...content) => make("p", { class: "note" }, ...content.map((one) => typeof one === "string" ? keepUnitsTogether(one) : one));

// --- families
export const drawFamilyMark = (name, x, y, r, attributes = {}) => drawMark(getStyle(name), x, y, r, { "data-family": name, ...attributes });

export function makeFamilyLabel(name) {
  const label = makeNamedChip(getStyle(name), name);
  if (name.length > 12) label.title = name;
  return label;
}

// --- tables
// A number of the report: formatted, and unformatted in an attribute.
export const makeNumber = (about, value, text, tag = "span") => make(tag, { class: "value", ...about, "data-value": isNumber(value) ? String(value) : null }, text);
export const makeCell = (family, key, value, text, ...more) => make("td", { "data-family": family, "data-key": key },
  makeNumber({ "data-family": family, "data-key": key }, value, text), ...more);
export const makeLatencyRange = (family) => make("small", { "data-family": family.name, "data-range": "latencies" }, family.text.latency_range);
export const makeHeading = (content, attributes = {}) => make("th", { scope: "col", ...attributes }, content);
export const makeRowHead = (name) => make("th", { scope: "row" }, makeFamilyLabel(name));

export function makeTable(label, head, rows, attributes = {}) {
  return make("div", { class: "box scroller", tabindex: "0", role: "region", "aria-label": label },
    make("table", attributes, make("caption", { class: "unseen" }, label), make("thead", {}, head), make("tbody", {}, ...rows)));
}
