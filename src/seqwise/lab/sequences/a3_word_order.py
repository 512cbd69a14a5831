"""A3: which models read "dog bites man" differently from "man bites dog"?

    bag of words     f(Σₜ xₜ)                      a sum forgets the order of its terms
    recurrent        hₜ = f(xₜ, hₜ₋₁)              f(a, f(b, 0)) ≠ f(b, f(a, 0))
    attention        Σₛ softmax(q·kₛ) vₛ            a sum again: it needs positions

The same words in another order are another statement. A bag of words gives both the same vector, so no layer above it
can answer "who bites?" better than by guessing between the two nouns. Attention compares every pair of words but does
not know which comes first, unless positions are added to its inputs (Vaswani et al. 2017, §3.5) or a causal mask hides
later words. A recurrent network reads in order by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import Embedding, Encoder, GRUCell, PreNormEncoderLayer, Recurrent, SinusoidalPositions
from seqwise.page.figures import BarChart, Figure

NAMES = {
    "bag": "bag of words",
    "attention": "attention, no positions",
    "positions": "attention + positions",
    "recurrent": "recurrent (GRU)",
}


class SentenceReader(nn.Module):
    """Names the agent of a sentence, by one of four kinds of network."""

    def __init__(self, kind: str, words: int, nouns: int, units: int):
        super().__init__()
        self.kind, self.embedding, self.output = kind, Embedding(words, units), nn.Linear(units, nouns)
        if kind == "recurrent":
            self.layer: nn.Module = Recurrent(GRUCell(units, units))
        elif kind != "bag":
            self.layer = Encoder([PreNormEncoderLayer(units, 2, 2 * units, "gelu")])
        self.positions = SinusoidalPositions(units) if kind == "positions" else nn.Identity()

    def forward(self, words: Tensor) -> Tensor:
        """Returns the logits of the agent (B, nouns) for words (B, 3)."""
        x = self.positions(self.embedding(words))
        if self.kind == "recurrent":
            return self.output(self.layer(x)[0][:, -1])
        return self.output((x if self.kind == "bag" else self.layer(x, causal=False)[0]).mean(1))


@dataclass(frozen=True, kw_only=True)
class WordOrder(Experiment):
    id = "A3"
    claim = 'Order matters: "dog bites man" is not "man bites dog".'
    equation = "f(dog, bites, man) ≠ f(man, bites, dog)"
    measurement = 'The accuracy of trained networks on "who bites?", and how their outputs change if the nouns swap.'
    rule = (
        "Holds if the accuracy is ≥ 0.9 with order and ≤ 0.7 without, where both orders give equal outputs (to 1e-4)."
    )
    try_next = "seqwise lab run A3 --nouns 20: more nouns; a bag of words still has to guess between two."
    seconds = 3.0
    quick: ClassVar = {"training_steps": 70}
    minimums: ClassVar = {"nouns": 2}

    nouns: int = 6
    """Number of nouns; a sentence has two different ones."""
    verbs: int = 4
    """Number of verbs."""
    units: int = 32
    """Width of the embedding and of the layers; an even number."""
    training_steps: int = 200
    """Batches of 64 sentences on which each network is trained."""

    def measure(self) -> Measured:
        measured: dict[str, float] = {}
        sentences, agents = self.draw_sentences(make_generator(self.seed, 1), batch=1000)
        for kind in NAMES:
            reader = self.build(kind)
            fit(reader, self.draw_sentences, compute_loss, steps=self.training_steps, seed=self.seed)
            with torch.no_grad():
                outputs, swapped = reader(sentences), reader(sentences.flip(1))
            measured[f"accuracy_{kind}"] = float((outputs.argmax(-1) == agents).double().mean())
            measured[f"swap_changes_logits_of_{kind}_by"] = float((outputs - swapped).abs().max())
        return measured

    def build(self, kind: str) -> SentenceReader:
        return SentenceReader(kind, self.nouns + self.verbs, self.nouns, self.units)

    def draw_sentences(self, generator: torch.Generator, batch: int = 64) -> tuple[Tensor, Tensor]:
        """Returns sentences agent, verb, patient (B, 3), and the agents (B,)."""
        nouns = torch.rand(batch, self.nouns, generator=generator).argsort(1)[:, :2]
        verbs = torch.randint(self.nouns, self.nouns + self.verbs, (batch, 1), generator=generator)
        return torch.cat([nouns[:, :1], verbs, nouns[:, 1:]], 1), nouns[:, 0]

    def judge(self, measured: Measured) -> Verdict:
        bag, attention, positions, recurrent = (measured[f"accuracy_{kind}"] for kind in NAMES)
        change = max(measured[f"swap_changes_logits_of_{kind}_by"] for kind in ("bag", "attention"))
        return decide(
            min(positions, recurrent) >= 0.9 and max(bag, attention) <= 0.7 and change < 1e-4,
            evidence=f'"Who bites?" is answered with an accuracy of {bag:.2f} by a bag of words, {attention:.2f} by '
            f"attention without positions, {positions:.2f} with positions and {recurrent:.2f} by a recurrent network. "
            f"Swapping the nouns changes the logits of the first two by {change:.1g}, those of the others by up to "
            f"{measured['swap_changes_logits_of_positions_by']:.2g} and "
            f"{measured['swap_changes_logits_of_recurrent_by']:.2g}.",
            instead="On this task the order of the words is not what decides whether a network succeeds.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        chart = BarChart(
            title='Accuracy on "who bites?" with and without knowledge of the word order',
            names=list(NAMES.values()),
            values=np.array([measured[f"accuracy_{kind}"] for kind in NAMES]),
            value_label="accuracy",
            note="Without order the best answer is a guess between the two nouns: about 0.5.",
        )
        return [chart]


def compute_loss(model: nn.Module, sentences: Tensor, agents: Tensor) -> Tensor:
    return F.cross_entropy(model(sentences), agents, reduction="none")
