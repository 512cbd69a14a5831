"""D1, D2: what values can gates take, and are they probability distributions?

    i, f, o = σ(W x + U h + b)        σ(a) = 1 / (1 + e⁻ᵃ)

D1: the logistic function maps every real number into (0, 1), so whatever the weights are, a gate multiplies by a
positive fraction: it can weaken a signal but not reverse it. The candidate g = tanh(…) is no gate and takes both signs.
In floating point the interval closes: σ(a) rounds to exactly 1 above a ≈ 37 in double and a ≈ 17 in single precision.

D2: values in (0, 1) suggest probabilities, but a distribution also has to sum to 1. σ is applied to each unit on its
own, so nothing ties one unit to another: a gate of U units can sum to anything between 0 and U, and i + f + o of one
unit to anything between 0 and 3. A gate is U separate decisions, each at most a probability of its own (Bernoulli).
What sums to 1 is a softmax, as in attention, or a pair of coupled gates such as z and 1 − z of a GRU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.lstm.unroll import unroll
from seqwise.layers import LSTMCell
from seqwise.page.figures import BarChart, Figure, LineChart, Series

GATES = ("input", "forget", "output")


@dataclass(frozen=True, kw_only=True)
class RandomGates(Experiment):
    """Gates of LSTM cells with random weights on random inputs."""

    minimums: ClassVar = {"scale": 0.0}

    units: int = 16
    """Units of each cell."""
    steps: int = 20
    """Length of each sequence."""
    cells: int = 50
    """Number of cells, each with its own random weights."""
    scale: float = 3.0
    """Standard deviation of the inputs; large ones drive the gates to their limits."""

    def compute_gates(self) -> dict[str, Tensor]:
        """Returns gates and candidate of all cells, (cells, steps, units) each, in double precision."""
        values = []
        for _ in range(self.cells):
            cell = LSTMCell(self.units, self.units).double().requires_grad_(False)
            x = self.scale * torch.randn(1, self.steps, self.units, dtype=torch.float64)
            values.append(unroll(cell, x)[0])
        return {name: torch.cat([each[name] for each in values]) for name in (*GATES, "candidate")}


@dataclass(frozen=True, kw_only=True)
class GateRange(RandomGates):
    id = "D1"
    claim = "Gates lie in (0,1), so they are non-negative."
    equation = "0 < σ(a) < 1 for every real a"
    measurement = "The smallest and the largest gate of LSTM cells with random weights over random inputs."
    rule = "Holds if every gate of every cell, unit and step is strictly between 0 and 1."
    try_next = "seqwise lab run D1 --scale 100: pre-activations become so large that σ rounds to exactly 1."
    seconds = 0.2

    def measure(self) -> Measured:
        values = self.compute_gates()
        gates = torch.stack([values[name] for name in GATES])
        edges = np.linspace(-1, 1, 41)
        return {
            "number_of_gates": gates.numel(),
            "smallest_gate": float(gates.min()),
            "one_minus_largest_gate": float(1 - gates.max()),
            "smallest_candidate": float(values["candidate"].min()),
            "centres": (edges[1:] + edges[:-1]) / 2,
            **{f"density_{name}": np.histogram(each, edges, density=True)[0] for name, each in values.items()},
        }

    def judge(self, measured: Measured) -> Verdict:
        low, gap = measured["smallest_gate"], measured["one_minus_largest_gate"]
        rounded = "In floating point a saturated gate rounds to exactly 0 or 1; it is still not negative."
        return decide(
            low > 0 and gap > 0,
            evidence=f"{measured['number_of_gates']:,} gates lie between {low:.2g} and 1 − {gap:.2g}; candidates "
            f"(tanh) go down to {measured['smallest_candidate']:.3g}.",
            instead=rounded if low >= 0 and gap >= 0 else "Some gates are negative or exceed 1.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {
            "input gate i": "input",
            "forget gate f": "forget",
            "output gate o": "output",
            "candidate g": "candidate",
        }
        series = [
            Series(name=name, x=measured["centres"], y=measured[f"density_{key}"], role=key)
            for name, key in names.items()
        ]
        return [
            LineChart(
                title="Distribution of the gates and of the candidate of random LSTM cells",
                series=series,
                x_label="value",
                y_label="probability density",
                note="The three gates stay to the right of 0; only the candidate takes both signs.",
            )
        ]


@dataclass(frozen=True, kw_only=True)
class GateSums(RandomGates):
    id = "D2"
    claim = "Gates are probability distributions."
    equation = "Σᵤ fᵤ = 1 (over the units), or i + f + o = 1 (of each unit)"
    measurement = "The sum of each gate over the units, and of the three gates of a unit, of random LSTM cells."
    rule = "Holds if the sums over units, or those over the gates of a unit, are all within 0.001 of 1."
    try_next = "seqwise lab run D2 --units 64: the sums over units grow with the number of units."
    seconds = 0.2

    def measure(self) -> Measured:
        values = self.compute_gates()
        sums = {name: values[name].sum(-1) for name in GATES}
        sums["unit"] = torch.stack([values[name] for name in GATES]).sum(0)
        sums["softmax"] = torch.logit(values["forget"], eps=1e-15).softmax(-1).sum(-1)
        return {
            "smallest_sum_of_a_forget_gate": float(sums["forget"].min()),
            "largest_sum_of_a_forget_gate": float(sums["forget"].max()),
            "smallest_i_plus_f_plus_o": float(sums["unit"].min()),
            "largest_i_plus_f_plus_o": float(sums["unit"].max()),
            "largest_distance_from_1_over_units": max(float((sums[name] - 1).abs().max()) for name in GATES),
            "largest_distance_from_1_over_gates": float((sums["unit"] - 1).abs().max()),
            "mean_sums": np.array([float(each.mean()) for each in sums.values()]),
            "smallest_sums": np.array([float(each.min()) for each in sums.values()]),
            "largest_sums": np.array([float(each.max()) for each in sums.values()]),
        }

    def judge(self, measured: Measured) -> Verdict:
        return decide(
            min(measured[f"largest_distance_from_1_over_{name}"] for name in ("units", "gates")) < 1e-3,
            evidence=f"The forget gate sums to between {measured['smallest_sum_of_a_forget_gate']:.3g} and "
            f"{measured['largest_sum_of_a_forget_gate']:.3g} over {self.units} units, i + f + o of one unit to between "
            f"{measured['smallest_i_plus_f_plus_o']:.2g} and {measured['largest_i_plus_f_plus_o']:.3g}.",
            instead="Each gate value is a separate fraction in (0, 1), one per unit; nothing makes them sum to 1.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        return [
            BarChart(
                title=f"Sums of gates of LSTM cells with {self.units} units",
                names=[*(f"{name} gate, over units" for name in GATES), "i + f + o, of a unit", "softmax over units"],
                values=measured["mean_sums"],
                low=measured["smallest_sums"],
                high=measured["largest_sums"],
                value_label="sum (mean; the interval is the range)",
                note="A probability distribution sums to 1, as a softmax of the same pre-activations does.",
            )
        ]
