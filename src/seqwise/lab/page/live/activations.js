// C5: the derivatives of activation functions, and their product over many layers.
import { count, interpolate, show, sigmoid } from "./numerics.js";

const INPUTS = interpolate(-6, 6, 121);
const DERIVATIVES = {
  sigmoid: (a) => sigmoid(a) * sigmoid(-a),
  tanh: (a) => 1 - Math.tanh(a) ** 2,
  relu: (a) => a > 0 ? 1 : 0,
};
const NAMES = { sigmoid: "sigmoid", tanh: "tanh", relu: "ReLU" };

export const ACTIVATIONS = {
  id: "C5",
  title: "Each layer multiplies a gradient by its weight and by the derivative of its activation function.",
  controls: [
    { name: "a", label: "preactivation a of every layer", kind: "range", min: -6, max: 6, step: 0.1, value: 0.5 },
    { name: "weight", label: "weight w", kind: "range", min: 0.1, max: 4, step: 0.1, value: 1.2 },
    { name: "layers", label: "layers or time steps", kind: "range", min: 2, max: 50, step: 1, value: 20 },
  ],
  compute({ a, weight, layers }) {
    const numbers = {};
    for (const [name, derive] of Object.entries(DERIVATIVES)) {
      numbers["derivative_" + name] = derive(a);
      numbers["derivatives_" + name] = INPUTS.map(derive);
      numbers["products_" + name] = count(layers + 1).map((n) => (weight * derive(a)) ** n);
    }
    return numbers;
  },
  draw({ a, weight, layers }, numbers) {
    const makeSeries = (x, key) => Object.entries(NAMES).map(([name, text]) => ({ name: text, x, y: numbers[key + name] }));
    return [{
      kind: "LineChart", title: "Derivatives of three activation functions", x_label: "preactivation a", y_label: "derivative φ′(a)",
      series: makeSeries(INPUTS, "derivatives_"), references: [{ axis: "x", value: a, label: "a" }, { axis: "y", value: 0.25, label: "¼" }],
      note: "A sigmoid passes at most a quarter, tanh and ReLU pass all of it where they are steepest.",
    }, {
      kind: "LineChart", title: `A gradient after 0 to ${layers} layers of weight ${weight}`, x_label: "layers", y_label: "(w φ′(a))ⁿ", y_log: true,
      series: makeSeries(count(layers + 1), "products_"), references: [{ axis: "y", value: 1, label: "unchanged" }],
      note: "Where ReLU's derivative is 0, the gradient is 0 after one layer; a logarithmic axis cannot show it.",
    }];
  },
  describe: ({ weight, layers }, numbers) => Object.entries(NAMES).map(([name, text]) =>
    `${text}: ${show(weight)} · ${show(numbers["derivative_" + name])} per layer, ${show(numbers["products_" + name].at(-1))} after ${layers}`).join("; ") + ".",
};
