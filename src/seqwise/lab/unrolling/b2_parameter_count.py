"""B2: how many parameters does a recurrent network need for longer sequences?

    RNN         U·D + U·U + U                       no T in it
    dense       T·D·U + U                           one matrix per position

A recurrent layer applies one cell at every step, so its parameters are those of the cell, however long the sequence:
what grows with T is computation and, in training, memory (B5). A dense layer over the concatenated steps needs a weight
for each of them, and cannot read a sequence longer than the one it was built for. Attention shares its matrices too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import Encoder, GRUCell, LSTMCell, PreNormEncoderLayer, Recurrent, RNNCell
from seqwise.page.figures import Figure, LineChart, Series

RECURRENT = {"rnn": RNNCell, "gru": GRUCell, "lstm": LSTMCell}


@dataclass(frozen=True, kw_only=True)
class ParameterCount(Experiment):
    id = "B2"
    claim = "The parameter count does not depend on the length."
    equation = "RNN: U·D + U² + U for every T;  dense layer: T·D·U + U"
    measurement = "The parameters that receive a gradient when each network reads a sequence of length T."
    rule = "Holds if the counts of RNN, GRU and LSTM are the same for the shortest and the longest sequence."
    try_next = "seqwise lab run B2 --longest 10000: only the dense layer grows."
    seconds = 0.5

    inputs: int = 8
    """Size of the input vectors."""
    units: int = 8
    """Hidden units; the width of the Transformer too, so an even number."""
    shortest: int = 10
    """Length of the shortest sequence."""
    longest: int = 1000
    """Length of the longest sequence."""

    def measure(self) -> Measured:
        if self.longest <= self.shortest:
            raise UsageError(f"expected longest above shortest, {self.shortest}; received {self.longest}.")
        lengths = np.unique(np.geomspace(self.shortest, self.longest, 5).round().astype(int))
        counts: dict[str, list[int]] = {name: [] for name in (*RECURRENT, "transformer", "dense")}
        for length in lengths:
            x = torch.randn(1, int(length), self.inputs, generator=make_generator(self.seed))
            for name, column in counts.items():
                column.append(self.count_trained(self.build(name, int(length)), x))
        return {
            **{f"{name}_parameters_at_shortest_length": column[0] for name, column in counts.items()},
            **{f"{name}_parameters_at_longest_length": column[-1] for name, column in counts.items()},
            **{f"counts_{name}": np.array(column) for name, column in counts.items()},
            "lengths": lengths,
        }

    def build(self, name: str, length: int) -> nn.Module:
        """Returns a network for sequences of `length` steps; only the dense one needs to know the length."""
        if name == "dense":
            return nn.Sequential(nn.Flatten(), nn.Linear(length * self.inputs, self.units))
        if name == "transformer":
            layer = PreNormEncoderLayer(self.units, 1, 4 * self.units, "gelu", rotary=True)
            return nn.Sequential(nn.Linear(self.inputs, self.units), Encoder([layer]))
        return Recurrent(RECURRENT[name](self.inputs, self.units))

    def count_trained(self, model: nn.Module, x: Tensor) -> int:
        """Returns the number of parameters that the gradient of the outputs reaches."""
        result = model(x)
        output = result[0] if isinstance(result, tuple) else result
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(output.square().sum(), parameters, allow_unused=True)
        return sum(gradient.numel() for gradient in gradients if gradient is not None)

    def judge(self, measured: Measured) -> Verdict:
        is_equal = all(np.ptp(measured[f"counts_{name}"]) == 0 for name in RECURRENT)
        short, long = (
            {name: measured[f"{name}_parameters_at_{end}_length"] for name in (*RECURRENT, "dense")}
            for end in ("shortest", "longest")
        )
        short_texts, long_texts = (" / ".join(f"{each[name]:,}" for name in RECURRENT) for each in (short, long))
        return decide(
            is_equal,
            evidence=f"RNN, GRU and LSTM have {short_texts} parameters at T = {self.shortest:,} and "
            f"{long_texts} at T = {self.longest:,}; a dense layer has "
            f"{short['dense']:,} and {long['dense']:,}.",
            instead="The count grows with the length, because steps do not share their weights.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM", "transformer": "Transformer", "dense": "dense layer"}
        chart = LineChart(
            title=f"Parameters against the length of the sequence, {self.units} units",
            series=[
                Series(name=label, x=measured["lengths"], y=measured[f"counts_{name}"]) for name, label in names.items()
            ],
            x_label="length T (steps)",
            y_label="parameters",
            x_log=True,
            y_log=True,
            note="Networks that share their weights over time are flat; a dense layer over all steps grows with T.",
        )
        return [chart]
