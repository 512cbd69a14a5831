// F6: attention weights of a random query over random keys, with and without division by √d.
import { computeCrossEntropy, count, createNormal, show, softmax, sum } from "./numerics.js";

const NUM_KEYS = 32, MAX_WIDTH = 512;
const WIDTHS = count(10).map((power) => 2 ** power);

// Scores qᵀk at every width up to the largest: narrow vectors are the first entries of wide ones.
function drawScores(seed) {
  const next = createNormal(seed), query = count(MAX_WIDTH).map(next);
  return count(NUM_KEYS).map(() => {
    let score = 0;
    return query.map((entry) => score += entry * next());
  });
}
const cache = new Map();
const getScores = (seed, width) => {
  if (!cache.has(seed)) cache.set(seed, drawScores(seed));
  return cache.get(seed).map((scores) => scores[width - 1]);
};

function computeVariance(values) {
  const mean = sum(values) / values.length;
  return sum(values.map((value) => (value - mean) ** 2)) / (values.length - 1);
}

const KINDS = { scaled: (width) => Math.sqrt(width), unscaled: () => 1 };  // what the scores are divided by

export const SCALING = {
  id: "F6",
  title: `A random query attends to ${NUM_KEYS} random keys; all entries are independent, with mean 0 and variance 1.`,
  controls: [
    { name: "d", label: "width d of queries and keys", kind: "range", min: 1, max: MAX_WIDTH, step: 1, value: 64 },
    { name: "temperature", label: "temperature of the softmax", kind: "range", min: 0.1, max: 5, step: 0.1, value: 1 },
    { name: "seed", label: "random seed", kind: "range", min: 0, max: 20, step: 1, value: 0 },
  ],
  compute({ d, temperature, seed }) {
    const numbers = { widths: WIDTHS };
    for (const [kind, getDivisor] of Object.entries(KINDS)) {
      const computeWeights = (width) => softmax(getScores(seed, width).map((score) => score / getDivisor(width) / temperature)), weights = computeWeights(d);
      numbers["weights_" + kind] = [...weights].sort((a, b) => b - a);
      numbers["entropy_" + kind] = computeCrossEntropy(weights);
      numbers["variance_" + kind] = computeVariance(getScores(seed, d).map((score) => score / getDivisor(d)));
      numbers["entropies_" + kind] = WIDTHS.map((width) => computeCrossEntropy(computeWeights(width)));
    }
    return numbers;
  },
  draw({ d, temperature }, numbers) {
    const rank = count(NUM_KEYS, 1), makeSeries = (x, key) => [
      { name: "divided by √d", x, y: numbers[key + "_scaled"] }, { name: "not divided", x, y: numbers[key + "_unscaled"] }];
    return [{
      kind: "LineChart", title: `Attention weights at width ${d} and temperature ${temperature}, the largest first`, x_label: "rank of the key",
      y_label: "attention weight", series: makeSeries(rank, "weights"),
      references: [{ axis: "y", value: 1 / NUM_KEYS, label: "all equal" }, { axis: "y", value: 1, label: "one key alone" }],
      note: "Undivided scores grow with the width, until a single key gets all the weight. A higher temperature has the same effect as a larger divisor.",
    }, {
      kind: "LineChart", title: "Entropy of the attention weights against the width", x_label: "width d", y_label: "entropy (nats)", x_log: true,
      series: makeSeries(numbers.widths, "entropies"),
      references: [{ axis: "x", value: d, label: "d" }, { axis: "y", value: Math.log(NUM_KEYS), label: "all weights equal" }, { axis: "y", value: 0, label: "" }],
      note: "Divided by √d, the softmax works in the same range at every width.",
    }];
  },
  describe(values, { variance_scaled, variance_unscaled, entropy_scaled, entropy_unscaled }) {
    return `Variance of the scores: ${show(variance_scaled)} divided by √d, ${show(variance_unscaled)} otherwise. ` +
      `Entropy of the weights: ${show(entropy_scaled)} and ${show(entropy_unscaled)} nats; at most ${show(Math.log(NUM_KEYS))}.`;
  },
};
