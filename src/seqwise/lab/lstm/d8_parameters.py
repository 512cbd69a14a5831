"""D8: how many parameters do an LSTM and a GRU have, compared with an RNN of the same size?

    RNN: U (D + U + 1)       LSTM: 4 · U (D + U + 1)       GRU: 3 · U (D + U + 1)

Every gate and every candidate has its own W (U × D), U (U × U) and b (U): the RNN has one candidate, the LSTM three
gates and one candidate, the GRU two gates and one candidate. Counts differ between libraries in the biases only: a GRU
whose reset gate acts after the product has a second bias inside it (E4), and PyTorch's layers have two biases for every
gate. The ratio is that of the recurrent layer. In a whole model it is smaller, because token embedding and output
layer do not depend on the cell; with a large vocabulary they have most of the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import nn

from seqwise.errors import pluralize
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.layers import Cell, Embedding, GRUCell, LSTMCell, RNNCell
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class ParameterCounts(Experiment):
    id = "D8"
    claim = "An LSTM has about four times the parameters of an RNN; a GRU three."
    equation = "RNN: U (D + U + 1),  LSTM: 4 · U (D + U + 1),  GRU: 3 · U (D + U + 1)"
    measurement = "The number of parameters of the layers, for input width D = units U from 8 to the largest size."
    rule = "Holds if all ratios to the RNN are within 5 % of 4 and of 3."
    try_next = "seqwise lab run D8 --vocabulary 100: with a small vocabulary the models' ratio approaches the cells'."
    seconds = 0.1
    minimums: ClassVar = {"largest": 8}

    largest: int = 512
    """Largest number of units; sizes are powers of 2 from 8."""
    vocabulary: int = 10_000
    """Tokens of the language model whose embedding and output layer are counted too."""

    def measure(self) -> Measured:
        sizes = [2**exponent for exponent in range(3, self.largest.bit_length()) if 2**exponent <= self.largest]
        counts = {name: np.array([self.count(name, size) for size in sizes]) for name in ("rnn", "lstm", "gru")}
        outside = np.array([count_parameters(Embedding(self.vocabulary, size)) for size in sizes])
        outside = outside + self.vocabulary * (np.array(sizes) + 1)  # output layer with bias
        ratios = {f"ratios_{name}": counts[name] / counts["rnn"] for name in ("lstm", "gru")}
        model_ratios = {name: (counts[name] + outside) / (counts["rnn"] + outside) for name in ("lstm", "gru")}
        return {
            **{f"parameters_of_{name}": int(counts[name][-1]) for name in counts},
            **{f"ratio_of_{name}_to_rnn": float(ratios[f"ratios_{name}"][-1]) for name in ("lstm", "gru")},
            **{f"ratio_of_{name}_to_rnn_language_model": float(each[-1]) for name, each in model_ratios.items()},
            "sizes": np.array(sizes),
            **ratios,
            **{f"ratios_of_models_{name}": each for name, each in model_ratios.items()},
        }

    def count(self, name: str, size: int) -> int:
        return count_parameters(self.build_cell(name, size))

    def build_cell(self, name: str, size: int) -> Cell:
        kinds: dict[str, type[Cell]] = {"rnn": RNNCell, "lstm": LSTMCell, "gru": GRUCell}
        return kinds[name](size, size)

    def judge(self, measured: Measured) -> Verdict:
        lstm, gru = measured["ratios_lstm"], measured["ratios_gru"]
        return decide(
            bool((abs(lstm / 4 - 1) < 0.05).all() and (abs(gru / 3 - 1) < 0.05).all()),
            evidence=f"With {self.largest} units the LSTM has {measured['ratio_of_lstm_to_rnn']:.4g} and the GRU "
            f"{measured['ratio_of_gru_to_rnn']:.4g} times the RNN's {measured['parameters_of_rnn']:,} parameters; as "
            f"language models with {pluralize(self.vocabulary, 'tokens')} the ratios "
            f"are {measured['ratio_of_lstm_to_rnn_language_model']:.3g} and "
            f"{measured['ratio_of_gru_to_rnn_language_model']:.3g}.",
            instead="The number of gates does not explain the ratio of the parameters.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"ratios_lstm": "LSTM layer", "ratios_gru": "GRU layer"}
        names |= {f"ratios_of_models_{key}": f"{key.upper()} language model" for key in ("lstm", "gru")}
        return [
            LineChart(
                title="Parameters relative to those of an RNN of the same size",
                series=[Series(name=name, x=measured["sizes"], y=measured[key]) for key, name in names.items()],
                x_label="units = width of the input",
                y_label="parameters / parameters of the RNN",
                x_log=True,
                references=[Reference(axis="y", value=value, label=f"{value:g} times") for value in (3.0, 4.0)],
                note="The layers' ratio is the number of gates and candidates; embedding and output layer dilute it.",
            )
        ]


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
