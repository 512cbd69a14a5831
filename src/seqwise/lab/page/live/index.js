// Figures that recompute in the browser when a control is moved. A definition is one constant per file:
//
//   id, title    the experiment it belongs to; what is computed
//   controls     [{ name, label, kind: "range", min, max, step, value, unit }, { …, kind: "choice", options: [[value, text], …], value },
//                 { …, kind: "text", value }]
//   compute(values) → numbers and arrays by name; pure, since tests compare it with Python
//   draw(values, numbers) → figures with the fields of `seqwise.page.figures`; styles are added here
//   describe(values, numbers) → a sentence with the most important numbers (optional)
//
// To add one, import it here and add it to DEFINITIONS, add its reference to tests/support/live_references.py and values to tests/lab/test_live.py.
import { make, makeChoice, makeId } from "../../../page/components/elements.js";
import { decodeFigure } from "../../../page/components/matrix.js";
import { formatDigits, keepUnitsTogether, trimZeros } from "../../../page/components/numbers.js";
import { createPins } from "../../../page/components/pins.js";
import { drawCharts } from "../../../page/components/scales.js";
import { drawWithTitles } from "../axes.js";
import { ACTIVATIONS } from "./activations.js";
import { BEAM } from "./beam.js";
import { CLIPPING } from "./clipping.js";
import { completeFigure } from "./complete.js";
import { CONFIDENCE } from "./confidence.js";
import { FORGET_GATES } from "./forget-gates.js";
import { GRU_STEP } from "./gru-step.js";
import { INFLUENCE } from "./influence.js";
import { LSTM_STEP } from "./lstm-step.js";
import { PERPLEXITY } from "./perplexity.js";
import { POSITION_ENCODINGS } from "./position-encodings.js";
import { ROTATION } from "./rotation.js";
import { SATURATION } from "./saturation.js";
import { SCALING } from "./scaling.js";
import { SENTENCE } from "./sentence.js";
import { SKIP_GRAM } from "./skip-gram.js";
import { SPECTRAL_RADIUS } from "./spectral-radius.js";

// In the order of the textbook.
const DEFINITIONS = [
  INFLUENCE, SPECTRAL_RADIUS, ACTIVATIONS, CLIPPING, LSTM_STEP, FORGET_GATES, GRU_STEP, SENTENCE, SCALING, SATURATION, POSITION_ENCODINGS, ROTATION, BEAM,
  SKIP_GRAM, PERPLEXITY, CONFIDENCE,
];
export const LIVE = new Map(DEFINITIONS.map((definition) => [definition.id, definition]));

const getDefaults = ({ controls }) => Object.fromEntries(controls.map(({ name, value }) => [name, value]));

function makeRange({ label, min, max, step, value, unit = "" }, onChange) {
  const id = makeId("live"), output = make("output", { for: id }), input = make("input", { type: "range", id, min, max, step, value });
  const show = () => {
    const text = trimZeros(formatDigits(input.valueAsNumber, 4)) + (unit && "\u00a0" + unit);
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
  };
  input.addEventListener("input", () => { show(); onChange(input.valueAsNumber); });
  show();
  return make("div", { class: "live-range" }, make("label", { for: id }, label), input, output);
}

function makeText({ label, value }, onChange) {
  const id = makeId("live"), input = make("input", { type: "text", id, value, autocomplete: "off", spellcheck: "false" });
  input.addEventListener("input", () => onChange(input.value));
  return make("div", { class: "live-text" }, make("label", { for: id }, label), input);
}

const makeOptions = ({ label, options, value }, onChange) => makeChoice(label, options, value, onChange);
const KINDS = { range: makeRange, text: makeText, choice: makeOptions };

// Draws the controls and figures of a definition into a container. `context` has the palette's scales and styles.
export function mountLive(definition, container, { scales, styles }) {
  const values = getDefaults(definition), place = make("div", { class: "live-figures" }), status = make("p", { class: "live-status", role: "status" });
  const update = () => {
    const numbers = definition.compute({ ...values }), pins = createPins();
    const figures = definition.draw({ ...values }, numbers).map((figure) => decodeFigure(completeFigure(figure, styles)));
    place.replaceChildren(...figures.map((figure) => drawWithTitles(figure, { scales, pins, findFigure: () => null })));
    drawCharts(place);
    status.textContent = keepUnitsTogether(definition.describe?.({ ...values }, numbers) ?? "");
  };
  const controls = definition.controls.map((control) => {
    const element = KINDS[control.kind](control, (value) => { values[control.name] = value; update(); });
    element.dataset.control = control.name;
    return element;
  });
  container.append(make("p", { class: "live-title" }, definition.title), make("div", { class: "live-controls", role: "group", "aria-label": definition.title }, ...controls), status, place);
  update();
}

// For tests and for the curious: window.seqwiseLive.compute("C6", { threshold: 2 }).
export function exposeLive() {
  window.seqwiseLive = {
    list: () => DEFINITIONS.map(({ id, title, controls }) => ({ id, title, controls })),
    compute: (id, values = {}) => LIVE.get(id).compute({ ...getDefaults(LIVE.get(id)), ...values }),
  };
}
