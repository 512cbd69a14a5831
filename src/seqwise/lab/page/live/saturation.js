// F7: the Jacobian of the softmax vanishes when the scores are large.
import { computeLargestEigenvalue, count, interpolate, show, softmax, sum } from "./numerics.js";

const SCORES = [1.2, 0.9, 0.3, 0.1, -0.4, -0.7, -1.4];
const SCALES = interpolate(0, 60, 121);
const SMALLEST = 1e-12;  // norm that is drawn

// ∂w/∂score = diag(w) − w wᵀ; since w − w² is w times the sum of the other weights, nothing cancels.
const computeJacobian = (weights) => weights.map((a, i) => weights.map((b, j) => i === j ? a * sum(weights.filter((_, k) => k !== i)) : -a * b));

export const SATURATION = {
  id: "F7",
  title: "A softmax over scores that are multiplied by a factor: a width of d without scaling is a factor of √d.",
  controls: [
    { name: "scale", label: "factor of the scores", kind: "range", min: 0, max: 60, step: 0.5, value: 8 },
    { name: "lead", label: "lead of the first key over the second", kind: "range", min: 0, max: 2, step: 0.05, value: 0.3 },
  ],
  compute({ scale, lead }) {
    const scores = [SCORES[1] + lead, ...SCORES.slice(1)], computeWeights = (factor) => softmax(scores.map((score) => factor * score));
    const weights = computeWeights(scale), norms = SCALES.map((factor) => computeLargestEigenvalue(computeJacobian(computeWeights(factor))));
    return { weights, largest_weight: Math.max(...weights), norm: computeLargestEigenvalue(computeJacobian(weights)), norms };
  },
  draw({ scale }, { weights, norms }) {
    return [{
      kind: "BarChart", title: `Weights of the keys at a factor of ${scale}`, names: count(weights.length, 1).map((key) => "key " + key), values: weights,
      value_label: "weight", note: "The weights sum to 1; the larger the factor, the less the other keys get.",
    }, {
      kind: "LineChart", title: "Norm of the Jacobian of the softmax against the factor of the scores", x_label: "factor of the scores",
      y_label: "‖diag(w) − w wᵀ‖ (largest singular value)", y_log: true,
      series: [{ name: "Jacobian of the softmax", x: SCALES, y: norms.map((norm) => norm > SMALLEST ? norm : null) }],
      references: [{ axis: "x", value: scale, label: "chosen" }, { axis: "y", value: 0.5, label: "upper bound ½" }],
      note: "Every gradient of the scores passes through this matrix. It never exceeds ½, and it vanishes when one weight approaches 1, unless two keys are tied.",
    }];
  },
  describe: (values, { largest_weight, norm }) => `The largest weight is ${show(largest_weight, 4)}; the Jacobian has a norm of ${show(norm)}.`,
};
