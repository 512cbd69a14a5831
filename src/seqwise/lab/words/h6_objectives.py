"""H6: do word2vec and GloVe train by predicting a masked word?

    skip-gram    −Σ_{(c, w)} log softmax(U x_c)_w                             pairs (c, w) of neighbours in the text
    GloVe        Σ_{ij} f(X_ij) (w_i·w̃_j + b_i + b̃_j − log X_ij)²            X_ij: how often i and j are neighbours

CBOW and skip-gram predict a word from its neighbours, or from one of them: their loss is a negative log likelihood. No
such loss falls below the conditional entropy H(word | neighbour) of the text, and a perfect model reaches just this.
GloVe (Pennington, Socher and Manning 2014, equation 8) hides nothing. It counts all pairs first and fits the logarithms
of the counts by weighted least squares, so its loss falls to zero if the dimension allows. A second test: the text is
repeated twice. A word is as predictable as before; all counts double, and GloVe's scores rise by log 2 ≈ 0.69.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.words.grammar import draw_markov_chain
from seqwise.page.figures import Figure, LineChart, Reference, Series
from seqwise.vectors.settings import ResolvedVectorSettings, VectorSettings
from seqwise.vectors.word2vec.trainer import build_objective


@dataclass(frozen=True, kw_only=True)
class Objectives(Experiment):
    id = "H6"
    claim = "word2vec and GloVe share a masked-word objective."
    equation = "L = −Σ log p(word | neighbour), in both"
    measurement = "The losses of skip-gram (full softmax) and GloVe on the same pairs of neighbours, over the epochs; "
    measurement += "and how GloVe's scores w_i·w̃_j + b_i + b̃_j change if the text is repeated twice."
    rule = "Holds if both losses end within 10 % of H(word | neighbour), the minimum of any loss that predicts a word."
    try_next = "seqwise lab run H6 --dim 1: vectors too small for the counts; GloVe's loss no longer falls to zero."
    seconds = 0.4
    minimums: ClassVar = {"vocabulary": 2, "words": 10, "learning_rate": 1e-06}

    vocabulary: int = 12
    """Words of the language, which is a random Markov chain."""
    words: int = 6000
    """Length of the text."""
    dim: int = 16
    """Dimension of the vectors; from the vocabulary size on, both objectives can be fitted exactly."""
    epochs: int = 60
    """Passes over the text, or over the pairs."""
    learning_rate: float = 0.2
    """Initial learning rate of both: of SGD, which decays, and of AdaGrad."""

    def measure(self) -> Measured:
        size, random = self.vocabulary, np.random.default_rng(self.seed)
        transitions = random.dirichlet(np.full(size, 0.5), size=size)
        text = draw_markov_chain(transitions, self.words, self.seed).astype(np.int32)
        counts = np.zeros((size, size))
        np.add.at(counts, (text[:-1], text[1:]), 1)
        counts = counts + counts.T  # both orders: a neighbour is before or after the word
        is_pair, conditional = counts > 0, counts / counts.sum(axis=1, keepdims=True)
        entropy = float(-(counts[is_pair] * np.log(conditional[is_pair])).sum() / counts.sum())
        skipgram_losses = self.train_skipgram(text)
        glove_losses, scores = self.train_glove(text)
        _, doubled_scores = self.train_glove(np.concatenate([text, [-1], text]))
        return {
            "conditional_entropy": entropy,
            "loss_of_skipgram": float(skipgram_losses[-1]),
            "loss_of_glove": float(glove_losses[-1]),
            "error_of_glove_on_log_counts": float(np.abs(scores[is_pair] - np.log(counts[is_pair])).mean()),
            "rise_of_glove_scores_if_repeated": float((doubled_scores - scores)[is_pair].mean()),
            "losses_skipgram": skipgram_losses,
            "losses_glove": glove_losses,
        }

    def build_settings(self, **changes: Any) -> ResolvedVectorSettings:
        """Returns the settings that both methods share: neighbours at distance 1, one thread."""
        return VectorSettings(
            dim=self.dim, window=1, epochs=self.epochs, threads=1, seed=self.seed, device="cpu",
            learning_rate=self.learning_rate, **changes,
        ).resolve()  # fmt: skip

    def train_skipgram(self, text: np.ndarray) -> np.ndarray:
        """Returns the mean loss of each epoch of skip-gram with the full softmax; the learning rate decays."""
        words, counts = [str(word) for word in range(self.vocabulary)], np.bincount(text, minlength=self.vocabulary)
        settings = self.build_settings(loss="softmax", subsample=0.0)
        objective = build_objective(words, counts, settings)
        workspace, losses = objective.allocate_workspace(), []
        for epoch in range(self.epochs):
            tally, rate = np.zeros(2), settings.learning_rate * (1 - epoch / self.epochs) ** 2
            objective.train(text, np.uint64(epoch + 1), rate, workspace, tally)
            losses.append(tally[0] / tally[1])
        return np.array(losses)

    def train_glove(self, text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the mean loss of each epoch of GloVe, and its scores of all pairs (V, V)."""
        from seqwise.vectors.glove.trainer import GloveModel, PairCounter  # imports numba, which takes a moment

        settings = self.build_settings(method="glove")
        model = GloveModel(self.vocabulary, settings)
        with tempfile.TemporaryDirectory() as folder:
            counter = PairCounter(self.vocabulary, settings.window, Path(folder), memory=1 << 20)
            for _ in counter.count([text]):
                pass
            for _ in model.train(counter.counts):
                pass
        width = self.dim + 2  # a row holds the vector, its bias and a one: see `GloveTrainer`
        return np.array(model.losses), model.rows[:, 0, :width] @ model.rows[:, 1, :width].T

    def judge(self, measured: Measured) -> Verdict:
        keys = "conditional_entropy", "loss_of_skipgram", "loss_of_glove"
        entropy, skipgram, glove = (measured[key] for key in keys)
        return decide(
            abs(skipgram / entropy - 1) < 0.1 and abs(glove / entropy - 1) < 0.1,
            evidence=f"H(word | neighbour) is {entropy:.3g} nats. Skip-gram ends at {skipgram:.3g} nats, GloVe at "
            f"{glove:.2g}, its squared error of log counts; repeating the text raises GloVe's scores by "
            f"{measured['rise_of_glove_scores_if_repeated']:.2f}.",
            instead="Skip-gram and CBOW predict a word; GloVe fits logarithms of pair counts by least squares.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"skip-gram (nats per word)": "losses_skipgram", "GloVe (squared error)": "losses_glove"}
        chart = LineChart(
            title="Losses of skip-gram and GloVe on the same text",
            series=[Series(name=name, x=np.arange(1, self.epochs + 1), y=measured[key]) for name, key in names.items()],
            x_label="epoch",
            y_label="mean loss per pair",
            references=[Reference(axis="y", value=measured["conditional_entropy"], label="H(word | neighbour)")],
            note="A loss that predicts a word cannot fall below the entropy of that word; a squared error can.",
        )
        return [chart]
