// B8: the influence of earlier states on the last one in an RNN of one unit, hₜ = φ(w hₜ₋₁ + xₜ).
import { count, show } from "./numerics.js";

const FUNCTIONS = { tanh: [Math.tanh, (h) => 1 - h * h], identity: [(a) => a, () => 1] };  // and the derivative, from the output

export const INFLUENCE = {
  id: "B8",
  title: "An RNN with one unit reads a sine wave. How much does each earlier state change the last one?",
  controls: [
    { name: "weight", label: "recurrent weight w", kind: "range", min: -2, max: 2, step: 0.05, value: 0.9 },
    { name: "amplitude", label: "amplitude of the inputs", kind: "range", min: 0, max: 3, step: 0.1, value: 0.5 },
    { name: "steps", label: "time steps T", kind: "range", min: 5, max: 100, step: 1, value: 40 },
    { name: "activation", label: "activation φ", kind: "choice", options: [["tanh", "tanh"], ["identity", "none (linear)"]], value: "tanh" },
  ],
  compute({ weight, amplitude, steps, activation }) {
    const [apply, derive] = FUNCTIONS[activation], states = [0];
    for (let t = 1; t <= steps; t++) states.push(apply(weight * states.at(-1) + amplitude * Math.sin(t)));
    const influence = [1];  // of h_T, h_(T−1), …, h_0
    for (let t = steps; t > 0; t--) influence.push(influence.at(-1) * weight * derive(states[t]));
    return { states, influence: influence.map(Math.abs) };
  },
  draw({ steps }, { states, influence }) {
    return [{
      kind: "LineChart", title: `Influence of the earlier states on state ${steps}`, x_label: "distance T − k (steps)", y_label: "|∂h_T/∂h_k|", y_log: true,
      series: [{ name: "influence", x: count(steps + 1), y: influence }], references: [{ axis: "y", value: 1, label: "equal influence" }],
      note: "One factor w φ′ per step: only w = 1 or −1 without an activation function gives all states the same influence.",
    }, {
      kind: "LineChart", title: "The states", x_label: "time step t", y_label: "state hₜ", series: [{ name: "state", x: count(steps + 1), y: states, role: "state" }],
      note: "With tanh, states near −1 or 1 are saturated: each of them takes most of the influence away.",
    }];
  },
  describe: ({ steps }, { influence }) => `On h_${steps}, the state h_${steps - 1} has an influence of ${show(influence[1])} and h_0 one of ${show(influence.at(-1))}.`,
};
