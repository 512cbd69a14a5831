// F1: attention of each word of a sentence to the others. Vectors come from the letters: words that share letters are similar.
import { count, createNormal, dot, show, softmax, sum } from "./numerics.js";

const WIDTH = 16, MAX_WORDS = 12;

// FNV-1a: a number of 32 bits from the characters of a text.
const hash = (text) => [...text].reduce((code, character) => Math.imul(code ^ character.codePointAt(0), 16777619) >>> 0, 2166136261);

// The mean of the vectors of all pairs of neighbouring letters, scaled so that entries have variance 1.
function makeVector(word) {
  const letters = [..."<" + word.toLowerCase() + ">"], pairs = letters.slice(1).map((letter, at) => letters[at] + letter);
  const vectors = pairs.map((pair) => count(WIDTH).map(createNormal(hash(pair))));
  return count(WIDTH).map((entry) => sum(vectors.map((vector) => vector[entry])) / Math.sqrt(pairs.length));
}

export const SENTENCE = {
  id: "F1",
  title: "Attention over a sentence. The vector of a word is made of its pairs of letters, and serves as query, key and value.",
  controls: [
    { name: "text", label: `sentence (up to ${MAX_WORDS} words)`, kind: "text", value: "the singer sings while the dancer dances to the song" },
    { name: "temperature", label: "temperature", kind: "range", min: 0.2, max: 5, step: 0.1, value: 1 },
    { name: "scaling", label: "scores", kind: "choice", options: [["scaled", "qᵀk/√d"], ["unscaled", "qᵀk"]], value: "scaled" },
    { name: "mask", label: "mask", kind: "choice", options: [["none", "none"], ["causal", "causal"]], value: "none" },
  ],
  compute({ text, temperature, scaling, mask }) {
    const words = text.split(/\s+/u).filter(Boolean).slice(0, MAX_WORDS), vectors = words.map(makeVector), divisor = (scaling === "scaled" ? Math.sqrt(WIDTH) : 1) * temperature;
    const isAllowed = (query, key) => mask === "none" || key <= query;
    const weights = vectors.map((query, row) => softmax(vectors.map((key, column) => isAllowed(row, column) ? dot(query, key) / divisor : -Infinity)));
    return { words, weights, context: weights.map((row) => count(WIDTH).map((entry) => sum(row.map((weight, at) => weight * vectors[at][entry])))) };
  },
  draw({ mask }, { words, weights }) {
    return [{
      kind: "Heatmap", title: "Attention weights" + (mask === "causal" ? " with a causal mask" : ""), rows: words, columns: words, role: "attention", low: 0, high: 1,
      values: weights.map((row, query) => row.map((weight, key) => mask === "causal" && key > query ? null : weight)),
      row_label: "query (word that attends)", column_label: "key (word attended to)", value_label: "attention weight",
      note: `d = ${WIDTH}. Each row sums to 1. Equal words have equal columns, since nothing here depends on positions.`,
    }];
  },
  describe(values, { words, weights }) {
    if (words.length === 0) return "Write a sentence.";
    const last = weights.at(-1), others = last.map((weight, at) => at < words.length - 1 ? weight : -1), best = others.indexOf(Math.max(...others));
    const rest = words.length > 1 ? ` and, of the others, most to “${words[best]}” with ${show(last[best])}` : "";
    return `“${words.at(-1)}” attends to itself with a weight of ${show(last.at(-1))}${rest}.`;
  },
};
