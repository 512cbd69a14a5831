"""The packed order of a batch of sequences, as in PyTorch's `PackedSequence`. It knows nothing of cells.

Sequences are sorted by length, the longest first. Packed rows are the first steps of all sequences, then the second
steps of those that have one, and so on: a batch (B, T, D) becomes (N, D) with N valid steps and no padding.

The module also has fast copies into contiguous memory (`to_contiguous`, `to_time_first`): PyTorch copies 16-bit
numbers one by one, here eight bytes are copied at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

WORD_BYTES = 8  # copied at a time


class Window(NamedTuple):
    """Some consecutive steps and their packed rows; steps and rows end before `end_step` and `end_row`."""

    first_step: int
    end_step: int
    first_row: int
    end_row: int
    step_offsets: Tensor  # (steps + 1,): where each step begins among the window's rows, then their number


class SequencePacking:
    """The packed order of one batch, on the device where it is used. Without padding, all sequences have T steps.

    With padding (`is_padded`) it also has sorted_lengths (B,), longest first; unsorted_indices (B,), the inverse of
    sorted_indices; and for each packed row (N,): row_steps, its step; row_sequences, the index of its sequence in the
    batch; row_ranks, the index of its sequence in the order by length.
    """

    def __init__(
        self, batch_size: int, max_steps: int, lengths: Tensor | None = None, device: torch.device | str = "cpu"
    ):
        self.batch_size, self.max_steps, self.device = batch_size, max_steps, device
        self.num_rows, self.is_padded = batch_size * max_steps, False
        if lengths is None or not batch_size:
            return
        lengths = lengths.to(device, torch.long).clamp(0, max_steps)
        sorted_lengths, sorted_indices = lengths.sort(descending=True, stable=True)
        is_valid = torch.arange(max_steps, device=device)[:, None] < sorted_lengths  # (T, B)
        row_steps, row_ranks = is_valid.nonzero(as_tuple=True)
        if len(row_steps) == self.num_rows:
            return
        self.is_padded, self.num_rows = True, len(row_steps)
        self.sorted_lengths, self.sorted_indices = sorted_lengths, sorted_indices
        self.row_steps, self.row_ranks, self.row_sequences = row_steps, row_ranks, sorted_indices[row_ranks]
        self.step_offsets = F.pad(is_valid.sum(1).cumsum(0), (1, 0))
        self.unsorted_indices = torch.empty_like(sorted_indices)
        self.unsorted_indices[sorted_indices] = torch.arange(batch_size, device=device)

    @cached_property
    def sorted_indices(self) -> Tensor:
        """(B,): the sequences by length, longest first."""
        return _build_unpadded_order(self.batch_size, self.max_steps, self.device)[0]

    @cached_property
    def step_offsets(self) -> Tensor:
        """(T + 1,): the packed row at which each step begins, then N."""
        return _build_unpadded_order(self.batch_size, self.max_steps, self.device)[1]

    def pack(self, x: Tensor) -> Tensor:
        """Returns the valid steps of x (B, T, D) as packed rows (N, D)."""
        return _Pack.apply(x, self) if self.is_padded else _to_rows(x)

    def split_windows(self, min_rows: int) -> list[Window]:
        """Divides the steps into windows of at least `min_rows` rows, except the last one.

        Up to twice `min_rows` rows are one window.
        """
        if self.num_rows <= 2 * min_rows:
            return [Window(0, self.max_steps, 0, self.num_rows, self.step_offsets)]
        offsets, first_step, windows = self.step_offsets.tolist(), 0, []
        for end_step in range(1, self.max_steps + 1):
            first_row, end_row = offsets[first_step], offsets[end_step]
            if end_row - first_row >= min_rows or end_step == self.max_steps:
                step_offsets = self.step_offsets[first_step : end_step + 1] - first_row
                windows.append(Window(first_step, end_step, first_row, end_row, step_offsets))
                first_step = end_step
        return windows

    def build_window_reader(self, x: Tensor) -> Callable[[Window], Tensor]:
        """Returns a function that returns the packed rows of x (B, T, D) in a window, without gradients."""
        if not self.is_padded:
            return lambda window: _to_rows(x[:, window.first_step : window.end_step])
        rows, indices = _flatten(x, self)
        return lambda window: rows.index_select(0, indices[window.first_row : window.end_row])

    def unpack(self, values: Tensor) -> Tensor:
        """Returns packed rows (N, D) as (B, T, D), zero in the padding."""
        if self.is_padded:
            all_steps = values.new_zeros(self.max_steps * self.batch_size, values.shape[1])
            values = all_steps.index_copy_(0, self.row_steps * self.batch_size + self.row_sequences, values)
        return values.view(self.max_steps, self.batch_size, -1).transpose(0, 1)

    def sort(self, state: Tensor) -> Tensor:
        """Returns a copy of a state (B, …) with the sequences in the sorted order."""
        return state[self.sorted_indices] if self.is_padded else state.clone(memory_format=torch.contiguous_format)

    def unsort(self, state: Tensor) -> Tensor:
        """Returns a state (B, …) with the sequences in their original order."""
        return state[self.unsorted_indices] if self.is_padded else state


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: SequencePacking) -> Tensor:
        ctx.packing = packing
        rows, indices = _flatten(x, packing)
        return rows.index_select(0, indices)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return ctx.packing.unpack(grad_output), None


@lru_cache(maxsize=32)
def _build_unpadded_order(batch_size: int, max_steps: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Returns `sorted_indices` and `step_offsets` of a batch without padding; batches of one shape share them."""
    return torch.arange(batch_size, device=device), torch.arange(max_steps + 1, device=device) * batch_size


def _to_rows(x: Tensor) -> Tensor:
    """Returns x (B, T, D) as contiguous rows (T · B, D)."""
    return x.transpose(0, 1).reshape(x.shape[0] * x.shape[1], x.shape[2]).contiguous()


def _flatten(x: Tensor, packing: SequencePacking) -> tuple[Tensor, Tensor]:
    """Returns all steps of x (B, T, D) as rows, and the indices of the valid rows in packed order.

    Nothing is copied if x or its transpose (T, B, D) is contiguous.
    """
    if x.transpose(0, 1).is_contiguous():
        rows = x.transpose(0, 1).reshape(-1, x.shape[2])
        return rows, packing.row_steps * packing.batch_size + packing.row_sequences
    return x.reshape(-1, x.shape[2]), packing.row_sequences * packing.max_steps + packing.row_steps


def to_contiguous(x: Tensor) -> Tensor:
    """Returns x in contiguous memory, without a gradient."""
    if x.is_contiguous():
        return x
    size = x.element_size()
    strides = (*x.stride()[:-1], x.shape[-1], x.storage_offset())
    if x.stride(-1) == 1 and all(stride * size % WORD_BYTES == 0 for stride in strides):
        return x.view(torch.int64).contiguous().view(x.dtype)
    return x.contiguous()


class _ToContiguous(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return to_contiguous(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output


def to_time_first(x: Tensor) -> Tensor:
    """Returns x (B, T, …) as (T, B, …) in contiguous memory."""
    x = x.transpose(0, 1)
    return x if x.is_contiguous() else _ToContiguous.apply(x)
