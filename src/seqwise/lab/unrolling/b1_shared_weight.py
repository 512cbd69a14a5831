"""B1: how does one weight that is used at every step get its gradient?

    hₜ = tanh(U xₜ + W hₜ₋₁)            dL/dW = Σₜ ∂L/∂Wₜ,   where step t uses its own copy Wₜ = W

Unrolling replaces the loop by a feed-forward network of T layers that happen to have the same weights. Give each layer
its own copy Wₜ: dL/dW follows from the chain rule, since every Wₜ depends on W with derivative 1, so the copies'
gradients add up (Werbos 1990; Goodfellow et al. 2016, §10.2.2). Automatic differentiation does nothing else: it adds
to `W.grad` once per use. The terms need not agree, so their sum can be much shorter than the sum of their norms. Here W
multiplies the state and U the input; chapter D and the exercises call them U and W.
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
from seqwise.layers import Recurrent, RNNCell
from seqwise.page.figures import Figure, LineChart, Series


@dataclass(frozen=True, kw_only=True)
class SharedWeight(Experiment):
    id = "B1"
    claim = "The gradient of a shared weight is the sum of its copies' gradients over time."
    equation = "dL/dW = Σₜ ∂L/∂Wₜ,  W₁ = … = W_T = W"
    measurement = "Gradients of T separate copies of the recurrent matrix, their sum, and the layer's own gradient."
    rule = "Holds if the sum of the copies' gradients has a relative error below 1e-9."
    try_next = "seqwise lab run B1 --steps 200: early copies still count, but their gradients are small."
    seconds = 0.1
    minimums: ClassVar = {"steps": 2}  # W multiplies the zero initial state at step 1, so one step has no gradient

    units: int = 8
    """Hidden units."""
    steps: int = 30
    """Length of the sequence."""

    def measure(self) -> Measured:
        generator = make_generator(self.seed)
        layer = Recurrent(RNNCell(self.units, self.units)).double()
        x = torch.randn(1, self.steps, self.units, dtype=torch.float64, generator=generator)
        target = torch.randn(1, self.units, dtype=torch.float64, generator=generator)
        (shared,) = torch.autograd.grad(self.compute_loss(layer(x)[0][:, -1], target), [layer.cell.weight_hidden])
        copies = self.compute_copy_gradients(layer.cell, x, target)  # (T, U, U)
        total = self.combine(copies)
        partial_sums = copies.flip(0).cumsum(0).flip(0)  # of the copies t … T
        return {
            "norm_of_shared_gradient": float(shared.norm()),
            "norm_of_sum": float(total.norm()),
            "sum_of_norms": float(copies.norm(dim=(1, 2)).sum()),
            "relative_error": float((total - shared).norm() / shared.norm()),
            "norms_of_copies": copies.norm(dim=(1, 2)).numpy(),
            "errors_of_partial_sums": ((partial_sums - shared).norm(dim=(1, 2)) / shared.norm()).numpy(),
        }

    def compute_loss(self, h: Tensor, target: Tensor) -> Tensor:
        """Returns the squared error of the last state."""
        return (h - target).square().sum()

    def compute_copy_gradients(self, cell: RNNCell, x: Tensor, target: Tensor) -> Tensor:
        """Returns the gradient of each copy (T, U, U) in a network that is unrolled with separate matrices."""
        copies = [cell.weight_hidden.detach().clone().requires_grad_() for _ in range(self.steps)]
        state = cell.start(1, x)
        for x_t, W_t in zip(cell.project(x).unbind(1), copies, strict=True):
            state = cell.step(x_t, state, W_t)
        return torch.stack(torch.autograd.grad(self.compute_loss(state[0], target), copies))

    def combine(self, gradients: Tensor) -> Tensor:
        return gradients.sum(0)

    def judge(self, measured: Measured) -> Verdict:
        error = measured["relative_error"]
        return decide(
            error < 1e-9,
            evidence=f"The sum of {self.steps} copies' gradients has a relative error of {error:.1g} with respect to "
            f"that of the shared matrix. Its norm is {measured['norm_of_sum']:.3g}; the copies' norms add up to "
            f"{measured['sum_of_norms']:.3g}.",
            instead="The shared gradient is not the sum of the copies' gradients.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.steps + 1)
        # The first copy multiplies the initial state, which is zero, so its gradient is zero and nothing misses it.
        norms = np.where(measured["norms_of_copies"] > 0, measured["norms_of_copies"], np.nan)
        chart = LineChart(
            title="Gradients of the copies of W, and what is missing if only the last copies are added",
            series=[
                Series(name="gradient of copy t", x=steps, y=norms / measured["norm_of_shared_gradient"]),
                Series(name="error of sum from t on", x=steps[2:], y=measured["errors_of_partial_sums"][2:]),
            ],
            x_label="step t of the copy",
            y_label="norm / norm of dL/dW",
            y_log=True,
            note="All copies together give the shared gradient; leaving out the early ones leaves the error shown.",
        )
        return [chart]
