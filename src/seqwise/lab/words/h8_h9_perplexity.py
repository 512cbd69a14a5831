"""H8 and H9: what a perplexity is, and whether it counts options.

    H(p, q) = −1/N Σₜ log q(wₜ | history)        in nats, or in bits with log₂
    perplexity = e^H(nats) = 2^H(bits) = (Π q(wₜ))^(−1/N)

H8. The base of the logarithm does not matter as long as power and logarithm have the same one: 2^(log₂ x) = e^(ln x).
A model that gives each of V tokens the probability 1/V has H = log V, so its perplexity is V, whatever the text says.
Raising 2 to a loss in nats, which is what most libraries print, is a common mistake: it reports a much better model.

H9. If the model hesitates between k equally likely tokens at each step, perplexity is k. Otherwise no such k exists: a
perplexity is e to a mean of logarithms, a geometric mean. A model that is certain of every other token and chooses
among 100 at the rest has perplexity 10, but there is no position where it has ten options; one that puts 0.9 on one
token and spreads 0.1 over 999 others has perplexity 2.8 although a single token matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide, decide_condition
from seqwise.lab.words.grammar import read_characters
from seqwise.page.figures import BarChart, Figure, LineChart, Reference, Series
from seqwise.tasks.language.ngram import NGram


@dataclass(frozen=True, kw_only=True)
class PerplexityBases(Experiment):
    id = "H8"
    claim = "Perplexity = 2^H = e^cross-entropy; uniform guessing scores V."
    equation = "perplexity = 2^H(bits) = e^H(nats) = (Π q(wₜ))^(−1/N);  q = 1/V ⇒ perplexity = V"
    measurement = (
        "Perplexity in three forms, of n-gram models of rising order on a built-in text and of a uniform model."
    )
    rule = "Holds if the three forms agree to a relative error of 1e-9 for every model, and the uniform one scores V."
    try_next = "seqwise lab run H8 --order 8: each further character of history lowers the perplexity less."
    seconds = 0.6
    minimums: ClassVar = {"characters": 2000}

    order: int = 4
    """Order of the largest n-gram model: it reads order − 1 characters of history."""
    characters: int = 60_000
    """Characters of the training text."""

    def measure(self) -> Measured:
        text = read_characters("builtin:docs", self.characters, self.characters // 10, self.seed)
        models = [NGram.count(text.train, text.vocabulary_size, order) for order in range(1, self.order + 1)]
        log_probabilities = [
            np.full(len(text.held_out), -math.log(text.vocabulary_size)),
            *(model.score_tokens(text.held_out) for model in models),
        ]
        forms = np.array([self.compute_forms(each) for each in log_probabilities])  # (models, 3)
        return {
            "vocabulary": text.vocabulary_size,
            "perplexity_of_uniform_guessing": float(forms[0, 0]),
            "perplexity_of_largest_model": float(forms[-1, 0]),
            "bits_of_largest_model": math.log2(forms[-1, 0]),
            "nats_of_largest_model": math.log(forms[-1, 0]),
            "largest_relative_error": float((np.ptp(forms, axis=1) / forms[:, 0]).max()),
            "perplexities": forms[:, 0],
        }

    def compute_forms(self, log_probabilities: np.ndarray) -> tuple[float, float, float]:
        """Returns perplexity from bits, from nats and as the inverse geometric mean of the probabilities."""
        bits, nats = -np.log2(np.exp(log_probabilities)).mean(), -log_probabilities.mean()
        # A product of thousands of probabilities underflows; products of 100 do not.
        products = [
            np.prod(np.exp(part)) for part in np.array_split(log_probabilities, 1 + len(log_probabilities) // 100)
        ]
        geometric_mean = math.prod(float(product) ** (1 / len(log_probabilities)) for product in products)
        return 2 ** float(bits), math.e ** float(nats), 1 / geometric_mean

    def judge(self, measured: Measured) -> Verdict:
        error, uniform = measured["largest_relative_error"], measured["perplexity_of_uniform_guessing"]
        vocabulary = measured["vocabulary"]
        return decide(
            error < 1e-9 and abs(uniform / vocabulary - 1) < 1e-9,
            evidence=f"The three forms differ by a relative error of at most {error:.1g}; uniform guessing over "
            f"{vocabulary} characters scores {uniform:.6g}, the {self.order}-gram model "
            f"{measured['perplexity_of_largest_model']:.3g}.",
            instead="Power and logarithm have different bases here, so the numbers are no perplexities.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = ["uniform", *(f"{order}-gram" for order in range(1, self.order + 1))]
        chart = BarChart(
            title="Perplexity per character of n-gram models and of uniform guessing",
            names=names,
            values=np.asarray(measured["perplexities"]),
            value_label="perplexity on held-out text (lower is better)",
            note=f"Uniform guessing scores the {measured['vocabulary']} characters of the vocabulary.",
        )
        return [chart]


@dataclass(frozen=True, kw_only=True)
class PerplexityAsOptions(Experiment):
    id = "H9"
    claim = "A perplexity is the number of options the model hesitates between."
    equation = "perplexity = exp(mean of Hₜ);  Hₜ = log k if the model chooses among k equal options"
    measurement = "Perplexity and number of options (tokens at least half as likely as the likeliest, on average) of "
    measurement += "models that know the true distribution: uniform, skewed, and certain at some positions."
    rule = "True of a model if perplexity is within 10 % of its options; tested for uniform and other distributions."
    try_next = "seqwise lab run H9 --certain 0.9: the model has one option at most positions, or all; never between."
    seconds = 0.1
    minimums: ClassVar = {"certain": 0.0, "confidence": 0.0}
    maximums: ClassVar = {"certain": 1.0, "confidence": 1.0}

    options: int = 100
    """Tokens among which the uniform model chooses; the vocabulary is ten times as large."""
    certain: float = 0.5
    """Share of the positions at which the mixed model is certain."""
    confidence: float = 0.9
    """Probability of the likeliest token of the skewed model."""

    def measure(self) -> Measured:
        uniform, certain, skewed = self.build_uniform(self.options), self.build_uniform(1), self.build_skewed()
        mixtures = {"uniform": [(1.0, uniform)], "skewed": [(1.0, skewed)]}
        mixtures["mixed"] = [(self.certain, certain), (1 - self.certain, uniform)]
        measured: dict[str, float | np.ndarray] = {}
        for name, mixture in mixtures.items():
            measured[f"perplexity_of_{name}_model"] = self.compute_perplexity(mixture)
            measured[f"options_of_{name}_model"] = sum(share * float((p >= p.max() / 2).sum()) for share, p in mixture)
        shares = np.linspace(0, 1, 21)
        mixed = [[(share, certain), (1 - share, uniform)] for share in shares]
        perplexities = np.array([self.compute_perplexity(mixture) for mixture in mixed])
        return {**measured, "shares": shares, "perplexities": perplexities}

    def build_uniform(self, options: int) -> np.ndarray:
        """Returns a distribution over the vocabulary with some equally likely tokens."""
        return np.where(np.arange(10 * self.options) < options, 1 / options, 0.0)

    def build_skewed(self) -> np.ndarray:
        """Returns a distribution with one likely token; the others share the rest equally."""
        others = 10 * self.options - 1
        return np.append(self.confidence, np.full(others, (1 - self.confidence) / others))

    def compute_perplexity(self, mixture: Sequence[tuple[float, np.ndarray]]) -> float:
        """Returns e to the mean cross-entropy with tokens that are drawn from the model's own distributions."""
        entropies = [share * -(p[p > 0] * np.log(p[p > 0])).sum() for share, p in mixture]
        return math.exp(sum(entropies))

    def judge(self, measured: Measured) -> Verdict:
        ratios = {
            name: measured[f"perplexity_of_{name}_model"] / measured[f"options_of_{name}_model"]
            for name in ("uniform", "skewed", "mixed")
        }
        is_true = {name: abs(ratio - 1) < 0.1 for name, ratio in ratios.items()}
        texts = [
            f"{measured[f'perplexity_of_{n}_model']:.3g} and {measured[f'options_of_{n}_model']:.3g} ({n})"
            for n in ratios
        ]
        return decide_condition(
            is_true["uniform"],
            is_true["skewed"] and is_true["mixed"],
            condition="all positions have equally many options and all options are equally likely",
            evidence=f"Perplexity and mean number of options are {', '.join(texts)}.",
            instead="Not even a uniform distribution over k tokens has perplexity k.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        shares = measured["shares"]
        options = f"{self.options} option{'s' * (self.options != 1)}"
        mean_options = shares + (1 - shares) * self.options
        chart = LineChart(
            title=f"Perplexity of a model that is certain at some positions and has {options} elsewhere",
            series=[
                Series(name="perplexity", x=shares, y=measured["perplexities"]),
                Series(name="mean number of options", x=shares, y=mean_options),
            ],
            x_label="share of the positions at which the model is certain",
            y_label="perplexity or options (tokens)",
            references=[Reference(axis="x", value=self.certain, label="measured mixture")],
            note="At the ends all positions are alike. Perplexity is a geometric mean, which never exceeds the "
            "arithmetic one.",
        )
        return [chart]
