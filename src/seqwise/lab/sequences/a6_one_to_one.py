"""A6: does a network that maps each input to one output remember anything?

    feed-forward    yₜ = f(xₜ)                      x_s = xₜ  ⇒  y_s = yₜ
    recurrent       hₜ = f(xₜ, hₜ₋₁)                x_s = xₜ  does not imply  h_s = hₜ

A feed-forward network applied to every step is a function of that step's input alone: the same input gives the same
output, whatever came before. A recurrent network has a second argument, its state, through which the past enters. Given
the same input again and again, its output still moves: from the initial state towards a fixed point, if there is one.
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
from seqwise.lab.fitting import make_generator
from seqwise.layers import FeedForward, Recurrent, RNNCell
from seqwise.page.figures import Figure, LineChart, Series


@dataclass(frozen=True, kw_only=True)
class OneToOne(Experiment):
    id = "A6"
    claim = "A one-to-one network has no memory."
    equation = "yₜ = f(xₜ):  x_s = xₜ ⇒ y_s = yₜ"
    measurement = "The outputs of a feed-forward and of a recurrent network for the same input at different times."
    rule = "Holds if the feed-forward outputs differ by less than 1e-9 and the recurrent ones by more than 0.01."
    try_next = "seqwise lab run A6 --period 1 --repeats 20: the same input at every step; the state settles slowly."
    seconds = 0.1
    minimums: ClassVar = {"repeats": 2}

    units: int = 8
    """Width of the input and of the layers."""
    period: int = 4
    """Steps after which the input repeats."""
    repeats: int = 6
    """How often the input repeats."""

    def measure(self) -> Measured:
        cycle = torch.randn(1, self.period, self.units, dtype=torch.float64, generator=make_generator(self.seed))
        x = cycle.repeat(1, self.repeats, 1)
        with torch.no_grad():
            outputs = {"feedforward": self.run_feedforward(x), "recurrent": self.run_recurrent(x)}
        measured: dict[str, float | np.ndarray] = {}
        for name, output in outputs.items():
            by_cycle = output.unflatten(1, (self.repeats, self.period))  # (1, repeats, period, U)
            measured[f"largest_difference_of_{name}_outputs"] = float((by_cycle - by_cycle[:, :1]).abs().max())
            measured[f"output_{name}"] = output[0, :, 0].numpy()
        return measured

    def run_feedforward(self, x: Tensor) -> Tensor:
        return FeedForward(self.units, 4 * self.units, "gelu").double()(x)

    def run_recurrent(self, x: Tensor) -> Tensor:
        return Recurrent(RNNCell(self.units, self.units)).double()(x)[0]

    def judge(self, measured: Measured) -> Verdict:
        feedforward, recurrent = get_differences(measured)
        return decide(
            feedforward < 1e-9 and recurrent > 0.01,
            evidence=f"For equal inputs at different times the outputs of the feed-forward network differ by at most "
            f"{feedforward:.1g}, those of the recurrent one by up to {recurrent:.2g}.",
            instead="The feed-forward network reads more than the present input, or the recurrent one nothing else.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.period * self.repeats + 1)
        feedforward, recurrent = get_differences(measured)
        names = {"feed-forward": "output_feedforward", "recurrent": "output_recurrent"}
        chart = LineChart(
            title=f"Output of one unit for an input with a period of {pluralize(self.period, 'steps')}",
            series=[Series(name=name, x=steps, y=measured[key]) for name, key in names.items()],
            x_label="time (steps)",
            y_label="output of the first unit",
            note=f"From one period to another the feed-forward outputs change by at most {feedforward:.1g}, the "
            f"recurrent ones by up to {recurrent:.2g}.",
        )
        return [chart]


def get_differences(measured: Measured) -> tuple[float, float]:
    """Returns the largest differences of the feed-forward and of the recurrent outputs."""
    names = ("feedforward", "recurrent")
    feedforward, recurrent = (measured[f"largest_difference_of_{name}_outputs"] for name in names)
    return feedforward, recurrent
