"""B3: is dh_T/dh_k a product of W·diag(tanh')?

    hₜ = tanh(aₜ),  aₜ = U xₜ + W hₜ₋₁        da_T/da_k = Π W·diag(tanh'(aₜ₋₁)),   dh_T/dh_k = Π diag(tanh'(aₜ))·W

Yes, for a recurrence that passes through the tanh at every step; the factors stand in the order of time, the latest on
the left. W multiplies the state and U the input (chapter D and the exercises call them U and W). The claim writes
W·diag, the factor of pre-activations a (Pascanu et al. 2013, eq. 5, who print Wᵀ); for h = tanh(a) a factor is diag·W,
and that is what is multiplied here. Both are the same alternating product and differ only at its ends.
Notes often print another network beside this formula: hₜ = W hₜ₋₁ + U xₜ, zₜ = tanh(hₜ). There the tanh acts on what
is read out and never on what is passed on, so each factor is W alone: dh_T/dh_k = W^(T−k), whatever the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import make_generator
from seqwise.layers import RNNCell
from seqwise.page.figures import Figure, LineChart, Series


@dataclass(frozen=True, kw_only=True)
class JacobianProduct(Experiment):
    id = "B3"
    claim = "dh_T/dh_k is the product of one-step Jacobians W·diag(tanh')."
    equation = "dh_T/dh_k = Πₜ₌ₖ₊₁…T diag(tanh'(aₜ))·W,  aₜ: the argument of the tanh at step t"
    measurement = "The product, written out, against automatic differentiation, for two networks with a tanh."
    rule = "True of a network if the relative error of the product is below 1e-9."
    try_next = "seqwise lab run B3 --input-scale 0.01: tanh' is then nearly 1, and the two networks nearly agree."
    seconds = 0.1
    minimums: ClassVar = {"input_scale": 0.0}

    units: int = 6
    """Hidden units."""
    steps: int = 12
    """Steps between h_k and h_T."""
    input_scale: float = 1.0
    """Standard deviation of the inputs; large ones saturate the tanh."""

    def measure(self) -> Measured:
        x = torch.randn(self.steps, self.units, dtype=torch.float64, generator=make_generator(self.seed))
        x = x * self.input_scale
        recurrent_tanh = RNNCell(self.units, self.units, "tanh").double()
        linear = RNNCell(self.units, self.units, "identity").double()
        linear.load_state_dict(recurrent_tanh.state_dict())
        W = recurrent_tanh.weight_hidden.detach()
        true_tanh, states_tanh = self.differentiate(recurrent_tanh, x)
        true_linear, states_linear = self.differentiate(linear, x)
        product_tanh = self.multiply(W, 1 - states_tanh**2)  # tanh'(a) = 1 − tanh(a)²
        product_linear = self.multiply(W, 1 - torch.tanh(states_linear) ** 2)
        return {
            "product_error_with_tanh_in_recurrence": compute_relative_error(product_tanh[-1], true_tanh[-1]),
            "product_error_with_tanh_on_output": compute_relative_error(product_linear[-1], true_linear[-1]),
            "error_of_power_of_w_with_tanh_on_output": compute_relative_error(
                torch.linalg.matrix_power(W, self.steps), true_linear[-1]
            ),
            "norms_true_tanh": true_tanh.norm(dim=(1, 2)).numpy(),
            "norms_product_tanh": product_tanh.norm(dim=(1, 2)).numpy(),
            "norms_true_linear": true_linear.norm(dim=(1, 2)).numpy(),
            "norms_product_linear": product_linear.norm(dim=(1, 2)).numpy(),
        }

    def differentiate(self, cell: RNNCell, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns dh_t/dh_0 (T, U, U) by automatic differentiation, and the states h_1 … h_T (T, U)."""

        def run(h: Tensor) -> Tensor:
            states = []
            for x_t in cell.project(x):
                (h,) = cell.step(x_t, (h,), cell.weight_hidden)
                states.append(h)
            return torch.stack(states)

        start = torch.zeros(self.units, dtype=torch.float64)
        return torch.autograd.functional.jacobian(run, start), run(start).detach()

    def multiply(self, W: Tensor, derivatives: Tensor) -> Tensor:
        """Returns the product of diag(tanh'(aₜ))·W up to each step, (T, U, U)."""
        product, products = torch.eye(self.units, dtype=torch.float64), []
        for derivative in derivatives:
            product = torch.diag(derivative) @ W @ product
            products.append(product)
        return torch.stack(products)

    def judge(self, measured: Measured) -> Verdict:
        inside = measured["product_error_with_tanh_in_recurrence"]
        outside = measured["product_error_with_tanh_on_output"]
        return decide_condition(
            inside < 1e-9,
            outside < 1e-9,
            condition="the recurrence itself passes through the tanh",
            evidence=f"The product has a relative error of {inside:.1g} for hₜ = tanh(U xₜ + W hₜ₋₁), and of "
            f"{outside:.2g} for hₜ = W hₜ₋₁ + U xₜ with zₜ = tanh(hₜ). There the derivative is W to the power of "
            f"{self.steps}, with a relative error of {measured['error_of_power_of_w_with_tanh_on_output']:.1g}.",
            instead="The product is not the derivative, even where the recurrence passes through the tanh.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.steps + 1)
        names = {
            "derivative, tanh in h": "norms_true_tanh",
            "product, tanh in h": "norms_product_tanh",
            "derivative, tanh on z": "norms_true_linear",
            "product, tanh on z": "norms_product_linear",
        }
        chart = LineChart(
            title="Norm of dh_T/dh_k: the product of diag(tanh')·W against the true derivative",
            series=[Series(name=name, x=steps, y=measured[key]) for name, key in names.items()],
            x_label="distance T − k (steps)",
            y_label="Frobenius norm",
            y_log=True,
            note="In one network the recurrence of h contains the tanh, in the other only the output z = tanh(h) does.",
        )
        return [chart]


def compute_relative_error(value: Tensor, reference: Tensor) -> float:
    return float((value - reference).norm() / reference.norm().clamp_min(1e-300))  # 0 if all units are saturated
