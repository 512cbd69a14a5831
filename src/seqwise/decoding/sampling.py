"""Choosing the next token from its log-probabilities: greedy or random, with the usual ways to narrow the choice.

Nothing here knows of text or of models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from seqwise.errors import UsageError


@dataclass(frozen=True)
class Choice:
    """How a token is drawn. `greedy` ignores temperature, top-k and top-p."""

    greedy: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            repair = "Use --greedy." if self.temperature == 0 else ""
            raise UsageError(f"the temperature must be above 0; received {self.temperature:g}.", repair=repair)
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top-k must be at least 1; received {self.top_k}.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top-p must lie in (0, 1]; received {self.top_p:g}.")
        if not 0 < self.repetition_penalty < math.inf:
            raise UsageError(f"the repetition penalty must be above 0; received {self.repetition_penalty:g}.")

    def pick(self, log_probabilities: Tensor, seen: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """(B, V) and the ids so far (B, T) → one id per row (B,)."""
        scores = penalise(log_probabilities, seen, self.repetition_penalty)
        if self.greedy:
            return scores.argmax(-1)
        scores = keep_nucleus(keep_best(scores / self.temperature, self.top_k), self.top_p)
        return torch.multinomial(scores.softmax(-1), 1, generator=generator).squeeze(-1)


def penalise(scores: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens that already occurred less likely: log p → penalty · log p (Keskar et al. 2019)."""
    if penalty == 1:
        return scores
    return scores.scatter(-1, seen, scores.gather(-1, seen) * penalty)


def keep_best(scores: Tensor, k: int | None) -> Tensor:
    """All but the k best scores become -inf (Fan et al. 2018)."""
    if k is None or k >= scores.shape[-1]:
        return scores
    least = scores.topk(k).values[..., -1:]
    return scores.masked_fill(scores < least, -torch.inf)


def keep_nucleus(scores: Tensor, p: float | None) -> Tensor:
    """Keep the smallest set of tokens whose probability reaches p (Holtzman et al. 2020); always at least one."""
    if p is None or p >= 1:
        return scores
    ordered, order = scores.softmax(-1).sort(descending=True)
    enough_before = ordered.cumsum(-1) - ordered >= p
    return scores.masked_fill(torch.zeros_like(enough_before).scatter(-1, order, enough_before), -torch.inf)
