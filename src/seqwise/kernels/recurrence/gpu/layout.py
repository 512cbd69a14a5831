"""The layout of packed memory for the code that launches the recurrent kernels; `packed_rows.py` has the kernels' side.

Packed memory has N rows, one per valid step of a sequence (see `SequencePacking`). A state buffer (B + N + B, D, U) has
B more rows on both sides: first the initial states of forward directions, then the states after each step, then the
initial states of reversed directions. B is the number of sequences, D of directions, U of units. This module knows
nothing of cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqwise.kernels.recurrence.packing import SequencePacking, to_contiguous


@dataclass(frozen=True)
class PackedLayout:
    """The packed rows of a batch. The tensors are None if all sequences have the same length."""

    batch_size: int
    num_steps: int
    num_rows: int
    reverse: tuple[bool, ...] = (False,)  # for each direction, whether it reads from the last step to the first
    lengths: Tensor | None = None  # (B,) int32, longest first
    step_offsets: Tensor | None = None  # (T + 1,) int32: the packed row at which each step begins, then N
    row_ranks: Tensor | None = None  # (N,): the index of each row's sequence in the order by length
    row_steps: Tensor | None = None  # (N,): the step of each row

    @classmethod
    def from_packing(cls, packing: SequencePacking, reverse: tuple[bool, ...] = (False,)) -> PackedLayout:
        """Returns the layout of a packed batch."""
        if not packing.is_padded:
            return cls(packing.batch_size, packing.max_steps, packing.num_rows, reverse)
        lengths, step_offsets = packing.sorted_lengths.int(), packing.step_offsets.int()
        sizes = packing.batch_size, packing.max_steps, packing.num_rows
        return cls(*sizes, reverse, lengths, step_offsets, packing.row_ranks, packing.row_steps)

    def with_one_step(self) -> PackedLayout:
        """Returns the layout of as many sequences of one step each, which the same compiled kernels can run."""
        if self.lengths is None or self.step_offsets is None:
            return PackedLayout(self.batch_size, 1, self.batch_size, self.reverse)
        ranks = torch.arange(self.batch_size, device=self.lengths.device)
        ones, offsets = torch.ones_like(self.lengths), self.step_offsets.new_tensor([0, self.batch_size])
        return PackedLayout(
            self.batch_size, 1, self.batch_size, self.reverse, ones, offsets, ranks, torch.zeros_like(ranks)
        )

    @property
    def has_lengths(self) -> bool:
        """Whether sequences differ in length, so that `lengths` and the other tensors exist."""
        return self.lengths is not None

    @property
    def kernel_scalars(self) -> tuple[int, int, int, int]:
        """The arguments num_steps, batch_size, num_rows and reverse_bits (one bit per direction) of every kernel."""
        reverse_bits = sum(is_reversed << direction for direction, is_reversed in enumerate(self.reverse))
        return self.num_steps, self.batch_size, self.num_rows, reverse_bits

    def get_state_shape(self, units: int) -> tuple[int, int, int]:
        """Returns the shape (B + N + B, D, U) of a state buffer."""
        return self.num_rows + 2 * self.batch_size, len(self.reverse), units

    def select_outputs(self, states: Tensor) -> Tensor:
        """Returns the states after each step from a state buffer: (N, D, …), or (T, B, D, …) without lengths."""
        return self.split_steps(states[self.batch_size : self.batch_size + self.num_rows])

    def split_steps(self, rows: Tensor) -> Tensor:
        """Returns packed rows (N, …), as (T, B, …) without lengths."""
        return rows if self.has_lengths else rows.view(self.num_steps, self.batch_size, *rows.shape[1:])

    def prepare_grad_outputs(self, grad_outputs: Tensor | None, states: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Returns the gradients of the outputs of `select_outputs`, with contiguous units and zeros for None, and their
        strides over steps, sequences and directions."""
        if grad_outputs is None:
            grad_outputs = torch.zeros_like(self.select_outputs(states))
        if grad_outputs.stride(-1) != 1:
            grad_outputs = to_contiguous(grad_outputs)
        *_, sequence, direction, _ = strides = grad_outputs.stride()
        return grad_outputs, (sequence if self.has_lengths else strides[0], sequence, direction)

    def select_previous_states(self, states: Tensor) -> list[Tensor]:
        """Returns, for each direction, the states before each step from a state buffer: (N, …) in packed order."""
        return [self._select_previous_states(states[:, d], is_reversed) for d, is_reversed in enumerate(self.reverse)]

    def _select_previous_states(self, states: Tensor, is_reversed: bool) -> Tensor:
        if self.lengths is None or self.step_offsets is None or self.row_steps is None or self.row_ranks is None:
            first_row = 2 * self.batch_size if is_reversed else 0
            return states[first_row : first_row + self.num_rows]
        if is_reversed:
            is_last_step = self.row_steps + 1 == self.lengths[self.row_ranks]
            previous_starts = torch.where(is_last_step, self.num_rows, self.step_offsets[self.row_steps + 1])
        else:
            previous_starts = self.step_offsets[(self.row_steps - 1).clamp(min=0)]
            previous_starts = torch.where(self.row_steps == 0, -self.batch_size, previous_starts)
        return states.index_select(0, previous_starts + self.batch_size + self.row_ranks)


def allocate_unwritten(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns memory in which no value is published yet (`sync.py`), as integers of the size of `dtype`."""
    return torch.full(shape, -1, dtype={2: torch.int16, 4: torch.int32}[dtype.itemsize], device=device)


def multiply_over_rows(left: Tensor, right: list[Tensor]) -> Tensor:
    """Returns, for each direction, the sum over packed rows of left (N, D, A) times right (N, C): (D, A, C)."""
    products = [left[:, direction].mT @ right_rows for direction, right_rows in enumerate(right)]
    return torch.stack(products) if len(products) > 1 else products[0][None]
