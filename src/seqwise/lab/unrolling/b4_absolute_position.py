"""B4: do shared weights generalise over position, and are rules of absolute position beyond them?

    shared      y = maxₜ f(xₜ; θ)                  the same θ at every place t
    dense       y = Σₜ Wₜ xₜ                       its own Wₜ for every place

What shared weights learn at one place they can do at all: "copy the marked token" transfers to places where no mark was
seen in training, while a dense layer has untrained weights there. The price is said to be that they cannot learn "copy
the token at place 7". That is so for a convolution with a maximum over time: it is blind to the place. It is not so
for a recurrent network. Its weights are shared, but its state begins at a known value and counts steps: the GRU even
learns that marks occur early and loses accuracy at new places. Positional encodings give attention this ability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import DrawBatch, fit, make_generator
from seqwise.lab.unrolling.token_reader import TokenReader, compute_accuracy, compute_loss
from seqwise.page.figures import BarChart, Figure

NAMES = {"convolution": "convolution", "gru": "GRU", "positions": "attention", "dense": "dense layer"}
RULES = {"marked": "marked", "new_places": "new places", "one_place": "one place"}


@dataclass(frozen=True, kw_only=True)
class AbsolutePosition(Experiment):
    id = "B4"
    claim = "Shared weights generalise over position, but cannot learn rules tied to absolute position."
    equation = "yₜ = f(xₜ; θ) with one θ for all t;  rule: y = x_place"
    measurement = (
        "The accuracy of four networks on a rule without places, at places new to them, and on one of a place."
    )
    rule = (
        "True of the convolution if its accuracy is ≥ 0.7 at new places and < 0.7 on the rule of one place; true of "
        "shared weights in general only if that of the GRU is < 0.7 on this rule too."
    )
    try_next = (
        "seqwise lab run B4 --training-steps 60: the GRU has not yet learned to count, and the claim seems to hold."
    )
    seconds = 6.0
    quick: ClassVar = {"training_steps": 150, "length": 8, "place": 4}
    minimums: ClassVar = {"tokens": 2, "length": 2}

    tokens: int = 6
    """Number of different tokens."""
    length: int = 10
    """Tokens of a sequence; in training marks occur in its first half only."""
    place: int = 7
    """The place whose token is to be copied, from 1 on."""
    units: int = 32
    """Width of the networks; an even number."""
    training_steps: int = 400
    """Batches of training on the rule of the place; the other rule gets half of them."""

    def measure(self) -> Measured:
        if self.place > self.length:
            raise UsageError(f"expected a place from 1 to the length, {self.length}; received {self.place}.")
        half, half_steps, measured = self.length // 2, max(1, self.training_steps // 2), {}
        for kind in NAMES:
            reader = self.train(kind, lambda generator: self.draw_marked(generator, 0, half), half_steps)
            for rule, places in (("marked", (0, half)), ("new_places", (half, self.length))):
                test = self.draw_marked(make_generator(self.seed, 7), *places, batch=512)
                measured[f"accuracy_{rule}_{kind}"] = compute_accuracy(reader, *test)
            reader = self.train(kind, self.draw_place, self.training_steps)
            test = self.draw_place(make_generator(self.seed, 8), 512)
            measured[f"accuracy_one_place_{kind}"] = compute_accuracy(reader, *test)
        return measured

    def train(self, kind: str, draw: DrawBatch, steps: int) -> TokenReader:
        reader = TokenReader(kind, self.tokens, self.length, self.units)
        fit(reader, draw, compute_loss, steps=steps, seed=self.seed)
        return reader

    def draw_marked(self, generator: torch.Generator, first: int, stop: int, batch: int = 64) -> tuple[Tensor, Tensor]:
        """Returns sequences with one mark at an index from `first` to before `stop`, and the marked token."""
        ids = torch.randint(1, self.tokens + 1, (batch, self.length), generator=generator)
        rows, index = torch.arange(batch), torch.randint(first, stop, (batch,), generator=generator)
        targets = ids[rows, index] - 1
        ids[rows, index] += self.tokens
        return ids, targets

    def draw_place(self, generator: torch.Generator, batch: int = 64) -> tuple[Tensor, Tensor]:
        ids = torch.randint(1, self.tokens + 1, (batch, self.length), generator=generator)
        return ids, ids[:, self.place - 1] - 1

    def judge(self, measured: Measured) -> Verdict:
        transferred, dense = (measured[f"accuracy_new_places_{kind}"] for kind in ("convolution", "dense"))
        convolution, gru = (measured[f"accuracy_one_place_{kind}"] for kind in ("convolution", "gru"))
        return decide_condition(
            transferred >= 0.7 and convolution < 0.7,
            gru < 0.7,
            condition="nothing tells the network the place: no state that counts steps and no positional encoding",
            evidence=f"At new places the convolution has an accuracy of {transferred:.2f}, the dense layer of "
            f"{dense:.2f}. The token at place {self.place} is copied with an accuracy of {convolution:.2f} by the "
            f"convolution and of {gru:.2f} by the GRU.",
            instead="The convolution fails at new places, or it learns the rule of one place.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        pairs = [(rule, kind) for rule in RULES for kind in NAMES]
        chart = BarChart(
            title=f"Accuracy of four networks on rules without a place and on place {self.place}",
            names=[f"{RULES[rule]}: {NAMES[kind]}" for rule, kind in pairs],
            values=np.array([measured[f"accuracy_{rule}_{kind}"] for rule, kind in pairs]),
            value_label="accuracy",
            note=f"Marked: copy the marked token; new places: marks where training had none; one place: copy "
            f"token {self.place}. Guessing has an accuracy of {1 / self.tokens:.2f}.",
        )
        return [chart]
