"""Scores and targets → one number. A loss is kept as a sum and a count, so that micro-batches and processes add up."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """`total` nats over `count` targets."""

    total: Tensor  # scalar
    count: int


def total(losses: Tensor, mask: Tensor | None = None) -> Loss:
    """Sum the losses whose mask is True; the others contribute nothing, not even a NaN."""
    if mask is None:
        return Loss(losses.sum(), losses.numel())
    return Loss(losses.masked_fill(~mask, 0.0).sum(), int(mask.sum()))
