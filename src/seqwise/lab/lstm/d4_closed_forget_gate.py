"""D4: does a forget gate of 0 stop all gradients to earlier steps?

    f_t = 0  ⇒  ∂h_t/∂h_(t−1) = 0

The forget gate controls one path: c_(t−1) → c_t, whose derivative is f_t. The gates and the candidate of step t also
read h_(t−1), so that with f_t = 0, c_t = i ⊙ g and

    ∂h_t/∂h_(t−1) =   o ⊙ tanh′(c) ⊙ g ⊙ i′ · U_i         through the input gate
                    + o ⊙ tanh′(c) ⊙ i ⊙ g′ · U_g         through the candidate
                    + tanh(c) ⊙ o′ · U_o                  through the output gate

An LSTM whose forget gate is closed is an ordinary recurrent network with a complicated activation function: its
gradients vanish over many steps, as those of an RNN do, but they are not cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from seqwise.errors import pluralize
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.lstm.unroll import Replacement, compute_derivatives, compute_norms, step
from seqwise.layers import LSTMCell
from seqwise.page.figures import BarChart, Figure, LineChart, Series

PATHS = ("input", "candidate", "output")
FORGET_GATES: dict[str, dict[str, Replacement]] = {"closed": {"forget": 0.0}, "computed": {}, "open": {"forget": 1.0}}


@dataclass(frozen=True, kw_only=True)
class ClosedForgetGate(Experiment):
    id = "D4"
    claim = "If the forget gate is 0, no error reaches earlier steps."
    equation = "f_t = 0  ⇒  ∂h_t/∂h_(t−1) = 0"
    measurement = "The Jacobian ∂h_T/∂h_k with all forget gates forced to 0, and its parts through i, g and o."
    rule = "Holds if the norm of ∂h_T/∂h_(T−1), divided by √units, is below 1e-6."
    try_next = "seqwise lab run D4 --recurrent-scale 0.1: with small matrices U the other paths carry little."
    seconds = 0.2
    minimums: ClassVar = {"recurrent_scale": 0.0}

    units: int = 16
    """Units of the cell."""
    steps: int = 20
    """Number of steps through which the error goes back."""
    recurrent_scale: float = 1.0
    """Factor of the orthogonal recurrent matrices U."""

    def measure(self) -> Measured:
        cell = self.build_cell()
        x = torch.randn(self.steps, 1, self.units, dtype=torch.float64)
        paths = {name: self.compute_jacobian(cell, x, open_path=name) for name in PATHS}
        total = self.compute_jacobian(cell, x)
        curves = {}
        for name, replace in FORGET_GATES.items():
            derivatives = compute_derivatives(cell, x.transpose(0, 1), replace)  # ∂h_T/∂h_k, k = 0 … T − 1
            curves[f"norms_{name}"] = compute_norms(derivatives).flip(0).numpy()
        return {
            "norm_over_one_step": float(compute_norms(total)),
            "norm_over_all_steps": float(curves["norms_closed"][-1]),
            **{f"norm_through_{name}": float(compute_norms(each)) for name, each in paths.items()},
            "error_of_the_sum_of_paths": float((sum(paths.values()) - total).abs().max()),
            **curves,
        }

    def build_cell(self) -> LSTMCell:
        cell = LSTMCell(self.units, self.units).double().requires_grad_(False)
        cell.weight_hidden.mul_(self.recurrent_scale)
        return cell

    def compute_jacobian(self, cell: LSTMCell, x: Tensor, open_path: str = "") -> Tensor:
        """Returns ∂h_t/∂h_(t−1) of the last step with f = 0, (U, U); with `open_path`, through that value alone."""
        state = cell.start(1, x)
        for x_t in x[:-1]:
            state = step(cell, x_t, state, {"forget": 0.0})
        replace: dict[str, Replacement] = {"forget": 0.0}
        replace |= {name: torch.detach for name in PATHS if open_path and name != open_path}
        return jacobian(lambda h: step(cell, x[-1], (h[None], state[1]), replace)[0][0], state[0][0])

    def judge(self, measured: Measured) -> Verdict:
        names = {"input": "input gate", "candidate": "candidate", "output": "output gate"}
        parts = ", ".join(f"{measured[f'norm_through_{key}']:.2g} through the {name}" for key, name in names.items())
        return decide(
            measured["norm_over_one_step"] < 1e-6,
            evidence=f"With f = 0 the derivative of one step has norm {measured['norm_over_one_step']:.2g}. Its parts: "
            f"{parts}. Over {pluralize(self.steps, 'steps')} the norm is {measured['norm_over_all_steps']:.2g}.",
            instead="f = 0 closes the path from c_(t−1) to c_t only; errors still pass through the use of h_(t−1) in "
            "the input gate, the candidate and the output gate, and vanish or explode over many steps as in an RNN.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"f = 0": "closed", "f as computed": "computed", "f = 1": "open"}
        lag = np.arange(1, self.steps + 1)
        return [
            LineChart(
                title="Gradient through time of an LSTM with forget gates of 0, as computed, and 1",
                series=[Series(name=name, x=lag, y=measured[f"norms_{key}"]) for name, key in names.items()],
                x_label="lag T − k (time steps)",
                y_label="norm of ∂h_T/∂h_k / √units",
                y_log=True,
                note=f"With f = 0 the norm is {measured['norms_closed'][0]:.2g} at a lag of 1 and "
                f"{measured['norms_closed'][-1]:.2g} at a lag of {self.steps}.",
            ),
            BarChart(
                title="Paths from h_(t−1) to h_t with f = 0",
                names=[*PATHS, "all three"],
                values=np.array(
                    [measured[f"norm_through_{name}"] for name in PATHS] + [measured["norm_over_one_step"]]
                ),
                value_label="norm of the part of ∂h_t/∂h_(t−1) / √units",
                roles=[*PATHS, "state"],
                note="Each bar is the Jacobian with the other paths cut; the matrices add up to the whole Jacobian.",
            ),
        ]
