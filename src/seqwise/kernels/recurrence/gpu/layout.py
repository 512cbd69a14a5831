"""Where the rows of a batch lie in the memory of the recurrent kernels, seen from outside; `rows.py` is the inside.

It knows no units and no cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqwise.kernels.recurrence.layout import in_order
from seqwise.kernels.recurrence.steps import Steps


@dataclass(frozen=True)
class RowLayout:
    """The rows of a batch: so many, of so many steps, with N slots for all steps of all rows.

    `reverse` says of each scan whether it reads from the end. Where rows differ in length there are, int32, lengths
    (B,), longest first, and begins (T + 1,), the slots at which steps begin; and of each slot (N,) row and step.
    """

    batch: int
    steps: int
    slots: int
    reverse: tuple[bool, ...] = (False,)
    lengths: Tensor | None = None
    begins: Tensor | None = None
    ranks: Tensor | None = None
    times: Tensor | None = None

    @classmethod
    def of(cls, steps: Steps, reverse: tuple[bool, ...] = (False,)) -> RowLayout:
        if not steps.padded:
            return cls(steps.batch, steps.time, steps.total, reverse)
        sizes = steps.ordered.int(), steps.starts.int()
        return cls(steps.batch, steps.time, steps.total, reverse, *sizes, steps.ranks, steps.times)

    def one_step(self) -> RowLayout:
        """As many rows, with one step each, for the same kernels."""
        if self.lengths is None or self.begins is None:
            return RowLayout(self.batch, 1, self.batch, self.reverse)
        ranks = torch.arange(self.batch, device=self.lengths.device)
        ones, begins = torch.ones_like(self.lengths), self.begins.new_tensor([0, self.batch])
        return RowLayout(self.batch, 1, self.batch, self.reverse, ones, begins, ranks, torch.zeros_like(ranks))

    @property
    def variable(self) -> bool:
        """Do rows differ in length?"""
        return self.lengths is not None

    @property
    def sizes(self) -> tuple[Tensor | None, Tensor | None]:
        """What every kernel reads: lengths and begins."""
        return self.lengths, self.begins

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """What every kernel is told: steps, batch, slots, and the bits of the scans that are turned."""
        return self.steps, self.batch, self.slots, sum(reverse << scan for scan, reverse in enumerate(self.reverse))

    def room(self, units: int) -> tuple[int, int, int]:
        """The shape of all states: those before the first steps, those after each step, and again those before."""
        return self.slots + 2 * self.batch, len(self.reverse), units

    def after(self, states: Tensor) -> Tensor:
        """Of the states (B + N + B, S, …), those after each step: (N, S, …), or (T, B, S, …) where rows are whole."""
        found = states[self.batch : self.batch + self.slots]
        return found if self.variable else found.view(self.steps, self.batch, *found.shape[1:])

    def apart(self, of_outputs: Tensor | None, states: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Gradients of what `after` gave of the states, units side by side in memory, and how far apart steps, rows and
        scans are. None are zeros."""
        if of_outputs is None:
            of_outputs = torch.zeros_like(self.after(states))
        if of_outputs.stride(-1) != 1:
            of_outputs = in_order(of_outputs)
        *_, row, scan, _ = strides = of_outputs.stride()
        return of_outputs, (row if self.variable else strides[0], row, scan)

    def before(self, states: Tensor) -> list[Tensor]:
        """Of the states (B + N + B, S, …), for each scan those before each step: (N, …), in the order of the slots."""
        return [self._before(states[:, scan], reverse) for scan, reverse in enumerate(self.reverse)]

    def _before(self, states: Tensor, reverse: bool) -> Tensor:
        if self.lengths is None or self.begins is None or self.times is None or self.ranks is None:
            first = 2 * self.batch if reverse else 0
            return states[first : first + self.slots]
        if reverse:
            ends = self.times + 1 == self.lengths[self.ranks]
            place = torch.where(ends, self.slots, self.begins[self.times + 1])
        else:
            place = torch.where(self.times == 0, -self.batch, self.begins[(self.times - 1).clamp(min=0)])
        return states.index_select(0, place + self.batch + self.ranks)


def unwritten(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory in which nothing has been published yet, as integers."""
    return torch.full(shape, -1, dtype={2: torch.int16, 4: torch.int32}[dtype.itemsize], device=device)


def whole(slopes: Tensor | None) -> Tensor | None:
    """Gradients of last states as kernels read them: in order, or none."""
    return None if slopes is None else slopes.contiguous()


def products(left: Tensor, right: list[Tensor]) -> Tensor:
    """For each scan the product over all slots of left (N, S, A) and right (N, C): (S, A, C)."""
    found = [left[:, scan].mT @ one for scan, one in enumerate(right)]
    return torch.stack(found) if len(found) > 1 else found[0][None]
