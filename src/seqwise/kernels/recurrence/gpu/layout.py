"""The packed memory of the recurrent kernels, seen from the host; `packed_rows.py` is the view of a kernel.

Packed memory has N rows, one per valid step of a sequence (see `SequencePacking`). Memory of states (B + N + B, D, U)
has B more rows on both sides: the initial states of a forward direction come before those after each step, the initial
states of a reversed direction after them. This module knows nothing of units and cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqwise.kernels.recurrence.packing import SequencePacking, to_contiguous


@dataclass(frozen=True)
class PackedLayout:
    """The packed rows of a batch. `reverse` says of each direction whether it reads from the end.

    Where sequences differ in length there are, as int32, lengths (B,), longest first, and step_offsets (T + 1,), the
    rows at which steps begin; and for each packed row (N,) the rank of its sequence and its step.
    """

    batch_size: int
    num_steps: int
    num_rows: int
    reverse: tuple[bool, ...] = (False,)
    lengths: Tensor | None = None
    step_offsets: Tensor | None = None
    row_ranks: Tensor | None = None
    row_steps: Tensor | None = None

    @classmethod
    def from_packing(cls, packing: SequencePacking, reverse: tuple[bool, ...] = (False,)) -> PackedLayout:
        if not packing.is_padded:
            return cls(packing.batch_size, packing.max_steps, packing.num_rows, reverse)
        lengths, step_offsets = packing.sorted_lengths.int(), packing.step_offsets.int()
        sizes = packing.batch_size, packing.max_steps, packing.num_rows
        return cls(*sizes, reverse, lengths, step_offsets, packing.row_ranks, packing.row_steps)

    def with_one_step(self) -> PackedLayout:
        """As many sequences, with one step each, for the same kernels."""
        if self.lengths is None or self.step_offsets is None:
            return PackedLayout(self.batch_size, 1, self.batch_size, self.reverse)
        ranks = torch.arange(self.batch_size, device=self.lengths.device)
        ones, offsets = torch.ones_like(self.lengths), self.step_offsets.new_tensor([0, self.batch_size])
        return PackedLayout(
            self.batch_size, 1, self.batch_size, self.reverse, ones, offsets, ranks, torch.zeros_like(ranks)
        )

    @property
    def has_lengths(self) -> bool:
        """Whether sequences differ in length."""
        return self.lengths is not None

    @property
    def kernel_scalars(self) -> tuple[int, int, int, int]:
        """The numbers that every kernel takes. `reverse` has one bit per direction."""
        reverse = sum(is_reversed << direction for direction, is_reversed in enumerate(self.reverse))
        return self.num_steps, self.batch_size, self.num_rows, reverse

    def state_shape(self, units: int) -> tuple[int, int, int]:
        """(B + N + B, D, U)"""
        return self.num_rows + 2 * self.batch_size, len(self.reverse), units

    def select_outputs(self, states: Tensor) -> Tensor:
        """Of the states (B + N + B, D, …), those after each step: (N, D, …), or (T, B, D, …) without lengths."""
        outputs = states[self.batch_size : self.batch_size + self.num_rows]
        return outputs if self.has_lengths else outputs.view(self.num_steps, self.batch_size, *outputs.shape[1:])

    def prepare_grad_outputs(self, grad_outputs: Tensor | None, states: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """The gradients of what `select_outputs` returned, with contiguous units, and the strides of steps, sequences
        and directions. None becomes zeros."""
        if grad_outputs is None:
            grad_outputs = torch.zeros_like(self.select_outputs(states))
        if grad_outputs.stride(-1) != 1:
            grad_outputs = to_contiguous(grad_outputs)
        *_, sequence, direction, _ = strides = grad_outputs.stride()
        return grad_outputs, (sequence if self.has_lengths else strides[0], sequence, direction)

    def select_previous_states(self, states: Tensor) -> list[Tensor]:
        """Of the states (B + N + B, D, …), for each direction those before each step: (N, …) in packed order."""
        return [self._select_previous_states(states[:, n], is_reversed) for n, is_reversed in enumerate(self.reverse)]

    def _select_previous_states(self, states: Tensor, is_reversed: bool) -> Tensor:
        if self.lengths is None or self.step_offsets is None or self.row_steps is None or self.row_ranks is None:
            first = 2 * self.batch_size if is_reversed else 0
            return states[first : first + self.num_rows]
        if is_reversed:
            is_last = self.row_steps + 1 == self.lengths[self.row_ranks]
            step_starts = torch.where(is_last, self.num_rows, self.step_offsets[self.row_steps + 1])
        else:
            previous = self.step_offsets[(self.row_steps - 1).clamp(min=0)]
            step_starts = torch.where(self.row_steps == 0, -self.batch_size, previous)
        return states.index_select(0, step_starts + self.batch_size + self.row_ranks)


def allocate_unwritten(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory in which no value is published yet (`sync.py`), as integers of the size of `dtype`."""
    return torch.full(shape, -1, dtype={2: torch.int16, 4: torch.int32}[dtype.itemsize], device=device)


def multiply_over_rows(left: Tensor, right: list[Tensor]) -> Tensor:
    """For each direction the product over all packed rows of left (N, D, A) and right (N, C): (D, A, C)."""
    products = [left[:, direction].mT @ rows for direction, rows in enumerate(right)]
    return torch.stack(products) if len(products) > 1 else products[0][None]
