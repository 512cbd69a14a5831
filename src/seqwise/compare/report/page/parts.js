// What the parts of the report consist of: sections, notes, tables, and the names and marks of families.
import { drawMark, make, makeNamedChip } from "../../../page/components/elements.js";
import { isNumber, keepUnitsTogether } from "../../../page/components/numbers.js";

// A part has an id, a name and a section.
export const makePart = (id, name, lead, ...content) => ({ id, name, section: make("section", { id, "aria-labelledby": id + "-title" },
  make("h2", { id: id + "-title" }, name), lead && make("p", { class: "lead" }, keepUnitsTogether(lead)), ...content) });

export const makeFoldable = (summary, ...content) => make("details", {}, make("summary", {}, summary), ...content);
export const makeNote = (...content) => make("p", { class: "note" }, ...content.map((one) => typeof one === "string" ? keepUnitsTogether(one) : one));

// --- families
export const drawFamilyMark = (report, name, x, y, r, attributes = {}) => drawMark(report.getStyle(name), x, y, r, { "data-family": name, ...attributes });

export function makeFamilyLabel(report, name) {
  const label = makeNamedChip(report.getStyle(name), name);
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
export const makeRowHead = (report, name) => make("th", { scope: "row" }, makeFamilyLabel(report, name));

export function makeTable(label, head, rows, attributes = {}) {
  return make("div", { class: "box scroller", tabindex: "0", role: "region", "aria-label": label },
    make("table", attributes, make("caption", { class: "unseen" }, label), make("thead", {}, head), make("tbody", {}, ...rows)));
}
