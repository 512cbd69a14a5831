// H3: skip-gram with the full softmax on ten words, in two dimensions.
import { count, createNormal, dot, show, softmax, sum } from "./numerics.js";

const GROUPS = { animals: ["cat", "dog", "horse"], "what they do": ["runs", "sleeps"], instruments: ["piano", "violin", "flute"], "what those do": ["plays", "sounds"] };
const WORDS = Object.values(GROUPS).flat(), WIDTH = 2, MAX_STEPS = 400;

// Sentences of two words: each animal runs and sleeps, each instrument plays and sounds. Either word predicts the other.
const SENTENCES = [["animals", "what they do"], ["instruments", "what those do"]].flatMap(([nouns, verbs]) =>
  GROUPS[nouns].flatMap((noun) => GROUPS[verbs].map((verb) => [noun, verb])));
const PAIRS = SENTENCES.flatMap(([a, b]) => [[a, b], [b, a]]).map((pair) => pair.map((word) => WORDS.indexOf(word)));  // centre, context

const BEST = (Math.log(2) + Math.log(3)) / 2;  // the loss if the model knows all contexts: half of the pairs begin with a noun

const drawVectors = (next, size) => WORDS.map(() => count(WIDTH).map(() => size * next()));
const getLogits = (v, u) => u.map((one) => dot(one, v));

// One step of gradient descent on the mean of −log softmax(u · v) over all pairs: the error is predicted minus observed.
function train(v, u, rate) {
  const gradV = v.map((row) => row.map(() => 0)), gradU = u.map((row) => row.map(() => 0));
  let loss = 0;
  for (const [centre, context] of PAIRS) {
    const predicted = softmax(getLogits(v[centre], u));
    loss -= Math.log(predicted[context]) / PAIRS.length;
    predicted.forEach((p, word) => {
      const error = (p - (word === context ? 1 : 0)) / PAIRS.length;
      for (let entry = 0; entry < WIDTH; entry++) {
        gradV[centre][entry] += error * u[word][entry];
        gradU[word][entry] += error * v[centre][entry];
      }
    });
  }
  const update = (vectors, grad) => vectors.map((row, at) => row.map((value, entry) => value - rate * grad[at][entry]));
  return { v: update(v, gradV), u: update(u, gradU), loss };
}

// The mean cosine of two words of the same group, and of two words of different groups.
function compareGroups(vectors) {
  const getGroup = (at) => Object.values(GROUPS).findIndex((words) => words.includes(WORDS[at])), cosines = { same: [], different: [] };
  vectors.forEach((a, i) => vectors.slice(0, i).forEach((b, j) =>
    cosines[getGroup(i) === getGroup(j) ? "same" : "different"].push(dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b)))));
  return [cosines.same, cosines.different].map((values) => sum(values) / values.length);
}

export const SKIP_GRAM = {
  id: "H3",
  title: "Skip-gram on ten words: “cat runs”, “dog sleeps”, “piano plays”, … Words of a group never occur together, but in the same contexts.",
  controls: [
    { name: "steps", label: "training steps", kind: "range", min: 0, max: MAX_STEPS, step: 5, value: 50 },
    { name: "rate", label: "learning rate", kind: "range", min: 0.1, max: 2, step: 0.1, value: 1 },
    { name: "seed", label: "random seed of the first vectors", kind: "range", min: 0, max: 20, step: 1, value: 0 },
  ],
  compute({ steps, rate, seed }) {
    const next = createNormal(seed), losses = [];
    let v = drawVectors(next, 0.3), u = drawVectors(next, 0.3), loss = 0, shown = v;
    for (let step = 0; step <= MAX_STEPS; step++) {
      if (step === steps) shown = v;
      ({ v, u, loss } = train(v, u, rate));
      losses.push(loss);
    }
    const [cosine_same, cosine_different] = compareGroups(shown);
    return { vectors: shown, losses, loss: losses[steps], cosine_same, cosine_different };
  },
  draw({ steps }, { vectors, losses }) {
    return [{
      kind: "ScatterPlot", title: `Vectors of ten words after ${steps} steps`, x: vectors.map(([x]) => x), y: vectors.map(([, y]) => y), names: WORDS,
      groups: Object.entries(GROUPS).flatMap(([group, words]) => words.map(() => group)), x_label: "first entry of the vector", y_label: "second entry of the vector",
      is_labelled: true, note: "Words with the same contexts are pulled to the same place.",
    }, {
      kind: "LineChart", title: "Training loss", x_label: "training step", y_label: "cross-entropy (nats per pair)", series: [{ name: "loss", x: count(MAX_STEPS + 1), y: losses }],
      references: [{ axis: "x", value: steps, label: "shown" }, { axis: "y", value: BEST, label: "best possible" }],
      note: "Even the best model is uncertain: each noun occurs with two verbs, and each verb with three nouns.",
    }];
  },
  describe: (values, { loss, cosine_same, cosine_different }) =>
    `Loss ${show(loss)}; mean cosine ${show(cosine_same)} within a group and ${show(cosine_different)} between groups.`,
};
