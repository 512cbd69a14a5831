"""Records of the lab for tests of its pages: C2 as it is, and invented experiments with other verdicts and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from seqwise import lab
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.running import to_record
from seqwise.page.figures import BarChart, Figure, Heatmap, LineChart, ScatterPlot, Series, Table, TokenText

NUMBERS = {"A": 6, "B": 9, "C": 11, "D": 11, "E": 6, "F": 20, "G": 11, "H": 16}  # statements per chapter
HOSTILE = '</script><b onclick="x">{{TITLE}} & "quotes"'


@dataclass(frozen=True, kw_only=True)
class Invented(Experiment):
    """An experiment that measures nothing: its numbers are random."""

    measurement = "The mean of many numbers, over three repeats of an experiment that nobody has performed."
    rule = "True if the mean is below 0.5."
    seconds = 0.1

    samples: int = 100
    """How many numbers."""
    is_deep: bool = True
    """A switch."""

    def measure(self) -> Measured:
        values = np.random.default_rng(self.seed).random(self.samples)
        return {"mean_of_the_numbers": float(values.mean()), "count": self.samples, "is_even": True, "values": values}

    def judge(self, measured: Measured) -> Verdict:
        return Verdict(kind="holds", evidence=f"The mean is {measured['mean_of_the_numbers']:.3f} over 5 s.")


@dataclass(frozen=True, kw_only=True)
class Summation(Invented):
    id = "B1"
    claim = "The gradient of a shared weight is the sum of its copies' gradients over time."
    equation = "∂L/∂W = Σₜ ∂L/∂Wₜ"
    try_next = "seqwise lab run B1 --samples 1000: the mean approaches one half."

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = [f"word{at}" for at in range(12)]
        weights = np.random.default_rng(1).random((12, 12))
        labels = {"row_label": "query token", "column_label": "key token", "value_label": "attention weight"}
        heatmap = Heatmap(title="Weights of one head", values=weights, rows=names, columns=names, **labels)
        bars = BarChart(
            title="Norm per copy", names=names[:5], values=measured["values"][:5], value_label="norm (no unit)"
        )
        return [heatmap, bars]


@dataclass(frozen=True, kw_only=True)
class Equality(Invented):
    id = "B8"
    claim = "In an RNN all earlier states contribute equally to the present one."
    equation = "∂h_T/∂h_k = ∂h_T/∂h_j  for all k, j < T,  h_t = tanh(W h_(t−1) + W_x x_t + b)"
    try_next = "Make it deeper with seqwise lab run B8 --no-is-deep and compare the two ends of the line."

    def judge(self, measured: Measured) -> Verdict:
        return decide(
            measured["count"] < 10,
            evidence="The influence of the first of 50 states is 0.00012 of that of the last one.",
            instead="the influence falls with the distance, by a factor of about 0.8 per step",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        values = measured["values"][:40]
        names = [f"state {at}" for at in range(40)]
        groups = ["random", "trained"] * 20
        points = ScatterPlot(
            title="Influence of states",
            x=np.arange(40.0),
            y=values,
            names=names,
            groups=groups,
            x_label="k",
            y_label="v",
        )
        return [points]


@dataclass(frozen=True, kw_only=True)
class Clipping(Invented):
    id = "C6"
    claim = "Clipping by norm keeps the direction and caps the size; clipping by value does not keep the direction."
    equation = "g ← g · min(1, c / ‖g‖)"
    try_next = "seqwise lab run C6 --seed 3: the same for other numbers."

    def draw(self, measured: Measured) -> Sequence[Figure]:
        x = np.arange(30.0)
        lines = [Series(name=f"threshold {at}", x=x, y=np.minimum(at, x)) for at in (1, 2, 5)]
        chart = LineChart(title="Norm after clipping", series=lines, x_label="norm before", y_label="norm after")
        rows = [("norm", 1.0, 5.0), ("value", 0.93, 7.1)]
        table = Table(title="Cosine and size", columns=("method", "cosine", "norm"), rows=rows)
        return [chart, table]


@dataclass(frozen=True, kw_only=True)
class Hostile(Invented):
    id = "H1"
    claim = HOSTILE + "."
    equation = HOSTILE
    try_next = "seqwise lab run H1 --samples 5: " + HOSTILE

    def judge(self, measured: Measured) -> Verdict:
        return Verdict(kind="holds", evidence=HOSTILE)

    def draw(self, measured: Measured) -> Sequence[Figure]:
        tokens = [HOSTILE, "a", " long", " text"] * 9
        return [TokenText(title=HOSTILE, tokens=tokens, values=np.linspace(-1, 1, 36), value_label="contribution")]


@cache
def make_records() -> list[dict[str, Any]]:
    """Returns five records: B1 holds, B8 is refuted, C2 depends, C6 holds and has a live figure, H1 is hostile."""
    results = [kind().run() for kind in (Hostile, Clipping, Equality, Summation)]
    return [to_record(result) for result in (*results, lab.run("C2"))]


def make_all_records() -> list[dict[str, Any]]:
    """Returns a record for each of the 90 statements: those of `make_records` with other ids."""
    samples = [record for record in make_records() if record["id"] != "H1"]
    ids = [f"{letter}{at}" for letter, count in NUMBERS.items() for at in range(1, count + 1)]
    return [{**samples[at % len(samples)], "id": identifier} for at, identifier in enumerate(ids)]
