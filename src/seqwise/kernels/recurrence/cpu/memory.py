"""The memory of a scan: its buffers, the rows of each worker, and what is saved for the gradient.

It knows nothing of gradients; the equations are in `equations` and `layer_norm_equations`, the loops in `loop`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.cpu.linear import MIN_THREADED_WORK, PRECISIONS, get_matmul_functions, pack_weight
from seqwise.kernels.recurrence.decorators import thread_safe_cache
from seqwise.kernels.recurrence.packing import SequencePacking, Window

if TYPE_CHECKING:  # they import LLVM, which is imported only when needed
    from seqwise.kernels.recurrence.cpu.code import Compiled
    from seqwise.kernels.recurrence.cpu.loop import Buffer, Equation

WINDOW_ROWS = 2048  # of gates in a window: small enough to stay in the cache until they are used


def build_equation(spec: CellSpec) -> Equation:
    """The compiled equation of a cell; raises `UsageError` where there is none."""
    from seqwise.kernels.recurrence.cpu import equations, layer_norm_equations

    variant = f"gru {spec.reset}" if spec.name == "gru" else spec.name
    table: dict[tuple[str, bool], type[Equation]] = {
        ("rnn", False): equations.RNN,
        ("rnn", True): layer_norm_equations.LayerNormRNN,
        ("lstm", False): equations.LSTM,
        ("lstm", True): layer_norm_equations.LayerNormLSTM,
        ("gru after", False): equations.GRUResetAfter,
        ("gru after", True): layer_norm_equations.LayerNormGRU,
        ("gru before", False): equations.GRUResetBefore,
    }
    is_known = spec.activation in equations.ACTIVATIONS if spec.name == "rnn" else spec.update in ("keeps", "replaces")
    if (variant, spec.layer_norm) not in table or not is_known:
        raise UsageError(f"no compiled scan of {spec}.")
    return table[variant, spec.layer_norm](spec)


@thread_safe_cache
def get_compiled_cell(spec: CellSpec, dtype: torch.dtype) -> CompiledCell:
    """The compiled functions of a cell and a precision; all calls share them."""
    return CompiledCell(spec, dtype)


class CompiledCell:
    """The compiled functions of a cell and a precision. LLVM is imported here, when it is first needed."""

    def __init__(self, spec: CellSpec, dtype: torch.dtype):
        from seqwise.kernels.recurrence.cpu.product import compile_products

        self.equation, self.precision = build_equation(spec), PRECISIONS[dtype]
        self.matmul = get_matmul_functions(dtype)
        self.vectors, self.states = len(self.equation.vector_widths), self.equation.states
        self.multiply = compile_products(self.precision)["product"]
        backward_names = set(self.equation.backward_buffers) | {
            factor for _, _, factor in self.equation.weight_gradients
        }
        self.saved_names = [
            name for name, buffer in self.equation.buffers.items() if name in backward_names or buffer.kind == "vector"
        ]

    @thread_safe_cache
    def loop(self, backward: bool) -> Compiled:
        """The loop over time, compiled at the first call; `backward` means the gradient."""
        from seqwise.kernels.recurrence.cpu.loop import compile_loop

        return compile_loop(self.equation, self.precision, backward)


class Plan:
    """One call: which cell over which steps, in how many directions, and what is saved.

    With `is_projected`, the caller has projected the input and all steps are one window; otherwise the input is
    projected window by window. `backward` says that gradients will be needed, `record` that the gates will be recorded.
    """

    def __init__(
        self,
        cell: CompiledCell,
        packing: SequencePacking,
        reverse: tuple[bool, ...],
        units: int,
        is_projected: bool,
        backward: bool,
        record: bool,
    ):
        self.cell, self.equation, self.packing, self.reverse, self.units = cell, cell.equation, packing, reverse, units
        self.is_projected, self.backward, self.record = is_projected, backward, record
        work = 2 * packing.num_rows * self.equation.blocks * units**2 * len(reverse)
        self.threads = torch.get_num_threads() if work >= MIN_THREADED_WORK else 1
        if not packing.is_padded:
            packing.sorted_indices, packing.step_offsets = _unpadded_layout(packing.batch_size, packing.max_steps)
        self.workers = max(1, min(self.threads // len(reverse), packing.batch_size))  # per direction
        self.windows = packing.split_windows(packing.num_rows if is_projected else WINDOW_ROWS)
        self.rows = max(window.end_row - window.first_row for window in self.windows)

    def window(self, count: int, direction: int, backward: bool) -> Window:
        """The window that a direction computes after `count` others."""
        return self.windows[-1 - count if self.reverse[direction] != backward else count]


@lru_cache(maxsize=32)
def _unpadded_layout(batch: int, time: int) -> tuple[Tensor, Tensor]:
    """The order of rows and the first row of each step, without padding; calls of one shape share them."""
    return torch.arange(batch, device="cpu"), torch.arange(time + 1, device="cpu") * batch


def slice_rows(rows: Tensor, first: int, end: int) -> Tensor:
    """The rows from `first` to `end`. All rows need no view, which would take two microseconds."""
    return rows if first == 0 and end == rows.shape[0] else rows[first:end]


class BufferMemory(NamedTuple):
    """The memory of a buffer, and its strides from row to row, from worker to worker, and per row of earlier windows.

    The last is zero where each window reuses the rows of the one before.
    """

    memory: Tensor
    row_stride: int
    worker_stride: int
    window_stride: int

    def part(self, window: Window) -> Tensor:
        """The packed rows of a window."""
        first = window.first_row if self.window_stride else 0
        return slice_rows(self.memory, first, first + window.end_row - window.first_row)


class Job:
    """The buffers of one direction, forward or backward, and the arguments of its workers.

    `tensors` are buffers that exist already; in the backward pass, packed ones have the rows of all steps.
    """

    def __init__(self, plan: Plan, matrix: Tensor, backward: bool, tensors: dict[str, Tensor]):
        self.plan, self.matrix, self.backward = plan, matrix, backward
        units, blocks = plan.units, plan.equation.weight_blocks
        self.packs = [
            pack_weight(slice_rows(matrix, first * units, end * units), transposed=not backward)
            for first, end in blocks
        ]
        shapes = plan.equation.backward_buffers if backward else plan.equation.buffers
        self.buffers = {name: self._allocate(name, shape, tensors.get(name)) for name, shape in shapes.items()}
        # Saved for the sums over all steps only: the backward loop does not use it.
        only_summed = [name for _, _, name in plan.equation.weight_gradients if backward and name not in shapes]
        self.summed_only = {name: BufferMemory(tensors[name], 0, 0, tensors[name].shape[1]) for name in only_summed}

    def _allocate(self, name: str, shape: Buffer, memory: Tensor | None) -> BufferMemory:
        plan, width = self.plan, shape.width(self.plan.units)
        if shape.only_for and not (plan.record if shape.only_for == "record" else plan.backward):
            unused = self.matrix.new_empty(plan.workers, width)  # never read: one row per worker
            return BufferMemory(unused, 0, width, 0)
        is_saved = plan.backward and name in plan.cell.saved_names
        all_steps = memory is not None if self.backward else plan.record or is_saved
        has_all_rows = shape.kind == "packed" and all_steps
        if memory is None:
            packed_rows = plan.packing.num_rows if has_all_rows else plan.rows
            make = self.matrix.new_zeros if shape.kind == "sum" else self.matrix.new_empty
            memory = make(packed_rows if shape.kind == "packed" else plan.packing.batch_size, width)
        return BufferMemory(memory, width, 0, width if has_all_rows else 0)

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
        external_address = external.data_ptr() + (window.first_step * by_step + direction * plan.units) * size
        middle += [plan.cell.multiply.address, external_address, by_step, by_row]
        addresses = [
            (
                buffer.memory.data_ptr() + window.first_row * buffer.window_stride * size,
                buffer.row_stride,
                buffer.worker_stride * size,
            )
            for buffer in self.buffers.values()
        ]
        panels = [buffer.data_ptr() for buffer in self.packs]
        lists = []
        for worker in range(plan.workers):
            words = [window.end_step - window.first_step, worker, plan.workers, *middle]
            for address, row_stride, worker_offset in addresses:
                words += (address + worker * worker_offset, row_stride)
            lists.append(words + panels)
        return lists
