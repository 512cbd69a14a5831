"""Scores and targets → one number. A loss is kept as a sum and a count, so that micro-batches and processes add up."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """`total` nats over so many targets."""

    total: Tensor  # scalar
    counted: int | Tensor

    @property
    def count(self) -> int:
        """A look at the device, if it counted them."""
        return int(self.counted)


def total(losses: Tensor, mask: Tensor | None = None) -> Loss:
    """Sum the losses whose mask is True; the others contribute nothing, not even a NaN."""
    if mask is None:
        return Loss(losses.sum(), losses.numel())
    return Loss(losses.masked_fill(~mask, 0.0).sum(), mask.sum())
