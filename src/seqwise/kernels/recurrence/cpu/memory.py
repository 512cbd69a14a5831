"""The memory of a scan: its buffers, the rows of each worker, and what is saved for the gradient.

It knows nothing of gradients; the equations are in `equations` and `layer_norm_equations`, the loops in `loop`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.cpu.linear import MIN_THREADED_WORK, PRECISIONS, packed, tools
from seqwise.kernels.recurrence.packing import SequencePacking, Window
from seqwise.kernels.recurrence.thread_safe_cache import thread_safe_cache

if TYPE_CHECKING:  # they import LLVM, which is imported only when needed
    from seqwise.kernels.recurrence.cpu.code import Compiled
    from seqwise.kernels.recurrence.cpu.loop import Buffer, Equation

ROWS = 2048  # of gates in a window: small enough to stay in the cache until they are used


def equation_of(kind: CellSpec) -> Equation:
    from seqwise.kernels.recurrence.cpu import equations, layer_norm_equations

    updates = {"keeps": True, "replaces": False}
    known = kind.activation in ("tanh", "relu", "sigmoid", "identity") if kind.name == "rnn" else kind.update in updates
    table: dict[tuple[str | bool, ...], Callable[[], Equation]] = {
        ("rnn", False): lambda: equations.RNN(kind.activation),
        ("rnn", True): lambda: layer_norm_equations.LayerNormRNN(kind.activation),
        ("lstm", False): equations.LSTM,
        ("lstm", True): layer_norm_equations.LayerNormLSTM,
        ("gru", "after", False): lambda: equations.LateReset(updates[kind.update]),
        ("gru", "after", True): lambda: layer_norm_equations.LayerNormGRU(updates[kind.update]),
        ("gru", "before", False): lambda: equations.EarlyReset(updates[kind.update]),
    }
    make = table.get((kind.name, kind.reset, kind.layer_norm) if kind.name == "gru" else (kind.name, kind.layer_norm))
    if make is None or not known:
        raise UsageError(f"no compiled scan of {kind}.")
    return make()


@thread_safe_cache
def form(kind: CellSpec, dtype: torch.dtype) -> Form:
    return Form(kind, dtype)


@thread_safe_cache
def _loop(form: Form, back: bool) -> Compiled:
    from seqwise.kernels.recurrence.cpu.loop import compile_loop

    return compile_loop(form.equation, form.real, back)


class Form:
    """The compiled functions of a cell and a precision. LLVM is imported here, when it is first needed."""

    def __init__(self, kind: CellSpec, dtype: torch.dtype):
        from seqwise.kernels.recurrence.cpu.product import products

        self.equation, self.real, self.tools = equation_of(kind), PRECISIONS[dtype], tools(dtype)
        self.vectors, self.states = len(self.equation.extras), self.equation.states
        self.multiply = products(self.real)["product"]
        wanted = set(self.equation.backward_buffers) | {factor for _, _, factor in self.equation.weighted}
        self.saved_names = [
            name for name, one in self.equation.buffers.items() if name in wanted or one.kind == "vector"
        ]

    def loop(self, back: bool) -> Compiled:
        return _loop(self, back)


class Plan:
    """One call: which cell over which steps, in how many directions, and what is saved.

    With `whole`, the caller has projected the input and all steps are one window; otherwise the input is projected
    window by window. `back` says that gradients will be needed, `record` that the gates will be recorded.
    """

    def __init__(
        self,
        form: Form,
        packing: SequencePacking,
        reverse: tuple[bool, ...],
        units: int,
        whole: bool,
        back: bool,
        record: bool,
    ):
        self.form, self.equation, self.packing, self.reverse, self.units = form, form.equation, packing, reverse, units
        self.whole, self.back, self.record = whole, back, record
        work = 2 * packing.num_rows * self.equation.blocks * units**2 * len(reverse)
        self.threads = torch.get_num_threads() if work >= MIN_THREADED_WORK else 1
        if not packing.is_padded:
            packing.sorted_indices, packing.step_offsets = _even(packing.batch_size, packing.max_steps)
        self.workers = max(
            1, min(self.threads // len(reverse), packing.batch_size)
        )  # shares of the rows, per direction
        self.windows = packing.split_windows(packing.num_rows if whole else ROWS)
        self.rows = max(window.end_row - window.first_row for window in self.windows)

    def window(self, count: int, place: int, back: bool) -> Window:
        """The window that a direction computes after `count` others."""
        return self.windows[-1 - count if self.reverse[place] != back else count]


@lru_cache(maxsize=32)
def _even(batch: int, time: int) -> tuple[Tensor, Tensor]:
    """The order of rows and the starts of steps without padding; calls of one shape share them."""
    return torch.arange(batch, device="cpu"), torch.arange(time + 1, device="cpu") * batch


def piece(rows: Tensor, first: int, end: int) -> Tensor:
    """Some of the rows. For all of them no view is made, which would take two microseconds."""
    return rows if first == 0 and end == rows.shape[0] else rows[first:end]


class BufferMemory(NamedTuple):
    """The memory of a buffer, and its strides from row to row, from worker to worker, and per row of earlier windows.

    The last is zero where each window reuses the rows of the one before.
    """

    memory: Tensor
    by_row: int
    by_worker: int
    by_earlier: int

    def part(self, window: Window) -> Tensor:
        """The packed rows of a window."""
        first = window.first_row if self.by_earlier else 0
        return piece(self.memory, first, first + window.end_row - window.first_row)


class Job:
    """The buffers of one direction, forward or backward, and the arguments of its workers.

    `tensors` are buffers that exist already; in the backward pass, packed ones have the rows of all steps.
    """

    def __init__(self, plan: Plan, matrix: Tensor, back: bool, tensors: dict[str, Tensor]):
        self.plan, self.matrix, self.back = plan, matrix, back
        units, blocks = plan.units, plan.equation.packs
        self.packs = [packed(piece(matrix, first * units, end * units), transposed=not back) for first, end in blocks]
        shapes = plan.equation.backward_buffers if back else plan.equation.buffers
        self.buffers = {name: self._hold(name, shape, tensors.get(name)) for name, shape in shapes.items()}
        # Saved for the sums over all steps only: the backward loop does not use it.
        only_summed = [name for _, _, name in plan.equation.weighted if back and name not in shapes]
        self.summed_only = {name: BufferMemory(tensors[name], 0, 0, tensors[name].shape[1]) for name in only_summed}

    def _hold(self, name: str, shape: Buffer, memory: Tensor | None) -> BufferMemory:
        plan, width = self.plan, shape.width(self.plan.units)
        if shape.only_for and not (plan.record if shape.only_for == "record" else plan.back):
            return BufferMemory(
                self.matrix.new_empty(plan.workers, width), 0, width, 0
            )  # it is not read: one row per worker
        all_steps = memory is not None if self.back else plan.record or (plan.back and name in plan.form.saved_names)
        whole = shape.kind == "packed" and all_steps
        if memory is None:
            packed_rows = plan.packing.num_rows if whole else plan.rows
            make = self.matrix.new_zeros if shape.kind == "sum" else self.matrix.new_empty
            memory = make(packed_rows if shape.kind == "packed" else plan.packing.batch_size, width)
        return BufferMemory(memory, width, 0, width if whole else 0)

    def part(self, name: str, window: Window) -> Tensor:
        """The rows of a window in a packed buffer."""
        return (self.buffers.get(name) or self.summed_only[name]).part(window)

    def arguments(self, window: Window, external: Tensor, direction: int, by_step: int, by_row: int) -> list[list[int]]:
        """For each worker the list of words that `loop.layout` describes."""
        plan, size = self.plan, self.matrix.element_size()
        middle = [
            int(plan.reverse[direction]),
            window.step_offsets.data_ptr(),
            plan.packing.sorted_indices.data_ptr(),
            plan.units,
        ]
        place = external.data_ptr() + (window.first_step * by_step + direction * plan.units) * size
        middle += [plan.form.multiply.address, place, by_step, by_row]
        places = [
            (one.memory.data_ptr() + window.first_row * one.by_earlier * size, one.by_row, one.by_worker * size)
            for one in self.buffers.values()
        ]
        panels = [one.data_ptr() for one in self.packs]
        lists = []
        for worker in range(plan.workers):
            words = [window.end_step - window.first_step, worker, plan.workers, *middle]
            for address, by_row_of_it, share in places:
                words += (address + worker * share, by_row_of_it)
            lists.append(words + panels)
        return lists
