"""`Batch`: what crosses from data to models. It knows nothing of files or of text."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Rows of token ids with the targets to predict.

    `positions` says where each row begins in its token store, so that an error can name the sample.
    `fresh` says that the rows do not continue those of the batch before: a carried state must be dropped.
    """

    ids: Tensor  # (B, T) int64
    targets: Tensor  # (B, T) int64
    mask: Tensor | None = None  # (B, T) bool: the targets that count; None means all
    positions: Tensor | None = None  # (B,) int64
    fresh: bool = True

    @property
    def rows(self) -> int:
        return self.ids.shape[0]

    @property
    def count(self) -> int:
        """Number of targets that count towards the loss."""
        return self.targets.numel() if self.mask is None else int(self.mask.sum())

    def slice(self, start: int, stop: int) -> Batch:
        """Rows start … stop-1 as a batch of their own."""

        def cut(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[start:stop]

        return replace(
            self,
            ids=self.ids[start:stop],
            targets=self.targets[start:stop],
            mask=cut(self.mask),
            positions=cut(self.positions),
        )

    def to(self, device: str | torch.device) -> Batch:
        """The same batch on a device; `positions` stay on the CPU."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        mask = None if self.mask is None else move(self.mask)
        return replace(self, ids=move(self.ids), targets=move(self.targets), mask=mask)
