"""The packed order of a batch of sequences, as in PyTorch's `PackedSequence`. It knows nothing of cells.

Sequences are sorted by length, the longest first. Packed rows are the first steps of all sequences, then the second
steps of those that have one, and so on: a batch (B, T, D) becomes (N, D) with N valid steps and no padding.

It also has fast copies into contiguous memory (`to_contiguous`, `time_first`): PyTorch copies 16-bit numbers one by
one, here eight bytes are copied at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

WORD_BYTES = 8


class Window(NamedTuple):
    """Consecutive steps, from `first_step` to before `end_step`, as packed rows from `first_row` to before `end_row`.

    `step_offsets` says where each step begins among the window's rows.
    """

    first_step: int
    end_step: int
    first_row: int
    end_row: int
    step_offsets: Tensor


class SequencePacking:
    """The packed order of one batch, on the device where it is used.

    sorted_lengths (B,): longest first; sorted_indices, unsorted_indices (B,): which sequences these are, and back;
    step_offsets (T + 1,): where each step begins among the packed rows; row_steps, row_ranks, row_sequences (N,): of
    each packed row the step, the position of its sequence in the sorted order, and its sequence.
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
        return torch.arange(self.batch_size, device=self.device)

    @cached_property
    def step_offsets(self) -> Tensor:
        return torch.arange(self.max_steps + 1, device=self.device) * self.batch_size

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, D) → (N, D)"""
        return _Pack.apply(x, self) if self.is_padded else _to_rows(x)

    def split_windows(self, min_rows: int) -> list[Window]:
        """All steps in windows of at least `min_rows` rows, except the last; up to twice as many rows are one."""
        if self.num_rows <= 2 * min_rows:
            return [Window(0, self.max_steps, 0, self.num_rows, self.step_offsets)]
        offsets, first, windows = self.step_offsets.tolist(), 0, []
        for t in range(1, self.max_steps + 1):
            if offsets[t] - offsets[first] >= min_rows or (t == self.max_steps and t > first):
                step_offsets = self.step_offsets[first : t + 1] - offsets[first]
                windows.append(Window(first, t, offsets[first], offsets[t], step_offsets))
                first = t
        return windows

    def window_reader(self, x: Tensor) -> Callable[[Window], Tensor]:
        """A function that returns the packed rows of x (B, T, D) in a window, without gradients."""
        if not self.is_padded:
            return lambda window: _to_rows(x[:, window.first_step : window.end_step])
        rows, indices = _flatten(x, self)
        return lambda window: rows.index_select(0, indices[window.first_row : window.end_row])

    def unpack(self, values: Tensor) -> Tensor:
        """(N, D) → (B, T, D), zero in the padding."""
        if self.is_padded:
            full = values.new_zeros(self.max_steps * self.batch_size, values.shape[1])
            values = full.index_copy_(0, self.row_steps * self.batch_size + self.row_sequences, values)
        return values.view(self.max_steps, self.batch_size, -1).transpose(0, 1)

    def sort(self, state: Tensor) -> Tensor:
        """(B, …) in the sorted order, as a copy."""
        return state[self.sorted_indices] if self.is_padded else state.clone(memory_format=torch.contiguous_format)

    def unsort(self, state: Tensor) -> Tensor:
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


def _to_rows(x: Tensor) -> Tensor:
    """(B, T, D) → (T · B, D), contiguous"""
    return x.transpose(0, 1).reshape(x.shape[0] * x.shape[1], x.shape[2]).contiguous()


def _flatten(x: Tensor, packing: SequencePacking) -> tuple[Tensor, Tensor]:
    """All steps as rows, without a copy if x is contiguous or contiguous time first, and the indices of the valid
    ones."""
    if x.transpose(0, 1).is_contiguous():
        rows = x.transpose(0, 1).reshape(-1, x.shape[2])
        return rows, packing.row_steps * packing.batch_size + packing.row_sequences
    return x.reshape(-1, x.shape[2]), packing.row_sequences * packing.max_steps + packing.row_steps


def to_contiguous(x: Tensor) -> Tensor:
    """Return x in contiguous memory, without a gradient."""
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


def time_first(x: Tensor) -> Tensor:
    """(B, T, …) → (T, B, …) in contiguous memory."""
    x = x.transpose(0, 1)
    return x if x.is_contiguous() else _ToContiguous.apply(x)
