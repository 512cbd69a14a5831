"""C11: how much gradient passes through a saturated tanh?

    h = tanh(a),        ∂h/∂a = 1 − h²  ≈  4 e^(−2|a|)  for large |a|

A unit is saturated when |h| is near 1. The derivative then falls exponentially with the input: at |a| = 5 less than
0.02 % passes. The unit can hardly be corrected by gradient descent, because the gradient of all weights into it has the
same factor, and whatever error arrives at h does not reach earlier steps. In single precision tanh(a) rounds to
exactly 1 near |a| = 9, and from there the gradient is exactly 0. This is why initial weights must keep a near 0 (C8),
why normalisation helps (C9), and why a path around the activation matters: a residual connection, or the LSTM's cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.layers import RNNCell
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class Saturation(Experiment):
    id = "C11"
    claim = "Tanh of a saturated unit passes almost no gradient."
    equation = "∂h/∂a = 1 − h² → 0  as |h| → 1"
    measurement = (
        "The derivative of one step of an RNN's cell with respect to its pre-activation, over a range of "
        "pre-activations, compared with 1 − h²."
    )
    rule = (
        "Holds if the derivative is below 1 % wherever |h| > 0.996, is above 50 % where |h| < 0.7, and equals 1 − h²."
    )
    try_next = "seqwise lab run C11 --largest 12: single precision stops at exactly 0, double precision does not."
    seconds = 0.1
    minimums: ClassVar = {"largest": 4.0}

    largest: float = 10.0
    """Largest absolute pre-activation."""

    def measure(self) -> Measured:
        a = torch.linspace(-self.largest, self.largest, 401, dtype=torch.float64)
        h, derivative = self.compute_derivative(a)
        _, single = self.compute_derivative(a.float())
        is_saturated, is_central = h.abs() > 0.996, h.abs() < 0.7
        zeros = a[(single == 0) & (a > 0)]
        return {
            "largest_derivative_of_a_saturated_unit": float(derivative[is_saturated].max()),
            "smallest_derivative_of_a_central_unit": float(derivative[is_central].min()),
            "largest_error_of_the_formula": float((derivative - (1 - h.square())).abs().max()),
            "derivative_at_5": float(self.compute_derivative(torch.tensor([5.0], dtype=torch.float64))[1]),
            "exactly_zero_in_single_precision_from": float(zeros.min()) if len(zeros) else "beyond the range",
            "preactivations": a.numpy(),
            "derivatives": derivative.numpy(),
            "derivatives_single": single.double().numpy(),
            "approximation": (4 * torch.exp(-2 * a.abs())).clamp(max=1).numpy(),
        }

    def compute_derivative(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Returns h and ∂h/∂a of one unit for each pre-activation."""
        a = a.clone().requires_grad_()
        h = self.step(a[:, None])[:, 0]
        (derivative,) = torch.autograd.grad(h.sum(), a)
        return h.detach(), derivative

    def step(self, a: Tensor) -> Tensor:
        """Returns the output of a cell with one unit whose pre-activation is a (B, 1)."""
        cell = RNNCell(1, 1).to(a.dtype)
        (h,) = cell.step(a, cell.start(len(a), a), cell.weight_hidden)
        return h

    def judge(self, measured: Measured) -> Verdict:
        saturated = measured["largest_derivative_of_a_saturated_unit"]
        central = measured["smallest_derivative_of_a_central_unit"]
        error = measured["largest_error_of_the_formula"]
        return decide(
            saturated < 0.01 and central > 0.5 and error < 1e-10,
            evidence=f"Units with |h| > 0.996 pass at most {100 * saturated:.2f} % of the gradient, units with "
            f"|h| < 0.7 at least {100 * central:.0f} %; at a pre-activation of 5 it is "
            f"{100 * measured['derivative_at_5']:.3f} %.",
            instead="A saturated unit still passes a gradient.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        a = measured["preactivations"]
        single = measured["derivatives_single"]
        chart = LineChart(
            title="Share of the gradient that a tanh unit passes",
            series=[
                Series(name="double precision", x=a, y=measured["derivatives"]),
                Series(name="single precision", x=a, y=np.where(single > 0, single, np.nan)),
                Series(name="4 e^(−2|a|)", x=a, y=measured["approximation"]),
            ],
            x_label="pre-activation a",
            y_label="∂h/∂a",
            y_log=True,
            references=[Reference(axis="y", value=0.01, label="1 %")],
            note="Single precision has no line where tanh(a) rounds to ±1 and the gradient is exactly 0.",
        )
        return [chart]
