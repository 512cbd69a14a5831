"""Scores and targets → one number. A loss is a sum and a count, so that micro-batches and processes add up."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """The summed loss in nats, and the number of targets."""

    total: Tensor  # scalar
    counted: int | Tensor

    @property
    def count(self) -> int:
        """The number of targets; waits for the device if it counted them."""
        return int(self.counted)


def total(losses: Tensor, mask: Tensor | None = None) -> Loss:
    """Sum the losses whose mask is True; the others contribute nothing, not even a NaN."""
    if mask is None:
        return Loss(losses.sum(), losses.numel())
    return Loss(losses.masked_fill(~mask, 0.0).sum(), mask.sum())
