// What is behind a guess: the verdict, the numbers and figures that decide it, and what to try next.
import { make, makeCopyButton } from "../../page/components/elements.js";
import { isNarrow } from "../../page/components/figure.js";
import { decodeFigure } from "../../page/components/matrix.js";
import { DASH, formatDigits, formatDuration, formatWhole, isNumber, keepUnitsTogether, trimZeros } from "../../page/components/numbers.js";
import { createPins, drawPinBar } from "../../page/components/pins.js";
import { drawCharts } from "../../page/components/scales.js";
import { drawWithTitles } from "./axes.js";
import { LIVE, mountLive } from "./live/index.js";
import { makeVerdict } from "./verdicts.js";

export function formatValue(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (!isNumber(value)) return value === null || value === "" ? DASH : String(value);
  return Number.isInteger(value) && Math.abs(value) < 1e9 ? formatWhole(value) : trimZeros(formatDigits(value, 4));
}

const showName = (name) => name.replaceAll("_", " ");

function makeNumbers(record) {
  const entries = Object.entries(record.numbers);
  if (entries.length === 0) return null;
  const rows = entries.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, showName(name)),
    make("td", { class: typeof value === "string" ? "words" : null, title: isNumber(value) ? String(value) : null }, formatValue(value))));
  return make("div", { class: "numbers" }, make("h4", {}, "Numbers"),
    make("div", { class: "scroller" }, make("table", {}, make("caption", { class: "unseen" }, `Measured numbers of ${record.id}`), make("tbody", {}, ...rows))));
}

function makeDetails(record) {
  const parameters = Object.entries(record.parameters).map(([name, value]) => `${showName(name)} ${formatValue(value)}`).join(", ");
  const code = make("pre", {}, record.command);
  return make("div", { class: "details" },
    make("h4", {}, "Rule"), make("p", {}, keepUnitsTogether(record.rule)),
    make("h4", {}, "Try next"), record.command && make("div", { class: "command" }, code, makeCopyButton(code)),
    record.hint && make("p", {}, keepUnitsTogether(record.hint)),
    make("p", { class: "hint" }, `Parameters${record.size === "quick" ? " of a quick run" : ""}: ${parameters}. Time: ${record.seconds ? formatDuration(record.seconds) : "less than 1 ms"}.`));
}

// Returns the answer to a statement. Its figures are drawn by `drawFigures`, which does nothing the second time.
export function makeAnswer(record, { scales, styles }) {
  const pins = createPins(), grid = make("div", { class: "figures" }), live = LIVE.get(record.id);
  const playground = live && make("div", { class: "live" }, make("h4", {}, "Try it"));
  const isPair = record.figures.length === 2 && record.figures.every(isNarrow);
  let isDrawn = false;
  const drawFigures = () => {
    if (isDrawn) return;
    isDrawn = true;
    for (const figure of record.figures) {
      const element = drawWithTitles(decodeFigure(figure), { scales, pins, findFigure: () => null });
      element.classList.add(isPair ? "half" : "wide");
      grid.append(element);
    }
    grid.classList.remove("is-waiting");
    if (live) mountLive(live, playground, { scales, styles });
    drawCharts(grid);
  };
  grid.classList.add("is-waiting");
  const element = make("div", { class: "answer", tabindex: "-1", "aria-label": `Verdict on ${record.id}`, role: "group" },
    makeVerdict(record), grid, drawPinBar(pins), playground, make("div", { class: "pair" }, makeNumbers(record), makeDetails(record)));
  return { element, drawFigures, unpin: () => pins.clear() };
}
