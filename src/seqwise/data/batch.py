"""`Batch`: what crosses from data to models. It knows nothing of files or of text.

Each task defines its own kind of batch: a frozen dataclass derived from `Batch` whose tensors have one entry per row.
Slicing into micro-batches and moving to a device work the same way for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor

from seqwise.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What the training loop knows of a batch: its rows, its targets, and where they come from."""

    position_unit: ClassVar[str] = "example"  # what `positions` counts

    positions: Tensor | None = None  # (B,) int64: where each row begins in the data, for error messages
    resets_state: bool = True  # False: the rows continue those of the previous batch, so the model keeps its state

    @property
    def rows(self) -> int:
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


def shard_rows(rows: int, rank: int, world: int) -> range:
    """Return the rows of a batch that one of `world` processes computes: an equal, contiguous share."""
    if rows < 1 or rows % world:
        raise UsageError(
            f"{rows} rows cannot be divided among {world} processes.",
            repair=f"Set --training.batch-size to a multiple of {world}.",
        )
    share = rows // world
    return range(rank * share, (rank + 1) * share)
