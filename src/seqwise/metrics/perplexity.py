"""Perplexity and its relatives, from one sum of negative log likelihoods."""

from __future__ import annotations

import math
from dataclasses import dataclass

DEFINITIONS = {
    "perplexity": "exp(N / tokens): per token, depends on the tokeniser",
    "word_perplexity": "exp(N / words): words between blanks plus one line end per line, as published for PTB",
    "bits_per_character": "N / ln 2 / characters: comparable between tokenisers",
    "tokens": "tokens predicted; the first of the text is given. N is their summed negative log likelihood in nats",
    "unknown_tokens": "tokens that the vocabulary does not hold; their spelling was not predicted",
}


@dataclass(frozen=True)
class Perplexity:
    """`nats` over `tokens` predicted tokens of a text with so many `words` and `characters`."""

    nats: float
    tokens: int
    words: int
    characters: int
    unknown: int = 0  # tokens that the vocabulary does not hold; their spelling was not predicted

    @property
    def loss(self) -> float:
        """Mean nats per token."""
        return self.nats / self.tokens

    def metrics(self) -> dict[str, float]:
        """Plain names and numbers."""
        return {
            "perplexity": exp(self.loss),
            "word_perplexity": exp(self.nats / self.words),
            "bits_per_character": self.nats / math.log(2) / self.characters,
            "tokens": self.tokens,
            "unknown_tokens": self.unknown,
        }


def exp(value: float) -> float:
    """e^value, or infinity where a float cannot hold it."""
    return math.exp(value) if value < 700 else math.inf
