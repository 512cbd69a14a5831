"""H3: do words that occur in similar contexts get similar vectors?

    cos(v_a, v_b) rises with the overlap of p(· | a) and p(· | b)        p(c | a): how often word c stands beside a

This is the distributional hypothesis (Harris 1954; Firth 1957: "you shall know a word by the company it keeps"), and
skip-gram follows it by construction: two words that have to predict the same neighbours get the same gradients. In a
generated language the truth is known: each noun is a mixture of topics, a topic prefers certain context words, and the
overlap of two nouns is the cosine of their distributions of context words. No two nouns occur in the same sentence, so
similar vectors can only come from shared contexts. The rank correlation (Spearman) over all pairs of nouns says how
well the vectors follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.words.grammar import TopicLanguage, generate_topic_sentences
from seqwise.lens.occurrences import normalize_rows
from seqwise.page.figures import Figure, ScatterPlot
from seqwise.vectors import train_vectors
from seqwise.vectors.evaluation import Pair, evaluate_similarities

MAX_POINTS = 300  # of the figure


@dataclass(frozen=True, kw_only=True)
class SharedContexts(Experiment):
    id = "H3"
    claim = "Words in like contexts get like vectors."
    equation = "cos(v_a, v_b) rises with the overlap of p(· | a) and p(· | b)"
    measurement = (
        "The rank correlation of the cosine of two nouns' skip-gram vectors with the overlap of their contexts."
    )
    rule = "Holds if the correlation over all pairs of nouns is above 0.5."
    try_next = "seqwise lab run H3 --sentences 200: three occurrences of each noun, and the correlation falls."
    seconds = 1.2
    minimums: ClassVar = {"nouns": 2, "topics": 2}
    quick: ClassVar = {"sentences": 2500}

    sentences: int = 6000
    """Sentences of the language, with one noun each."""
    nouns: int = 60
    """Number of nouns."""
    topics: int = 8
    """Topics of which a noun is a mixture."""
    dim: int = 30
    """Dimension of the vectors."""
    epochs: int = 10
    """Passes over the sentences."""

    def measure(self) -> Measured:
        language = generate_topic_sentences(self.sentences, self.nouns, self.topics, self.seed)
        vectors = train_vectors(
            self.choose_sentences(language), dim=self.dim, epochs=self.epochs, min_count=1, subsample=0.0,
            threads=1, device="cpu", seed=self.seed,
        )  # fmt: skip
        nouns = [noun for noun in range(self.nouns) if f"n{noun}" in vectors]  # all, unless the text is very short
        contexts = normalize_rows(language.contexts[nouns])
        rows, columns = np.triu_indices(len(nouns), 1)
        overlaps = (contexts @ contexts.T)[rows, columns]
        pairs = [Pair(f"n{nouns[a]}", f"n{nouns[b]}", s) for a, b, s in zip(rows, columns, overlaps, strict=True)]
        result = evaluate_similarities(vectors, pairs)
        cosines = np.array([vectors.similarity(pair.a, pair.b) for pair in pairs])
        is_similar = overlaps > 0.5
        return {
            "pairs": len(pairs),
            "rank_correlation": float(result.spearman or 0.0),
            "mean_cosine_if_overlap_above_half": float(cosines[is_similar].mean()),
            "mean_cosine_if_overlap_below_half": float(cosines[~is_similar].mean()),
            "names": [f"{pair.a} and {pair.b}" for pair in pairs[:: max(1, len(pairs) // MAX_POINTS)]],
            "overlaps": overlaps,
            "cosines": cosines,
        }

    def choose_sentences(self, language: TopicLanguage) -> list[str]:
        """Returns the sentences to train on."""
        return language.sentences

    def judge(self, measured: Measured) -> Verdict:
        correlation = measured["rank_correlation"]
        return decide(
            correlation > 0.5,
            evidence=f"The rank correlation of cosine and overlap is {correlation:.2f} over {measured['pairs']:,} "
            f"pairs of nouns; the mean cosine is {measured['mean_cosine_if_overlap_above_half']:.2f} if the overlap is "
            f"above one half and {measured['mean_cosine_if_overlap_below_half']:.2f} otherwise.",
            instead="The vectors reflect only weakly, or not at all, which contexts words share.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        step = max(1, len(measured["overlaps"]) // MAX_POINTS)
        chart = ScatterPlot(
            title="Similarity of word vectors against the overlap of the words' contexts",
            x=measured["overlaps"][::step],
            y=measured["cosines"][::step],
            names=measured["names"],
            x_label="overlap of the contexts of two nouns (cosine of their distributions)",
            y_label="cosine of their trained vectors",
            note="A point is a pair of nouns, which never occur together: what they share is their contexts.",
        )
        return [chart]
