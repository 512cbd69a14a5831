"""The scan of compiled cells as an autograd function, and its memory: buffers, and the rows of each worker.

It works window by window (a window is some consecutive steps): forward, the input of the window is projected and its
steps are run; backward, the gradients of the gates are summed into those of the weights while they are still in the
cache. The backward pass changes no saved tensor, so it can run twice (`retain_graph`).

The equations are in `equations` and `layer_norm_equations`, the loops over time in `loop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.cpu.linear import (
    MIN_THREADED_WORK,
    PRECISIONS,
    PackedWeight,
    get_matmul_functions,
    multiply_transposed,
    pack_weight,
)
from seqwise.kernels.recurrence.decorators import first_order, thread_safe_cache
from seqwise.kernels.recurrence.packing import SequencePacking, Window

if TYPE_CHECKING:  # they import LLVM, which is imported only when needed
    from seqwise.kernels.recurrence.cpu.code import CompiledFunction
    from seqwise.kernels.recurrence.cpu.loop import Buffer, Equation

WINDOW_ROWS = 2048  # of gates in a window: small enough to stay in the cache until they are used
STATES, STATE_GRADIENTS = ("h", "c"), ("grad_h", "grad_c")


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
        self.num_vectors, self.num_states = len(self.equation.vector_widths), self.equation.num_states
        self.multiply = compile_products(self.precision)["product"]
        vectors = [f"vector {number}" for number in range(self.num_vectors)]
        self.saved_names = [*self.equation.saved_buffers, *vectors]

    @thread_safe_cache
    def loop(self, backward: bool) -> CompiledFunction:
        """The loop over time, compiled at the first call; `backward` means the gradient."""
        from seqwise.kernels.recurrence.cpu.loop import compile_loop

        return compile_loop(self.equation, self.precision, backward)


@dataclass
class Plan:
    """One call: which cell over which steps, in how many directions, and what is saved.

    With `is_projected`, the caller has projected the input and all steps are one window; otherwise the input is
    projected window by window. `backward` says that gradients will be needed, `record` that the gates will be recorded.
    """

    cell: CompiledCell
    packing: SequencePacking
    reverse: tuple[bool, ...]
    units: int
    is_projected: bool
    backward: bool
    record: bool

    def __post_init__(self) -> None:
        self.equation, packing, directions = self.cell.equation, self.packing, len(self.reverse)
        work = 2 * packing.num_rows * self.equation.blocks * self.units**2 * directions
        self.threads = torch.get_num_threads() if work >= MIN_THREADED_WORK else 1
        if not packing.is_padded:
            packing.sorted_indices, packing.step_offsets = _unpadded_layout(packing.batch_size, packing.max_steps)
        self.workers = max(1, min(self.threads // directions, packing.batch_size))  # per direction
        self.windows = packing.split_windows(packing.num_rows if self.is_projected else WINDOW_ROWS)
        self.max_window_rows = max(window.end_row - window.first_row for window in self.windows)

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


class DirectionScan:
    """The scan of one direction, forward or backward: its buffers, and the arguments of its workers.

    `tensors` are buffers that exist already; in the backward pass, packed ones have the rows of all steps.
    """

    def __init__(self, plan: Plan, matrix: Tensor, backward: bool, tensors: dict[str, Tensor]):
        self.plan, self.matrix, self.backward = plan, matrix, backward
        units, blocks = plan.units, plan.equation.weight_blocks
        self.packed_weights = [
            pack_weight(slice_rows(matrix, first * units, end * units), transposed=not backward)
            for first, end in blocks
        ]
        shapes = plan.equation.backward_buffers if backward else plan.equation.buffers
        self.buffers = {name: self._allocate(name, shape, tensors.get(name)) for name, shape in shapes.items()}

    def _allocate(self, name: str, shape: Buffer, memory: Tensor | None) -> BufferMemory:
        plan, width = self.plan, shape.width(self.plan.units)
        if shape.only_for and not (plan.record if shape.only_for == "record" else plan.backward):
            unused = self.matrix.new_empty(plan.workers, width)  # never read: one row per worker
            return BufferMemory(unused, 0, width, 0)
        is_saved = plan.backward and name in plan.cell.saved_names
        all_steps = memory is not None if self.backward else plan.record or is_saved
        has_all_rows = shape.kind == "packed" and all_steps
        if memory is None:
            packed_rows = plan.packing.num_rows if has_all_rows else plan.max_window_rows
            allocate = self.matrix.new_zeros if shape.kind == "sum" else self.matrix.new_empty
            memory = allocate(packed_rows if shape.kind == "packed" else plan.packing.batch_size, width)
        return BufferMemory(memory, width, 0, width if has_all_rows else 0)

    def part(self, name: str, window: Window) -> Tensor:
        """The rows of a window in a packed buffer."""
        buffer = self.buffers[name]
        first = window.first_row if buffer.window_stride else 0
        return slice_rows(buffer.memory, first, first + window.end_row - window.first_row)

    def arguments(
        self, window: Window, external: Tensor, direction: int, step_stride: int, sequence_stride: int
    ) -> list[list[int]]:
        """For each worker the list of words that `loop.layout` describes."""
        plan, size = self.plan, self.matrix.element_size()
        order = window.step_offsets.data_ptr(), plan.packing.sorted_indices.data_ptr()
        external_address = external.data_ptr() + (window.first_step * step_stride + direction * plan.units) * size
        middle = [int(plan.reverse[direction]), *order, plan.units, plan.cell.multiply.address]
        middle += [external_address, step_stride, sequence_stride]
        addresses = [
            (memory.data_ptr() + window.first_row * window_stride * size, row_stride, worker_stride * size)
            for memory, row_stride, worker_stride, window_stride in self.buffers.values()
        ]
        panels = [buffer.data_ptr() for buffer in self.packed_weights]
        lists = []
        for worker in range(plan.workers):
            words = [window.end_step - window.first_step, worker, plan.workers, *middle]
            for address, row_stride, worker_offset in addresses:
                words += (address + worker * worker_offset, row_stride)
            lists.append(words + panels)
        return lists


class DirectionTensors:
    """The tensors of one direction.

    `source` is the input weight (blocks · U, D) and `bias` its bias or None; or the projected input, and None.
    """

    def __init__(self, plan: Plan, tensors: Sequence[Any], index: int):
        first_state = 3 + plan.cell.num_vectors
        start = index * (first_state + plan.cell.num_states)
        self.source, self.bias, self.matrix = tensors[start : start + 3]
        self.vectors = tensors[start + 3 : start + first_state]
        self.state = tensors[start + first_state :][: plan.cell.num_states]


def run_forward(plan: Plan, x: Tensor | None, tensors: Sequence[Any]) -> tuple[list[Tensor], list[DirectionScan]]:
    """Outputs (B, T, directions · U) and the last states; and the scan of each direction, with its buffers.

    x is (B, T, D), or packed (N, D) where it is saved for the gradient; None if the input is projected already.
    """
    packing, width = plan.packing, plan.units * len(plan.reverse)
    directions = [DirectionTensors(plan, tensors, index) for index in range(len(plan.reverse))]
    # Time first in memory, but no view, so that the caller may change the outputs in place.
    outputs = tensors[2].new_empty_strided(
        (packing.batch_size, packing.max_steps, width), (width, packing.batch_size * width, 1)
    )
    outputs = outputs.zero_() if packing.is_padded else outputs
    read_rows = packing.window_reader(x) if x is not None and x.dim() == 3 else None
    scans = []
    input_weights = [
        None if plan.is_projected else PackedWeight(direction.source, transposed=True) for direction in directions
    ]
    for direction in directions:
        buffers = {f"vector {number}": vector.contiguous() for number, vector in enumerate(direction.vectors)}
        buffers |= {name: packing.sort(part) for name, part in zip(STATES, direction.state)}
        if plan.is_projected:
            buffers["gates"] = direction.source.contiguous()
        scans.append(DirectionScan(plan, direction.matrix.contiguous(), False, buffers))
    for count in range(len(plan.windows)):
        arguments = []
        for index, (scan, input_weight, direction) in enumerate(zip(scans, input_weights, directions, strict=True)):
            window = plan.window(count, index, backward=False)
            if input_weight is not None and x is not None:
                rows = read_rows(window) if read_rows is not None else slice_rows(x, window.first_row, window.end_row)
                bias = None if direction.bias is None else direction.bias.contiguous()
                input_weight.multiply_rows(rows, bias, scan.part("gates", window))
            arguments += scan.arguments(window, outputs, index, packing.batch_size * width, width)
        _run_loops(plan, arguments, backward=False)
    last_states = [
        packing.unsort(scan.buffers[name].memory) for scan in scans for name in STATES[: plan.cell.num_states]
    ]
    return [outputs, *last_states], scans


def collect_gates(plan: Plan, scan: DirectionScan, outputs: Tensor, index: int) -> dict[str, Tensor]:
    """Gates by name, (B, T, …) each, zero in the padding."""
    gates, units = {}, plan.units
    for name, buffer, first, end in plan.equation.recorded_values:
        if buffer == "outputs":
            gates[name] = outputs[..., index * units : (index + 1) * units].detach().clone()
        else:
            gates[name] = plan.packing.unpack(scan.buffers[buffer].memory[:, first * units : end * units].clone())
    return gates


def _run_loops(plan: Plan, arguments: list[list[int]], backward: bool) -> None:
    if plan.packing.num_rows:
        plan.cell.matmul.run(plan.cell.loop(backward), arguments, plan.threads)


class Scan(torch.autograd.Function):
    """`run_forward` and its gradient. `scans` is a list that receives the scan of each direction."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, scans: list[DirectionScan], x: Tensor | None, *tensors: Any
    ) -> tuple[Tensor, ...]:
        results, new_scans = run_forward(plan, x, tensors)
        scans += new_scans
        ctx.plan = plan
        count = 0 if plan.is_projected else len(new_scans)
        weights = [DirectionTensors(plan, tensors, index).source for index in range(count)]
        saved = [
            tensor
            for scan in new_scans
            for tensor in (scan.matrix, *(scan.buffers[name].memory for name in plan.cell.saved_names))
        ]
        ctx.save_for_backward(x, *weights, *saved)
        return tuple(results)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        x, *saved = ctx.saved_tensors
        weights = [] if plan.is_projected else saved[: len(plan.reverse)]
        grad_outputs = gradients[0] if gradients[0].stride(2) == 1 else gradients[0].contiguous()
        scans = _build_backward_scans(plan, saved[len(weights) :], gradients[1:])
        sums = WeightGradients(ctx, plan, x, weights, scans)
        for count in range(len(plan.windows)):
            arguments = []
            for index, scan in enumerate(scans):
                window = plan.window(count, index, backward=True)
                arguments += scan.arguments(window, grad_outputs, index, grad_outputs.stride(1), grad_outputs.stride(0))
            _run_loops(plan, arguments, backward=True)
            for index in range(len(scans)):
                sums.add(index, plan.window(count, index, backward=True))
        return None, None, sums.grad_x, *(tensor for index in range(len(scans)) for tensor in sums.collect(index))


