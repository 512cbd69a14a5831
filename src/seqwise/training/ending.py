"""The last update of a budget in tokens, so that training ends with exactly that many.

The batch at hand usually has more tokens than the budget still allows. As many of its rows are learned from as fit;
the next row counts by the share of it that is left, the others not at all. It knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass

from seqwise.data.batch import Batch


@dataclass(frozen=True)
class Shares:
    """How far the rows of a batch count: the first `whole` fully, the next one by `part`, the others not at all."""

    whole: int
    part: float = 0.0

    def of(self, start: int, stop: int) -> list[tuple[int, int, float]]:
        """Rows start … stop-1 that count, as ranges with their weight."""
        found = [(start, min(stop, self.whole), 1.0)] if start < self.whole else []
        if self.part and start <= self.whole < stop:
            found.append((self.whole, self.whole + 1, self.part))
        return found

    def count(self, batch: Batch) -> float:
        """Targets that count, of this batch."""
        return sum(weight * batch.slice(a, b).num_targets for a, b, weight in self.of(0, batch.rows))


def shares_of(batch: Batch, left: float) -> Shares:
    """The rows for which `left` tokens suffice."""
    for row in range(batch.rows):
        tokens = batch.slice(row, row + 1).num_tokens
        if tokens > left:
            return Shares(row, max(0.0, left) / tokens if tokens else 0.0)  # a row may happen to hold no token
        left -= tokens
    return Shares(batch.rows)
