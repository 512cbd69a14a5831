// E2: one step of a GRU of one unit, in both conventions of the update gate. All weights are 1.
import { interpolate, show, sigmoid } from "./numerics.js";

const EXTENT = 8;  // largest |bias|
const BIASES = interpolate(-EXTENT, EXTENT, 97);
const CONVENTIONS = { keeps: "z near 1 keeps the state", replaces: "z near 1 replaces the state" };

// As `GRUCell`, `ReplacingGRUCell`, `EarlyResetGRUCell` and `EarlyResetReplacingGRUCell` of `seqwise.layers`.
function step(convention, { x, h, reset_bias, update_bias, recurrent_bias, reset_place }) {
  const reset = sigmoid(x + h + reset_bias), update = sigmoid(x + h + update_bias);
  const recurrent = reset_place === "after" ? reset * (h + recurrent_bias) : reset * h + recurrent_bias, candidate = Math.tanh(x + recurrent);
  const hidden = convention === "keeps" ? update * h + (1 - update) * candidate : (1 - update) * h + update * candidate;
  return { reset, update, candidate, hidden };
}

const makeBias = (name, label, value) => ({ name: name + "_bias", label, kind: "range", min: -EXTENT, max: EXTENT, step: 0.1, value });

export const GRU_STEP = {
  id: "E2",
  title: "One step of a GRU with one unit, whose weights are all 1, in both conventions of the update gate z.",
  controls: [
    { name: "x", label: "input x", kind: "range", min: -3, max: 3, step: 0.1, value: 0.5 },
    { name: "h", label: "old state h", kind: "range", min: -1, max: 1, step: 0.05, value: -0.8 },
    makeBias("update", "bias of the update gate", 3), makeBias("reset", "bias of the reset gate", 0),
    { ...makeBias("recurrent", "bias of the recurrent term", 0.5), min: -2, max: 2 },
    { name: "convention", label: "update gate", kind: "choice", options: [["keeps", "z keeps"], ["replaces", "z replaces"]], value: "keeps" },
    { name: "reset_place", label: "reset gate", kind: "choice", options: [["after", "after product"], ["before", "before"]], value: "after" },
  ],
  compute(values) {
    const trace = (convention) => BIASES.map((update_bias) => step(convention, { ...values, update_bias }).hidden);
    return { ...step(values.convention, values), keeps_curve: trace("keeps"), replaces_curve: trace("replaces") };
  },
  draw({ h, update_bias, convention }, { reset, update, candidate, hidden, keeps_curve, replaces_curve }) {
    return [{
      kind: "BarChart", title: `One step where ${CONVENTIONS[convention]}`, names: ["reset gate r", "update gate z", "candidate n", "old state h", "new state h′"],
      values: [reset, update, candidate, h, hidden], roles: ["reset", "update", "candidate", "state", "output"], value_label: "value (no unit)",
      note: convention === "keeps" ? "h′ = z h + (1 − z) n, as in PyTorch and Keras (Cho et al. 2014)." : "h′ = (1 − z) h + z n (Chung et al. 2014).",
    }, {
      kind: "LineChart", title: "New state against the bias of the update gate", x_label: "bias of the update gate", y_label: "new state h′",
      series: [{ name: CONVENTIONS.keeps, x: BIASES, y: keeps_curve }, { name: CONVENTIONS.replaces, x: BIASES, y: replaces_curve }],
      references: [{ axis: "x", value: update_bias, label: "chosen" }, { axis: "y", value: h, label: "h" }, { axis: "y", value: candidate, label: "n" }],
      note: "Both go from one of h and n to the other, in opposite directions: negating the gate's weights and bias turns one convention into the other.",
    }];
  },
  describe({ h, convention, reset_place }, { update, candidate, hidden }) {
    const [first, second] = convention === "keeps" ? [h, candidate] : [candidate, h];
    const place = reset_place === "after" ? "The reset gate multiplies the product and its bias" : "The reset gate multiplies h, not the bias";
    return `h′ = ${show(update)} · ${show(first)} + ${show(1 - update)} · ${show(second)} = ${show(hidden)}. ${place}; with one unit that is the only difference.`;
  },
};
