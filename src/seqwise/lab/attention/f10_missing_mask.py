"""F10: what happens to a language model that is trained without the causal mask?

    loss = −(1/T) Σ_t log p(x_(t+1) | x_1 … x_T)          instead of p(x_(t+1) | x_1 … x_t)

The input at position t + 1 is the target of position t. Without the mask a query may attend to it, so the model learns
to copy its answer instead of predicting it. The sign of such a leak is a loss that is too good: a predictor that sees
the past alone has an expected loss of at least the entropy of the data. In generation the next position does not exist
yet, and there is nothing to copy. The language here has a known entropy: each symbol allows two successors, equally
likely, `lag` positions later. The lag of 2 is chosen for a clear effect: with 1, over half of the generated symbols are
allowed, as the last position has nothing to copy and learns to predict from its own symbol, and then all others can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import Embedding, Encoder, FullSoftmax, PreNormEncoderLayer, SinusoidalPositions
from seqwise.page.figures import BarChart, Figure, LineChart, Reference, Series


class LanguageModel(nn.Module):
    """A Transformer of one layer, with or without the causal mask."""

    def __init__(self, symbols: int, causal: bool, width: int = 32):
        super().__init__()
        self.embedding, self.positions = Embedding(symbols, width), SinusoidalPositions(width)
        self.causal, self.encoder = causal, Encoder([PreNormEncoderLayer(width, 4, 2 * width, "relu")])
        self.output = FullSoftmax(width, symbols)

    def forward(self, ids: Tensor) -> Tensor:
        return self.encoder(self.positions(self.embedding(ids)), causal=self.causal)[0]

    def next(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Returns the log-probabilities after all ids so far, which are the state: without a mask nothing is cached."""
        state = ids if state is None else torch.cat((state, ids), 1)
        return self.output(self(state)[:, -1]), state


def compute_loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return model.output.loss(model(x).flatten(0, 1), y.flatten())


@dataclass(frozen=True, kw_only=True)
class MissingMask(Experiment):
    id = "F10"
    claim = "Without the mask training loss collapses and generation fails."
    equation = "−log p(xₜ₊₁ | x₁ … xₙ) → 0, although E[−log p(xₜ₊₁ | x₁ … xₜ)] ≥ H(xₜ₊₁ | x₁ … xₜ)"
    measurement = "The training loss against the entropy of the language, and how many generated symbols are allowed."
    rule = "Holds if the loss is below half the entropy, and under half as many symbols are allowed as with the mask."
    try_next = "seqwise lab run F10 --lag 1: the loss collapses too, but generation fails less."
    seconds = 3.0
    minimums: ClassVar = {"symbols": 3, "length": 3}
    quick: ClassVar = {"steps": 160}
    models: ClassVar = {"masked": True, "unmasked": False}  # whether each is causal
    symbols: int = 16
    """Size of the vocabulary."""
    lag: int = 2
    """Distance between a symbol and its successor."""
    length: int = 16
    """Length of the sequences."""
    steps: int = 250
    """Training steps of each model, of 32 sequences."""

    def measure(self) -> Measured:
        share = (self.lag - 1) / self.length  # of the first targets, which are uniform; the others are one of two
        numbers: dict[str, Any] = {"entropy": float(share * np.log(self.symbols) + (1 - share) * np.log(2))}
        for name, causal in self.models.items():
            model = LanguageModel(self.symbols, causal)
            losses = fit(model, self.draw_batch, compute_loss, steps=self.steps, learning_rate=1e-2, seed=self.seed)
            numbers |= {f"loss_of_{name}_model": float(np.mean(losses[-10:])), f"losses_{name}": np.array(losses)}
            numbers[f"allowed_share_of_{name}_model"] = self.measure_allowed_share(model)
        return numbers

    def build_successors(self) -> Tensor:
        """Returns two successors of each symbol (V, 2), neither of which is the symbol itself."""
        shifts = torch.rand(self.symbols, self.symbols - 1, generator=make_generator(self.seed)).argsort(1)[:, :2] + 1
        return (torch.arange(self.symbols)[:, None] + shifts) % self.symbols

    def draw_batch(self, generator: torch.Generator, count: int = 32) -> tuple[Tensor, Tensor]:
        ids = torch.randint(self.symbols, (count, self.length + 1), generator=generator)
        choices, successors = torch.randint(2, ids.shape, generator=generator), self.build_successors()
        for t in range(self.lag, self.length + 1):
            ids[:, t] = successors[ids[:, t - self.lag], choices[:, t]]
        return ids[:, :-1], ids[:, 1:]

    def measure_allowed_share(self, model: LanguageModel) -> float:
        """Returns how many of the symbols that the model generates after a short prompt are allowed successors."""
        prompt = self.draw_batch(make_generator(self.seed, self.steps), count=200)[0][:, : self.lag]
        new = islice(generate(model, prompt, SamplingOptions(), seed=self.seed), self.length - prompt.shape[1])
        ids = torch.cat((prompt, torch.stack(list(new), 1)), 1)
        return float((self.build_successors()[ids[:, : -self.lag]] == ids[:, self.lag :, None]).any(-1).double().mean())

    def judge(self, measured: Measured) -> Verdict:
        loss, share = measured["loss_of_unmasked_model"], measured["allowed_share_of_unmasked_model"]
        other_loss, other_share = measured["loss_of_masked_model"], measured["allowed_share_of_masked_model"]
        return decide(
            loss < measured["entropy"] / 2 and share < other_share / 2,
            evidence=f"Without the mask the loss is {loss:.3g} nats, of an entropy of {measured['entropy']:.3g}, and "
            f"{100 * share:.0f} % of new symbols are allowed; with it {other_loss:.3g} and {100 * other_share:.0f} %.",
            instead="The loss does not collapse, or generation still works in part, as it does for a lag of 1.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        losses = LineChart(
            title="Training loss of a language model with and without the causal mask",
            series=[Series(name=key, x=np.arange(self.steps), y=measured[f"losses_{key}"]) for key in self.models],
            x_label="training step",
            y_label="cross-entropy (nats per symbol)",
            references=[Reference(axis="y", value=measured["entropy"], label="entropy of the language")],
            note="No predictor that sees the past alone can fall below the entropy in expectation.",
        )
        shares = BarChart(
            title="Share of generated symbols that the language allows",
            names=[*self.models, "random symbols"],
            values=100 * np.array([*(measured[f"allowed_share_of_{n}_model"] for n in self.models), 2 / self.symbols]),
            value_label="allowed symbols (%)",
            note="Each model reads a prompt, then the symbols that it has generated itself.",
        )
        return [losses, shares]
