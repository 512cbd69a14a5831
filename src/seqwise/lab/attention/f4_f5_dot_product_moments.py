"""F4, F5: the mean and the variance of the dot product of a random query and a random key.

    E[qᵀk]   = μᵀμ
    Var(qᵀk) = 2 σ² μᵀμ + d σ⁴          and not 2 d σ² μᵀμ + d σ⁴, as some notes have it

q and k are independent, with d independent entries each, of mean μᵢ and variance σ². One product qᵢkᵢ has the mean μᵢ²,
as the mean of a product of independent variables is the product of their means, and the second moment (μᵢ² + σ²)².
Subtracting μᵢ⁴ leaves the variance 2σ²μᵢ² + σ⁴. The d products are independent, so their means and variances add up,
and 2σ² Σᵢ μᵢ² = 2σ²μᵀμ. The sum over i is already inside μᵀμ; a further factor d counts it twice. The wrong formula is
right for μ = 0 and for d = 1, so a check of these cases does not reveal the error. Neither result needs a normal
distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.page.figures import Figure, LineChart, Reference, Series

CHUNK = 2_000_000  # random numbers that are held at a time
DISTRIBUTIONS = ("normal", "uniform", "exponential")
MAX_STANDARD_ERRORS = 6.0


def draw_entries(shape: tuple[int, int], distribution: str, generator: torch.Generator) -> Tensor:
    """Returns independent numbers of mean 0 and variance 1."""
    if distribution == "normal":
        return torch.randn(shape, dtype=torch.float64, generator=generator)
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
    return (uniform - 0.5) * 12**0.5 if distribution == "uniform" else -torch.log1p(-uniform) - 1


@dataclass(frozen=True, kw_only=True)
class DotProductMoments(Experiment):
    """What F4 and F5 share: the vectors and their products."""

    d: int = 64
    """Width of queries and keys."""
    samples: int = 40_000
    """Number of pairs of a query and a key."""
    mean: float = 0.5
    """Scale of the entries of μ."""
    sigma: float = 1.0
    """Standard deviation σ of each entry."""

    def build_mean(self, width: int) -> Tensor:
        """Returns a mean vector μ whose entries differ, from half to one and a half times `mean`."""
        return self.mean * (0.5 + (torch.arange(width, dtype=torch.float64) + 0.5) / width)

    def draw_products(self, width: int, distribution: str = "normal") -> Tensor:
        """Returns qᵀk of each pair, (samples,)."""
        mean, products = self.build_mean(width), []
        generator = make_generator(self.seed, width, DISTRIBUTIONS.index(distribution))
        for start in range(0, self.samples, rows := max(1, CHUNK // width)):
            shape = (min(rows, self.samples - start), width)
            q, k = self.draw_pair(shape, distribution, generator)
            products.append(((mean + self.sigma * q) * (mean + self.sigma * k)).sum(-1))
        return torch.cat(products)

    def draw_pair(self, shape: tuple[int, int], distribution: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Returns the deviations of queries and keys from their mean, in units of σ: independent of each other."""
        return draw_entries(shape, distribution, generator), draw_entries(shape, distribution, generator)


@dataclass(frozen=True, kw_only=True)
class MeanOfDotProduct(DotProductMoments):
    id = "F4"
    claim = "E[qᵀk] = μᵀμ."
    equation = "E[qᵀk] = Σᵢ E[qᵢ] E[kᵢ] = μᵀμ"
    measurement = "The mean of qᵀk over many independent pairs with normal, uniform and exponential entries."
    rule = "Holds if each mean is within 6 standard errors of μᵀμ, and 6 standard errors are below 10 % of μᵀμ."
    try_next = "seqwise lab run F4 --samples 4000: a tenth of the pairs makes the standard error √10 times as large."
    seconds = 0.5
    minimums: ClassVar = {"samples": 2, "sigma": 0.001}

    def measure(self) -> Measured:
        expected = float((self.build_mean(self.d) ** 2).sum())
        numbers, running = {}, {}
        counts = np.unique(np.geomspace(min(10, self.samples), self.samples, 60).astype(int))
        for distribution in DISTRIBUTIONS:
            products = self.draw_products(self.d, distribution)
            standard_error = float(products.std()) / self.samples**0.5
            numbers[f"mean_with_{distribution}_entries"] = float(products.mean())
            off = abs(float(products.mean()) - expected)
            numbers[f"standard_errors_off_with_{distribution}_entries"] = off / standard_error
            numbers[f"standard_error_with_{distribution}_entries"] = standard_error
            running[f"running_{distribution}"] = (products.cumsum(0).numpy() / np.arange(1, self.samples + 1))[
                counts - 1
            ]
        return {"expected_mean": expected, **numbers, "counts": counts, **running}

    def judge(self, measured: Measured) -> Verdict:
        off = max(measured[f"standard_errors_off_with_{name}_entries"] for name in DISTRIBUTIONS)
        width = MAX_STANDARD_ERRORS * max(measured[f"standard_error_with_{name}_entries"] for name in DISTRIBUTIONS)
        means = ", ".join(f"{measured[f'mean_with_{name}_entries']:.4g} ({name})" for name in DISTRIBUTIONS)
        return decide(
            off <= MAX_STANDARD_ERRORS and width <= 0.1 * measured["expected_mean"],
            evidence=f"μᵀμ is {measured['expected_mean']:.4g}; the means are {means}, up to {off:.2g} standard errors "
            "off.",
            instead="E[qᵀk] = μᵀμ + Σᵢ Cov(qᵢ, kᵢ): q and k are dependent here."
            if off > MAX_STANDARD_ERRORS
            else "The standard errors are too large for a verdict: there are too few pairs, or μᵀμ is too small.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        chart = LineChart(
            title=f"Mean of qᵀk over independent pairs, d = {self.d}",
            series=[Series(name=name, x=measured["counts"], y=measured[f"running_{name}"]) for name in DISTRIBUTIONS],
            x_label="number of pairs",
            y_label="mean of qᵀk so far",
            x_log=True,
            references=[Reference(axis="y", value=measured["expected_mean"], label="μᵀμ")],
            note="The limit depends on independence and on the means only, not on the distribution of the entries.",
        )
        return [chart]


