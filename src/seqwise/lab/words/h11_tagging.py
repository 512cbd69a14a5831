"""H11: does context from both sides help tagging?

    forward          p(yₜ | x₁ … xₜ)            a recurrent layer that reads from left to right
    bidirectional    p(yₜ | x₁ … x_T)           the states of two layers, [→h ; ←h] (Schuster and Paliwal 1997)

The tag of a word often depends on words that follow: in "the cut hurts" and "the cut flower" only the next word tells
noun from participle. A layer that reads forward has not seen it when it must answer. In the language here some words
have one tag, some take one of two tags depending on the word before, and some depending on the word after. A forward
GRU can only guess the last kind, a backward one the second; more units do not help: each has about as many parameters
as the bidirectional model. If no tag depends on what follows, both directions are no better than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.heads.tag import IndependentTagHead
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import Bidirectional, Embedding, GRUCell, Recurrent
from seqwise.page.figures import BarChart, Figure

WORDS, TAGS = 30, 4  # words 0 … 9 have one tag, 10 … 19 depend on the word before, 20 … 29 on the word after
BEFORE, AFTER = 10, 20


class Tagger(nn.Module):
    """Embedding, a GRU in one or two directions, and a tag for each word."""

    def __init__(self, direction: str, width: int):
        super().__init__()
        self.embedding, self.is_reversed = Embedding(WORDS, width), direction == "backward"
        if direction == "bidirectional":
            self.layer = Bidirectional(*(Recurrent(GRUCell(width, width)) for _ in range(2)))
        else:  # units n with n (n + width) ≈ 4 width²: about as many weights as the two layers have
            self.layer = Recurrent(GRUCell(width, round((17**0.5 - 1) / 2 * width)))
        self.head = IndependentTagHead(self.layer.units, TAGS)

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the scores (B, T, tags)."""
        vectors = self.embedding(ids)
        states, _ = self.layer(vectors.flip(1) if self.is_reversed else vectors)
        return self.head.scores(states.flip(1) if self.is_reversed else states)


@dataclass(frozen=True, kw_only=True)
class DirectionsOfTagging(Experiment):
    id = "H11"
    claim = "Bidirectional context helps tagging."
    equation = "p(yₜ | x₁ … x_T)  against  p(yₜ | x₁ … xₜ)"
    measurement = (
        "The accuracy of a forward, a backward and a bidirectional GRU tagger with about equally many parameters."
    )
    rule = "Holds if the bidirectional tagger is at least 5 points better than the better one of the other two."
    try_next = "seqwise lab run H11 --steps 1000: longer training does not help the forward tagger."
    seconds = 2.0
    quick: ClassVar = {"steps": 120}

    steps: int = 250
    """Training steps, of 32 sentences each."""
    length: int = 12
    """Words of a sentence."""
    width: int = 16
    """Width of the embedding, and units of each direction of the bidirectional model."""

    def measure(self) -> Measured:
        measured: dict[str, float | int | np.ndarray] = {}
        ids, tags = self.draw_sentences(make_generator(self.seed, 1), 500)
        kinds = {
            "one_tag": ids < BEFORE,
            "by_word_before": (ids >= BEFORE) & (ids < AFTER),
            "by_word_after": ids >= AFTER,
        }
        table = []
        for direction in ("forward", "backward", "bidirectional"):
            model = Tagger(direction, self.width)
            fit(model, self.draw_sentences, compute_loss, steps=self.steps, seed=self.seed)
            with torch.no_grad():
                is_correct = (model(ids).argmax(dim=-1) == tags).double()
            measured[f"accuracy_of_{direction}_tagger"] = float(is_correct.mean())
            measured[f"parameters_of_{direction}_tagger"] = sum(each.numel() for each in model.layer.parameters())
            table.append([float(is_correct[kind].mean()) for kind in kinds.values()])
        return {**measured, "accuracies": np.array(table)}

    def draw_sentences(self, generator: torch.Generator, count: int = 32) -> tuple[Tensor, Tensor]:
        """Returns words and tags (B, T)."""
        ids = torch.randint(WORDS, (count, self.length), generator=generator)
        before, after = self.choose_neighbours(ids)
        neighbour = torch.where(ids >= AFTER, after, before) % 2  # which of the two tags
        return ids, torch.where(ids < BEFORE, ids % TAGS, (ids + neighbour) % TAGS)

    def choose_neighbours(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the word before and after each word; the ends of the sentence are neighbours of themselves."""
        return torch.cat([ids[:, :1], ids[:, :-1]], dim=1), torch.cat([ids[:, 1:], ids[:, -1:]], dim=1)

    def judge(self, measured: Measured) -> Verdict:
        forward, backward, both = (
            measured[f"accuracy_of_{name}_tagger"] for name in ("forward", "backward", "bidirectional")
        )
        return decide(
            both - max(forward, backward) > 0.05,
            evidence=f"The forward tagger is right in {100 * forward:.1f} % of the words, the backward one in "
            f"{100 * backward:.1f} %, the bidirectional one in {100 * both:.1f} %, with "
            f"{measured['parameters_of_forward_tagger']:,} and {measured['parameters_of_bidirectional_tagger']:,} "
            "parameters in one and both directions.",
            instead="Here two directions are at most 5 points better than one.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        directions, kinds = ("forward", "backward", "both"), ("one tag", "by word before", "by word after")
        chart = BarChart(
            title="Accuracy of taggers that read in one direction or both, by kind of word",
            names=[f"{kind}: {direction}" for kind in kinds for direction in directions],
            values=np.asarray(measured["accuracies"]).T.flatten(),
            value_label="accuracy (0.5: guess between two tags)",
            note="A direction can only use the words that it has read.",
        )
        return [chart]


def compute_loss(model: nn.Module, ids: Tensor, tags: Tensor) -> Tensor:
    return F.cross_entropy(model(ids).mT, tags, reduction="none").flatten()
