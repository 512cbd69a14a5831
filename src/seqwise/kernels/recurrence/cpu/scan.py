"""The scan of compiled cells as an autograd function, and its memory: buffers, and the rows of each worker.

It works window by window (a window is some consecutive steps): forward, the input of the window is projected and its
steps are run; backward, the gradients of the gates are summed into those of the weights while they are still in the
cache. The backward pass changes no saved tensor, so it can run twice (`retain_graph`).

The equations are in `equations` and `layer_norm_equations`, the loops over time in `loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.errors import UsageError
from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.cpu.gradients import STATE_GRADIENTS, WeightGradients
from seqwise.kernels.recurrence.cpu.linear import (
    MIN_THREADED_WORK,
    PRECISIONS,
    PackedWeight,
    get_matmul_functions,
    pack_weight,
    slice_rows,
)
from seqwise.kernels.recurrence.decorators import thread_safe_cache
from seqwise.kernels.recurrence.packing import SequencePacking, Window
from seqwise.kernels.recurrence.reference import scan_packed
from seqwise.kernels.second_derivatives import differentiate

if TYPE_CHECKING:  # they import LLVM, which is imported only when needed
    from seqwise.kernels.recurrence.cpu.code import CompiledFunction
    from seqwise.kernels.recurrence.cpu.loop import Buffer, Equation

WINDOW_ROWS = 2048  # of gates in a window: small enough to stay in the cache until they are used
STATES = ("h", "c")


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

        self.spec, self.equation, self.precision = spec, build_equation(spec), PRECISIONS[dtype]
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
    `project` projects the input again, since the scan overwrites what it receives.
    """

    cell: CompiledCell
    packing: SequencePacking
    reverse: tuple[bool, ...]
    units: int
    is_projected: bool
    backward: bool
    record: bool
    project: Callable[[], list[Tensor]]  # of each direction

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
        ctx.plan, ctx.num_inputs = plan, len(tensors)
        size = len(tensors) // len(new_scans)
        inputs = [None if plan.is_projected and not n % size else tensor for n, tensor in enumerate(tensors)]
        saved = [
            tensor
            for scan in new_scans
            for tensor in (scan.matrix, *(scan.buffers[name].memory for name in plan.cell.saved_names))
        ]
        ctx.save_for_backward(x, *inputs, *saved)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        x, *saved = ctx.saved_tensors
        inputs, saved = saved[: ctx.num_inputs], saved[ctx.num_inputs :]
        if torch.is_grad_enabled():  # inside a backward pass: create_graph=True
            return None, None, *_differentiate_reference(plan, x, inputs, gradients)
        directions = [DirectionTensors(plan, inputs, index) for index in range(len(plan.reverse))]
        weights = [] if plan.is_projected else [direction.source for direction in directions]
        grad_outputs = gradients[0] if gradients[0].stride(2) == 1 else gradients[0].contiguous()
        scans = _build_backward_scans(plan, saved, gradients[1:])
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


def _differentiate_reference(
    plan: Plan, x: Tensor | None, inputs: list[Any], gradients: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradients of x and all inputs, by the reference implementation: autograd can differentiate them again."""
    packing = plan.packing
    if plan.is_projected:
        inputs[:: len(inputs) // len(plan.reverse)] = plan.project()

    def run(x: Tensor | None, *inputs: Any) -> list[Tensor]:
        outputs, last_states = [], []
        for index, reverse in enumerate(plan.reverse):
            direction = DirectionTensors(plan, inputs, index)
            gates = direction.source if x is None else F.linear(x, direction.source, direction.bias)
            state, offsets = [packing.sort(part) for part in direction.state], packing.step_offsets.tolist()
            rows, last = scan_packed(
                plan.cell.spec, gates, direction.matrix, direction.vectors, state, offsets, reverse
            )
            outputs.append(rows)
            last_states += [packing.unsort(part) for part in last]
        return [torch.cat(outputs, dim=1), *last_states]

    return differentiate(run, [x, *inputs], [packing.pack(gradients[0]), *gradients[1:]])


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
