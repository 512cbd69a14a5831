"""D7: dJ/dW_g of an LSTM, written out over time.

Forward, for t = 1 … T:

    i, f, o = σ(W x_t + U h_(t−1) + b),   g = tanh(…),   c_t = f ⊙ c_(t−1) + i ⊙ g,   h_t = o ⊙ tanh(c_t)

Backward, for t = T … 1. δ is the derivative of J with respect to a value; δa_g belongs to g's pre-activation a_g:

    δh_t = ∂J/∂h_t + Uᵀ δa_(t+1)                                  the loss at t, and all four gates of step t + 1
    δc_t = δh_t ⊙ o_t ⊙ (1 − tanh²(c_t)) + δc_(t+1) ⊙ f_(t+1)     through h_t, and the direct path from c_(t+1)
    δa_g = δc_t ⊙ i_t ⊙ (1 − g_t²)
    δa_i = δc_t ⊙ g_t ⊙ i_t (1 − i_t)          δa_f = δc_t ⊙ c_(t−1) ⊙ f_t (1 − f_t)
    δa_o = δh_t ⊙ tanh(c_t) ⊙ o_t (1 − o_t)

    ∂J/∂W_g = Σ_t δa_g,t x_tᵀ        ∂J/∂U_g = Σ_t δa_g,t h_(t−1)ᵀ        ∂J/∂b_g = Σ_t δa_g,t

and the same for the other gates. Because W_g is shared over time its gradient is a sum over t (B1), and each δ contains
everything that happens later. See Graves (2012, section 4.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, tanh

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.lstm.unroll import unroll
from seqwise.layers import LSTMCell
from seqwise.page.figures import Figure, LineChart, Series

BLOCKS = ("input", "forget", "candidate", "output")  # in the order of the cell's weights


def backpropagate(cell: LSTMCell, values: dict[str, Tensor], grad_h: Tensor) -> Tensor:
    """Returns δa of all steps, (T, 4U), in the order i, f, g, o.

    values: the gates, candidates and states of one sequence, (T, U) each
    grad_h: ∂J/∂h_t of the loss at each step itself, (T, U)
    """
    U = cell.weight_hidden
    i, f, g, o, c = (values[name] for name in (*BLOCKS, "cell"))
    steps, units = c.shape
    delta_a = torch.zeros(steps, 4 * units, dtype=c.dtype)
    from_next_gates = torch.zeros(units, dtype=c.dtype)  # Uᵀ δa_(t+1); 0 after the last step
    from_next_cell = torch.zeros(units, dtype=c.dtype)  # δc_(t+1) ⊙ f_(t+1)
    for t in range(steps - 1, -1, -1):
        previous_c = c[t - 1] if t > 0 else torch.zeros_like(c[0])
        delta_h = grad_h[t] + from_next_gates
        delta_c = delta_h * o[t] * (1 - tanh(c[t]) ** 2) + from_next_cell
        delta_i = delta_c * g[t] * i[t] * (1 - i[t])
        delta_f = delta_c * previous_c * f[t] * (1 - f[t])
        delta_g = delta_c * i[t] * (1 - g[t] ** 2)
        delta_o = delta_h * tanh(c[t]) * o[t] * (1 - o[t])
        delta_a[t] = torch.cat([delta_i, delta_f, delta_g, delta_o])
        from_next_gates = U.T @ delta_a[t]
        from_next_cell = delta_c * f[t]
    return delta_a


@dataclass(frozen=True, kw_only=True)
class BackpropagationByHand(Experiment):
    id = "D7"
    claim = "dJ/dW_g, written out as a sum over time, is the gradient."
    equation = "∂J/∂W_g = Σ_t δa_g,t x_tᵀ,  δa_g,t = δc_t ⊙ i_t ⊙ (1 − g_t²)"
    measurement = "The gradients of all weights of an LSTM by the formula and by automatic differentiation."
    rule = "Holds if they agree to a relative error of 1e-10 in W, U and b of every gate, with a loss at every step."
    try_next = "seqwise lab run D7 --steps 200: the formula stays exact; see which steps contribute to the sum."
    seconds = 0.1
    minimums: ClassVar = {"steps": 2}

    inputs: int = 5
    """Width of the input."""
    units: int = 6
    """Units of the cell."""
    steps: int = 30
    """Length of the sequence."""

    def measure(self) -> Measured:
        cell = LSTMCell(self.inputs, self.units).double()
        x = torch.randn(1, self.steps, self.inputs, dtype=torch.float64)
        target = torch.randn(self.steps, self.units, dtype=torch.float64)
        values = {name: each[0] for name, each in unroll(cell, x)[0].items()}
        loss = (values["hidden"] - target).square().sum() / 2  # J = Σ_t ½ ‖h_t − target_t‖²
        expected = dict(zip("WUb", torch.autograd.grad(loss, [cell.weight_input, cell.weight_hidden, cell.bias])))
        with torch.no_grad():
            values = {name: each.detach() for name, each in values.items()}
            delta_a = self.backpropagate(cell, values, values["hidden"] - target)
            previous_h = torch.cat([torch.zeros(1, self.units, dtype=x.dtype), values["hidden"][:-1]])
            formula = {"W": delta_a.T @ x[0], "U": delta_a.T @ previous_h, "b": delta_a.sum(0)}
        for gradients in (expected, formula):
            gradients["W_g"] = gradients["W"].chunk(4)[2]
        contributions = torch.einsum("tbu,tx->tbux", delta_a.view(-1, 4, self.units), x[0]).norm(dim=(-2, -1))
        return {
            **{f"relative_error_{key}": float((formula[key] - g).norm() / g.norm()) for key, g in expected.items()},
            "contributions": contributions.numpy(),  # (T, 4): norm of δa x_tᵀ of each gate
        }

    def backpropagate(self, cell: LSTMCell, values: dict[str, Tensor], grad_h: Tensor) -> Tensor:
        return backpropagate(cell, values, grad_h)

    def judge(self, measured: Measured) -> Verdict:
        errors = {name: measured[f"relative_error_{name}"] for name in ("W_g", "W", "U", "b")}
        return decide(
            max(errors.values()) < 1e-10,
            evidence="The formula differs from automatic differentiation by "
            + ", ".join(f"{error:.1g} (∂J/∂{name})" for name, error in errors.items())
            + f", relative to the norms of the gradients; they are sums over {self.steps} steps.",
            instead="The formula lacks a path, or has a wrong factor or sign.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.steps + 1)
        series = [
            Series(name=f"W of the {name}" + (" gate" if name != "candidate" else ", W_g"), x=steps, y=each, role=name)
            for name, each in zip(BLOCKS, measured["contributions"].T)
        ]
        return [
            LineChart(
                title="Contribution of each time step to the gradients of an LSTM's input weights",
                series=series,
                x_label="time step t",
                y_label="norm of δa_t x_tᵀ",
                note="The gradient of a weight is the sum of these matrices over all steps.",
            ),
        ]
