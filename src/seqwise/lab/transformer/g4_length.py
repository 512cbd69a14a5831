"""G4: do learned positions reach beyond the length at which they were trained?

    learned:     xₜ + Pₜ               one vector per position, trained where the data reach
    sinusoidal:  xₜ + PE(t)            defined for every t
    rotary:      qₜᵀ R(s − t) kₛ       depends on the difference of positions alone

The task is to repeat the token that came a few positions earlier, so a model has to know where it is. It is trained on
short sequences and tested on longer ones. A learned vector gets a gradient only if its position occurs: beyond the
training length it still is the random vector it was at the beginning, and beyond the table there is none, which is an
error here. The other two can be computed for any position, and sinusoids were chosen because they "may allow the model
to extrapolate" (Vaswani et al. 2017, §3.5). To be defined is not to work, though: the sinusoidal model fails right
beyond its training length too, and the rotary one from about twice that length on (Press et al. 2022, figure 1, found
the same for language models, and proposed a bias by distance instead).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.lab.transformer.models import build_language_model, compute_losses
from seqwise.layers import LearnedPositions
from seqwise.page.figures import Figure, LineChart, Reference, Series

KINDS, WHERE = ("learned", "sinusoidal", "rotary"), ("within", "beyond")  # of positions; the training length


@dataclass(frozen=True, kw_only=True)
class LengthOfPositions(Experiment):
    id = "G4"
    claim = "Learned positions do not reach beyond their length."
    equation = "∂L/∂Pₜ = 0 beyond the training length, so the loss there is no better than log V"
    measurement = "Loss by position of models trained on short sequences and tested on longer ones."
    rule = "Holds if the loss with learned positions is below half of a uniform guess's within, and above it beyond."
    try_next = "seqwise lab run G4 --test-length 32: up to twice the training length the rotary model is still right."
    seconds = 6
    quick = {"steps": 200}  # noqa: RUF012

    train_length: int = 16
    """Length of the training sequences."""
    test_length: int = 64
    """Length of the test sequences, and of the table of learned positions."""
    lag: int = 3
    """The token to repeat came this many positions earlier."""
    vocabulary: int = 8
    """Number of tokens."""
    width: int = 32
    """Width of the models, which have one layer."""
    steps: int = 400
    """Training steps."""

    def measure(self) -> Measured:
        if not 0 < self.lag < self.train_length < self.test_length:
            raise UsageError("G4 needs lag < train length < test length.")
        losses = {kind: self.train_and_test(kind) for kind in KINDS}
        within, beyond = slice(self.lag, self.train_length), slice(self.train_length, None)
        return {
            **{f"loss_of_{kind}_positions_within": float(losses[kind][within].mean()) for kind in KINDS},
            **{f"loss_of_{kind}_positions_beyond": float(losses[kind][beyond].mean()) for kind in KINDS},
            "loss_of_uniform_guess": math.log(self.vocabulary),
            "table_refuses_longer_sequences": self.check_table(),
            **{f"losses_{kind}": losses[kind] for kind in KINDS},
        }

    def train_and_test(self, kind: str) -> np.ndarray:
        """Returns the test loss by position (T,) of a model with one kind of positions; NaN for the first few."""
        length = self.test_length
        model = build_language_model(self.vocabulary, width=self.width, depth=1, length=length, positions=kind)
        fit(model, self.draw_batch, self.compute_losses, steps=self.steps, learning_rate=1e-2, seed=self.seed)
        tokens, targets = self.draw_sequences(make_generator(self.seed, -1), 64, self.test_length)
        with torch.no_grad():
            losses = self.compute_losses(model, tokens, targets).view(64, -1).mean(0)
        return np.concatenate([np.full(self.lag, np.nan), losses.numpy()])

    def draw_sequences(self, generator: torch.Generator, count: int, length: int) -> tuple[Tensor, Tensor]:
        """Returns random tokens, and as targets the tokens `lag` positions earlier."""
        tokens = torch.randint(self.vocabulary, (count, length), generator=generator)
        return tokens, tokens.roll(self.lag, 1)

    def draw_batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.draw_sequences(generator, 32, self.train_length)

    def compute_losses(self, model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        """Returns the losses of all positions but the first few, which have no token to repeat."""
        return compute_losses(model, tokens, targets)[:, self.lag :].flatten()

    def check_table(self) -> bool:
        """Returns whether learned positions refuse a sequence that is longer than their table."""
        try:
            LearnedPositions(self.width, self.test_length)(torch.zeros(1, self.test_length + 1, self.width))
        except UsageError:
            return True
        return False

    def judge(self, measured: Measured) -> Verdict:
        pairs = {kind: [measured[f"loss_of_{kind}_positions_{where}"] for where in WHERE] for kind in KINDS}
        guess, (within, beyond) = measured["loss_of_uniform_guess"], pairs.pop("learned")
        others = ", ".join(f"{loss:.2g} and {other:.2g} ({kind})" for kind, (loss, other) in pairs.items())
        return decide(
            within < guess / 2 and beyond > guess and measured["table_refuses_longer_sequences"],
            evidence=f"With learned positions the loss is {within:.2g} up to position {self.train_length} and "
            f"{beyond:.2g} from there to {self.test_length}, where a uniform guess has {guess:.2g}; beyond the table "
            f"there is an error. With the other positions the losses are {others}.",
            instead="Learned positions work beyond the training length, or were not learned within it.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        x = np.arange(self.test_length)
        chart = LineChart(
            title=f"Repeating the token {self.lag} positions earlier, after training on {self.train_length} positions",
            series=[Series(name=f"{kind} positions", x=x, y=measured[f"losses_{kind}"]) for kind in KINDS],
            x_label="position (tokens)",
            y_label="test loss (nats)",
            references=[
                Reference(axis="x", value=self.train_length, label="training length"),
                Reference(axis="y", value=measured["loss_of_uniform_guess"], label="uniform guess"),
            ],
            note="No model was trained beyond the training length; learned vectors are still random there.",
        )
        return [chart]
