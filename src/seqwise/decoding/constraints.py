"""Which tokens may not come next, and a fast top-k: small functions on scores (R, V). They know nothing of text."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64  # scores whose maximum is compared first


def apply_constraints(scores: Tensor, tokens: Tensor, end: int, min_length: int, no_repeat_ngram: int) -> None:
    """Set to -inf, in place, the scores (R, V) of tokens that may not follow the sequences so far (R, t).

    The end token is forbidden before `min_length` tokens, and no n-gram of length `no_repeat_ngram` occurs twice.
    If no other token is left, the end token is allowed.
    """
    length = tokens.shape[1]
    end_scores = scores[:, end].clone()
    if length < min_length:
        scores[:, end] = -torch.inf
    if 0 < no_repeat_ngram <= length:
        ban_repeated_ngrams(scores, tokens, no_repeat_ngram)
        has_none = scores.amax(-1) == -torch.inf
        scores[:, end] = torch.where(has_none, end_scores, scores[:, end])


def ban_repeated_ngrams(scores: Tensor, tokens: Tensor, n: int) -> None:
    """Set to -inf, in place, the score of each token that would repeat an n-gram (Paulus et al. 2018)."""
    ngrams = tokens.unfold(1, n, 1)  # (R, t - n + 1, n)
    newest = tokens[:, tokens.shape[1] - n + 1 :]  # the last n - 1 tokens
    rows, places = (ngrams[:, :, :-1] == newest[:, None]).all(-1).nonzero(as_tuple=True)
    scores[rows, ngrams[rows, places, -1]] = -torch.inf


def topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest scores of each row (R, V) and their indices, largest first.

    The k largest are in those blocks whose maximum is among the k largest maxima: one pass over the scores and a
    search through a few blocks. On CPUs that is several times faster than `Tensor.topk`, which compares every score.
    """
    width = scores.shape[1]
    k, blocks = min(k, width), width // BLOCK
    if scores.is_cuda or blocks <= 4 * k:
        return scores.topk(k)
    whole = scores[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    best_blocks = whole.amax(-1).topk(k, sorted=False).indices  # (R, k)
    indices = (best_blocks[..., None] * BLOCK + torch.arange(BLOCK)).flatten(1)
    rest = torch.arange(blocks * BLOCK, width).expand(len(scores), -1)
    indices = torch.cat([indices, rest], dim=1)
    values, places = scores.gather(1, indices).topk(k)
    return values, indices.gather(1, places)
