"""D6: is an LSTM with forget gates near 1 an identity through which gradients survive?

    f ≈ 1   ⇒   c_t ≈ c_(t−1)   ⇒   ∂c_T/∂c_0 = ∏ f_t ≈ 1

The product of the forget gates is the direct path from c_0 to c_T (D5), and with f near 1 it does not vanish: the
constant error carousel of Hochreiter & Schmidhuber (1997). But c_T also depends on c_0 through the gates. If the input
gate is open, each step writes i ⊙ g, which reads what the cell exposes; these contributions accumulate because f ≈ 1
never removes them. The gradient survives, even grows, but it is no longer that of an identity. Both f ≈ 1 and i ≈ 0
are needed to hold a value unchanged. The initial forget gate σ(1) = 0.73 is far from this: 0.73²⁰⁰ ≈ 10⁻²⁷.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import pluralize
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.lstm.unroll import compute_derivatives, compute_norms, unroll
from seqwise.layers import LSTMCell
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class IdentityCell(Experiment):
    id = "D6"
    claim = "With f near 1 the cell is an identity and the gradient survives."
    equation = "f ≈ 1  ⇒  ∂c_T/∂c_0 = ∏ f_t ≈ 1"
    measurement = "∂c_T/∂c_0 through all paths, with f near 1 and the input gate closed or open, beside ∏ f_t."
    rule = "True of a cell if ∂c_T/∂c_0 differs from the identity by less than half the identity's norm."
    try_next = "seqwise lab run D6 --forget-bias 3: f = 0.95, and 0.95²⁰⁰ is far from 1 although f is near 1."
    seconds = 0.3
    minimums: ClassVar = {"closure": 0.0}

    units: int = 8
    """Units of the cell."""
    steps: int = 200
    """Number of steps from c_0 to c_T."""
    forget_bias: float = 8.0
    """Bias of the forget gate; σ(8) = 0.9997."""
    closure: float = 10.0
    """The input gate is closed by a bias of minus this; where it is open, the bias is 0."""

    def measure(self) -> Measured:
        x = torch.randn(1, self.steps, self.units, dtype=torch.float64)
        biases = {
            "closed": (self.forget_bias, -self.closure),
            "open": (self.forget_bias, 0.0),
            "initial": (1.0, 0.0),
        }
        measured: dict[str, float | np.ndarray] = {}
        for name, (forget, write) in biases.items():
            cell = self.build_cell(forget, write)
            values, _ = unroll(cell, x)
            total = self.compute_total(cell, x)
            f = values["forget"][0]
            direct = f.flip(0).cumprod(0).flip(0)  # ∏ f from each step to the last
            measured |= {
                f"distance_from_identity_{name}": float(compute_norms(total[0] - torch.eye(self.units))),
                f"norm_{name}": float(compute_norms(total[0])),
                f"mean_forget_gate_{name}": float(f.mean()),
                f"norms_{name}": compute_norms(total).flip(0).numpy(),
                f"products_{name}": direct.square().mean(-1).sqrt().flip(0).numpy(),
            }
        return measured

    def build_cell(self, forget_bias: float, input_bias: float) -> LSTMCell:
        torch.manual_seed(self.seed)  # the three cells differ in their biases alone
        cell = LSTMCell(self.units, self.units).double().requires_grad_(False)
        cell.bias.chunk(4)[0].fill_(input_bias)
        cell.bias.chunk(4)[1].fill_(forget_bias)
        return cell

    def compute_total(self, cell: LSTMCell, x: Tensor) -> Tensor:
        """Returns ∂c_T/∂c_k through all paths for k = 0 … T − 1, (T, U, U)."""
        return compute_derivatives(cell, x, part=1)

    def judge(self, measured: Measured) -> Verdict:
        closed, opened = measured["distance_from_identity_closed"], measured["distance_from_identity_open"]
        mean, product = measured["mean_forget_gate_closed"], measured["products_closed"][-1]
        steps = pluralize(self.steps, "steps")
        return decide_condition(
            closed < 0.5,
            opened < 0.5,
            condition="the input gate is near 0 too; if it is open, the cell is not the identity",
            evidence=f"Over {steps} with forget gates of {mean:.4g}, ∂c_T/∂c_0 differs from the identity by "
            f"{closed:.2g} with a closed and by {opened:.2g} with an open input gate, relative to the identity's "
            f"norm; its own norm is {measured['norm_closed']:.2g} and {measured['norm_open']:.2g}. With f = σ(1) it is "
            f"{measured['norm_initial']:.1g}.",
            instead=f"Over {steps} ∂c_T/∂c_0 is far from the identity: forget gates of {mean:.4g} "
            f"multiply to {product:.1g}.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        lag, steps = np.arange(1, self.steps + 1), pluralize(self.steps, "steps")
        lines = {"i closed, all paths": "norms_closed", "i open, all paths": "norms_open"}
        lines |= {"i open, ∏ f alone": "products_open"}
        vanishing = {"f = σ(1), all paths": "norms_initial", "f = σ(1), ∏ f alone": "products_initial"}
        return [
            LineChart(
                title=f"Gradient of an LSTM's cell over {steps} with a forget bias of {self.forget_bias:g}",
                series=[Series(name=name, x=lag, y=measured[key]) for name, key in lines.items()],
                x_label="lag T − k (time steps)",
                y_label="norm of ∂c_T/∂c_k / √units",
                references=[Reference(axis="y", value=1.0, label="identity")],
                note=f"After {steps} ∏ f is {measured['products_open'][-1]:.2g}; the norm through all paths "
                f"is {measured['norm_closed']:.2g} with i closed and {measured['norm_open']:.2g} with i open.",
            ),
            LineChart(
                title="Gradient of an LSTM's cell with this forget bias, and with the initial one: f = σ(1)",
                series=[Series(name=name, x=lag, y=measured[key]) for name, key in (lines | vanishing).items()],
                x_label="lag T − k (time steps)",
                y_label="norm of ∂c_T/∂c_k / √units",
                y_log=True,
                note=f"With f = σ(1) = 0.73 the norm is {measured['norm_initial']:.1g} after {steps}.",
            ),
        ]
