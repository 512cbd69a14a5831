"""The memory of a scan: which buffers there are, which rows of them a worker has, and what is kept for the way back.

It knows nothing of gradients; the equations are in `equations` and `normed`, the loops in `loop`.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.cpu.linear import KINDS, WORTH, packed
from seqwise.kernels.recurrence.cpu.steps import Steps, Window
from seqwise.kernels.recurrence.kinds import Kind

ROWS = 2048  # of gates at a time: what is computed from them finds them in the cache


@cache
def form(kind: Kind, dtype: torch.dtype) -> Form:
    return Form(kind, KINDS[dtype])


class Form:
    """All that is compiled for a cell and a precision. LLVM is imported here, when it is first needed."""

    def __init__(self, kind: Kind, real: str):
        from seqwise.kernels.recurrence.cpu import equations, normed, product

        late = normed.NormedGRU if kind.normed else equations.LateReset
        equation: Any
        if kind.name == "rnn":
            equation = (normed.NormedRNN if kind.normed else equations.RNN)(kind.activation)
        elif kind.name == "lstm":
            equation = (normed.NormedLSTM if kind.normed else equations.LSTM)()
        else:
            equation = (late if kind.reset == "after" else equations.EarlyReset)(kind.update == "keeps")
        self.equation, self.real = equation, real
        self.vectors, self.states = len(equation.extras), equation.states
        self.product = product.products(real)["product"].address
        wanted = set(equation.buffers_back) | {factor for _, _, factor in equation.weighted}
        self.kept = [name for name, one in equation.buffers.items() if name in wanted or one.kind == "vector"]

    @cached_property
    def forward(self) -> Any:
        from seqwise.kernels.recurrence.cpu.loop import compile_loop

        return compile_loop(self.equation, self.real, back=False)

    @cached_property
    def backward(self) -> Any:
        from seqwise.kernels.recurrence.cpu.loop import compile_loop

        return compile_loop(self.equation, self.real, back=True)


class Plan:
    """One call: which cell over which steps, in how many directions, and what of it is to be kept.

    If the projected input comes whole, all is one window; else the input is multiplied window by window.
    """

    def __init__(self, kind: Kind, steps: Steps, turned: tuple[bool, ...], matrix: Tensor, whole: bool, back: bool):
        self.steps, self.turned, self.units = steps, turned, matrix.shape[1]
        self.whole, self.back = whole, back  # back: gradients will be asked for
        self.look = False  # will gates be looked at?
        self.form = form(kind, matrix.dtype)
        self.equation = self.form.equation
        work = 2 * steps.total * self.equation.blocks * self.units**2 * len(turned)
        self.threads = torch.get_num_threads() if work >= WORTH else 1
        self.workers = max(1, min(self.threads // len(turned), steps.batch))  # shares of the rows, per direction
        self.windows = steps.windows(steps.total if whole else ROWS)
        self.rows = max(window.stop - window.row for window in self.windows)

    def window(self, count: int, place: int, back: bool) -> Window:
        """The window in which a direction is when so many are done."""
        return self.windows[-1 - count if self.turned[place] != back else count]


class Job:
    """The buffers of one direction on one way, and its workers' words. A buffer has rows for all steps or a window."""

    def __init__(self, plan: Plan, matrix: Tensor, back: bool, given: dict[str, Tensor]):
        self.plan, self.matrix, self.back, self.buffers = plan, matrix, back, given
        self.shapes = plan.equation.buffers_back if back else plan.equation.buffers
        units, blocks = plan.units, plan.equation.packs
        self.packs = [packed(matrix[first * units : end * units], turned=not back) for first, end in blocks]
        self.places: list[tuple[str, int, int, int]] = []  # name, and the step from row to row, worker, window
        for name, shape in self.shapes.items():
            width, only_for = shape.width(units), shape.only_for
            own = shape.kind == "own" or bool(only_for and not (plan.look if only_for == "look" else plan.back))
            whole = shape.kind == "packed" and self._whole(name)
            self.places.append((name, 0 if own else width, width if own else 0, 0 if own or not whole else width))
            if name not in given:
                make = matrix.new_zeros if shape.kind == "own" else matrix.new_empty
                packed_rows = plan.steps.total if whole else plan.rows
                rows = plan.workers if own else packed_rows if shape.kind == "packed" else plan.steps.batch
                given[name] = make(rows, width)

    def _whole(self, name: str) -> bool:
        if self.back:
            return name in self.buffers
        return self.plan.look or (self.plan.back and name in self.plan.form.kept)

    def part(self, name: str, window: Window) -> Tensor:
        """A packed buffer's rows of a window."""
        buffer = self.buffers[name]
        return buffer[window.row : window.stop] if self._kept(name) else buffer[: window.stop - window.row]

    def _kept(self, name: str) -> bool:
        return len(self.buffers[name]) == self.plan.steps.total

    def words(self, window: Window, outside: Tensor, direction: int, by_step: int, by_row: int) -> list[list[int]]:
        """One list per worker, as `loop.layout` says."""
        plan, size = self.plan, self.matrix.element_size()
        middle = [int(plan.turned[direction]), window.starts.data_ptr(), plan.steps.order.data_ptr(), plan.units]
        place = outside.data_ptr() + (window.first * by_step + direction * plan.units) * size
        middle += [plan.form.product, place, by_step, by_row]
        places = [
            (self.buffers[name].data_ptr() + window.row * far * size, step, share * size)
            for name, step, share, far in self.places
        ]
        panels = [one.data_ptr() for one in self.packs]
        lists = []
        for worker in range(plan.workers):
            words = [window.end - window.first, worker, plan.workers, *middle]
            for address, step, share in places:
                words += (address + worker * share, step)
            lists.append(words + panels)
        return lists
