"""`Batch`: the input of models. `BucketLoader`: batches of examples of similar length.

Each task defines its own kind of batch: a frozen dataclass derived from `Batch` whose tensors have one entry per
sequence. Slicing into micro-batches and moving to a device work the same way for all of them. The module knows nothing
of files or of text.
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
from seqwise.errors import UsageError

BUCKET_GROWTH = 1.2  # longest / shortest length of a bucket: little padding, many examples to shuffle


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What the training loop needs of a batch: its sizes, and where its sequences come from."""

    position_unit: ClassVar[str] = "example"  # unit of `positions`

    positions: Tensor | None = None  # (B,) int64: where each sequence begins in the data
    resets_state: bool = True  # False: the sequences continue those of the previous batch; the model keeps its state
    is_filler: bool = False  # True: this process has no share of the batch, so its sequences do not count

    @property
    def num_sequences(self) -> int:
        """The batch size B."""
        return len(next(tensor for tensor in self.tensors().values()))

    @property
    def length(self) -> int:
        """Time steps of the longest sequence."""
        raise NotImplementedError

    @property
    def num_targets(self) -> int:
        """Targets that count towards the loss."""
        raise NotImplementedError

    @property
    def num_tokens(self) -> int:
        """Tokens as a token budget and the speed in tokens per second count them."""
        return self.num_targets

    def slice(self, start: int, stop: int) -> Self:
        """Returns the sequences start … stop-1 as a batch."""
        return self.map_tensors(lambda name, tensor: tensor[start:stop])

    def to(self, device: str | torch.device) -> Self:
        """Returns the batch on a device; `positions` stay on the CPU.

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
        """Returns a copy in which each tensor is function(field name, tensor)."""
        changes: dict[str, Any] = {name: function(name, tensor) for name, tensor in self.tensors().items()}
        return replace(self, **changes)

    def tensors(self) -> dict[str, Tensor]:
        """Returns the fields that are tensors."""
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
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        ...

    def epoch(self, index: int, start: int = 0) -> Iterator[Any]:
        """Yields the batches of an epoch from batch `start` on."""
        ...


def check_batch_size(batch_size: int, world_size: int) -> None:
    """Raises an error if a batch has fewer sequences than there are processes."""
    if batch_size < world_size:
        problem = f"a batch of {batch_size} cannot be divided among {world_size} processes."
        fix = f"Use --nproc {batch_size} or fewer."  # a run that is resumed keeps its batch size
        if world_size > 1:
            fix += f" A new run may have a larger --training.batch-size instead: at least {world_size}."
        raise UsageError(problem, fix=fix)


def shard_batch(batch_size: int, rank: int, world_size: int) -> range:
    """Returns the sequences of a batch that one of `world_size` processes computes: contiguous, and none if too few.

    Shares differ by at most one sequence; losses are sums, so the update does not depend on the shares.
    """
    return range(rank * batch_size // world_size, (rank + 1) * batch_size // world_size)


B = TypeVar("B", bound=Batch)


class BucketLoader(Generic[B]):
    """Training batches of whole examples of similar length.

    `lengths[i]` is the length of example i; `collate` returns the batch of some examples by their indices. A batch has
    at most `batch_size` examples, and at most `max_tokens` tokens (0: any number) with its padding, so that one long
    line does not exhaust the memory, but always at least one example. Every example is in exactly one batch of an
    epoch. Which examples are in which batch, and the order of the batches, are pure functions of (seed, epoch).
    Processes share each batch; of a batch with fewer examples than processes, some get an example that does not count.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        collate: Callable[[np.ndarray], B],
        batch_size: int,
        max_tokens: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ):
        check_batch_size(batch_size, world_size)
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.collate = collate
        self.batch_size, self.max_tokens = batch_size, max_tokens
        self.seed, self.rank, self.world_size = seed, rank, world_size
        # (N,): the bucket of each example
        self.buckets = np.floor(np.log(np.maximum(self.lengths, 1)) / np.log(BUCKET_GROWTH)).astype(np.int64)

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """Start and stop of each batch among the examples sorted by bucket; the same in every epoch."""
        buckets = np.sort(self.buckets)
        longest = {int(bucket): int(self.lengths[self.buckets == bucket].max()) for bucket in np.unique(buckets)}
        bounds, start = [], 0
        while start < len(buckets):
            stop = min(len(buckets), start + self._limit_size(longest[int(buckets[start])]))
            # The batch may extend into buckets of longer examples: it takes fewer examples then, until it fits.
            while stop - start > (fewer := self._limit_size(longest[int(buckets[stop - 1])])):
                stop = start + fewer
            bounds.append((start, stop))
            start = stop
        return bounds

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks and in every epoch."""
        return len(self.bounds)

    def epoch(self, index: int, start: int = 0) -> Iterator[B]:
        """Yields the batches of an epoch from batch `start` on."""
        order = permutation(len(self.lengths), self.seed, index)
        order = order[np.argsort(self.buckets[order], kind="stable")]  # shuffled within each bucket
        for batch in permutation(self.steps, self.seed, index, 1)[start:]:
            first, stop = self.bounds[batch]
            # Every `world_size`-th example, because later ones are longer. Shares may differ by one: losses are sums.
            own_indices = order[first:stop][self.rank :: self.world_size]
            if len(own_indices):
                yield self.collate(own_indices)
            else:
                yield replace(self.collate(order[first : first + 1]), is_filler=True)

    def _limit_size(self, length: int) -> int:
        """Returns the maximum number of examples of this length in a batch."""
        size = min(self.batch_size, self.max_tokens // max(1, length)) if self.max_tokens else self.batch_size
        return max(1, size)


def spread_indices(count: int, share: float = 1.0) -> np.ndarray:
    """Returns the indices of a share of `count` examples, at equal distances; at least one, if there is one."""
    num_chosen = min(count, math.ceil(count * share))
    return np.arange(num_chosen, dtype=np.int64) * count // max(1, num_chosen)


def spread_batches(batches: Batches, share: float = 1.0) -> Iterator[Any]:
    """Yields a share of the batches of an epoch, at equal distances; they must all reset the state of the model."""
    for step in spread_indices(batches.steps, share):
        yield next(batches.epoch(0, int(step)))


def iterate_by_length(
    lengths: Sequence[int] | np.ndarray,
    batch_size: int,
    max_tokens: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    share: float = 1.0,
) -> Iterator[np.ndarray]:
    """Yields the indices of the examples of each batch for evaluation: each once, longest first, ranks in turn.

    With a `share` below 1 only that part of the examples is evaluated, evenly spread.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    indices = spread_indices(len(lengths), share)
    order = indices[np.argsort(-lengths[indices], kind="stable")]
    start = batch = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + (batch_size if max_tokens is None else min(batch_size, max(1, max_tokens // longest)))
        if batch % world_size == rank:
            yield order[start:stop]
        start, batch = stop, batch + 1


def pad_sequences(sequences: Sequence[np.ndarray], value: int = 0) -> np.ndarray:
    """Returns sequences of different lengths as one array (B, T), padded with `value` at the end."""
    length = max((len(sequence) for sequence in sequences), default=0)
    padded = np.full((len(sequences), max(1, length)), value, dtype=np.int64)
    for index, sequence in enumerate(sequences):
        padded[index, : len(sequence)] = sequence
    return padded
