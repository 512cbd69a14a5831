"""B7: do lower layers carry short patterns and higher layers long ones?

    h¹ₜ = f(xₜ, h¹ₜ₋₁),   hˡₜ = f(hˡ⁻¹ₜ, hˡₜ₋₁)          Rˡ(k): how well xₜ₋ₖ can be read from hˡₜ

Three stacked layers learn to recall a recent and an old input at once; the readout is on the top layer. A linear probe
per layer shows which lags it carries (memory functions, Jaeger 2001). In a GRU, whose gates start near 1/2 and forget
half of the state per step, a layer remembers a few steps and the layers add up: only the top one has the old input. A
tanh RNN with an orthogonal matrix remembers more than the lag before any training, and its first layer carries it all.
The order of layers is no law of depth: it appears when a pattern exceeds the memory of one layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import GRUCell, Recurrent, RNNCell, StackedRecurrent
from seqwise.page.figures import Figure, LineChart, Series

CELLS = {"gru": GRUCell, "rnn": RNNCell}


class DeepRecall(nn.Module):
    def __init__(self, cell: type[GRUCell] | type[RNNCell], units: int, depth: int):
        super().__init__()
        self.stack = StackedRecurrent([Recurrent(cell(units if index else 1, units)) for index in range(depth)])
        self.output = nn.Linear(units, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.stack(x)[0])


@dataclass(frozen=True, kw_only=True)
class Depth(Experiment):
    id = "B7"
    claim = "Depth: lower layers carry short patterns, higher layers long ones."
    equation = "Rˡ(k) = R² of xₜ₋ₖ read from layer l:  for large k it rises with l"
    measurement = "How well a linear probe reads inputs of k steps ago from each layer of trained GRU and RNN stacks."
    rule = "True of a stack if its bottom layer has R² ≥ 0.6 at the short lag and < 0.5 at the long one, its top ≥ 0.6."
    try_next = "seqwise lab run B7 --long-lag 2: a pattern within the memory of one GRU layer needs no higher layer."
    seconds = 4.0
    quick: ClassVar = {"training_steps": 170}
    minimums: ClassVar = {"depth": 2}

    depth: int = 3
    """Layers of the stack."""
    units: int = 24
    """Hidden units of each layer."""
    short_lag: int = 1
    """Steps since the recent input that is recalled."""
    long_lag: int = 8
    """Steps since the old input that is recalled."""
    training_steps: int = 300
    """Batches on which each stack is trained."""

    def measure(self) -> Measured:
        measured: dict[str, float | np.ndarray] = {}
        for kind, cell in CELLS.items():
            model = DeepRecall(cell, self.units, self.depth)
            before = self.probe(model)
            fit(model, self.draw_batch, compute_loss, steps=self.training_steps, seed=self.seed)
            measured[f"scores_{kind}"] = scores = self.probe(model)  # (depth, lags)
            measured[f"{kind}_untrained_bottom_r2_at_long_lag"] = float(before[0, self.long_lag])
            for layer, index in (("bottom", 0), ("top", -1)):
                measured[f"{kind}_{layer}_r2_at_short_lag"] = float(scores[index, self.short_lag])
                measured[f"{kind}_{layer}_r2_at_long_lag"] = float(scores[index, self.long_lag])
        return measured

    def draw_batch(self, generator: torch.Generator, batch: int = 32) -> tuple[Tensor, Tensor]:
        """Returns white noise (B, T, 1), and the inputs of `short_lag` and `long_lag` steps before (B, T, 2)."""
        x = torch.randn(batch, 4 * max(self.short_lag, self.long_lag), 1, generator=generator)
        return x, torch.cat([x.roll(self.short_lag, 1), x.roll(self.long_lag, 1)], -1)

    @torch.no_grad()
    def probe(self, model: DeepRecall) -> np.ndarray:
        """Returns the R² (layers, lags) with which least squares reads each earlier input from the last state."""
        x, _ = self.draw_batch(make_generator(self.seed, 1), batch=1024)
        h, scores = x, []
        earlier = x.flip(1)[:, : 2 * max(self.short_lag, self.long_lag), 0].double()  # (B, lags)
        for layer in model.stack.layer:
            h = layer(h)[0]
            states = torch.cat([h[:, -1], torch.ones(len(h), 1)], 1).double()
            fitted = torch.linalg.lstsq(states[:512], earlier[:512]).solution
            errors = (states[512:] @ fitted - earlier[512:]).square().mean(0)
            scores.append((1 - errors / earlier[512:].var(0)).numpy())
        return np.stack(scores)

    def judge(self, measured: Measured) -> Verdict:
        is_ordered = [
            min(measured[f"{kind}_bottom_r2_at_short_lag"], measured[f"{kind}_top_r2_at_long_lag"]) >= 0.6
            and measured[f"{kind}_bottom_r2_at_long_lag"] < 0.5
            for kind in ("gru", "rnn")
        ]
        return decide_condition(
            *is_ordered,
            condition="the long pattern exceeds the memory that a single layer has from the start",
            evidence=f"The input of {self.long_lag} steps ago is read with R² "
            f"{measured['gru_bottom_r2_at_long_lag']:.2f} from the bottom and "
            f"{measured['gru_top_r2_at_long_lag']:.2f} from the top of the GRU, and with "
            f"{measured['rnn_bottom_r2_at_long_lag']:.2f} from the bottom of the tanh RNN, which had "
            f"{measured['rnn_untrained_bottom_r2_at_long_lag']:.2f} before training.",
            instead="The GRU's bottom layer carries the old input as well, or a layer lacks the one it should carry.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        return [
            LineChart(
                title=f"Inputs that can be read from each layer of a trained {kind.upper()}",
                series=[
                    Series(name=f"layer {index + 1}", x=np.arange(len(row)), y=np.maximum(row, 0))
                    for index, row in enumerate(measured[f"scores_{kind}"])
                ],
                x_label="age of the input k (steps)",
                y_label="R² of a linear probe (below 0 drawn as 0)",
                note=f"R² at lag {self.long_lag}: {measured[f'{kind}_bottom_r2_at_long_lag']:.2f} in the first layer, "
                f"{measured[f'{kind}_top_r2_at_long_lag']:.2f} in the last.",
            )
            for kind in CELLS
        ]


def compute_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return (model(x) - y)[:, x.shape[1] // 2 :].square()  # earlier steps have nothing to recall
