"""Numbers of one attention head: entropy, distance and role. It knows nothing of models or figures.

Weights are (T, S): row t is a distribution over keys, or zero where a query may attend to nothing. In self-attention,
query t is key t + S − T.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

CONCENTRATED = 0.5  # mean weight on one kind of key from which a role is named after it
BROAD = 0.9  # share of the largest possible entropy
POSITIONAL = 0.8  # share of the weight that the offset alone predicts
MIN_QUERIES = 4  # with fewer, no role is detected
MAX_QUERIES = 256  # evenly spaced, at which it is measured how far the offset predicts the weights
MAX_THUMBNAIL = 64


@dataclass(frozen=True)
class HeadStatistics:
    """What is known of a head. The distance is NaN, and the role None, where keys are not the queries' own sequence."""

    entropy: float  # nats, mean over queries
    entropy_share: float  # of log n, n being the number of keys that a query may attend to
    distance: float = torch.nan  # tokens between query and key, weighted
    role: str | None = None
    previous: float = torch.nan  # mean weight on the token before the query
    first: float = torch.nan  # on the first token
    same: float = torch.nan  # on the query itself
    positional: float = torch.nan  # share of the weight that the offset alone predicts


def measure_head(weights: Tensor, is_self: bool) -> HeadStatistics:
    """Returns the numbers of a head (T, S).

    The entropy −Σ w log w is that of a query, averaged; its share is Σ_t entropy_t / Σ_t log n_t, where n_t counts the
    keys with a weight above 0. The role is the first of these whose condition holds, and "other" if none does:

        previous, first, same token   the mean weight on that token is at least 0.5 (the largest of the three)
        broad                         the entropy share is at least 0.9
        positional                    the offset alone predicts at least 0.8 of the weight (`predict_from_offsets`)

    Means of the three leave out queries for which these tokens are the same one or do not exist: the first two.
    """
    entropies = torch.special.entr(weights).sum(-1)
    capacity = float((weights > 0).sum(-1).clamp(min=1).double().log().sum())
    entropy = float(entropies.mean())
    share = float(entropies.double().sum()) / capacity if capacity else 0.0
    if not is_self or len(weights) > weights.shape[1]:
        return HeadStatistics(entropy, share)
    start = weights.shape[1] - len(weights)
    keys = torch.arange(weights.shape[1], dtype=weights.dtype)
    queries = keys[start:, None]
    mass = weights.sum(-1)
    distances = (weights * (queries - keys).abs()).sum(-1)
    distance = float(distances.sum() / mass.sum().clamp(min=1e-12))
    first_row = max(0, 2 - start)  # the first query whose previous, first and own token differ
    rows = torch.arange(min(first_row, len(weights)), len(weights))
    previous, first, same = (
        float(weights[rows, columns].mean()) if len(rows) else 0.0
        for columns in (rows + start - 1, torch.zeros_like(rows), rows + start)
    )
    positional = predict_from_offsets(weights)
    role = choose_role({"previous token": previous, "first token": first, "same token": same}, share, positional)
    return HeadStatistics(
        entropy, share, distance, role if len(weights) >= MIN_QUERIES else None, previous, first, same, positional
    )


def choose_role(on_tokens: dict[str, float], entropy_share: float, positional: float) -> str:
    """Returns the role of a head by the rules of `measure_head`."""
    best = max(on_tokens, key=lambda name: on_tokens[name])
    if on_tokens[best] >= CONCENTRATED:
        return best
    if entropy_share >= BROAD:
        return "broad"
    return "positional" if positional >= POSITIONAL else "other"


def predict_from_offsets(weights: Tensor) -> float:
    """Returns which share of the weight is predicted by the offset between query and key alone, from 0 to 1.

    The prediction of a cell is the mean weight at its offset in all other rows, scaled so that a row has its own sum;
    the share is Σ min(weight, prediction) / Σ weight. Keys to which a query may not attend are predicted to be 0.
    """
    num_queries, num_keys = weights.shape
    if num_queries < 2:
        return 0.0
    rows = torch.linspace(0, num_queries - 1, min(num_queries, MAX_QUERIES), dtype=torch.double).round().long()
    chosen = weights[rows].double()
    offsets = torch.arange(num_keys) - rows[:, None] + num_queries - 1  # from 0
    is_visible = chosen > 0
    sums = torch.zeros(num_queries + num_keys, dtype=torch.double)
    counts = sums.clone()
    sums.scatter_add_(0, offsets.flatten(), chosen.flatten())
    counts.scatter_add_(0, offsets.flatten(), is_visible.double().flatten())
    others = (sums[offsets] - chosen) / (counts[offsets] - 1).clamp(min=1)
    others = others.masked_fill(~is_visible, 0.0).clamp(min=0)
    mass = chosen.sum(-1, keepdim=True)
    predicted = others / others.sum(-1, keepdim=True).clamp(min=1e-12) * mass
    return float(torch.minimum(chosen, predicted).sum() / mass.sum().clamp(min=1e-12))


def reduce_weights(weights: Tensor, max_size: int = MAX_THUMBNAIL) -> Tensor:
    """Returns weights (…, T, S) with at most `max_size` rows and columns, each the mean of an area."""
    size = min(weights.shape[-2], max_size), min(weights.shape[-1], max_size)
    if size == tuple(weights.shape[-2:]):
        return weights.clone()
    return F.adaptive_avg_pool2d(weights.reshape(1, -1, *weights.shape[-2:]), size).view(*weights.shape[:-2], *size)


def reduce_names(names: list[str], max_size: int = MAX_THUMBNAIL) -> list[str]:
    """Returns the names of the rows or columns of `reduce_weights`: of merged ones, the first and the last."""
    count = min(len(names), max_size)
    if count == len(names):
        return names
    starts = [index * len(names) // count for index in range(count)]
    ends = [-(-(index + 1) * len(names) // count) - 1 for index in range(count)]
    return [
        f"{start}: {names[start]} … {end}: {names[end]}" if start < end else f"{start}: {names[start]}"
        for start, end in zip(starts, ends)
    ]
