"""`Batch`: what crosses from data to models. `BucketLoader`: batches of examples of similar length.

Each task defines its own kind of batch: a frozen dataclass derived from `Batch` whose tensors have one entry per row.
Slicing into micro-batches and moving to a device work the same way for all of them. The module knows nothing of files
or of text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqwise.data.shuffle import permutation
from seqwise.errors import UsageError, pluralize

GROWTH = 1.2  # longest / shortest length of a bucket: little padding, many examples to shuffle


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What the training loop knows of a batch: its rows, its targets, and where they come from."""

    position_unit: ClassVar[str] = "example"  # what `positions` counts

    positions: Tensor | None = None  # (B,) int64: where each row begins in the data, for error messages
    resets_state: bool = True  # False: the rows continue those of the previous batch, so the model keeps its state

    @property
    def rows(self) -> int:
        """Number of sequences."""
        return len(next(tensor for tensor in self.tensors().values()))

    @property
    def length(self) -> int:
        """Time steps of the longest row."""
        raise NotImplementedError

    @property
    def num_targets(self) -> int:
        """Targets that count towards the loss."""
        raise NotImplementedError

    @property
    def num_tokens(self) -> int:
        """What a budget in tokens and the tokens per second count."""
        return self.num_targets

    def slice(self, start: int, stop: int) -> Self:
        """Return the rows start … stop-1 as a batch of their own."""
        return self.map_tensors(lambda name, tensor: tensor[start:stop])

    def to(self, device: str | torch.device) -> Self:
        """Return the batch on a device; `positions` stay on the CPU.

        Tensors for a GPU are pinned first, so that the copy runs while the GPU computes.
        """
        to_gpu = torch.device(device).type == "cuda"

        def move(name: str, tensor: Tensor) -> Tensor:
            if name == "positions":
                return tensor
            if to_gpu and not tensor.is_cuda:
                tensor = tensor.contiguous().pin_memory()
            return tensor.to(device, non_blocking=True)

        return self.map_tensors(move)

    def map_tensors(self, function: Callable[[str, Tensor], Tensor]) -> Self:
        """Return a copy in which each tensor is function(field name, tensor)."""
        changes: dict[str, Any] = {name: function(name, tensor) for name, tensor in self.tensors().items()}
        return replace(self, **changes)

    def tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class TokenBatch(Batch):
    """Token ids with the targets to predict."""

    position_unit = "token"

    ids: Tensor  # (B, T) int64
    targets: Tensor  # (B, T) int64
    mask: Tensor | None = None  # (B, T) bool: the targets that count; None means all

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    @property
    def num_targets(self) -> int:
        return self.targets.numel() if self.mask is None else int(self.mask.sum())


class Batches(Protocol):
    """A source of batches, as the training loop needs it."""

    @property
    def steps(self) -> int: ...
    def epoch(self, number: int, start: int = 0) -> Iterator[Any]: ...


def shard_rows(rows: int, rank: int, world_size: int) -> range:
    """Return the rows of a batch that one of `world_size` processes computes: an equal, contiguous share."""
    if rows < 1 or rows % world_size:
        repair = f"Set --training.batch-size to a multiple of {world_size}."
        raise UsageError(f"{rows} rows cannot be divided among {world_size} processes.", repair=repair)
    share = rows // world_size
    return range(rank * share, (rank + 1) * share)


B = TypeVar("B", bound=Batch)


class BucketLoader(Generic[B]):
    """Training batches of whole examples; `lengths[i]` is the length of example i, `collate` builds a batch of some.

    A batch has at most `rows` examples, and at most `max_tokens` tokens with its padding, so that one long line does
    not exhaust the memory, but always at least one example per process. A last batch with fewer examples than processes
    is filled up with the shortest examples; otherwise every example is in exactly one batch of an epoch. Which examples
    are in which batch, and the order of the batches, are pure functions of (seed, epoch). Processes share each batch:
    their number changes only batches with fewer rows than processes.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        collate: Callable[[np.ndarray], B],
        rows: int,
        max_tokens: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ):
        shard_rows(rows, rank, world_size)  # raises where the rows cannot be divided
        self.lengths = np.asarray(lengths, dtype=np.int64)
        if len(self.lengths) < world_size:
            raise UsageError(
                f"{pluralize(len(self.lengths), 'examples')} cannot be divided among {world_size} processes."
            )
        self.collate = collate
        self.rows, self.max_tokens = rows, max_tokens
        self.seed, self.rank, self.world_size = seed, rank, world_size
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
            fill = max(0, self.world_size - (stop - first))
            indices = np.concatenate([order[first:stop], order[:fill]])
            # Every `world_size`-th row, because later rows are longer. Shares may differ by one: losses are sums.
            yield self.collate(indices[self.rank :: self.world_size])

    def _max_rows(self, length: int) -> int:
        """Return how many rows of this length a batch may have."""
        rows = min(self.rows, self.max_tokens // max(1, length)) if self.max_tokens else self.rows
        return max(self.world_size, rows)


def spread_indices(count: int, share: float = 1.0) -> np.ndarray:
    """Return the numbers of a share of `count` examples, at equal distances; at least one, if there is one."""
    chosen = min(count, math.ceil(count * share))
    return np.arange(chosen, dtype=np.int64) * count // max(1, chosen)


def spread_batches(batches: Batches, share: float = 1.0) -> Iterator[Any]:
    """Yield a share of the batches of an epoch, at equal distances; no batch may continue the one before."""
    for step in spread_indices(batches.steps, share):
        yield next(batches.epoch(0, int(step)))


def iterate_by_length(
    lengths: Sequence[int] | np.ndarray,
    rows: int,
    max_tokens: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    share: float = 1.0,
) -> Iterator[np.ndarray]:
    """Yield the example numbers of each batch for evaluation: each example once, longest first, ranks in turn.

    With a `share` below 1 only that part of the examples is evaluated, evenly spread.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    chosen = spread_indices(len(lengths), share)
    order = chosen[np.argsort(-lengths[chosen], kind="stable")]
    start = batch = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + (rows if max_tokens is None else min(rows, max(1, max_tokens // longest)))
        if batch % world_size == rank:
            yield order[start:stop]
        start, batch = stop, batch + 1


def pad_sequences(rows: Sequence[np.ndarray], value: int = 0) -> np.ndarray:
    """Return rows of different lengths as one array (B, T), padded with `value`."""
    width = max((len(row) for row in rows), default=0)
    padded = np.full((len(rows), max(1, width)), value, dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
