"""The last batch of a budget in tokens, cut so that training ends with exactly that many.

The last batch usually has more tokens than the budget still allows. The first rows are trained on as far as the tokens
suffice; the loss of the next row is weighted by the fraction of its tokens that is left; the other rows are skipped.
This module knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from seqwise.data.batch import Batch
from seqwise.training.distribution import World


class RowRange(NamedTuple):
    """Rows `start` … `stop - 1` of a batch and the weight of their loss."""

    start: int
    stop: int
    weight: float = 1.0


@dataclass(frozen=True)
class BatchShare:
    """The part of a batch that is trained on. Targets and tokens are those of all processes together."""

    ranges: tuple[RowRange, ...]  # of this process
    num_targets: float  # at least 1: a batch may happen to have none
    num_tokens: float
    is_cut: bool = False


def limit_to_budget(batch: Batch, tokens_left: float, world: World) -> BatchShare:
    """Return the share of a batch for which `tokens_left` suffices; the whole batch except at the end of a budget."""
    num_targets, num_tokens = world.sum(batch.num_targets, batch.num_tokens)
    if num_tokens <= tokens_left:
        return BatchShare((RowRange(0, batch.rows),), num_targets or 1.0, num_tokens)
    tokens_of_earlier_ranks = sum(world.gather([batch.num_tokens])[: world.rank])
    ranges = select_rows(batch, tokens_left - tokens_of_earlier_ranks)
    (num_targets,) = world.sum(count_targets(batch, ranges))
    return BatchShare(ranges, num_targets or 1.0, tokens_left, is_cut=True)


def select_rows(batch: Batch, tokens_left: float) -> tuple[RowRange, ...]:
    """Return the rows for which the tokens suffice, the last of them with the fraction that is left as its weight."""
    for row in range(batch.rows):
        tokens = batch.slice(row, row + 1).num_tokens
        if tokens > tokens_left:
            complete = [RowRange(0, row)] if row else []
            partial = [RowRange(row, row + 1, tokens_left / tokens)] if tokens_left > 0 else []
            return (*complete, *partial)
        tokens_left -= tokens
    return (RowRange(0, batch.rows),)


def count_targets(batch: Batch, ranges: tuple[RowRange, ...]) -> float:
    """Return the weighted number of targets in the ranges."""
    return sum(weight * batch.slice(start, stop).num_targets for start, stop, weight in ranges)
