"""C4: do gradients suffer less in a feed-forward stack, whose matrices differ, than in an RNN, whose matrix is shared?

    shared:       W · W · … · W v = Wⁿ v                independent:       W_n · … · W_2 · W_1 v

Take N × N Gaussian matrices with entries of variance g²/N, the usual initialisation with gain g. Each multiplies the
length of a vector by about g, in both cases: over n steps the length changes by about gⁿ, so with g ≠ 1 both vanish or
explode. What differs is the error around gⁿ. Independent matrices make independent errors, which add up in the
logarithm like a random walk, ∝ √n, plus a drift of −n/2N (after 200 matrices of size 32 it is the larger part). A
shared matrix makes the same error n times, ∝ n: its largest |eigenvalue| is never exactly g. With g = 1 only the errors
remain, and the stack is far better off; that is the argument of Goodfellow et al. 2016, section 10.7 (after Sussillo
2014), which presupposes a carefully chosen scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import make_generator
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class SharedMatrix(Experiment):
    id = "C4"
    claim = "A feed-forward stack suffers less, since its matrices differ."
    equation = "|log ‖W_n ⋯ W_1 v‖| < |log ‖Wⁿ v‖|,  entries of W with variance g²/N"
    measurement = (
        "How many orders of magnitude the length of a vector changes under the product of n equal or "
        "independent Gaussian matrices, at gain 1 and at another gain: the median over draws."
    )
    rule = "True at a gain if the change under independent matrices is at most 2/3 of that under a shared one."
    try_next = "seqwise lab run C4 --gain 1.5: both explode by dozens of orders of magnitude."
    seconds = 0.5
    minimums: ClassVar = {"gain": 0.01, "steps": 10, "units": 4}

    units: int = 32
    """Size N of the matrices."""
    steps: int = 200
    """Number of matrices in the product."""
    gain: float = 0.8
    """The gain that is compared with 1."""
    draws: int = 60
    """Random products of each kind."""

    def measure(self) -> Measured:
        logs = {
            f"{kind}_{name}": self.compute_log_lengths(kind == "shared", gain)
            for name, gain in (("gain_1", 1.0), ("other_gain", self.gain))
            for kind in ("shared", "independent")
        }  # (draws, steps) each
        return {
            **{f"orders_of_magnitude_{key}": float(np.median(np.abs(each[:, -1]))) for key, each in logs.items()},
            **{f"{key}_quantiles": np.quantile(each, [0.25, 0.5, 0.75], 0) for key, each in logs.items()},
        }

    def compute_log_lengths(self, is_shared: bool, gain: float) -> np.ndarray:
        """Returns log₁₀ of the length of a unit vector after 1 … steps matrices, (draws, steps)."""
        generator = make_generator(self.seed, int(is_shared))
        v = torch.randn(self.draws, self.units, 1, dtype=torch.float64, generator=generator)
        v, logs = v / v.norm(dim=1, keepdim=True), [torch.zeros(self.draws, dtype=torch.float64)]
        matrices = self.draw_matrices(gain, generator)
        for _ in range(self.steps):
            v = matrices @ v
            length = v.norm(dim=1, keepdim=True)
            v = v / length  # so that neither very large nor very small lengths occur
            logs.append(logs[-1] + length[:, 0, 0].log10())
            matrices = matrices if is_shared else self.draw_matrices(gain, generator)
        return torch.stack(logs[1:], dim=1).numpy()

    def draw_matrices(self, gain: float, generator: torch.Generator) -> torch.Tensor:
        """Returns a Gaussian matrix per draw, (draws, N, N), with entries of variance gain²/N."""
        shape = (self.draws, self.units, self.units)
        return torch.randn(shape, dtype=torch.float64, generator=generator) * gain / self.units**0.5

    def judge(self, measured: Measured) -> Verdict:
        shared, independent = (measured[f"orders_of_magnitude_{kind}_gain_1"] for kind in ("shared", "independent"))
        other = [measured[f"orders_of_magnitude_{kind}_other_gain"] for kind in ("shared", "independent")]
        return decide_condition(
            independent <= shared * 2 / 3,
            other[1] <= other[0] * 2 / 3,
            condition="the gain of the matrices is near 1, so that only random errors accumulate; at other gains both "
            "vanish or explode, at about the rate gⁿ",
            evidence=f"After {self.steps} matrices of gain 1 the length has changed by {independent:.2g} orders of "
            f"magnitude if they are independent and by {shared:.2g} if they are one; at gain {self.gain:g} by "
            f"{other[1]:.3g} and {other[0]:.3g}.",
            instead="Independent matrices do not keep the length of a vector better than a shared one.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.steps + 1)
        series = []
        for gain, key in ((1.0, "gain_1"), (self.gain, "other_gain")):
            for kind in ("shared", "independent"):
                low, middle, high = 10.0 ** measured[f"{kind}_{key}_quantiles"].clip(-300, 300)
                series.append(Series(name=f"{kind}, gain {gain:g}", x=steps, y=middle, low=low, high=high))
        chart = LineChart(
            title="Length of a vector after n random matrices: one shared matrix, or independent ones",
            series=series,
            x_label="number of matrices n (time steps or layers)",
            y_label="relative length (median, quartiles)",
            y_log=True,
            references=[Reference(axis="y", value=1.0, label="length 1")],
            note=f"Median and middle half of {self.draws} draws. At gain {self.gain:g}, gⁿ alone changes the length by "
            f"{abs(self.steps * np.log10(self.gain)):.3g} orders of magnitude over {self.steps} matrices.",
        )
        return [chart]
