"""The best sequence of tags by dynamic programming (Viterbi 1967). It knows nothing of models or of what tags mean."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def viterbi(scores: Tensor, lengths: Tensor, link: Tensor, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """The tags (B, T) with the largest sum of scores and links, zero in the padding, and that sum (B,).

        δ_1[j] = begin[j] + scores[1, j]
        δ_t[j] = scores[t, j] + max_i (δ_{t-1}[i] + link[i, j])

    `scores` are (B, T, K), `link` (K, K) from tag to tag. What must not follow has a link of minus infinity. Of equal
    sequences one is taken, the same always.
    """
    rows, steps, _ = scores.shape
    real = torch.arange(steps, device=scores.device) < lengths[:, None]
    into = link.T
    best = begin + scores[:, 0]  # (B, K)
    back = []
    for t in range(1, steps):
        values, places = (best[:, None, :] + into).max(dim=2)
        best = torch.where(real[:, t, None], values + scores[:, t], best)
        back.append(places)
    total, last = (best + end).max(dim=1)
    tags = torch.zeros(rows, steps, dtype=torch.int64, device=scores.device)
    for t in range(steps - 1, 0, -1):
        # A row that has ended before t keeps its last tag in hand until its own end is reached.
        tags[:, t] = torch.where(real[:, t], last, 0)
        before = back[t - 1].gather(1, last[:, None]).squeeze(1)
        last = torch.where(real[:, t], before, last)
    tags[:, 0] = last
    return tags, total


def forbid(link: Tensor, begin: Tensor, end: Tensor, allowed: tuple) -> tuple[Tensor, Tensor, Tensor]:
    """The same links with minus infinity where `allowed` (pairs, first, last) says no."""
    pairs, first, last = (torch.tensor(part, dtype=torch.bool, device=link.device) for part in allowed)
    infinity = float("-inf")
    return link.masked_fill(~pairs, infinity), begin.masked_fill(~first, infinity), end.masked_fill(~last, infinity)
