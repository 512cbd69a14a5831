"""D9: can an LSTM remember something without exposing it?

    c_t = f ⊙ c_(t−1) + i ⊙ g        what is remembered
    h_t = o ⊙ tanh(c_t)              what other units, the gates and the next layer can read

The weights of this cell are set by hand. Its input is (value, write, read): "write" opens the input gate and closes the
forget gate, "read" opens the output gate. A value is written at one step, kept for many steps in which h = 0, so that
nothing outside of the cell can tell what is in it, and read out at the end. An RNN or a GRU has no such separation: its
state is its output, so what it remembers is always exposed, to the next layer and to its own gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import pluralize
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.lstm.unroll import unroll
from seqwise.layers import LSTMCell
from seqwise.page.figures import Figure, LineChart, Reference, Series

VALUE, WRITE, READ = range(3)  # columns of the input


@dataclass(frozen=True, kw_only=True)
class HiddenMemory(Experiment):
    id = "D9"
    claim = "What is remembered and what is exposed are separate."
    equation = "o = 0  ⇒  h = 0 while c persists;  later o = 1  ⇒  h = tanh(c)"
    measurement = "c and h of an LSTM with hand-written weights that stores values, hides them, and reads them later."
    rule = "Holds if |h| < 0.001 while a value is stored, c changes by less than 1 %, and h ends as tanh(c) to 1 %."
    try_next = "seqwise lab run D9 --sharpness 10: gates are then not quite 0 and 1, and the memory leaks."
    seconds = 0.1
    minimums: ClassVar = {"sharpness": 0.0}

    delay: int = 50
    """Steps between writing and reading."""
    sharpness: float = 40.0
    """Weight of the commands: gates are σ(± sharpness / 2)."""
    values: int = 9
    """Number of different values that are stored, between −1 and 1."""

    def measure(self) -> Measured:
        cell, x = self.build_cell(), self.build_inputs()
        states, _ = unroll(cell, x)
        c, h = states["cell"][..., 0], states["hidden"][..., 0]
        written, stored = c[:, 1], slice(1, -1)  # the value is written at the second step, read at the last
        return {
            "largest_h_while_stored": float(h[:, stored].abs().max()),
            "largest_c_while_stored": float(c[:, stored].abs().max()),
            "relative_change_of_c": float((c[:, -1] - written).norm() / written.norm()),
            "relative_error_of_the_read_value": float((h[:, -1] - written.tanh()).norm() / written.tanh().norm()),
            "cells": c.numpy(),
            "hidden": h.numpy(),
        }

    def build_cell(self) -> LSTMCell:
        """Returns a cell of one unit: i = σ(K write − K/2), f = 1 − i, g = tanh(value), o = σ(K read − K/2)."""
        cell, K = LSTMCell(3, 1).double().requires_grad_(False), self.sharpness
        for parameter in cell.parameters():
            parameter.zero_()
        i, f, g, o = range(4)  # rows of the stacked weights
        W, b = cell.weight_input, cell.bias
        W[i, WRITE], b[i] = K, -K / 2
        W[f, WRITE], b[f] = -K, K / 2
        W[g, VALUE] = 1
        W[o, READ], b[o] = K, -K / 2
        return cell

    def build_inputs(self) -> Tensor:
        """Returns (values, delay + 3, 3): a step of rest, a written value, `delay` steps with other values, a read."""
        x = torch.zeros(self.values, self.delay + 3, 3, dtype=torch.float64)
        x[..., VALUE].normal_()  # what must not be written
        x[:, 1, VALUE] = torch.linspace(-1, 1, self.values, dtype=torch.float64)
        x[:, 1, WRITE], x[:, -1, READ] = 1, 1
        return x

    def judge(self, measured: Measured) -> Verdict:
        hidden, change = measured["largest_h_while_stored"], measured["relative_change_of_c"]
        error = measured["relative_error_of_the_read_value"]
        return decide(
            hidden < 1e-3 and change < 0.01 and error < 0.01,
            evidence=f"For {pluralize(self.delay, 'steps')} |h| ≤ {hidden:.1g} while |c| is up to "
            f"{measured['largest_c_while_stored']:.2g}; c changes by {change:.1g} of its norm, and the value read at "
            f"the end is tanh(c) with a relative error of {error:.1g}.",
            instead="The stored value leaks into h, or is lost, before it is read.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps, last = np.arange(1, self.delay + 4), -1
        c = measured["cells"][last]
        return [
            LineChart(
                title="A value that an LSTM stores unexposed and reads out later",
                series=[
                    Series(name="cell c", x=steps, y=c, role="cell"),
                    Series(name="output h", x=steps, y=measured["hidden"][last], role="state"),
                ],
                x_label="time step",
                y_label="value",
                references=[
                    Reference(axis="x", value=2, label="write"),
                    Reference(axis="x", value=float(steps[-1]), label="read"),
                ],
                note=f"c is {c[1]:.3g} after writing and {c[-1]:.3g} after {pluralize(self.delay, 'steps')}; "
                f"in between |h| is at most {measured['largest_h_while_stored']:.1g} for all of the values.",
            )
        ]