@dataclass(frozen=True, kw_only=True)
class VarianceOfDotProduct(DotProductMoments):
    id = "F5"
    claim = "Var(qᵀk) = 2dσ²μᵀμ + dσ⁴."
    equation = "Var(qᵀk) = 2dσ²μᵀμ + dσ⁴"
    measurement = "The variance of qᵀk over independent pairs for widths 1 … d, against the claim and 2σ²μᵀμ + dσ⁴."
    rule = "Holds if the claimed variance is within a factor of 1.5 of the measured one at every width."
    try_next = "seqwise lab run F5 --mean 0.01: for μ near 0 both formulas agree, so the claim passes."
    seconds = 0.5
    minimums: ClassVar = {"samples": 2, "sigma": 0.001}

    def measure(self) -> Measured:
        widths = np.unique(np.geomspace(1, self.d, 7).round().astype(int))
        squares = np.array([float((self.build_mean(width) ** 2).sum()) for width in widths])
        variances = np.array([float(self.draw_products(int(width)).var()) for width in widths])
        claimed = 2 * widths * self.sigma**2 * squares + widths * self.sigma**4
        derived = 2 * self.sigma**2 * squares + widths * self.sigma**4
        return {
            "variance_measured_at_largest_d": variances[-1],
            "variance_claimed_at_largest_d": claimed[-1],
            "variance_derived_at_largest_d": derived[-1],
            "claim_is_off_by_a_factor_of_up_to": float(np.exp(np.abs(np.log(claimed / variances)).max())),
            "derivation_is_off_by_a_factor_of_up_to": float(np.exp(np.abs(np.log(derived / variances)).max())),
            "widths": widths,
            "variances": variances,
            "claimed": claimed,
            "derived": derived,
        }

    def judge(self, measured: Measured) -> Verdict:
        claimed, derived = (
            measured["claim_is_off_by_a_factor_of_up_to"],
            measured["derivation_is_off_by_a_factor_of_up_to"],
        )
        return decide(
            claimed < 1.5,
            evidence=f"At d = {self.d} the variance is {measured['variance_measured_at_largest_d']:.4g}; the claim "
            f"says {measured['variance_claimed_at_largest_d']:.4g}, 2σ²μᵀμ + dσ⁴ says "
            f"{measured['variance_derived_at_largest_d']:.4g}. Over all widths these are off by up to a factor of "
            f"{claimed:.3g} and {derived:.3g}.",
            instead="Var(qᵀk) = 2σ²μᵀμ + dσ⁴: the sum over entries is already in μᵀμ. Both agree for μ = 0 or d = 1.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"measured": "variances", "claimed: 2dσ²μᵀμ + dσ⁴": "claimed", "derived: 2σ²μᵀμ + dσ⁴": "derived"}
        chart = LineChart(
            title="Variance of qᵀk against the width d",
            series=[Series(name=name, x=measured["widths"], y=measured[key]) for name, key in names.items()],
            x_label="width d",
            y_label="variance of qᵀk",
            x_log=True,
            y_log=True,
            note="For a fixed mean per entry μᵀμ is proportional to d: the derived variance is linear, the claimed one "
            "has d².",
        )
        return [chart]
