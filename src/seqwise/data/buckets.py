"""Batches of whole examples of alike length, within a budget of tokens: one long line does not exhaust the memory.

Which examples are in which batch is a pure function of (seed, epoch), and so is the order of the batches. Every example
is in exactly one batch of an epoch. Processes share each batch, so their number changes no batch. It knows nothing of
what an example is; `collate` makes the batch of some numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from seqwise.data.batch import Batch, shard_rows
from seqwise.data.shuffle import permute_indices
from seqwise.errors import UsageError

B = TypeVar("B", bound=Batch)
GROWTH = 1.2  # a bucket holds lengths up to so many times its shortest: little padding, much to shuffle


class BucketLoader(Generic[B]):
    """Training batches. `lengths[i]` is the length of example i, `collate` makes a batch of numbers of examples.

    A batch has at most `rows` examples, and at most `tokens` tokens with its padding, but always one example per
    process. Only if the last batch has fewer than that, it is filled up with the shortest examples.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        collate: Callable[[np.ndarray], B],
        rows: int,
        tokens: int | None,
        seed: int,
        rank: int = 0,
        world: int = 1,
    ):
        shard_rows(rows, rank, world)
        self.lengths = np.asarray(lengths, dtype=np.int64)
        if len(self.lengths) < world:
            raise UsageError(f"{len(self.lengths)} examples cannot be divided among {world} processes.")
        self.collate, self.rows, self.most, self.seed, self.rank, self.world = collate, rows, tokens, seed, rank, world
        self.bucket = _buckets(self.lengths)

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """Begin and end of each batch among the examples sorted by bucket; the same in every epoch."""
        ordered = np.sort(self.bucket)
        longest = {int(b): int(self.lengths[self.bucket == b].max()) for b in np.unique(ordered)}
        bounds, begin = [], 0
        while begin < len(ordered):
            end = min(len(ordered), begin + self._rows_of(longest[int(ordered[begin])]))
            # The batch may reach into longer buckets: fewer rows then, until it fits.
            while end - begin > (fewer := self._rows_of(longest[int(ordered[end - 1])])):
                end = begin + fewer
            bounds.append((begin, end))
            begin = end
        return bounds

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks and in every epoch."""
        return len(self.bounds)

    def epoch(self, number: int, start: int = 0) -> Iterator[B]:
        """The batches of an epoch from batch `start` on."""
        count = len(self.lengths)
        order = np.empty(count, dtype=np.int64)
        order[permute_indices(np.arange(count), count, self.seed, number)] = np.arange(count)
        order = order[np.argsort(self.bucket[order], kind="stable")]  # shuffled within each bucket
        turns = np.empty(self.steps, dtype=np.int64)
        turns[permute_indices(np.arange(self.steps), self.steps, self.seed, number, 1)] = np.arange(self.steps)
        for turn in turns[start:]:
            begin, end = self.bounds[turn]
            fill = max(0, self.world - (end - begin))
            numbers = np.concatenate([order[begin:end], order[:fill]])
            # In turn, because later rows are longer. Shares may differ by one: losses are sums, so nothing changes.
            yield self.collate(numbers[self.rank :: self.world])

    def _rows_of(self, length: int) -> int:
        """How many rows of this length a batch may have."""
        rows = self.rows if self.most is None else min(self.rows, self.most // max(1, length))
        return max(self.world, rows)


def iterate_by_length(
    lengths: Sequence[int] | np.ndarray, rows: int, tokens: int | None = None, rank: int = 0, world: int = 1
) -> Iterator[np.ndarray]:
    """Numbers of examples in batches of alike length, for evaluation: each once, long ones first, by rank in turn."""
    lengths = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    begin = turn = 0
    while begin < len(order):
        longest = max(1, int(lengths[order[begin]]))
        end = begin + (rows if tokens is None else min(rows, max(1, tokens // longest)))
        if turn % world == rank:
            yield order[begin:end]
        begin, turn = end, turn + 1


def pad_sequences(rows: Sequence[np.ndarray], value: int = 0) -> np.ndarray:
    """Rows of different length as one array (B, T), filled up with `value`."""
    width = max((len(row) for row in rows), default=0)
    padded = np.full((len(rows), max(1, width)), value, dtype=np.int64)
    for at, row in enumerate(rows):
        padded[at, : len(row)] = row
    return padded


def _buckets(lengths: np.ndarray) -> np.ndarray:
    """The number of the bucket of each length."""
    return np.floor(np.log(np.maximum(lengths, 1)) / np.log(GROWTH)).astype(np.int64)
