"""H7: why are word vectors not trained by a softmax over the vocabulary?

    softmax              −log (e^(u·v_w) / Σ_k e^(u·v_k))      k: all V words
    negative sampling    −log σ(u·v_w) − Σ_j log σ(−u·v_j)      j: a few words, drawn by count^0.75

The sum below the fraction contains every output vector, so each step computes V inner products and changes V rows of
the output matrix. Negative sampling (Mikolov et al. 2013, section 2.2) replaces the choice among V words by a few
yes-or-no questions: is this word the neighbour, or one that was drawn at random? A step then changes 1 + 5 rows for
every V. The verdict counts the rows that one step of the compiled trainer changes; a word that is drawn twice counts
once, so a small vocabulary with many negatives has a few less. Times are measured too, but depend on the machine: rows
of a small matrix stay in the cache.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.page.figures import Figure, LineChart, Series
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.trainer import build_objective

LossName = Literal["softmax", "negative"]
LOSSES: tuple[LossName, ...] = ("softmax", "negative")
NAMES = {"softmax": "softmax", "negative": "negative_sampling"}


@dataclass(frozen=True, kw_only=True)
class SoftmaxCost(Experiment):
    id = "H7"
    claim = "The full softmax costs V per step; negative sampling does not."
    equation = "rows per step: V for softmax, 1 + negatives for negative sampling"
    measurement = "The output rows that one step of skip-gram changes, and its time, for vocabularies of rising size."
    rule = "Holds if rows ∝ V^a with a > 0.95 for the softmax and a < 0.05 for negative sampling."
    try_next = "seqwise lab run H7 --negative 20: more negatives cost more, but still the same for every vocabulary."
    seconds = 1.5
    quick: ClassVar = {"words": 200}
    minimums: ClassVar = {"largest": 160, "words": 2}

    largest: int = 6400
    """Largest vocabulary; the others have 1/2, 1/4, … of its words."""
    negative: int = 5
    """Negative samples per pair."""
    dim: int = 64
    """Dimension of the vectors."""
    words: int = 400
    """Words of the text whose training is timed."""

    def measure(self) -> Measured:
        sizes = np.array([self.largest // 2**k for k in (4, 3, 2, 1, 0)])
        rows = {loss: np.array([self.count_rows(loss, int(size)) for size in sizes]) for loss in LOSSES}
        times = {loss: np.array([self.measure_time(loss, int(size)) for size in sizes]) for loss in LOSSES}
        return {
            **{f"rows_changed_by_{NAMES[loss]}": float(rows[loss][-1]) for loss in LOSSES},
            **{f"exponent_of_rows_by_{NAMES[loss]}": fit_exponent(sizes, rows[loss]) for loss in LOSSES},
            **{f"microseconds_per_pair_by_{NAMES[loss]}": float(times[loss][-1]) for loss in LOSSES},
            **{f"exponent_of_time_by_{NAMES[loss]}": fit_exponent(sizes, times[loss]) for loss in LOSSES},
            **{f"times_{loss}": times[loss] for loss in LOSSES},
            "sizes": sizes,
        }

    def build_objective(self, loss: LossName, vocabulary: int) -> Any:
        """Returns skip-gram with a loss, over a vocabulary in which all words are equally frequent."""
        settings = VectorSettings(
            dim=self.dim, window=1, loss=loss, subsample=0, threads=1, seed=self.seed, device="cpu",
            **({"negative": self.negative} if loss == "negative" else {}),
        )  # fmt: skip
        words = [f"w{number}" for number in range(vocabulary)]
        return build_objective(words, np.full(vocabulary, 10), settings.resolve())

    def count_rows(self, loss: LossName, vocabulary: int) -> float:
        """Returns how many output rows a step on the pair of words 0 and 1 changes.

        The pair is a sentence of two words, which has two steps: word 0 predicts word 1 and the reverse.
        """
        objective, changed = self.build_objective(loss, vocabulary), []
        workspace, random = objective.allocate_workspace(), np.random.default_rng(self.seed)
        objective.inputs[:] = random.normal(size=objective.inputs.shape)
        for _ in range(20):
            objective.outputs[:] = 0
            seed = np.uint64(random.integers(1, 2**62))
            objective.train(np.array([0, 1, -1], np.int32), seed, 0.1, workspace, np.zeros(2))
            changed.append((objective.outputs != 0).any(axis=1).sum())
        return float(np.mean(changed)) / (2 if loss == "negative" else 1)  # both softmax steps change the same rows

    def measure_time(self, loss: LossName, vocabulary: int) -> float:
        """Returns the microseconds per pair of a random text; the fastest of three runs."""
        objective = self.build_objective(loss, vocabulary)
        workspace, times = objective.allocate_workspace(), []
        text = np.random.default_rng(self.seed).integers(vocabulary, size=self.words).astype(np.int32)
        for _ in range(3):
            tally, start = np.zeros(2), time.perf_counter()
            objective.train(text, np.uint64(1), 0.01, workspace, tally)
            times.append(1e6 * (time.perf_counter() - start) / tally[1])
        return float(min(times))

    def judge(self, measured: Measured) -> Verdict:
        exponents = {loss: measured[f"exponent_of_rows_by_{NAMES[loss]}"] for loss in LOSSES}
        rows = {loss: measured[f"rows_changed_by_{NAMES[loss]}"] for loss in LOSSES}
        return decide(
            exponents["softmax"] > 0.95 and exponents["negative"] < 0.05,
            evidence=f"A step changes {rows['softmax']:,.0f} rows with the softmax and {rows['negative']:.3g} with "
            f"negative sampling at V = {self.largest:,}; the exponents over V are {exponents['softmax']:.2f} and "
            f"{exponents['negative']:.2f}, those of the times {measured['exponent_of_time_by_softmax']:.2f} and "
            f"{measured['exponent_of_time_by_negative_sampling']:.2f}.",
            instead="The cost of a step does not depend on V as claimed.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"full softmax": "times_softmax", f"negative sampling, {self.negative}": "times_negative"}
        chart = LineChart(
            title="Time of skip-gram per pair of words, against the size of the vocabulary",
            series=[Series(name=name, x=measured["sizes"], y=measured[key]) for name, key in names.items()],
            x_label="vocabulary size V (words)",
            y_label="time per pair (µs)",
            x_log=True,
            y_log=True,
            note="A slope of 1 is a time in proportion to V; a horizontal line is the same time for every vocabulary.",
        )
        return [chart]


def fit_exponent(sizes: np.ndarray, costs: np.ndarray) -> float:
    """Returns a of the power law costs ∝ sizes^a, by least squares in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])
