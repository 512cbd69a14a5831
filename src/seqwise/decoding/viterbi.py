"""The best sequence of tags by dynamic programming (Viterbi 1967). It knows nothing of models or of what tags mean."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def viterbi(scores: Tensor, lengths: Tensor, transition: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the tags (B, T) with the largest total score, 0 in the padding, and that score (B,).

        δ_1[j] = start[j] + scores[1, j]
        δ_t[j] = scores[t, j] + max_i (δ_{t-1}[i] + transition[i, j])

    `scores` are (B, T, K). `transition` (K, K) are the scores of tag j after tag i, minus infinity if forbidden.
    Of several best sequences the same one is always returned.
    """
    rows, steps, _ = scores.shape
    mask = torch.arange(steps, device=scores.device) < lengths[:, None]
    transposed = transition.T  # the maximum over i runs over the last dimension, which is contiguous
    best = start + scores[:, 0]  # (B, K)
    backpointers = []
    for t in range(1, steps):
        values, previous = (best[:, None, :] + transposed).max(dim=2)
        best = torch.where(mask[:, t, None], values + scores[:, t], best)
        backpointers.append(previous)
    total, last = (best + end).max(dim=1)
    tags = torch.zeros(rows, steps, dtype=torch.int64, device=scores.device)
    for t in range(steps - 1, 0, -1):
        # In the padding of a shorter row `last` stays its final tag.
        tags[:, t] = torch.where(mask[:, t], last, 0)
        previous = backpointers[t - 1].gather(1, last[:, None]).squeeze(1)
        last = torch.where(mask[:, t], previous, last)
    tags[:, 0] = last
    return tags, total


def forbid_transitions(transition: Tensor, start: Tensor, end: Tensor, allowed: tuple) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the transition scores with minus infinity where `allowed` (pairs, first tags, last tags) is False."""
    pairs, first, last = (torch.tensor(part, dtype=torch.bool, device=transition.device) for part in allowed)
    minus_infinity = float("-inf")
    return (
        transition.masked_fill(~pairs, minus_infinity),
        start.masked_fill(~first, minus_infinity),
        end.masked_fill(~last, minus_infinity),
    )
