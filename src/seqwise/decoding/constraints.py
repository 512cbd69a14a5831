"""What may not be written next, and the best of what may: small functions on scores (R, V). They know no text."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64  # scores that are compared by their largest first


def apply_constraints(scores: Tensor, written: Tensor, end: int, min_length: int, no_repeat_ngram: int) -> None:
    """Set to -inf, in place, the scores (R, V) of tokens that may not follow what was written (R, t).

    The end token is forbidden before `min_length` tokens, and no n-gram of length `no_repeat_ngram` occurs twice.
    If no other token is left, the end token is allowed.
    """
    length = written.shape[1]
    of_end = scores[:, end].clone()
    if length < min_length:
        scores[:, end] = -torch.inf
    if 0 < no_repeat_ngram <= length:
        ban_repeated_ngrams(scores, written, no_repeat_ngram)
        stuck = scores.amax(-1) == -torch.inf
        scores[:, end] = torch.where(stuck, of_end, scores[:, end])


def ban_repeated_ngrams(scores: Tensor, written: Tensor, n: int) -> None:
    """-inf, in place, for each token that would complete n tokens that were written before (Paulus et al. 2018)."""
    runs = written.unfold(1, n, 1)  # (R, t - n + 1, n)
    newest = written[:, written.shape[1] - n + 1 :]  # the n - 1 tokens that a next one would join
    rows, places = (runs[:, :, :-1] == newest[:, None]).all(-1).nonzero(as_tuple=True)
    scores[rows, runs[rows, places, -1]] = -torch.inf


def topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest scores of each row (R, V) and their places, largest first.

    The largest `count` lie in those blocks whose own largest is among the `count` largest: one pass over the scores
    and a search through a few blocks. On CPUs that is several times faster than `topk`, which goes score by score.
    """
    width = scores.shape[1]
    count, blocks = min(count, width), width // BLOCK
    if scores.is_cuda or blocks <= 4 * count:
        return scores.topk(count)
    whole = scores[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    chosen = whole.amax(-1).topk(count, sorted=False).indices  # (R, count)
    places = (chosen[..., None] * BLOCK + torch.arange(BLOCK)).flatten(1)
    rest = torch.arange(blocks * BLOCK, width).expand(len(scores), -1)
    places = torch.cat([places, rest], dim=1)
    values, index = scores.gather(1, places).topk(count)
    return values, places.gather(1, index)
