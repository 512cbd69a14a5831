"""Which steps of a batch are real, in the order in which they are computed. It knows nothing of cells.

Rows are put in the order of their length, the longest first; then come the first steps of all rows, the second steps of
those that have one, and so on. Packed like this, a batch (B, T, D) is (N, D) with N real steps and no padding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.kernels.recurrence.gradients import first_order


class Window(NamedTuple):
    """Some steps, one after the other: from `first` to before `end`, as packed rows from `row` to before `stop`.

    `starts` says where each step begins among the window's rows.
    """

    first: int
    end: int
    row: int
    stop: int
    starts: Tensor


class Steps:
    """The order for one batch, on the device where it is needed.

    ordered: the lengths (B,), longest first; order: which rows these are; starts (T + 1,): where each step begins among
    the packed rows; times, ranks (N,): of each packed row, its step and its place in the order.
    """

    def __init__(self, batch: int, time: int, lengths: Tensor | None = None, device: torch.device | str = "cpu"):
        self.batch, self.time, self.total, self.padded, self.device = batch, time, batch * time, False, device
        if lengths is None or not batch:
            return
        ordered, order = lengths.to(device, torch.long).clamp(0, time).sort(descending=True, stable=True)
        real = torch.arange(time, device=device)[:, None] < ordered  # (T, B)
        times, ranks = real.nonzero(as_tuple=True)
        if len(times) == self.total:
            return
        self.padded, self.total, self.ordered, self.times, self.ranks = True, len(times), ordered, times, ranks
        self.order, self.starts = order, F.pad(real.sum(1).cumsum(0), (1, 0))
        self.rows = self.order[self.ranks]
        self.back = torch.empty_like(self.order)
        self.back[self.order] = torch.arange(batch, device=device)

    @cached_property
    def order(self) -> Tensor:
        return torch.arange(self.batch, device=self.device)

    @cached_property
    def starts(self) -> Tensor:
        return torch.arange(self.time + 1, device=self.device) * self.batch

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, D) → (N, D)"""
        return _Pack.apply(x, self) if self.padded else _rows(x)

    def windows(self, rows: int) -> list[Window]:
        """All steps in windows of at least so many rows; fewer in the last, and in all if one window is enough."""
        if self.total <= 2 * rows:
            return [Window(0, self.time, 0, self.total, self.starts)]
        borders, last, found = self.starts.tolist(), 0, []
        for t in range(1, self.time + 1):
            if borders[t] - borders[last] >= rows or (t == self.time and t > last):
                starts = self.starts[last : t + 1] - borders[last]
                found.append(Window(last, t, borders[last], borders[t], starts))
                last = t
        return found

    def parts(self, x: Tensor) -> Callable[[Window], Tensor]:
        """(B, T, D) → a function that picks (rows of a window, D), without gradients."""
        if not self.padded:
            return lambda window: _rows(x[:, window.first : window.end])
        flat, place = _flat(x, self)
        return lambda window: flat.index_select(0, place[window.row : window.stop])

    def unpack(self, values: Tensor) -> Tensor:
        """(N, D) → (B, T, D), zero in the padding."""
        if self.padded:
            full = values.new_zeros(self.time * self.batch, values.shape[1])
            values = full.index_copy_(0, self.times * self.batch + self.rows, values)
        return values.view(self.time, self.batch, -1).transpose(0, 1)

    def sort(self, state: Tensor) -> Tensor:
        """(B, …) in the order of the rows, as a copy."""
        return state[self.order] if self.padded else state.clone(memory_format=torch.contiguous_format)

    def unsort(self, state: Tensor) -> Tensor:
        return state[self.back] if self.padded else state


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, steps: Steps) -> Tensor:
        ctx.steps = steps
        flat, place = _flat(x, steps)
        return flat.index_select(0, place)

    @staticmethod
    @first_order
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.steps.unpack(gradient), None


def _rows(x: Tensor) -> Tensor:
    """(B, T, D) → (T · B, D), without gaps"""
    return x.transpose(0, 1).reshape(x.shape[0] * x.shape[1], x.shape[2]).contiguous()


def _flat(x: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
    """The batch as rows, without a copy where it lies in one of the two orders, and the real ones' places."""
    if x.transpose(0, 1).is_contiguous():
        return x.transpose(0, 1).reshape(-1, x.shape[2]), steps.times * steps.batch + steps.rows
    return x.reshape(-1, x.shape[2]), steps.rows * steps.time + steps.times
