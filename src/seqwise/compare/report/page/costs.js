// Costs: small tables with a bar in each row, cheapest first.
import { make } from "../../../page/components/elements.js";
import { isNumber } from "../../../page/components/numbers.js";
import { makeCell, makeHeading, makeLatencyRange, makeNote, makePart, makeRowHead } from "./parts.js";
import { getLatencyRange, getSpeed } from "./report.js";

const listCosts = (report) => [
  { key: "tokens_per_second", name: "Training speed", higherIsBetter: true, about: `${report.unit} per second, more is better`,
    getValue: getSpeed, suffix: "/s" },
  { key: "memory", name: "Memory", about: "peak while training", getValue: (f) => f.memory },
  { key: "weights", name: "Size on disk", about: "the saved weights", getValue: (f) => f.weights },
  { key: "latency", name: "One prediction", about: "latency of a single prediction: median and range over several rounds", getValue: (f) => f.latency, range: getLatencyRange },
  { key: "evaluation_seconds", name: report.metric.split === "test" ? "Test split" : "Validation split", about: "time to predict all of it, in batches", getValue: (f) => f.evaluation_seconds },
];

export function makeBar(report, name, share, whisker = null) {
  const bar = make("i", { class: "bar" }), line = whisker && make("i", { class: "range" });
  bar.style.width = Math.max(0.8, 100 * Math.abs(share)) + "%";
  bar.style.background = report.getStyle(name).colour;
  if (line) { line.style.left = 100 * whisker[0] + "%"; line.style.width = 100 * (whisker[1] - whisker[0]) + "%"; }
  return make("div", { class: "bar-box" }, bar, line);
}

function makeCostTable(report, { key, name, about, getValue, range = () => null, suffix = "", higherIsBetter }) {
  const measured = report.families.filter((family) => isNumber(getValue(family))).sort((a, b) => (getValue(a) - getValue(b)) * (higherIsBetter ? -1 : 1));
  if (measured.length === 0) return null;
  const maximum = Math.max(...measured.flatMap((family) => [getValue(family), ...(range(family) ?? [])]), 1e-300);
  const rows = measured.map((family) => make("tr", {}, makeRowHead(report, family.name),
    make("td", { class: "bars", "aria-hidden": "true" }, makeBar(report, family.name, getValue(family) / maximum, range(family)?.map((end) => end / maximum))),
    makeCell(family.name, "cost." + key, getValue(family), family.text[key] + suffix, range(family) && makeLatencyRange(family))));
  return make("figure", {}, make("figcaption", {}, name, make("small", {}, about)),
    make("table", { class: "costs" }, make("caption", { class: "unseen" }, `${name}: ${about}`),
      make("colgroup", {}, make("col", { class: "who" }), make("col"), make("col", { class: "what" })),
      make("thead", { class: "unseen" }, make("tr", {}, makeHeading("Family"), makeHeading("bar", { "aria-hidden": "true" }), makeHeading(name))),
      make("tbody", {}, ...rows)));
}

export function makeCosts(report) {
  const tables = listCosts(report).map((cost) => makeCostTable(report, cost)).filter(Boolean);
  if (tables.length === 0) return makePart("costs", "What it costs", "Nothing was measured.");
  const isBusy = Boolean(report.waiting?.text);
  return makePart("costs", "What it costs", "Measured on the machine named above; " +
    (isBusy ? "on another one, or on an idle one, times differ." : "the order is likely to hold elsewhere, the numbers are not."),
    isBusy && makeNote(report.waiting.text),
    make("div", { class: "tiles" }, ...tables));
}
