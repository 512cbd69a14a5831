// H15: a model can be confident and wrong: its own entropy is low, its perplexity on the data high.
import { computeCrossEntropy, count, interpolate, show } from "./numerics.js";

const CONFIDENCES = interpolate(0.01, 0.99, 99);

// One word with this probability; the others share the rest equally.
const makeDistribution = (first, others) => [first, ...count(others).map(() => (1 - first) / others)];

export const CONFIDENCE = {
  id: "H15",
  title: "The model predicts one word with some confidence, and the others equally. How often does that word come?",
  controls: [
    { name: "model", label: "probability in the model", kind: "range", min: 0.01, max: 0.99, step: 0.01, value: 0.95 },
    { name: "data", label: "frequency in the data", kind: "range", min: 0, max: 1, step: 0.01, value: 0.3 },
    { name: "others", label: "number of other words", kind: "range", min: 1, max: 50, step: 1, value: 9 },
  ],
  compute({ model, data, others }) {
    const p = makeDistribution(data, others), score = (q) => ({ entropy: computeCrossEntropy(q), cross_entropy: computeCrossEntropy(p, q) });
    const curve = CONFIDENCES.map((confidence) => score(makeDistribution(confidence, others))), { entropy, cross_entropy } = score(makeDistribution(model, others));
    return { entropy, cross_entropy, two_to_entropy: Math.exp(entropy), perplexity: Math.exp(cross_entropy), lowest_perplexity: Math.exp(computeCrossEntropy(p)),
      powers: curve.map((one) => Math.exp(one.entropy)), perplexities: curve.map((one) => Math.exp(one.cross_entropy)) };
  },
  draw({ model, data, others }, { powers, perplexities }) {
    return [{
      kind: "LineChart", title: `Perplexity on the data, and what the model's own entropy says, for ${others + 1} words`, x_label: "probability of the first word in the model",
      y_label: "perplexity or 2^entropy (words)", y_log: true,
      series: [{ name: "perplexity on the data", x: CONFIDENCES, y: perplexities }, { name: "2^entropy of the predictions", x: CONFIDENCES, y: powers }],
      references: [{ axis: "x", value: model, label: "model" }, { axis: "x", value: Math.min(0.99, Math.max(0.01, data)), label: "data" }, { axis: "y", value: 1, label: "" }],
      note: "Perplexity is lowest where the model has the frequency of the data. The two curves meet there, and where the model predicts all words equally.",
    }];
  },
  describe: (values, { entropy, cross_entropy, two_to_entropy, perplexity, lowest_perplexity }) =>
    `Entropy of the predictions ${show(entropy / Math.LN2)} bits (2^H = ${show(two_to_entropy)}); cross-entropy with the data ${show(cross_entropy / Math.LN2)} bits, ` +
    `so perplexity ${show(perplexity)}. No model of these data has less than ${show(lowest_perplexity)}.`,
};
