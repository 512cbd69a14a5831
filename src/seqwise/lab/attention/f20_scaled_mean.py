"""F20: does dividing by √d make the mean of the score grow linearly with d?

    E[qᵀk] = Σᵢ E[qᵢ] E[kᵢ] = d μ²               E[qᵀk / √d] = √d μ²
    Var(qᵀk) = d (σ⁴ + 2 σ² μ²)                  Var(qᵀk / √d) = σ⁴ + 2 σ² μ²

Let the entries of q and k be independent, with mean μ and variance σ². A score is a sum of d products, so its mean and
its variance are both linear in d. Dividing by √d divides the mean by √d and the variance by d. The mean, linear before,
then grows as √d; the variance, also linear before, no longer grows. One divisor cannot steady both: dividing by d
keeps the mean and lets the variance vanish as 1/d. Attention chooses √d because only *differences* between the scores
of one query matter: the softmax ignores a mean that all scores share. With μ = 0, the case that Vaswani et al. (2017,
footnote 4) assume, there is no mean at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import Dot, ScaledDot
from seqwise.page.figures import Figure, LineChart, Series


@dataclass(frozen=True, kw_only=True)
class ScaledMean(Experiment):
    id = "F20"
    claim = "Dividing by s = √d makes E[qᵀk/s] grow linearly with d."
    equation = "E[qᵀk / √d] ∝ d"
    measurement = "Mean and variance of qᵀk and of qᵀk/√d over random q, k for widths from 4 to max_d; their exponents."
    rule = "Holds if the mean of qᵀk/√d grows as d to the power of 1 ± 0.15 (slope in logarithmic axes)."
    try_next = "seqwise lab run F20 --mean 2: the mean rises, but its exponent stays 0.5 and that of the variance 0."
    seconds = 0.5
    minimums: ClassVar = {"mean": 0.01, "std": 0.001, "samples": 2}
    quick: ClassVar = {"samples": 2_000}

    mean: float = 1.0
    """Mean of each entry, μ."""
    std: float = 1.0
    """Standard deviation of each entry, σ."""
    max_d: int = 1024
    """Largest width."""
    samples: int = 5_000
    """Random pairs of query and key per width."""

    def measure(self) -> Measured:
        widths = [2**power for power in range(2, max(4, self.max_d.bit_length()))]
        drawn = [self.draw_scores(width) for width in widths]
        arrays = {
            "mean_of_score": np.array([raw.mean() for raw, _ in drawn]),
            "mean_of_scaled_score": np.array([scaled.mean() for _, scaled in drawn]),
            "variance_of_score": np.array([raw.var() for raw, _ in drawn]),
            "variance_of_scaled_score": np.array([scaled.var() for _, scaled in drawn]),
        }
        exponents = {f"exponent_of_{name}": self.fit_exponent(widths, values) for name, values in arrays.items()}
        return {
            **exponents,
            "largest_relative_error_of_mean": float(
                np.abs(arrays["mean_of_scaled_score"] / (np.sqrt(widths) * self.mean**2) - 1).max()
            ),
            "widths": np.array(widths),
            **arrays,
        }

    def draw_scores(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns qᵀk and qᵀk/√d of random pairs, by the scores of the attention layers."""
        generator = make_generator(self.seed, width)
        q, k = (
            self.mean + self.std * torch.randn(self.samples, 1, width, dtype=torch.float64, generator=generator)
            for _ in range(2)
        )
        return Dot()(q, k).flatten().numpy(), self.scale_scores(q, k).flatten().numpy()

    def scale_scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return ScaledDot()(q, k)

    def fit_exponent(self, widths: Sequence[int], values: np.ndarray) -> float:
        """Returns p of the power law values ∝ dᵖ, by least squares on the logarithms."""
        return float(np.polyfit(np.log(widths), np.log(np.abs(values)), 1)[0])

    def judge(self, measured: Measured) -> Verdict:
        exponent = measured["exponent_of_mean_of_scaled_score"]
        return decide(
            abs(exponent - 1) < 0.15,
            evidence=f"The mean of qᵀk grows as d^{measured['exponent_of_mean_of_score']:.3f}, that of qᵀk/√d as "
            f"d^{exponent:.3f}; the variance of qᵀk/√d as d^{measured['exponent_of_variance_of_scaled_score']:.3f}.",
            instead="With a fixed mean per entry E[qᵀk] is linear in d already, and dividing by √d leaves √d μ²; "
            "what √d keeps constant is the variance.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {
            "mean of qᵀk": "mean_of_score",
            "mean of qᵀk/√d": "mean_of_scaled_score",
            "variance of qᵀk/√d": "variance_of_scaled_score",
        }
        chart = LineChart(
            title=f"Mean and variance of attention scores against the width (μ = {self.mean:g}, σ = {self.std:g})",
            series=[Series(name=name, x=measured["widths"], y=measured[key]) for name, key in names.items()],
            x_label="width d of queries and keys",
            y_label="mean or variance",
            x_log=True,
            y_log=True,
            note="Slope 1 is linear growth, slope ½ grows as √d, and a horizontal line does not depend on d.",
        )
        return [chart]
