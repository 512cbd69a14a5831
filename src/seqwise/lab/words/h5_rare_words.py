"""H5: is skip-gram better for rare words, and CBOW faster?

    skip-gram   Σᵢ −log σ(uᵢ·v) − …        one update per neighbour uᵢ of the centre word v
    CBOW        −log σ(ū·v) − …            ū = (1/n) Σᵢ uᵢ: one update for all n neighbours

CBOW takes one step per word instead of one per neighbour, so it is faster. Whether it is worse for rare words depends
on a detail. The derivative of the mean gives each neighbour 1/n of the gradient; word2vec and gensim give all of it to
each (İrsoy, Benton and Stratos 2021, "Corrected CBOW performs as well as skip-gram"), which only allows a small
learning rate, so that the output vectors hardly move. Here each noun has a rare twin: some of its occurrences are
renamed, so both have the same contexts and should be nearest to each other. Skip-gram places more twins than CBOW with
word2vec's update; CBOW with the true gradient, and the learning rate that it allows, places most. This is a short
training with default learning rates: with twice the epochs skip-gram places all twins with 20 occurrences, and the lead
over word2vec's CBOW becomes smaller. docs/vectors-rare-words.md has a larger experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.words.grammar import generate_topic_sentences
from seqwise.page.figures import Figure, LineChart, Reference, Series
from seqwise.vectors import KeyedVectors, VectorSettings
from seqwise.vectors.training import VectorTraining

COUNTS = (5, 10, 20, 40)  # occurrences of the rare twins
METHODS: dict[str, dict[str, Any]] = {  # with the default learning rates of each
    "skipgram": {"method": "skipgram"},
    "cbow": {"method": "cbow"},
    "cbow_word2vec": {"method": "cbow", "update": "gensim"},
}


@dataclass(frozen=True, kw_only=True)
class RareWords(Experiment):
    id = "H5"
    claim = "Skip-gram serves rare words better, CBOW is faster."
    equation = "skip-gram: n updates per word;  CBOW: one, from ū = (1/n) Σ uᵢ"
    measurement = (
        "The share of rare twins whose nearest noun is the one with the same contexts, by occurrences; updates "
    )
    measurement += "per word and words per second; for CBOW with its gradient and with the update of word2vec."
    rule = "True if skip-gram places at least 10 points more of the twins with 20 occurrences, and CBOW needs less "
    rule += "than half as many updates; tested for both updates of CBOW."
    try_next = "seqwise lab run H5 --epochs 10: with more steps skip-gram places all of them, and its lead shrinks."
    seconds = 2.5
    quick: ClassVar = {"nouns": 80, "sentences": 9600}

    sentences: int = 12_000
    """Sentences of the generated language."""
    nouns: int = 100
    """Nouns, each with a rare twin."""
    dim: int = 50
    """Dimension of the vectors."""
    epochs: int = 5
    """Passes over the sentences."""

    def measure(self) -> Measured:
        sentences = generate_topic_sentences(self.sentences, self.nouns, 20, self.seed, COUNTS).sentences
        measured: dict[str, float | np.ndarray] = {}
        for name, settings in self.get_methods().items():
            with VectorTraining(sentences[:50], self.build_settings(settings)) as training:
                for _ in training.steps():  # compiles, so that the time of the next training does not include it
                    pass
            with VectorTraining(sentences, self.build_settings(settings)) as training:
                for _ in training.steps():
                    pass
                trainer: Any = training.trainer  # the one of word2vec, which counts updates
                words, pairs = self.epochs * training.corpus.num_words, trainer.sum_losses(slice(None))[:, 1]
                shares = self.score_twins(training.export_vectors())
            measured[f"share_placed_by_{name}"] = float(shares[COUNTS.index(20)])
            measured[f"updates_per_word_of_{name}"] = float(pairs.sum() / words)
            measured[f"words_per_second_of_{name}"] = words / training.seconds
            measured[f"shares_{name}"] = shares
        return measured

    def get_methods(self) -> dict[str, dict[str, Any]]:
        return METHODS

    def build_settings(self, changes: dict[str, Any]) -> VectorSettings:
        return VectorSettings(
            dim=self.dim, epochs=self.epochs, min_count=1, threads=1, device="cpu", seed=self.seed, **changes
        )

    def score_twins(self, vectors: KeyedVectors) -> np.ndarray:
        """Returns the share of the twins whose nearest noun is the original, for each number of occurrences."""
        units = vectors.matrix / vectors.norms[:, None]
        nouns, twins = (units[[vectors.index(f"n{noun}{end}") for noun in range(self.nouns)]] for end in ("", "~"))
        is_placed = (twins @ nouns.T).argmax(axis=1) == np.arange(self.nouns)
        return np.array([is_placed[number :: len(COUNTS)].mean() for number in range(len(COUNTS))])

    def judge(self, measured: Measured) -> Verdict:
        placed, updates = (
            {n: measured[f"{key}_{n}"] for n in METHODS} for key in ("share_placed_by", "updates_per_word_of")
        )
        is_faster = updates["cbow"] < updates["skipgram"] / 2
        speeds = {name: measured[f"words_per_second_of_{name}"] for name in METHODS}
        return decide_condition(
            is_faster and placed["skipgram"] - placed["cbow_word2vec"] > 0.1,
            is_faster and placed["skipgram"] - placed["cbow"] > 0.1,
            condition="CBOW gives each neighbour the whole gradient, as in word2vec; with the true gradient "
            "skip-gram has no such lead",
            evidence=f"With 20 occurrences {100 * placed['skipgram']:.0f} % of the twins are placed by skip-gram, "
            f"{100 * placed['cbow_word2vec']:.0f} % by CBOW as in word2vec and {100 * placed['cbow']:.0f} % by CBOW "
            f"with its gradient; skip-gram makes {updates['skipgram'] / updates['cbow']:.1f} updates for each of CBOW, "
            f"which trained {speeds['cbow'] / speeds['skipgram']:.1f} times as many words per second.",
            instead="Skip-gram is not better for rare words than CBOW, or CBOW is not faster.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = dict(zip(METHODS, ("skip-gram", "CBOW with its gradient", "CBOW as in word2vec"), strict=True))
        chart = LineChart(
            title="Rare words that are nearest to the noun with the same contexts, by method",
            series=[Series(name=name, x=np.array(COUNTS), y=measured[f"shares_{key}"]) for key, name in names.items()],
            x_label="occurrences of the rare word",
            y_label="share placed correctly",
            x_log=True,
            references=[Reference(axis="x", value=20, label="decides")],
            note="Default learning rates: 0.025, for CBOW with its gradient 0.15.",
        )
        return [chart]