def _build_backward_scans(plan: Plan, saved: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[DirectionScan]:
    """The scans of the backward pass, with the saved tensors in their buffers."""
    names, states, scans = ("matrix", *plan.cell.saved_names), plan.cell.num_states, []
    for index in range(len(plan.reverse)):
        forward_tensors = dict(zip(names, saved[index * len(names) :], strict=False))
        buffers = {name: tensor for name, tensor in forward_tensors.items() if not name.startswith("vector")}
        buffers |= {
            f"forward vector {number}": forward_tensors[f"vector {number}"] for number in range(plan.cell.num_vectors)
        }
        for name, gradient in zip(STATE_GRADIENTS, gradients[index * states : (index + 1) * states]):
            buffers[name] = plan.packing.sort(gradient)
        scans.append(DirectionScan(plan, forward_tensors["matrix"], True, buffers))
    return scans


class WeightGradients:
    """The gradients of input and weights, summed window by window."""

    def __init__(
        self, ctx: Any, plan: Plan, x: Tensor | None, weights: Sequence[Tensor], scans: Sequence[DirectionScan]
    ):
        self.plan, self.x, self.scans = plan, x, scans
        size = 3 + plan.cell.num_vectors + plan.cell.num_states
        # Which gradients are needed, in the order of `DirectionTensors`.
        self.needs_grad = [ctx.needs_input_grad[3 + index * size :][:size] for index in range(len(scans))]
        self.packed_weights = (
            [PackedWeight(weight, transposed=False) for weight in weights] if ctx.needs_input_grad[2] else []
        )
        # Gradients that are not needed stay None.
        contiguous = torch.contiguous_format  # also where a weight is not contiguous
        self.grad_weights = [
            torch.empty_like(weight, memory_format=contiguous) if needs_grad[0] else None
            for weight, needs_grad in zip(weights, self.needs_grad)
        ]
        self.grad_biases: list[Tensor | None] = [None for _ in scans]
        self.grad_vectors: list[dict[int, Tensor | None]] = [
            dict.fromkeys(plan.equation.summed_gradients) for _ in scans
        ]
        self.grad_matrices = [
            torch.empty_like(scan.matrix) if needs_grad[2] else None for scan, needs_grad in zip(scans, self.needs_grad)
        ]
        self.grad_x = None if x is None or not ctx.needs_input_grad[2] else torch.empty_like(x)
        self.windows_with_grad_x: set[int] = set()  # their first rows: a second direction is added to the first
        self.has_sums = [False for _ in scans]

    def add(self, index: int, window: Window) -> None:
        """Add the gradients of one window of a direction."""
        plan, scan, accumulate = self.plan, self.scans[index], self.has_sums[index]
        units, grad_gates, grad_matrix = plan.units, scan.part("grad_gates", window), self.grad_matrices[index]
        if grad_matrix is not None:
            for (first, end), (source, block, factor) in zip(
                plan.equation.weight_blocks, plan.equation.weight_gradients, strict=True
            ):
                gradient = scan.part(source, window)[:, block * units : (block + end - first) * units]
                multiply_transposed(
                    gradient, scan.part(factor, window), slice_rows(grad_matrix, first * units, end * units), accumulate
                )
        if self.x is not None and (grad_weight := self.grad_weights[index]) is not None:
            x = slice_rows(self.x, window.first_row, window.end_row)
            multiply_transposed(grad_gates, x, grad_weight, accumulate)
        if self.needs_grad[index][1]:
            self.grad_biases[index] = _add_row_sum(self.grad_biases[index], grad_gates)
        for number, (source, first, end) in plan.equation.summed_gradients.items():
            if self.needs_grad[index][3 + number]:
                rows = scan.part(source, window)[:, first * units : end * units]
                self.grad_vectors[index][number] = _add_row_sum(self.grad_vectors[index][number], rows)
        if self.grad_x is not None:
            part = slice_rows(self.grad_x, window.first_row, window.end_row)
            self.packed_weights[index].multiply_rows(
                grad_gates, part if window.first_row in self.windows_with_grad_x else None, part
            )
            self.windows_with_grad_x.add(window.first_row)
        self.has_sums[index] = True

    def collect(self, index: int) -> list[Tensor | None]:
        """The gradients of one direction, in the order of `DirectionTensors`."""
        plan, buffers, grad_vectors = self.plan, self.scans[index].buffers, self.grad_vectors[index]
        source = buffers["grad_gates"].memory if plan.is_projected else self.grad_weights[index]
        vectors = [
            grad_vectors[number] if number in grad_vectors else buffers[f"vector {number}"].memory.sum(0)
            for number in range(plan.cell.num_vectors)
        ]
        states = [plan.packing.unsort(buffers[name].memory) for name in STATE_GRADIENTS[: plan.cell.num_states]]
        return [source, self.grad_biases[index], self.grad_matrices[index], *vectors, *states]


def _add_row_sum(total: Tensor | None, rows: Tensor) -> Tensor:
    row_sum = rows.sum(0)
    return row_sum if total is None else total.add_(row_sum)
