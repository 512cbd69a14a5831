"""D5: is the derivative of an LSTM's cell with respect to the cell before it the forget gate?

    c_t = f_t ⊙ c_(t−1) + i_t ⊙ g_t   ⇒   ∂c_t/∂c_(t−1) = diag(f_t)

This is the direct path. It is the whole derivative only if f_t, i_t and g_t are regarded as constants, as in the
truncated gradient of Hochreiter & Schmidhuber (1997, appendix A.1). But they read h_(t−1) = o_(t−1) ⊙ tanh(c_(t−1)),
which depends on c_(t−1) too. The total derivative, which automatic differentiation computes, is

    dc_t/dc_(t−1) = diag(f_t) + [diag(c_(t−1) ⊙ f′) U_f + diag(g ⊙ i′) U_i + diag(i ⊙ g′) U_g] diag(o ⊙ tanh′(c_(t−1)))

with σ′ = σ (1 − σ), tanh′ = 1 − tanh², and o of the step before. The entries off the diagonal are one unit's influence
on another; they disappear where the output gate is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, tanh
from torch.autograd.functional import jacobian

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.lstm.unroll import step, unroll
from seqwise.layers import LSTMCell
from seqwise.page.figures import Figure, Heatmap, HeatmapGrid


@dataclass(frozen=True, kw_only=True)
class CellDerivative(Experiment):
    id = "D5"
    claim = "dc_t/dc_(t-1) = f_t."
    equation = "∂c_t/∂c_(t−1) = diag(f_t)"
    measurement = "The Jacobian of c_t with h_(t−1) constant and with h_(t−1) read from c_(t−1)."
    rule = "True of a derivative if it differs from diag(f_t) by less than 1 % of the norm of f_t."
    try_next = "seqwise lab run D5 --recurrent-scale 0.01: with small recurrent matrices the two are nearly equal."
    seconds = 0.1
    minimums: ClassVar = {"steps": 2, "recurrent_scale": 0.0}

    units: int = 12
    """Units of the cell."""
    steps: int = 10
    """Step at which the derivative is taken."""
    recurrent_scale: float = 1.0
    """Factor of the orthogonal recurrent matrices U; small ones weaken the paths through the gates."""

    def measure(self) -> Measured:
        cell = LSTMCell(self.units, self.units).double().requires_grad_(False)
        cell.weight_hidden.mul_(self.recurrent_scale)
        x = torch.randn(1, self.steps, self.units, dtype=torch.float64)
        values, _ = unroll(cell, x)
        before, now = ({name: each[0, t] for name, each in values.items()} for t in (-2, -1))
        direct = jacobian(lambda c: self.advance(cell, x[:, -1], before["hidden"], c), before["cell"])
        total = jacobian(lambda c: self.advance(cell, x[:, -1], self.expose(before["output"], c), c), before["cell"])
        diagonal, norm = torch.diag(now["forget"]), now["forget"].norm()
        return {
            "error_direct": float((direct - diagonal).norm() / norm),
            "error_total": float((total - diagonal).norm() / norm),
            "error_of_the_formula": float((total - self.compute_total(cell, before, now)).abs().max()),
            "direct": direct.numpy(),
            "total": total.numpy(),
        }

    def advance(self, cell: LSTMCell, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
        """Returns c_t for x_t (1, D), h_(t−1) and c_(t−1) (U,)."""
        return step(cell, x, (h[None], c[None]))[1][0]

    def expose(self, o: Tensor, c: Tensor) -> Tensor:
        """Returns h = o ⊙ tanh(c): the second path from c_(t−1) to c_t begins here."""
        return o * tanh(c)

    def compute_total(self, cell: LSTMCell, before: dict[str, Tensor], now: dict[str, Tensor]) -> Tensor:
        """Returns dc_t/dc_(t−1) by the formula of the module's docstring."""
        U_i, U_f, U_g, _ = cell.weight_hidden.chunk(4)
        i, f, g = now["input"], now["forget"], now["candidate"]
        o, c = before["output"], before["cell"]
        through_f = torch.diag(c * f * (1 - f)) @ U_f
        through_i = torch.diag(g * i * (1 - i)) @ U_i
        through_g = torch.diag(i * (1 - g**2)) @ U_g
        return torch.diag(f) + (through_f + through_i + through_g) @ torch.diag(o * (1 - tanh(c) ** 2))

    def judge(self, measured: Measured) -> Verdict:
        direct, total = measured["error_direct"], measured["error_total"]
        return decide_condition(
            direct < 0.01,
            total < 0.01,
            condition="h_(t−1) is regarded as constant; the total derivative also runs through the gates",
            evidence=f"From diag(f_t) the direct derivative differs by {direct:.2g}, the total one by "
            f"{100 * total:.3g} % of the norm of f_t; the formula with all paths is exact to "
            f"{measured['error_of_the_formula']:.1g}.",
            instead="The derivative of c_t differs from f_t even on the direct path.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        units = [str(unit) for unit in range(self.units)]
        titles = {"direct": "Direct path: diag(f)", "total": "Total derivative"}
        panels = [
            Heatmap(
                title=title,
                values=measured[key],
                rows=units,
                columns=units,
                row_label="unit of c_t",
                column_label="unit of c_(t−1)",
                value_label="derivative",
                scale="diverging",
                low=-1.0,
                high=1.0,
            )
            for key, title in titles.items()
        ]
        direct, total = (abs(measured[key] - np.diag(np.diag(measured[key]))).max() for key in titles)
        note = f"The largest entry off the diagonal is {direct:.1g} on the direct path and {total:.1g} in total."
        return [HeatmapGrid(title="Derivative of c_t with respect to c_(t−1)", panels=panels, num_columns=2, note=note)]
