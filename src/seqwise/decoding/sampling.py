"""Choosing the next token from its log-probabilities: greedy or random, with the usual ways to narrow the choice.

Nothing here knows of text or of models.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqwise.decoding.options import SamplingOptions as SamplingOptions


def pick(
    sampling: SamplingOptions, scores: Tensor, seen: Tensor | None, generator: torch.Generator | None = None
) -> Tensor:
    """Log-probabilities (B, V) and which tokens occurred already (B, V) → one id per row (B,)."""
    scores = penalise(scores, seen, sampling.repetition_penalty)
    if sampling.greedy:
        return scores.argmax(-1)
    scores = keep_nucleus(keep_best(scores / sampling.temperature, sampling.top_k), sampling.top_p)
    return torch.multinomial(scores.softmax(-1), 1, generator=generator).squeeze(-1)


def penalise(scores: Tensor, seen: Tensor | None, penalty: float) -> Tensor:
    """Make tokens that already occurred less likely: log p → penalty · log p (Keskar et al. 2019)."""
    if seen is None or penalty == 1:
        return scores
    return torch.where(seen, scores * penalty, scores)


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
