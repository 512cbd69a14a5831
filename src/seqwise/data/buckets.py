"""Batches of whole examples of similar length, within a budget of tokens: one long line does not exhaust the memory.

Which examples are in which batch is a pure function of (seed, epoch), and so is the order of the batches. Every example
is in exactly one batch of an epoch. Processes share each batch, so their number changes no batch. The module knows
nothing of what an example is; `collate` builds the batch of some example numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from seqwise.data.batch import Batch, shard_rows
from seqwise.data.shuffle import permutation
from seqwise.errors import UsageError

B = TypeVar("B", bound=Batch)
GROWTH = 1.2  # longest / shortest length of a bucket: little padding, many examples to shuffle


class BucketLoader(Generic[B]):
    """Training batches of examples; `lengths[i]` is the length of example i.

    A batch has at most `rows` examples, and at most `max_tokens` tokens with its padding, but always one example per
    process. Only if the last batch has fewer than that, it is filled up with the shortest examples.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        collate: Callable[[np.ndarray], B],
        rows: int,
        max_tokens: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
    ):
        shard_rows(rows, rank, world)  # raises where the rows cannot be divided
        self.lengths = np.asarray(lengths, dtype=np.int64)
        if len(self.lengths) < world:
            raise UsageError(f"{len(self.lengths)} examples cannot be divided among {world} processes.")
        self.collate = collate
        self.rows, self.max_tokens = rows, max_tokens
        self.seed, self.rank, self.world = seed, rank, world
        self.bucket = np.floor(np.log(np.maximum(self.lengths, 1)) / np.log(GROWTH)).astype(np.int64)  # of each example

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """Start and stop of each batch among the examples sorted by bucket; the same in every epoch."""
        buckets = np.sort(self.bucket)
        longest = {int(b): int(self.lengths[self.bucket == b].max()) for b in np.unique(buckets)}
        bounds, start = [], 0
        while start < len(buckets):
            stop = min(len(buckets), start + self._max_rows(longest[int(buckets[start])]))
            # The batch may extend into buckets of longer examples: it takes fewer rows then, until it fits.
            while stop - start > (fewer := self._max_rows(longest[int(buckets[stop - 1])])):
                stop = start + fewer
            bounds.append((start, stop))
            start = stop
        return bounds

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks and in every epoch."""
        return len(self.bounds)

    def epoch(self, number: int, start: int = 0) -> Iterator[B]:
        """Yield the batches of an epoch from batch `start` on."""
        order = permutation(len(self.lengths), self.seed, number)
        order = order[np.argsort(self.bucket[order], kind="stable")]  # shuffled within each bucket
        for batch in permutation(self.steps, self.seed, number, 1)[start:]:
            first, stop = self.bounds[batch]
            fill = max(0, self.world - (stop - first))
            numbers = np.concatenate([order[first:stop], order[:fill]])
            # Ranks take every world-th row, because later rows are longer. Shares may differ by one: losses are sums.
            yield self.collate(numbers[self.rank :: self.world])

    def _max_rows(self, length: int) -> int:
        """Return how many rows of this length a batch may have."""
        rows = min(self.rows, self.max_tokens // max(1, length)) if self.max_tokens else self.rows
        return max(self.world, rows)


def iterate_by_length(
    lengths: Sequence[int] | np.ndarray, rows: int, max_tokens: int | None = None, rank: int = 0, world: int = 1
) -> Iterator[np.ndarray]:
    """Yield the example numbers of each batch for evaluation: each example once, longest first, ranks in turn."""
    lengths = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    start = batch = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + (rows if max_tokens is None else min(rows, max(1, max_tokens // longest)))
        if batch % world == rank:
            yield order[start:stop]
        start, batch = stop, batch + 1


def pad_sequences(rows: Sequence[np.ndarray], value: int = 0) -> np.ndarray:
    """Return rows of different lengths as one array (B, T), padded with `value`."""
    width = max((len(row) for row in rows), default=0)
    padded = np.full((len(rows), max(1, width)), value, dtype=np.int64)
    for at, row in enumerate(rows):
        padded[at, : len(row)] = row
    return padded
