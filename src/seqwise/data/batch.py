"""`TokenBatch`: what crosses from data to models. It knows nothing of files or of text.

Every task has its own kind of batch: a frozen dataclass below `Batch`, whose tensors have one entry per row. Cutting it
into micro-batches and moving it to a device is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from seqwise.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What the training loop knows of a batch: its rows, and how many targets count.

    `positions` says where each row comes from, counted in `origin`, so that an error can name the sample.
    `fresh` says that the rows do not continue those of the batch before: a carried state must be dropped.
    """

    origin: ClassVar[str] = "example"  # what `positions` counts

    positions: Tensor | None = None  # (B,) int64
    fresh: bool = True

    @property
    def rows(self) -> int:
        return len(next(tensor for tensor in self.tensors().values()))

    @property
    def length(self) -> int:
        """Steps of the longest row."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Number of targets that count towards the loss."""
        raise NotImplementedError

    @property
    def tokens(self) -> int:
        """What a budget in tokens and the display of speed count."""
        return self.count

    def slice(self, start: int, stop: int) -> Self:
        """Rows start … stop-1 as a batch of their own."""
        return self.mapped(lambda name, tensor: tensor[start:stop])

    def to(self, device: str | torch.device) -> Self:
        """The same batch on a device; `positions` stay on the CPU.

        A GPU fetches it when it has nothing else to do, which it can from memory that stays where it is.
        """
        fetched = torch.device(device).type == "cuda"

        def moved(name: str, tensor: Tensor) -> Tensor:
            if name == "positions":
                return tensor
            if fetched and not tensor.is_cuda:
                tensor = tensor.contiguous().pin_memory()
            return tensor.to(device, non_blocking=True)

        return self.mapped(moved)

    def mapped(self, function: Callable[[str, Tensor], Tensor]) -> Self:
        changed: dict[str, Any] = {name: function(name, tensor) for name, tensor in self.tensors().items()}
        return replace(self, **changed)

    def tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class TokenBatch(Batch):
    """Rows of token ids with the targets to predict."""

    origin = "token"

    ids: Tensor  # (B, T) int64
    targets: Tensor  # (B, T) int64
    mask: Tensor | None = None  # (B, T) bool: the targets that count; None means all

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    @property
    def count(self) -> int:
        return self.targets.numel() if self.mask is None else int(self.mask.sum())


def shard_rows(rows: int, rank: int, world: int) -> range:
    """The rows of a batch that belong to a rank: an equal, contiguous share."""
    if rows < 1 or rows % world:
        raise UsageError(
            f"{rows} rows cannot be divided among {world} processes.",
            repair=f"Set --training.batch-size to a multiple of {world}.",
        )
    share = rows // world
    return range(rank * share, (rank + 1) * share)
