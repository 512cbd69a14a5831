"""E6: is a GRU an LSTM whose input and forget gates are merged and whose cell is its output?

    LSTM                      c_t = f ⊙ c_(t−1) + i ⊙ g,          h_t = o ⊙ tanh(c_t)
    coupled, i = 1 − f        c_t = f ⊙ c_(t−1) + (1 − f) ⊙ g
    and exposed, h = c        h_t = f ⊙ h_(t−1) + (1 − f) ⊙ g     = a GRU with z = f, n = g and r = 1

The reconstruction uses an LSTM of this package. Its input gate has the negated weights of its forget gate, so that
i = σ(−a) = 1 − f (E1), and h_t = c_t replaces the output gate and the tanh. As long as the reset gate is 1 the result
is the GRU, to rounding. The reset gate has no counterpart: it acts inside the candidate alone, while an LSTM's output
gate of the step before weights what all gates read. So a GRU is not a special case of an LSTM; each has something that
the other lacks. Coupled gates cost little accuracy (Greff et al. 2017, "CIFG").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.lstm.unroll import Replacement, unroll
from seqwise.layers import GRUCell, LSTMCell
from seqwise.page.figures import Figure, LineChart, Series


@dataclass(frozen=True, kw_only=True)
class MergedGates(Experiment):
    id = "E6"
    claim = "A GRU merges input and forget gates and has no separate cell."
    equation = "i = 1 − f and h = c  ⇒  h_t = f ⊙ h_(t−1) + (1 − f) ⊙ g: a GRU with z = f and r = 1"
    measurement = "The states of a GRU, and of an LSTM with coupled gates and h = c that has the GRU's weights."
    rule = "Holds if the two agree to 1e-10 while the reset gate is 1, and the GRU's state has half as many numbers."
    try_next = "seqwise lab run E6 --reset 0.9: the reconstruction fails as soon as the reset gate differs from 1."
    seconds = 0.1
    minimums: ClassVar = {"reset": 0.0}
    maximums: ClassVar = {"reset": 1.0}

    units: int = 16
    """Units, and width of the input."""
    steps: int = 60
    """Length of the sequence."""
    reset: float = 0.5
    """Value of the reset gate for which the reconstruction is shown to fail."""

    def measure(self) -> Measured:
        with torch.no_grad():
            gru = GRUCell(self.units, self.units).double()
            gru.bias.normal_()
            lstm = self.couple(gru)
            x = torch.randn(1, self.steps, self.units, dtype=torch.float64)
            rebuilt = self.run_exposed(lstm, x)
            gates: dict[str, dict[str, Replacement]] = {
                "open": {"reset": 1.0},
                "other": {"reset": self.reset},
                "computed": {},
            }
            states = {name: unroll(gru, x, replace=each)[0]["hidden"][0] for name, each in gates.items()}
        errors = {name: (each - rebuilt).norm(dim=-1) / each.norm(dim=-1) for name, each in states.items()}
        return {
            **{f"error_with_{name}_reset_gate": float(each.max()) for name, each in errors.items()},
            "numbers_in_the_state_of_the_gru": sum(each.numel() for each in gru.start(1, x)),
            "numbers_in_the_state_of_the_lstm": sum(each.numel() for each in lstm.start(1, x)),
            **{f"errors_{name}": np.maximum(each.numpy(), 1e-17) for name, each in errors.items()},
        }

    def couple(self, gru: GRUCell) -> LSTMCell:
        """Returns an LSTM with f = z, i = 1 − z and g = n (for r = 1), from the GRU's weights."""
        lstm = LSTMCell(self.units, self.units).double()
        for name in ("weight_input", "weight_hidden", "bias"):
            _, z, n = getattr(gru, name).chunk(3)
            i, f, g, _ = getattr(lstm, name).chunk(4)
            i.copy_(self.negate(z))
            f.copy_(z)
            g.copy_(n)
        return lstm

    def negate(self, weights: Tensor) -> Tensor:
        """Returns the weights of 1 − σ(a) for those of σ(a)."""
        return -weights

    def run_exposed(self, lstm: LSTMCell, x: Tensor) -> Tensor:
        """Returns the states (T, U) of the LSTM with h_t = c_t in place of o ⊙ tanh(c_t)."""
        cells: list[Tensor] = []

        def keep(cell: Tensor) -> Tensor:
            cells.append(cell)
            return cell

        values, _ = unroll(lstm, x, replace={"cell": keep, "hidden": lambda _: cells[-1]})
        return values["hidden"][0]

    def judge(self, measured: Measured) -> Verdict:
        error = measured["error_with_open_reset_gate"]
        gru, lstm = (measured[f"numbers_in_the_state_of_the_{name}"] for name in ("gru", "lstm"))
        return decide(
            error < 1e-10 and 2 * gru == lstm,
            evidence=f"With r = 1 the coupled LSTM with h = c is the GRU to {error:.1g}, and the state has {gru} "
            f"numbers instead of {lstm}. With r = {self.reset:g} the largest difference is "
            f"{measured['error_with_other_reset_gate']:.2g} of the norm: an LSTM has no counterpart of the reset gate.",
            instead="An LSTM with this coupling of its gates is not a GRU, even without reset gate.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"r = 1": "open", f"r = {self.reset:g}": "other", "r as computed": "computed"}
        steps = np.arange(1, self.steps + 1)
        return [
            LineChart(
                title="Difference between a GRU and an LSTM with coupled gates and h = c",
                series=[Series(name=name, x=steps, y=measured[f"errors_{key}"]) for name, key in names.items()],
                x_label="time step",
                y_label="relative difference of the states",
                y_log=True,
                note="An LSTM has no counterpart of the reset gate r. A difference of 0 is drawn as 1e-17.",
            )
        ]
