"""H14: is a model that only counts n-grams a language model?

    q(w | h) = max(c(hw) − D, 0) / c(h) + λ(h) q(w | h′)        h′: the history without its oldest token

A language model assigns a probability to each next token, Σ_w q(w | h) = 1 for every history h, and so to each text. An
n-gram model does this from counts alone: it remembers how often each token followed the last n − 1. Plain relative
frequencies c(hw) / c(h) would give a text with one unseen n-gram the probability 0, so its perplexity would be
infinite. Smoothing moves a little of the mass to shorter histories (Kneser and Ney 1995; Chen and Goodman 1999).
Counting takes one pass, and on little text its perplexity is better than that of a recurrent network, which needs many
passes but has no fixed length of history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit
from seqwise.lab.words.grammar import CharacterText, read_characters
from seqwise.lab.words.language_models import NextTokenModel
from seqwise.page.figures import BarChart, Figure
from seqwise.tasks.language.ngram import NGram

SEQUENCE = 33  # characters of a training sequence of the GRU


@dataclass(frozen=True, kw_only=True)
class CountingModel(Experiment):
    id = "H14"
    claim = "A count-based n-gram model is a language model too."
    equation = "Σ_w q(w | h) = 1 for every history h;  q(w | h) > 0"
    measurement = (
        "Sums of the probabilities after histories of held-out and of random text, and perplexities of n-gram "
    )
    measurement += "models, a GRU and uniform guessing on the same held-out text."
    rule = (
        "Holds if all sums are 1 to 1e-9 and the n-gram model's perplexity is below a quarter of the vocabulary size."
    )
    try_next = "seqwise lab run H14 --steps 1000: a GRU that is trained longer comes nearer to the n-gram model."
    seconds = 4.0
    minimums: ClassVar = {"characters": 2000}
    quick: ClassVar = {"steps": 80}

    order: int = 5
    """Order n of the n-gram model: it reads n − 1 characters of history."""
    characters: int = 60_000
    """Characters of the training text, from the built-in documentation of Python."""
    steps: int = 300
    """Training steps of the GRU, of 16 sequences of 32 characters each."""
    width: int = 64
    """Units of the GRU."""
    histories: int = 200
    """Histories after which the probabilities are added, half of them random characters."""

    def measure(self) -> Measured:
        text = read_characters("builtin:docs", self.characters, self.characters // 10, self.seed)
        models = [self.count(text, order) for order in range(1, self.order + 1)]
        perplexities = [float(np.exp(-model.score_tokens(text.held_out).mean())) for model in models]
        errors = [abs(models[-1].compute_distribution(h).sum() - 1) for h in self.choose_histories(text)]
        gru = self.score_gru(text)
        return {
            "vocabulary": text.vocabulary_size,
            "largest_error_of_sums": float(max(errors)),
            "perplexity_of_ngram_model": perplexities[-1],
            "perplexity_of_unigram_model": perplexities[0],
            "perplexity_of_gru": gru,
            "perplexity_of_uniform_guessing": text.vocabulary_size,
            "characters_read_by_ngram": self.characters,
            "characters_read_by_gru": self.steps * 16 * (SEQUENCE - 1),
            "perplexities": np.array([text.vocabulary_size, *perplexities, gru], dtype=float),
        }

    def count(self, text: CharacterText, order: int) -> NGram:
        """Returns the model of the n-grams in the training text."""
        return NGram.count(text.train, text.vocabulary_size, order)

    def choose_histories(self, text: CharacterText) -> list[np.ndarray]:
        """Returns histories from the held-out text, and as many random ones, most of which never occurred."""
        random = np.random.default_rng(self.seed)
        starts = random.integers(len(text.held_out) - self.order, size=self.histories // 2)
        unseen = random.integers(text.vocabulary_size, size=(self.histories // 2, self.order))
        return [*(text.held_out[start : start + self.order] for start in starts), *unseen]

    def score_gru(self, text: CharacterText) -> float:
        """Trains a GRU on the text; returns its perplexity on the held-out part."""
        model, ids = NextTokenModel(text.vocabulary_size, self.width), torch.from_numpy(text.train)

        def draw_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            starts = torch.randint(len(ids) - SEQUENCE, (16, 1), generator=generator)
            return (batch := ids[starts + torch.arange(SEQUENCE)]), batch

        def compute_loss(_: nn.Module, batch: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(model.force(batch).mT, batch[:, 1:], reduction="none").flatten()

        fit(model, draw_batch, compute_loss, steps=self.steps, seed=self.seed)
        with torch.no_grad():
            held_out = torch.from_numpy(text.held_out)[None]
            return float(compute_loss(model, held_out, held_out).mean().exp())

    def judge(self, measured: Measured) -> Verdict:
        error, perplexity, size = (
            measured[key] for key in ("largest_error_of_sums", "perplexity_of_ngram_model", "vocabulary")
        )
        return decide(
            error < 1e-9 and perplexity < size / 4,
            evidence=f"The probabilities after {self.histories} histories sum to 1 within {error:.1g}. Perplexity on "
            f"held-out text is {perplexity:.3g} for the {self.order}-gram model, {measured['perplexity_of_gru']:.3g} "
            f"for a GRU and {size} for uniform guessing.",
            instead="Sums are not 1, or the perplexity is too high; it is infinite if an unseen n-gram has probability "
            "0.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = ["uniform", *(f"{order}-gram" for order in range(1, self.order + 1)), f"GRU, {self.steps} steps"]
        chart = BarChart(
            title="Perplexity per character of n-gram models and a GRU on the same text",
            names=names,
            values=measured["perplexities"],
            value_label="perplexity on held-out text (lower is better)",
            note="N-gram models count one pass over the text; the GRU is trained by gradients.",
        )
        return [chart]
