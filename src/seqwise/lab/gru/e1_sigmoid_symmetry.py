"""E1: the logistic function is symmetric about (0, ½).

    σ(−x) = 1 − σ(x)        because 1 − 1/(1 + e⁻ˣ) = e⁻ˣ/(1 + e⁻ˣ) = 1/(1 + eˣ)

Negating the weights of a gate therefore exchanges "open" and "closed", which makes the two conventions of the GRU's
update gate one and the same model (E2). In floating point the two sides agree to the spacing of numbers near 1, the
machine epsilon. They are not equally good: for large x, σ(x) is so close to 1 that 1 − σ(x) has lost its digits, while
σ(−x) is still accurate to the last one. From x ≈ 17 (single precision) and 37 (double) on, 1 − σ(x) is 0.
Where a small gate matters, compute σ(−x) (or log σ), not 1 − σ(x).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, sigmoid

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.page.figures import Figure, LineChart, Reference, Series

PRECISIONS = {"single": torch.float32, "double": torch.float64}


@dataclass(frozen=True, kw_only=True)
class SigmoidSymmetry(Experiment):
    id = "E1"
    claim = "σ(−x) = 1 − σ(x)."
    equation = "σ(−x) = 1 − σ(x)"
    measurement = "The difference between the two sides in single and double precision, over a range of x."
    rule = "Holds if the sides differ by at most four times the machine epsilon of each precision, for all x."
    try_next = "seqwise lab run E1 --largest 20: 1 − σ(x) has correct digits left in double precision, none in single."
    seconds = 0.1
    minimums: ClassVar = {"largest": 0.0}

    largest: float = 40.0
    """Largest |x|."""
    points: int = 20_001
    """Number of values of x."""

    def measure(self) -> Measured:
        measured: dict[str, float | np.ndarray] = {}
        for name, dtype in PRECISIONS.items():
            epsilon = torch.finfo(dtype).eps
            x = torch.linspace(-self.largest, self.largest, self.points, dtype=dtype)
            left, right = self.compute_left(x), 1 - sigmoid(x)
            difference = (left - right).abs()
            relative = (difference / left.clamp(min=torch.finfo(dtype).tiny)).numpy()
            measured |= {
                f"largest_error_in_{name}_precision": float(difference.max()),
                f"machine_epsilon_in_{name}_precision": epsilon,
                f"largest_relative_error_in_{name}_precision": float(relative.max()),
                f"relative_errors_{name}": np.maximum(relative[:: max(1, self.points // 200)], epsilon),
                "x": x[:: max(1, self.points // 200)].numpy(),
            }
        return measured

    def compute_left(self, x: Tensor) -> Tensor:
        return sigmoid(-x)

    def judge(self, measured: Measured) -> Verdict:
        keys = "largest_error", "machine_epsilon"
        errors = {name: [measured[f"{key}_in_{name}_precision"] for key in keys] for name in PRECISIONS}
        return decide(
            all(error <= 4 * epsilon for error, epsilon in errors.values()),
            evidence="The sides differ by at most "
            + " and ".join(f"{error:.2g} in {name} precision (ε = {eps:.2g})" for name, (error, eps) in errors.items())
            + f"; relative to σ(−x), by up to {measured['largest_relative_error_in_single_precision']:.1g} "
            + f"and {measured['largest_relative_error_in_double_precision']:.1g} (1: no correct digit is left).",
            instead="The two sides differ by more than rounding.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        return [
            LineChart(
                title="Relative error of 1 − σ(x) with respect to σ(−x)",
                series=[
                    Series(name=f"{name} precision", x=measured["x"], y=measured[f"relative_errors_{name}"])
                    for name in PRECISIONS
                ],
                x_label="x",
                y_label="relative error",
                y_log=True,
                references=[Reference(axis="y", value=1.0, label="no correct digit")],
                note="From x ≈ 17 (single) and x ≈ 37 (double) on, 1 − σ(x) has no digit left. Errors below the "
                "machine epsilon are drawn at it.",
            )
        ]
