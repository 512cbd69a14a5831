"""F18: what does self-attention add to a recurrent state?

    s_t = RNN(x_t, s_(t−1))        h_t = s_t + a_t        a_t = Σ_{j ≤ t} softmax_j(q_tᵀ k_j / √k) v_j

q, k and v are linear in the states s. The recurrence still reads the sequence in order; attention adds a second way
back, of one step to any earlier state, so that the gradient no longer passes through every step between (F15). The task
isolates this: the first of T + 1 symbols is to be named at the end, after T that mean nothing. The gradient of a plain
recurrent network vanishes on the way, and at long lags it guesses. The sum is possible because a_t has the shape of
s_t. In `parallel` form, as above, attention follows the recurrence; in `feedback` form a_t is part of the state that
the next step reads, h_t = RNN(x_t, h_(t−1)) + a_t, and the layer must run step by step (F16). The price is a memory of
all states instead of one: T·k numbers, and T²·k operations (F14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.errors import UsageError, suggest
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import AttentiveRecurrent, Embedding, FullSoftmax, Recurrent, RNNCell, StateAttention
from seqwise.page.figures import Figure, LineChart, Reference, Series

FORMS = ("parallel", "feedback")
SYMBOLS, NUM_TEST = 4, 500  # symbols to recall, and as many that mean nothing; new sequences per lag


class Recaller(nn.Module):
    """Reads symbols and names one of them after the last."""

    def __init__(self, layers: Sequence[nn.Module], units: int):
        super().__init__()
        self.embedding, self.layers = Embedding(2 * SYMBOLS, units), nn.ModuleList(layers)
        self.output = FullSoftmax(units, SYMBOLS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * self.embedding.width**0.5
        for layer in self.layers:
            x = layer(x)[0]
        return x[:, -1]

    def compute_loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        return self.output.loss(self(ids), targets)


@dataclass(frozen=True, kw_only=True)
class AttentiveState(Experiment):
    id = "F18"
    claim = "Self-attention can be added to a recurrent state."
    equation = "h_t = s_t + a_t,  s_t = RNN(x_t, s_(t−1)), or RNN(x_t, h_(t−1)) with feedback"
    measurement = "Accuracy in recalling the first symbol after a lag, trained with and without attention, per lag."
    rule = "Holds if at the longest lag the accuracy is above 80 % with attention and below 60 % without."
    try_next = "seqwise lab run F18 --form feedback --max-lag 20: attention flows back into the state; it takes longer."
    seconds = 5.0
    minimums: ClassVar = {"learning_rate": 0.0}
    quick: ClassVar = {"min_lag": 20, "max_lag": 40, "steps": 100}

    form: str = "parallel"
    """Attention after the recurrence (parallel), or as part of its state (feedback)."""
    min_lag: int = 5
    """Shortest lag; each further one is twice as long."""
    max_lag: int = 80
    """Longest lag, T."""
    units: int = 32
    """Hidden units."""
    steps: int = 120
    """Training steps per model, of 32 sequences."""
    learning_rate: float = 0.01
    """Learning rate of AdamW."""

    def measure(self) -> Measured:
        lags = [self.min_lag * 2**n for n in range(20) if n == 0 or self.min_lag * 2**n <= self.max_lag]
        with_attention = [self.train_and_evaluate(lag, self.build_attentive_layers(lag)) for lag in lags]
        without = [self.train_and_evaluate(lag, [Recurrent(RNNCell(self.units, self.units))]) for lag in lags]
        return {
            "longest_lag": lags[-1],
            "accuracy_without_attention": without[-1],
            "accuracy_with_attention": with_attention[-1],
            "lags": np.array(lags),
            "accuracies_without": np.array(without),
            "accuracies_with": np.array(with_attention),
        }

    def build_attentive_layers(self, span: int) -> list[nn.Module]:
        cell = RNNCell(self.units, self.units)
        if self.form not in FORMS:
            raise UsageError(f"there is no form {self.form!r}.", fix=suggest(self.form, FORMS))
        is_parallel = self.form == "parallel"
        return [Recurrent(cell), StateAttention(self.units, span)] if is_parallel else [AttentiveRecurrent(cell, span)]

    def draw_batch(self, number: int, lag: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        ids = torch.randint(SYMBOLS, 2 * SYMBOLS, (number, lag + 1), generator=generator)
        ids[:, 0] = torch.randint(SYMBOLS, (number,), generator=generator)
        return ids, ids[:, 0]

    def train_and_evaluate(self, lag: int, layers: Sequence[nn.Module]) -> float:
        model = Recaller(layers, self.units)
        settings: dict[str, Any] = {"steps": self.steps, "learning_rate": self.learning_rate, "seed": self.seed}
        fit(model, partial(self.draw_batch, 32, lag), lambda _, *batch: model.compute_loss(*batch), **settings)
        ids, targets = self.draw_batch(NUM_TEST, lag, make_generator(self.seed, lag, 1))
        return float((model.output.logits(model(ids)).argmax(-1) == targets).float().mean())

    def judge(self, measured: Measured) -> Verdict:
        without, with_attention = measured["accuracy_without_attention"], measured["accuracy_with_attention"]
        return decide(
            with_attention > 0.8 and without < 0.6,
            evidence=f"After a lag of {measured['longest_lag']} the accuracy is {100 * with_attention:.0f} % with "
            f"attention and {100 * without:.0f} % without; chance is {100 / SYMBOLS:.0f} %.",
            instead="Attention added to the state makes no decisive difference at this lag.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"with attention": "accuracies_with", "without": "accuracies_without"}
        chart = LineChart(
            title=f"Recalling the first of many symbols after {self.steps} training steps",
            series=[Series(name=name, x=measured["lags"], y=100 * measured[key]) for name, key in names.items()],
            x_label="lag (steps between the symbol and the answer)",
            y_label="accuracy (%)",
            x_log=True,
            references=[Reference(axis="y", value=100 / SYMBOLS, label="chance")],
            note="Both read the same sequences; with attention the first state is one step away from the last.",
        )
        return [chart]
