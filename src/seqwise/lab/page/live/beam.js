// G10: greedy search and beam search in a tree of sentences of two words.
import { show } from "./numerics.js";

const SHARE = 0.6;  // of the probability that “the” leaves, for “it”; “we” gets the rest

// word → probability, and for each of them the same
const makeChains = ({ the, dog, rains, sing }) => [
  ["the", the, [["dog", dog], ["cat", (1 - dog) / 2], ["sun", (1 - dog) / 2]]],
  ["it", SHARE * (1 - the), [["rains", rains], ["snows", 1 - rains]]],
  ["we", (1 - SHARE) * (1 - the), [["sing", sing], ["dance", 1 - sing]]],
];

// The most likely first; of equally likely ones, the first in the tree.
const sortByScore = (list) => [...list].sort((a, b) => b.probability - a.probability);

const makeControl = (name, label, value) => ({ name, label, kind: "range", min: 0.01, max: 0.99, step: 0.01, value });

export const BEAM = {
  id: "G10",
  title: "Sentences of two words. Greedy search is a beam of 1; a wider beam keeps more first words.",
  controls: [
    makeControl("the", "p(the)", 0.4), makeControl("dog", "p(dog | the)", 0.4), makeControl("rains", "p(rains | it)", 0.55), makeControl("sing", "p(sing | we)", 0.95),
    { name: "beam", label: "beam", kind: "choice", options: [[1, "1 (greedy)"], [2, "2"], [3, "3"]], value: 1 },
  ],
  compute({ beam, ...values }) {
    const firsts = makeChains(values).map(([word, probability, next]) => ({ word, probability, next })), kept = sortByScore(firsts).slice(0, beam);
    const list = (chains) => chains.flatMap(({ word, probability, next }) => next.map(([second, p]) => ({ sentence: `${word} ${second}`, probability: probability * p })));
    const found = sortByScore(list(kept))[0], best = sortByScore(list(firsts))[0], greedy = sortByScore(list(sortByScore(firsts).slice(0, 1)))[0];
    return { first_words: kept.map(({ word }) => word), sentences: list(firsts).map(({ sentence }) => sentence), probabilities: list(firsts).map(({ probability }) => probability),
      found: found.sentence, found_probability: found.probability, greedy: greedy.sentence, best: best.sentence, best_probability: best.probability };
  },
  draw({ beam, ...values }, { first_words, sentences, probabilities, found, greedy, best }) {
    const nodes = [{ parent: -1, label: "‹start›", value: 1, state: "kept", detail: "" }];
    for (const [word, probability, next] of makeChains(values)) {
      const isKept = first_words.includes(word), parent = nodes.length;
      nodes.push({ parent: 0, label: word, value: probability, state: isKept ? "kept" : "pruned", detail: isKept ? "" : `not among the ${beam} most likely first words` });
      if (isKept) for (const [second, p] of next) nodes.push({ parent, label: second, value: probability * p, state: `${word} ${second}` === found ? "best" : "finished", detail: "" });
    }
    const marks = (sentence) => [[found, `beam of ${beam}`], [greedy, "greedy"]].filter(([one]) => one === sentence).map(([, name]) => name);
    return [{
      kind: "Tree", title: beam === 1 ? "Greedy search" : `Beam search with a beam of ${beam}`, nodes, value_label: "probability of the words so far",
      note: "What follows a pruned word is never seen.",
    }, {
      kind: "BarChart", title: "All sentences", names: sentences.map((sentence) => [sentence, ...beam === 1 ? marks(sentence).slice(1) : marks(sentence)].join(" · ")), values: probabilities,
      value_label: "probability of the sentence", roles: sentences.map((sentence) => sentence === found ? "forget" : sentence === best ? "output" : ""),
      note: "The sentence that the search finds is orange; if it is not the most likely one, that one is green.",
    }];
  },
  describe: ({ beam }, { found, found_probability, best, best_probability }) => `A beam of ${beam} finds “${found}” with probability ${show(found_probability)}` +
    (found === best ? ", the most likely sentence." : `; “${best}” is more likely: ${show(best_probability)}.`),
};
