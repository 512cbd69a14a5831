"""Perplexity and related metrics, all computed from one sum of negative log likelihoods."""

from __future__ import annotations

import math
from dataclasses import dataclass

EXP_LIMIT = 700  # exp of a larger number is treated as infinite: float64 ends near e^709

DEFINITIONS = {
    "perplexity": "exp(N / tokens): per token, depends on the tokeniser",
    "word_perplexity": "exp(N / words): words between blanks plus one line end per line, as published for PTB",
    "bits_per_character": "N / ln 2 / characters: comparable between tokenisers",
    "tokens": "predicted tokens, all but the first. N is their summed negative log likelihood in nats",
    "unknown_tokens": "tokens outside the vocabulary; their spelling was not predicted",
}


@dataclass(frozen=True)
class Perplexity:
    """The negative log likelihood `nats` of `tokens` predicted tokens, and the words and characters of their text."""

    nats: float
    tokens: int
    words: int
    characters: int
    unknown: int = 0  # tokens that are <unk>

    @property
    def loss(self) -> float:
        """Mean nats per token."""
        return self.nats / self.tokens

    def metrics(self) -> dict[str, float]:
        """Return the metrics that DEFINITIONS explains."""
        return {
            "perplexity": exp_or_inf(self.loss),
            "word_perplexity": exp_or_inf(self.nats / self.words),
            "bits_per_character": self.nats / math.log(2) / self.characters,
            "tokens": self.tokens,
            "unknown_tokens": self.unknown,
        }


def exp_or_inf(value: float) -> float:
    """Return e^value, or infinity from EXP_LIMIT on."""
    return math.exp(value) if value < EXP_LIMIT else math.inf
