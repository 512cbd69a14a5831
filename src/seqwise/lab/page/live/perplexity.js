// H8: entropy, cross-entropy and perplexity of a distribution over five words.
import { computeCrossEntropy, show, sum } from "./numerics.js";

const WORDS = ["sun", "rain", "snow", "wind", "fog"];
const WEIGHTS = [5, 3, 1, 1, 0.5];

export const PERPLEXITY = {
  id: "H8",
  title: "“Tomorrow there will be …”: choose what the model predicts, and which word comes.",
  controls: [
    ...WORDS.map((word, at) => ({ name: word, label: `weight of “${word}”`, kind: "range", min: 0.1, max: 10, step: 0.1, value: WEIGHTS[at] })),
    { name: "word", label: "word that comes", kind: "choice", options: WORDS.map((word) => [word, word]), value: "rain" },
  ],
  compute({ word, ...weights }) {
    const total = sum(WORDS.map((one) => weights[one])), probabilities = WORDS.map((one) => weights[one] / total);
    const entropy = computeCrossEntropy(probabilities), loss = -Math.log(probabilities[WORDS.indexOf(word)]);
    return { probabilities, entropy_bits: entropy / Math.LN2, entropy_nats: entropy, expected_perplexity: 2 ** (entropy / Math.LN2),
      cross_entropy_bits: loss / Math.LN2, cross_entropy_nats: loss, perplexity: Math.exp(loss) };
  },
  draw({ word }, { probabilities, expected_perplexity, perplexity }) {
    return [{
      kind: "BarChart", title: "What the model predicts", names: WORDS, values: probabilities, value_label: "probability",
      roles: WORDS.map((one) => one === word ? "forget" : ""), note: `The bar of “${word}”, the word that comes, has another colour.`,
    }, {
      kind: "BarChart", title: "Perplexity of this prediction", value_label: "perplexity (equally likely words)",
      names: [`“${word}” comes`, "as predicted", "uniform model"], values: [perplexity, expected_perplexity, WORDS.length],
      roles: ["forget", "", "state"], note: "“As predicted”: each word comes as often as the model says. A uniform model scores the size of the vocabulary, whatever comes.",
    }];
  },
  describe({ word }, { entropy_bits, expected_perplexity, cross_entropy_bits, cross_entropy_nats, perplexity }) {
    return `Entropy of the prediction: ${show(entropy_bits)} bits, so 2^${show(entropy_bits)} = ${show(expected_perplexity)} words. For “${word}” the cross-entropy is ` +
      `${show(cross_entropy_bits)} bits or ${show(cross_entropy_nats)} nats: 2^${show(cross_entropy_bits)} = e^${show(cross_entropy_nats)} = ${show(perplexity)}.`;
  },
};
