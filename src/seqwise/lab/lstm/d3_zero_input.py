"""D3: does a step whose input is 0 leave the state of an LSTM as it is?

    x_t = 0  ⇒  h_t = h_(t−1)

With x_t = 0 the products W x_t disappear, but U h_(t−1) + b remain: gates and candidate still have values, so the cell
forgets by f < 1, writes i ⊙ g and exposes it through o. "No input" therefore means one more step of the network's own
dynamics, not a pause. h would stay, for example, with f = 1, i = 0 and an output gate that repeats itself. This is why
padding with zeros is not enough: a mask has to skip the padded steps, as the layers of this package do when they are
called with lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import pluralize
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.layers import LSTMCell, Recurrent
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class ZeroInput(Experiment):
    id = "D3"
    claim = "If x_t = 0 then h_t = h_(t-1)."
    equation = "x_t = 0  ⇒  h_t = h_(t−1)"
    measurement = "How far h moves, relative to its norm, at steps whose input is 0, after random inputs."
    rule = "Holds if h changes by less than 1 % at the first step with zero input."
    try_next = "seqwise lab run D3 --forget-bias 10: f is near 1, so the cell keeps its content, but h still moves."
    seconds = 0.1

    units: int = 16
    """Units of the cell."""
    inputs: int = 8
    """Width of the input."""
    prefix: int = 10
    """Steps with random input."""
    zeros: int = 30
    """Steps with zero input after them."""
    forget_bias: float = 1.0
    """Bias of the forget gate."""

    def measure(self) -> Measured:
        layer = Recurrent(LSTMCell(self.inputs, self.units)).double().requires_grad_(False)
        layer.cell.bias.chunk(4)[1].fill_(self.forget_bias)
        x = torch.zeros(1, self.prefix + self.zeros, self.inputs, dtype=torch.float64)
        x[:, : self.prefix].normal_()
        states = self.compute_states(layer, x)
        last = states[self.prefix - 1]
        _, masked = layer(x, lengths=torch.tensor([self.prefix]))  # a mask ends the sequence before the zeros
        return {
            "change_at_first_zero": float((states[self.prefix] - last).norm() / last.norm()),
            "change_after_all_zeros": float((states[-1] - last).norm() / last.norm()),
            "change_with_mask": float((masked[0][0] - last).norm() / last.norm()),
            "norms": states.norm(dim=-1).numpy(),
            "changes": (states[1:] - states[:-1]).norm(dim=-1).numpy(),
        }

    def compute_states(self, layer: Recurrent, x: Tensor) -> Tensor:
        """Returns h after each step, (T, U)."""
        return layer(x)[0][0]

    def judge(self, measured: Measured) -> Verdict:
        change = measured["change_at_first_zero"]
        return decide(
            change < 0.01,
            evidence=f"One step with zero input moves h by {100 * change:.3g} % of its norm, "
            f"{pluralize(self.zeros, 'steps')} by {100 * measured['change_after_all_zeros']:.3g} %; with a mask that "
            f"skips them h moves by {100 * measured['change_with_mask']:.2g} %.",
            instead="A zero input only removes W x_t; U h_(t−1) and the biases still drive the gates, so h changes. "
            "A mask keeps the state.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.prefix + self.zeros + 1)
        return [
            LineChart(
                title="State of an LSTM whose input becomes 0",
                series=[
                    Series(name="norm of h_t", x=steps, y=measured["norms"], role="state"),
                    Series(name="norm of h_t − h_(t−1)", x=steps[1:], y=measured["changes"], role="forget"),
                ],
                x_label="time step t",
                y_label="Euclidean norm",
                references=[Reference(axis="x", value=self.prefix + 1, label="first zero input")],
                note="If the claim held, h would stay constant from the first zero input on and its change would be 0.",
            )
        ]
