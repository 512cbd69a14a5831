"""B9: is the gradient of the total loss one sum over the paths from the last state?

    printed     dL/dW = Σₖ (∂L_T/∂h_T)(dh_T/dhₖ)(∂⁺hₖ/∂W)
    correct     dL/dW = Σₜ Σₖ≤ₜ (∂Lₜ/∂hₜ)(dhₜ/dhₖ)(∂⁺hₖ/∂W)          L = Σₜ Lₜ

∂⁺hₖ/∂W is the immediate derivative, with hₖ₋₁ held constant (Pascanu et al. 2013, eq. 3–5). The single sum follows each
path that ends in the last state: it is exactly the gradient of L_T, and all that is needed if only the last step has a
loss, as in classification. With a loss at every step each Lₜ has its own paths, T(T+1)/2 terms in all. Backpropagation
never lists them: it adds ∂Lₜ/∂hₜ to the gradient that arrives from step t + 1 and needs T steps only.
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
from seqwise.page.figures import BarChart, Figure, Heatmap


@dataclass(frozen=True, kw_only=True)
class TotalLoss(Experiment):
    id = "B9"
    claim = "The gradient of the total loss is one sum over k of the paths from the last state."
    equation = "dL/dW = Σₖ (∂L_T/∂h_T)(dh_T/dhₖ)(∂⁺hₖ/∂W),  L = Σₜ Lₜ"
    measurement = "The single sum and the double sum, written out, against the gradient by automatic differentiation."
    rule = "Holds if the single sum has a relative error below 1e-6 with respect to the gradient of the total loss."
    try_next = "seqwise lab run B9 --steps 2: W first multiplies a zero state, so only one term is left: it holds."
    seconds = 0.1
    minimums: ClassVar = {"steps": 2}

    units: int = 6
    """Hidden units."""
    steps: int = 12
    """Length of the sequence; every step has a loss."""

    def measure(self) -> Measured:
        generator = make_generator(self.seed)
        layer = Recurrent(RNNCell(self.units, self.units)).double()
        x, targets = torch.randn(2, self.steps, self.units, dtype=torch.float64, generator=generator)
        h = layer(x[None])[0][0]  # (T, U)
        losses = self.compute_losses(h, targets)
        weight = layer.cell.weight_hidden
        total, last = (torch.autograd.grad(loss, [weight], retain_graph=True)[0] for loss in (losses.sum(), losses[-1]))
        terms = self.compute_terms(weight.detach(), h.detach(), targets)  # (T, T, U, U)
        single, double = terms[-1].sum(0), terms.sum((0, 1))
        return {
            "error_of_single_sum": compute_relative_error(single, total),
            "error_of_single_sum_for_last_loss": compute_relative_error(single, last),
            "error_of_double_sum": compute_relative_error(double, total),
            "cosine_of_single_sum": float(torch.cosine_similarity(single.flatten(), total.flatten(), dim=0)),
            "terms_of_single_sum": self.steps,
            "terms_of_double_sum": self.steps * (self.steps + 1) // 2,
            "norms": terms.norm(dim=(2, 3)).numpy(),
        }

    def compute_losses(self, h: Tensor, targets: Tensor) -> Tensor:
        """Returns the squared error of each step, (T,)."""
        return (h - targets).square().sum(-1)

    def compute_terms(self, W: Tensor, h: Tensor, targets: Tensor) -> Tensor:
        """Returns the terms (∂Lₜ/∂hₜ)(dhₜ/dhₖ)(∂⁺hₖ/∂W) by hand, (T, T, U, U) for t and k."""
        earlier = torch.cat([torch.zeros_like(h[:1]), h[:-1]])  # hₖ₋₁
        terms = h.new_zeros(self.steps, self.steps, *W.shape)
        for t in range(self.steps):
            grad_h = 2 * (h[t] - targets[t])  # ∂Lₜ/∂hₜ
            for k in range(t, -1, -1):
                grad_a = grad_h * (1 - h[k] ** 2)  # through the tanh of step k
                terms[t, k] = torch.outer(grad_a, earlier[k])
                grad_h = W.T @ grad_a  # one step back: ∂Lₜ/∂hₖ₋₁
        return terms

    def judge(self, measured: Measured) -> Verdict:
        single, double = measured["error_of_single_sum"], measured["error_of_double_sum"]
        return decide(
            single < 1e-6,
            evidence=f"The single sum has a relative error of {single:.2g} for the total loss and of "
            f"{measured['error_of_single_sum_for_last_loss']:.1g} for the last step's loss; the double sum has "
            f"{double:.1g} for the total.",
            instead="The single sum is the gradient of the last step's loss; the total loss needs the sum over t of "
            "such sums, one for each step's loss.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        norms = np.where(measured["norms"] > 0, measured["norms"], np.nan)
        steps = [str(step) for step in range(1, self.steps + 1)]
        terms = Heatmap(
            title="Terms of the gradient: the loss of step t through the use of W at step k",
            values=norms,
            rows=steps,
            columns=steps,
            row_label="step t of the loss",
            column_label="step k of the weight",
            value_label="norm of the term",
            note="The single sum is the last row only. Step 1 multiplies the initial state, which is zero.",
        )
        errors = BarChart(
            title="Relative error of the sums against automatic differentiation",
            names=["single sum, total loss", "single sum, last loss", "double sum, total loss"],
            values=np.array(
                [
                    measured["error_of_single_sum"],
                    measured["error_of_single_sum_for_last_loss"],
                    measured["error_of_double_sum"],
                ]
            ),
            value_label="relative error",
            note="Each sum is compared with the gradient of the total loss, or of the last step's loss alone.",
        )
        return [terms, errors]


def compute_relative_error(value: Tensor, reference: Tensor) -> float:
    return float((value - reference).norm() / reference.norm().clamp_min(1e-300))
