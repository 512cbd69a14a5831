// D6: the derivative of an LSTM's cell over time, along the forget gates alone and along all paths. One unit.
import { count, show, sigmoid } from "./numerics.js";

const INPUT = 0.5, CELL = 1;  // into the candidate, at all steps; the cell before the first step

// Returns |∂c_t/∂c_0| and the product of forget gates after each step. `dc` and `dh` are derivatives by c_0.
function unroll({ forget_bias, input_bias, weight, steps }) {
  let c = CELL, h = 0, dc = 1, dh = 0, product = 1;
  const total = [1], products = [1];
  for (let t = 0; t < steps; t++) {
    const r = weight * h, dr = weight * dh;  // the recurrent part of all four preactivations
    const i = sigmoid(r + input_bias), f = sigmoid(r + forget_bias), g = Math.tanh(r + INPUT), o = sigmoid(r);
    const di = i * (1 - i) * dr, df = f * (1 - f) * dr, dg = (1 - g * g) * dr, d_o = o * (1 - o) * dr;
    dc = f * dc + df * c + di * g + i * dg;
    c = f * c + i * g;
    const tanh = Math.tanh(c);
    dh = d_o * tanh + o * (1 - tanh * tanh) * dc;
    h = o * tanh;
    product *= f;
    total.push(Math.abs(dc));
    products.push(product);
  }
  return { total, products };
}

export const FORGET_GATES = {
  id: "D6",
  title: "How much of a gradient survives in the cell of an LSTM with one unit?",
  controls: [
    { name: "forget_bias", label: "bias of the forget gate", kind: "range", min: -2, max: 8, step: 0.1, value: 3 },
    { name: "input_bias", label: "bias of the input gate", kind: "range", min: -10, max: 4, step: 0.1, value: -2 },
    { name: "weight", label: "recurrent weight of all gates", kind: "range", min: -4, max: 4, step: 0.1, value: 1 },
    { name: "steps", label: "time steps", kind: "range", min: 10, max: 200, step: 5, value: 100 },
  ],
  compute(values) {
    const { total, products } = unroll(values), gate = sigmoid(values.forget_bias);
    return { total, products, gate, half_life: Math.log(0.5) / Math.log(gate) };
  },
  draw({ steps }, { total, products }) {
    const x = count(steps + 1);
    return [{
      kind: "LineChart", title: `Derivative of the cell after up to ${steps} steps by the first cell`, x_label: "time steps t", y_label: "|∂c_t/∂c_0|", y_log: true,
      series: [{ name: "all paths", x, y: total, role: "cell" }, { name: "product of forget gates", x, y: products, role: "forget" }],
      references: [{ axis: "y", value: 1, label: "identity" }],
      note: "The product of the forget gates is the direct path. The other paths run through h and the gates; without a recurrent weight there are none.",
    }];
  },
  describe: ({ steps }, { gate, half_life, total, products }) => `With h = 0 the forget gate is ${show(gate, 4)}, which halves a gradient every ${show(half_life)} steps. ` +
    `After ${steps} steps ${show(products.at(-1))} remains along the forget gates, ${show(total.at(-1))} along all paths.`,
};
