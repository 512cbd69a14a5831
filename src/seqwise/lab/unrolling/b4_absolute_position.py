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
RULES = {"mark": "marked", "new_places": "new places", "place": "one place"}


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
            for rule, places in (("mark", (0, half)), ("new_places", (half, self.length))):
                test = self.draw_marked(make_generator(self.seed, 7), *places, batch=512)
                measured[f"{rule}_{kind}"] = compute_accuracy(reader, *test)
            reader = self.train(kind, self.draw_place, self.training_steps)
            measured[f"place_{kind}"] = compute_accuracy(reader, *self.draw_place(make_generator(self.seed, 8), 512))
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
        return decide_condition(
            measured["new_places_convolution"] >= 0.7 and measured["place_convolution"] < 0.7,
            measured["place_gru"] < 0.7,
            condition="nothing tells the network the place: no state that counts steps and no positional encoding",
            evidence=f"At new places the convolution has an accuracy of {measured['new_places_convolution']:.2f}, the "
            f"dense layer of {measured['new_places_dense']:.2f}. The token at place {self.place} is copied with "
            f"{measured['place_convolution']:.2f} by the convolution and {measured['place_gru']:.2f} by the GRU.",
            instead="Shared weights alone decide neither whether a rule transfers to new places nor what is learned.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        pairs = [(rule, kind) for rule in RULES for kind in NAMES]
        chart = BarChart(
            title=f"Accuracy of four networks on rules without a place and on place {self.place}",
            names=[f"{RULES[rule]}: {NAMES[kind]}" for rule, kind in pairs],
            values=np.array([measured[f"{rule}_{kind}"] for rule, kind in pairs]),
            value_label="accuracy",
            note="The dense layer fails at new places, the convolution on the place; GRU and attention learn both.",
        )
        return [chart]
