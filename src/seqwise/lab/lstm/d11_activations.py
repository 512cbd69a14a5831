"""D11: why the logistic function for gates and tanh for content?

    i, f, o = σ(…) ∈ (0, 1): how much to let through        g = tanh(…) ∈ (−1, 1): what to write, with either sign

The functions are exchanged one at a time and the cells are trained. With σ as content the cell can only grow: what is
written is never centred at 0 and cannot be subtracted, and the network learns many times more slowly. It is not less
expressive: tanh(a) = 2 σ(2a) − 1, and with enough training other weights make up for it. With tanh as gate a factor
can be negative, which reverses a signal instead of weakening it, and a closed gate is not saturated: 0 is where tanh is
steepest, so noise leaks through, while σ(−5) stays near 0. Such a cell learns to add as well as the usual one and falls
behind where a gate has to stay closed for long, as at recall over 20 steps. The verdict is about the first 150 steps of
training: after 500 steps on short sequences σ content has caught up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, sigmoid, tanh

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.lstm.small_tasks import LastStepModel, draw_adding, draw_recall, train_on_task
from seqwise.layers import LSTMCell
from seqwise.layers.cells import RecordFunction, State, record_nothing
from seqwise.page.figures import BarChart, Figure, LineChart, Series


class ExchangedCell(LSTMCell):
    """An LSTM with other functions for its gates and for its candidate."""

    def compute_gate(self, a: Tensor) -> Tensor:
        return sigmoid(a)

    def compute_content(self, a: Tensor) -> Tensor:
        return tanh(a)

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        h, c = state
        a_i, a_f, a_g, a_o = (x + F.linear(h, weight_hidden)).chunk(4, dim=-1)
        i, f, o = self.compute_gate(a_i), self.compute_gate(a_f), self.compute_gate(a_o)
        c = f * c + i * self.compute_content(a_g)
        return o * tanh(c), c


class TanhGateCell(ExchangedCell):
    def compute_gate(self, a: Tensor) -> Tensor:
        return tanh(a)


class SigmoidContentCell(ExchangedCell):
    def compute_content(self, a: Tensor) -> Tensor:
        return sigmoid(a)


TASKS = {"adding": draw_adding, "recall": draw_recall}
CELLS = {"usual_cell": LSTMCell, "tanh_gates": TanhGateCell, "sigmoid_content": SigmoidContentCell}
NAMES = {"usual_cell": "usual cell", "tanh_gates": "tanh gates", "sigmoid_content": "σ content"}


@dataclass(frozen=True, kw_only=True)
class Activations(Experiment):
    id = "D11"
    claim = "Gates need a sigmoid, and content needs a tanh."
    equation = "i, f, o = σ(a),  g = tanh(a)"
    measurement = "The error after training on two tasks with the usual functions, with tanh gates, and with σ content."
    rule = "A choice is confirmed if exchanging its function makes the error more than 3 times as large on both tasks."
    try_next = "seqwise lab run D11 --length 10 --steps 500: with more training σ content catches up on recall."
    seconds = 4
    quick: ClassVar = {"length": 10, "steps": 120}

    units: int = 16
    """Units of each cell."""
    length: int = 20
    """Length of the sequences."""
    steps: int = 150
    """Training steps."""

    def measure(self) -> Measured:
        measured: dict[str, float | np.ndarray] = {}
        for task in TASKS:
            for name in NAMES:
                error, losses = self.train(task, name)
                measured |= {f"error_on_{task}_with_{name}": error, f"losses_{task}_{name}": losses}
                if name != "usual_cell":
                    measured[f"error_ratio_{task}_with_{name}"] = error / measured[f"error_on_{task}_with_usual_cell"]
        return measured

    def train(self, task: str, name: str) -> tuple[float, np.ndarray]:
        """Returns the squared error on new sequences, relative to guessing, and the loss of each training step."""
        torch.manual_seed(self.seed)  # the same weights for all cells
        model = LastStepModel(self.build_cell(name))
        errors, losses = train_on_task(model, TASKS[task], length=self.length, steps=self.steps, seed=self.seed)
        return float(errors.mean()), np.array(losses)

    def build_cell(self, name: str) -> LSTMCell:
        return CELLS[name](2, self.units)

    def judge(self, measured: Measured) -> Verdict:
        gates = [measured[f"error_ratio_{task}_with_tanh_gates"] for task in TASKS]
        content = [measured[f"error_ratio_{task}_with_sigmoid_content"] for task in TASKS]
        return decide_condition(
            min(content) > 3,
            min(gates) > 3,
            condition="only the content is meant: with tanh gates the error is not clearly larger on every task",
            evidence=f"Compared with the usual cell the error is {content[0]:.3g} (adding) and {content[1]:.3g} "
            f"(recall) times as large with σ content, {gates[0]:.3g} and {gates[1]:.3g} times with tanh gates.",
            instead=f"After {self.steps} steps the error with σ content is not clearly larger on every task.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        chart = BarChart(
            title="Error after training with exchanged activation functions",
            names=[f"{task}: {text}" for task in TASKS for text in NAMES.values()],
            values=np.array([measured[f"error_on_{task}_with_{name}"] for task in TASKS for name in NAMES]),
            value_label="squared error / that of guessing",
            note=f"All cells are trained for {self.steps} steps; guessing has an error of 1.",
        )
        steps = np.arange(1, self.steps + 1)
        lines = LineChart(
            title="Training on the adding task with exchanged activation functions",
            series=[Series(name=text, x=steps, y=measured[f"losses_adding_{name}"]) for name, text in NAMES.items()],
            x_label="training step",
            y_label="squared error",
            note="The three cells start with the same weights and read the same batches.",
        )
        return [chart, lines]
