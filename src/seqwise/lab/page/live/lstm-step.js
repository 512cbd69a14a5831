// D1: one step of an LSTM of one unit. All weights are 1, so that a gate is a function of x + h + bias.
import { interpolate, show, sigmoid } from "./numerics.js";

const EXTENT = 6;  // largest |x|
const INPUTS = interpolate(-EXTENT, EXTENT, 97);
const NAMES = { input: "input gate i", forget: "forget gate f", candidate: "candidate g", output: "output gate o", cell: "new cell c′", hidden: "new state h′" };
const ROLES = { hidden: "state" };  // of colours; the others are called as the value is

// As `seqwise.layers.LSTMCell`.
function step(x, { h, c, input_bias, forget_bias, candidate_bias, output_bias }) {
  const input = sigmoid(x + h + input_bias), forget = sigmoid(x + h + forget_bias), candidate = Math.tanh(x + h + candidate_bias);
  const output = sigmoid(x + h + output_bias), cell = forget * c + input * candidate;
  return { input, forget, candidate, output, cell, hidden: output * Math.tanh(cell) };
}

const makeBias = (name, label, value = 0) => ({ name: name + "_bias", label: "bias of the " + label, kind: "range", min: -8, max: 8, step: 0.1, value });

export const LSTM_STEP = {
  id: "D1",
  title: "One step of an LSTM with one unit, whose weights are all 1. The biases open and close the gates.",
  controls: [
    { name: "x", label: "input x", kind: "range", min: -EXTENT, max: EXTENT, step: 0.1, value: 1 },
    { name: "h", label: "old state h", kind: "range", min: -1, max: 1, step: 0.05, value: 0.2 },
    { name: "c", label: "old cell c", kind: "range", min: -3, max: 3, step: 0.1, value: 1.5 },
    makeBias("input", "input gate"), makeBias("forget", "forget gate", 1), makeBias("candidate", "candidate"), makeBias("output", "output gate", -1),
  ],
  compute(values) {
    const curves = Object.fromEntries(Object.keys(NAMES).map((name) => [name + "_curve", INPUTS.map((x) => step(x, values)[name])]));
    return { ...step(values.x, values), ...curves };
  },
  draw({ x }, numbers) {
    const keys = Object.keys(NAMES), getRole = (key) => ROLES[key] ?? key;
    return [{
      kind: "BarChart", title: "Gates and states of this step", names: keys.map((key) => NAMES[key]), values: keys.map((key) => numbers[key]),
      roles: keys.map(getRole), value_label: "value (no unit)",
      note: "The three gates are between 0 and 1. The candidate and the new state are between −1 and 1, the cell has no such limit.",
    }, {
      kind: "LineChart", title: "The same values for every input", x_label: "input x", y_label: "value (no unit)",
      series: keys.map((key) => ({ name: NAMES[key], x: INPUTS, y: numbers[key + "_curve"], role: getRole(key) })),
      references: [{ axis: "x", value: x, label: "x" }, { axis: "y", value: 1, label: "" }, { axis: "y", value: 0, label: "" }],
      note: "A gate is a sigmoid of x: a bias only moves it to the left or to the right.",
    }];
  },
  describe({ c }, { input, forget, candidate, output, cell, hidden }) {
    return `c′ = f c + i g = ${show(forget)} · ${show(c)} + ${show(input)} · ${show(candidate)} = ${show(cell)}; ` +
      `h′ = o tanh(c′) = ${show(output)} · ${show(Math.tanh(cell))} = ${show(hidden)}.`;
  },
};
