"""C1: how does the first input of a linear RNN reach a later state?

    h_t = W h_(t−1) + W_x x_t        ⇒        ∂h_t/∂x_1 = W^(t−1) W_x

Every step multiplies the state by the same W, so x_1 passes through W once for each later step (W is the recurrent
matrix and W_x that of the input; chapter D and the exercises write U and W). In a linear network the derivative does
not depend on the inputs, and it describes changes of any size: moving x_1 by δ moves h_t by exactly W^(t−1) W_x δ.
With a tanh the derivative is still a product of t − 1 matrices, but each contains the derivatives at its own state
(B3), and the formula fails. The chapter follows from the power of W: an input is forgotten or dominates depending on
how W^(t−1) grows (Goodfellow et al. 2016, section 10.7).
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
class LinearRNN(Experiment):
    id = "C1"
    claim = "In a linear RNN, x_1 reaches h_t through W^(t-1) W_x."
    equation = "∂h_t/∂x_1 = W^(t−1) W_x"
    measurement = (
        "The Jacobian of every state with respect to the first input, from automatic differentiation, compared "
        "with the formula, for an RNN without activation function and for one with tanh."
    )
    rule = (
        "Holds if the largest relative error in the linear RNN over all steps, of the derivative and of the effect "
        "of a large change of x_1, is below 1e-10 (double precision)."
    )
    try_next = "seqwise lab run C1 --scale 1.1: the same formula, and now the first input dominates the state."
    seconds = 0.1
    minimums: ClassVar = {"scale": 0.01, "change": 0.01}

    units: int = 8
    """Hidden units."""
    inputs: int = 3
    """Size of an input vector."""
    steps: int = 40
    """Length of the sequence."""
    scale: float = 0.9
    """Spectral radius of W: an orthogonal matrix times this number."""
    change: float = 10.0
    """Size of the change of x_1, for the test that the formula describes large changes too."""

    def measure(self) -> Measured:
        x = torch.randn(1, self.steps, self.inputs, dtype=torch.float64, generator=make_generator(self.seed))
        linear = self.build_layer("identity")
        predicted = self.compute_formula(linear)
        jacobians = {"linear": self.differentiate(linear, x)}
        tanh = self.build_layer("tanh")
        tanh.load_state_dict(linear.state_dict())
        jacobians["tanh"] = self.differentiate(tanh, x)
        changed = x.clone()
        changed[0, 0] += self.change
        moved = (linear(changed)[0] - linear(x)[0])[0].detach()  # (T, U)
        expected = predicted @ torch.full((self.inputs,), self.change, dtype=torch.float64)
        return {
            "relative_error_in_linear_rnn": compute_relative_error(jacobians["linear"], predicted),
            "relative_error_in_tanh_rnn": compute_relative_error(jacobians["tanh"], predicted),
            "relative_error_of_a_large_change": compute_relative_error(moved[..., None], expected[..., None]),
            "norm_formula": compute_norms(predicted),
            "norm_linear": compute_norms(jacobians["linear"]),
            "norm_tanh": compute_norms(jacobians["tanh"]),
        }

    def build_layer(self, activation: str) -> Recurrent:
        """Returns a recurrent layer in double precision whose W is orthogonal times `scale`."""
        layer = Recurrent(RNNCell(self.inputs, self.units, activation)).double()
        layer.cell.weight_hidden.data *= self.scale
        return layer

    def compute_formula(self, layer: Recurrent) -> Tensor:
        """Returns W^(t−1) W_x for t = 1 … steps, (T, U, D)."""
        W, W_x = layer.cell.weight_hidden.detach(), layer.cell.weight_input.detach()
        return torch.stack([torch.linalg.matrix_power(W, t - 1) @ W_x for t in range(1, self.steps + 1)])

    def differentiate(self, layer: Recurrent, x: Tensor) -> Tensor:
        """Returns ∂h_t/∂x_1 for all t by automatic differentiation, (T, U, D)."""

        def compute_states(first: Tensor) -> Tensor:
            return layer(torch.cat([first[None, None], x[:, 1:]], dim=1))[0][0]

        return torch.autograd.functional.jacobian(compute_states, x[0, 0]).detach()

    def judge(self, measured: Measured) -> Verdict:
        linear, tanh = measured["relative_error_in_linear_rnn"], measured["relative_error_in_tanh_rnn"]
        change = measured["relative_error_of_a_large_change"]
        return decide(
            linear < 1e-10 and change < 1e-10,
            evidence=f"The formula has a relative error of {linear:.1g} in the linear RNN for t ≤ {self.steps}, and "
            f"{change:.1g} for a change of x_1 by {self.change:g}; with tanh the error is {tanh:.2g}.",
            instead="The derivative with respect to the first input is not W^(t−1) W_x.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.steps + 1)
        names = {"W^(t−1) W_x": "norm_formula", "linear RNN": "norm_linear", "tanh RNN": "norm_tanh"}
        chart = LineChart(
            title="How much of the first input reaches the state at step t",
            series=[Series(name=name, x=steps, y=measured[key]) for name, key in names.items()],
            x_label="time step t",
            y_label="norm of ∂h_t/∂x_1",
            y_log=True,
            note="The line of the linear RNN lies on the formula's; tanh multiplies by derivatives below 1 as well.",
        )
        return [chart]


def compute_norms(jacobians: Tensor) -> np.ndarray:
    """Returns the largest singular value at each step."""
    return torch.linalg.matrix_norm(jacobians, ord=2).numpy()


def compute_relative_error(values: Tensor, expected: Tensor) -> float:
    """Returns the largest relative error over the steps, in the Frobenius norm."""
    errors = torch.linalg.matrix_norm(values - expected) / torch.linalg.matrix_norm(expected)
    return float(errors.max())
