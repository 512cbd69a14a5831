"""G10: is greedy search the argmax of each step, and not the most likely sequence?

    greedy:       yₜ = argmax p(· | y₁ … yₜ₋₁)                     for t = 1, 2, …
    most likely:  y = argmax over sequences of Πₜ p(yₜ | y₁ … yₜ₋₁)

The small decoder of this experiment has learned sentences of which half begin with "the". Greedy search begins with
"the" too, but ten sentences of 5 % each share that beginning, and the search cannot take the choice back. Beam search
keeps the k most likely prefixes (Sutskever et al. 2014, section 3.2) and finds "it rains" with about 30 %, although its
first word is less likely. Scoring every possible sentence shows that it is the most likely one here. In general no
finite beam guarantees that, and in translation the most likely sequence can be a bad one: it is often the empty
sentence (Stahlberg & Byrne 2019).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.decoding.options import BeamSearchOptions
from seqwise.decoding.sequences import Hypothesis
from seqwise.decoding.trace import DecodingTrace, trace_decoding
from seqwise.lab.experiment import Measured, Verdict, decide
from seqwise.lab.transformer.sentences import END, MAX_WORDS, WORDS, SentenceExperiment, TracedDecoder, score_all, spell
from seqwise.lens.beam_tree import build_candidates
from seqwise.page.figures import BarChart, Figure, Tree, TreeNode


@dataclass(frozen=True, kw_only=True)
class GreedySearch(SentenceExperiment):
    id = "G10"
    claim = "Greedy is the argmax of each step and not the most likely sequence."
    equation = "P(greedy) < max over sequences of Πₜ p(yₜ | y₁ … yₜ₋₁), greedy: yₜ = argmax p(· | y₁ … yₜ₋₁)"
    measurement = "Probabilities of the sentences of greedy and beam search, and of all sentences up to three words."
    rule = "Holds if each greedy token is the argmax, and beam search finds a sentence at least 1.5 times as likely."
    try_next = "seqwise lab run G10 --beam 2: two beams suffice here, because the second-best first word leads there."
    seconds = 2
    quick = {"steps": 60}  # noqa: RUF012

    beam: int = 4
    """Beams of the beam search."""

    def measure(self) -> Measured:
        decoder = self.train_decoder()
        traced = self.trace(decoder)
        greedy = self.search(traced, 1)
        with trace_decoding() as trace:
            best = self.search(self.trace(decoder), self.beam)
        scores = score_all(decoder)
        likeliest = max(scores, key=lambda sentence: scores[sentence])
        top = sorted(scores, key=lambda sentence: -scores[sentence])[:8]
        argmax = [int(log_probs.argmax()) for log_probs in traced.log_probs]
        return {
            "greedy_sentence": spell(greedy.ids),
            "greedy_probability": math.exp(greedy.log_probability),
            "share_of_greedy_tokens_that_are_argmax": sum(map(operator.eq, argmax, [*greedy.ids, END])) / len(argmax),
            "beam_sentence": spell(best.ids),
            "beam_probability": math.exp(best.log_probability),
            "likeliest_sentence": spell(likeliest),
            "likeliest_probability": math.exp(scores[likeliest]),
            "probability_of_all_scored_sentences": sum(map(math.exp, scores.values())),
            "top": [(spell(sentence), math.exp(scores[sentence])) for sentence in top],
            "tree": build_nodes(trace),
        }

    def search(self, decoder: TracedDecoder, beam: int) -> Hypothesis:
        """Returns the best sentence by log-probability, without a length penalty."""
        return self.decode(decoder, options=BeamSearchOptions(beam=beam, length_penalty=0.0))

    def judge(self, measured: Measured) -> Verdict:
        greedy, beam = measured["greedy_probability"], measured["beam_probability"]
        share = measured["share_of_greedy_tokens_that_are_argmax"]
        return decide(
            share == 1 and beam > 1.5 * greedy,
            evidence=f"{100 * share:.0f} % of the greedy tokens are the argmax of their step; "
            f"“{measured['greedy_sentence']}” has probability {greedy:.3f}, “{measured['beam_sentence']}” of beam "
            f"search {beam:.3f}; the likeliest of all sentences up to {MAX_WORDS} words is "
            f"“{measured['likeliest_sentence']}”.",
            instead="Greedy search does not choose the argmax, or beam search finds no likelier sentence.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        found = {measured["greedy_sentence"]: "greedy", measured["beam_sentence"]: "beam"}
        names, values = zip(*measured["top"], strict=True)
        return [
            Tree(
                title=f"Beam search with {self.beam} beam{'s' * (self.beam != 1)}",
                nodes=measured["tree"],
                value_label="log-probability of the sentence so far",
                note="Greedy search would follow the most likely word of the first step and never return.",
            ),
            BarChart(
                title="The most likely sentences of the model, of all that are possible",
                names=[f"{name} ({found[name]})" if name in found else name for name in names],
                values=np.array(values),
                value_label="probability of the sentence",
                note=f"Every sentence of up to {MAX_WORDS} words was scored.",
            ),
        ]


def build_nodes(trace: DecodingTrace) -> list[TreeNode]:
    """Returns the candidates of a beam search as the nodes of a tree."""
    return [
        TreeNode(
            parent=each.parent,
            label=WORDS[each.token] if each.step else "‹start›",
            value=each.log_prob,
            state=each.state,
            detail=each.reason,
        )
        for each in build_candidates(trace)
    ]
