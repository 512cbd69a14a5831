"""Chooses the next token from its log-probabilities: greedily or at random, with top-k, top-p and a repetition penalty.

The module knows nothing of text or models.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqwise.decoding.options import SamplingOptions


def choose_token(
    sampling: SamplingOptions, scores: Tensor, occurred: Tensor | None, generator: torch.Generator | None = None
) -> Tensor:
    """Returns one id per sequence (B,). `occurred` (B, V) marks earlier tokens.

    `scores` (B, V) are log-probabilities; without a repetition penalty a constant may be added to those of a sequence.
    """
    scores = apply_repetition_penalty(scores, occurred, sampling.repetition_penalty)
    if sampling.greedy:
        return _argmax(scores)
    scores = apply_top_p(apply_top_k(scores / sampling.temperature, sampling.top_k), sampling.top_p)
    return sample(scores.softmax(-1), generator)


def sample(probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Returns one id per row (B,), drawn from probabilities (B, V).

    On a CPU it is `torch.multinomial`, from the same random numbers, in a third of the time: with exponential random
    numbers q the largest p / q has index i with probability p_i, and PyTorch computes their logarithms one by one.
    """
    if probabilities.is_cpu and probabilities.dtype == torch.float32:
        uniform = torch.rand(probabilities.shape, dtype=torch.float64, generator=generator)
        ratios = probabilities / uniform.neg_().log1p_().neg_().float()
        ids = _argmax(ratios)
        if not ratios.gather(1, ids[:, None]).isnan().any():
            return ids
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)  # raises an error for NaN


def _argmax(scores: Tensor) -> Tensor:
    """Returns the index of the largest score of each row (B,). On a CPU NumPy's function is several times as fast."""
    if scores.is_cpu and scores.dtype == torch.float32:
        return torch.from_numpy(scores.detach().numpy().argmax(-1))
    return scores.argmax(-1)


def apply_repetition_penalty(scores: Tensor, occurred: Tensor | None, penalty: float) -> Tensor:
    """Makes tokens that already occurred less likely: log p → penalty · log p (Keskar et al. 2019)."""
    if occurred is None or penalty == 1:
        return scores
    return torch.where(occurred, scores * penalty, scores)


def apply_top_k(scores: Tensor, k: int | None) -> Tensor:
    """Sets all but the k best scores to -inf (Fan et al. 2018)."""
    if k is None or k >= scores.shape[-1]:
        return scores
    threshold = scores.topk(k).values[..., -1:]
    return scores.masked_fill(scores < threshold, -torch.inf)


def apply_top_p(scores: Tensor, p: float | None) -> Tensor:
    """Sets all scores to -inf except the smallest set of tokens whose probability reaches p (Holtzman et al. 2020)."""
    if p is None or p >= 1:
        return scores
    ordered, order = scores.softmax(-1).sort(descending=True)
    is_removed = ordered.cumsum(-1) - ordered >= p  # the more likely tokens reach p without it; never the first
    return scores.masked_fill(torch.zeros_like(is_removed).scatter(-1, order, is_removed), -torch.inf)
