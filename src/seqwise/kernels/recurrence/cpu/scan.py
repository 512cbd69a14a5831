"""`ScanFunction`: the compiled recurrence as an autograd function, and the buffers it works in.

It works window by window (a window is some consecutive steps): forward, the input of the window is projected and its
steps are run; backward, the gradients of the weights are accumulated while the gradients of the gates are still in the
cache. The backward pass changes no saved tensor, so it can run twice (`retain_graph`).

The equations are in `equations` and `layer_norm_equations`, the loops over time in `loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.errors import UsageError
from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.cpu.gradients import STATE_GRADIENT_NAMES, GradientSums
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

MIN_WINDOW_ROWS = 2048  # packed rows of a window: few enough that its gates stay in the cache until they are used
STATE_NAMES = ("h", "c")


def build_equation(spec: CellSpec) -> Equation:
    """Returns the equation from which the loops of a cell are compiled; raises `UsageError` if there is none."""
    from seqwise.kernels.recurrence.cpu import equations, layer_norm_equations

    variant = f"gru {spec.reset}" if spec.name == "gru" else f"{'capped ' if spec.capped else ''}{spec.name}"
    table: dict[tuple[str, bool], type[Equation]] = {
        ("rnn", False): equations.RNN,
        ("rnn", True): layer_norm_equations.LayerNormRNN,
        ("lstm", False): equations.LSTM,
        ("lstm", True): layer_norm_equations.LayerNormLSTM,
        ("capped lstm", False): equations.CappedLSTM,
        ("gru after", False): equations.GRUResetAfter,
        ("gru after", True): layer_norm_equations.LayerNormGRU,
        ("gru before", False): equations.GRUResetBefore,
    }
    is_rnn = spec.name == "rnn"
    is_supported = spec.activation in equations.ACTIVATIONS if is_rnn else spec.update in ("keeps", "replaces")
    if (variant, spec.layer_norm) not in table or not is_supported:
        raise UsageError(f"no compiled scan of {spec}.")
    return table[variant, spec.layer_norm](spec)


@thread_safe_cache
def get_compiled_cell(spec: CellSpec, dtype: torch.dtype) -> CompiledCell:
    """Returns the compiled functions for a cell and a precision, which all calls share."""
    return CompiledCell(spec, dtype)


class CompiledCell:
    """The compiled functions for a cell and a precision. LLVM is imported here, when it is first needed."""

    def __init__(self, spec: CellSpec, dtype: torch.dtype):
        from seqwise.kernels.recurrence.cpu.product import compile_products

        self.spec, self.equation, self.precision = spec, build_equation(spec), PRECISIONS[dtype]
        self.num_parameters, self.num_states = len(self.equation.parameter_widths), self.equation.num_states
        self.matmul = compile_products(self.precision)["product"]  # which the loops call at every step
        self.run_on_threads = get_matmul_functions(dtype).run_on_threads
        parameters = [f"parameter {index}" for index in range(self.num_parameters)]
        self.saved_names = [*self.equation.saved_buffers, *parameters]

    @thread_safe_cache
    def get_loop(self, is_backward: bool) -> CompiledFunction:
        """Returns the loop over time of the forward or backward pass, compiled at the first call."""
        from seqwise.kernels.recurrence.cpu.loop import compile_loop

        return compile_loop(self.equation, self.precision, is_backward)


@dataclass
class ScanPlan:
    """One call of a scan: the cell, the packed steps, the directions, and what is saved."""

    cell: CompiledCell
    packing: SequencePacking
    reverse: tuple[bool, ...]  # of each direction
    units: int
    is_projected: bool  # whether the input is projected before the scan, in one window; otherwise window by window
    needs_grad: bool  # whether a backward pass will follow
    should_record: bool  # whether activations are recorded
    recompute_projections: Callable[[], list[Tensor]]  # of each direction: the scan overwrites the projected input

    def __post_init__(self) -> None:
        self.equation, packing, directions = self.cell.equation, self.packing, len(self.reverse)
        work = 2 * packing.num_rows * self.equation.blocks * self.units**2 * directions
        self.threads = torch.get_num_threads() if work >= MIN_THREADED_WORK else 1
        self.workers = max(1, min(self.threads // directions, packing.batch_size))  # per direction
        self.windows = packing.split_windows(packing.num_rows if self.is_projected else MIN_WINDOW_ROWS)
        self.max_window_rows = max(window.end_row - window.first_row for window in self.windows)

    def get_window(self, index: int, direction: int, is_backward: bool) -> Window:
        """Returns the `index`-th window in the order in which a direction computes them."""
        return self.windows[-1 - index if self.reverse[direction] != is_backward else index]


class BufferMemory(NamedTuple):
    """The memory of a buffer, and how the address of a row is computed; strides count numbers."""

    memory: Tensor
    row_stride: int  # from one row to the next
    worker_stride: int  # from the rows of one worker to those of the next, if each has its own
    window_stride: int  # added once per row before the window; 0 if all windows share the same rows


class DirectionScan:
    """The scan of one direction, forward or backward: its buffers, and the arguments of its workers.

    `existing_buffers` need not be allocated: the inputs of a forward pass, the saved tensors of a backward pass. In a
    backward pass, packed ones have the rows of all steps.
    """

    def __init__(self, plan: ScanPlan, weight_hidden: Tensor, is_backward: bool, existing_buffers: dict[str, Tensor]):
        self.plan, self.weight_hidden, self.is_backward = plan, weight_hidden, is_backward
        units, equation = plan.units, plan.equation
        self.packed_weights = [
            pack_weight(slice_rows(weight_hidden, first * units, end * units), transposed=not is_backward)
            for first, end in equation.weight_blocks
        ]
        buffers = equation.backward_buffers if is_backward else equation.forward_buffers
        self.buffers = {name: self._allocate(name, each, existing_buffers.get(name)) for name, each in buffers.items()}

    def _allocate(self, name: str, buffer: Buffer, memory: Tensor | None) -> BufferMemory:
        plan, width = self.plan, buffer.get_width(self.plan.units)
        if buffer.only_for and not (plan.should_record if buffer.only_for == "record" else plan.needs_grad):
            unused = self.weight_hidden.new_empty(plan.workers, width)  # never read: one row per worker
            return BufferMemory(unused, 0, width, 0)
        is_saved = plan.needs_grad and name in plan.cell.saved_names
        has_all_steps = memory is not None if self.is_backward else plan.should_record or is_saved
        has_all_packed_rows = buffer.kind == "packed" and has_all_steps
        if memory is None:
            num_packed_rows = plan.packing.num_rows if has_all_packed_rows else plan.max_window_rows
            allocate = self.weight_hidden.new_zeros if buffer.kind == "sum" else self.weight_hidden.new_empty
            memory = allocate(num_packed_rows if buffer.kind == "packed" else plan.packing.batch_size, width)
        return BufferMemory(memory, width, 0, width if has_all_packed_rows else 0)

    def get_window_rows(self, name: str, window: Window) -> Tensor:
        """Returns the rows of a window in a packed buffer."""
        buffer = self.buffers[name]
        first = window.first_row if buffer.window_stride else 0
        return slice_rows(buffer.memory, first, first + window.end_row - window.first_row)

    def build_arguments(
        self, window: Window, outputs: Tensor, direction: int, step_stride: int, sequence_stride: int
    ) -> list[list[int]]:
        """Returns, for each worker, the list of integers that `loop.index_arguments` describes.

        `outputs` are the outputs of a forward pass, or the gradients of the outputs in a backward pass.
        """
        plan, size = self.plan, self.weight_hidden.element_size()
        outputs_address = outputs.data_ptr() + (window.first_step * step_stride + direction * plan.units) * size
        shared_arguments = [
            *(int(plan.reverse[direction]), window.step_offsets.data_ptr(), plan.packing.sorted_indices.data_ptr()),
            *(plan.units, plan.cell.matmul.address, outputs_address, step_stride, sequence_stride),
        ]
        buffer_arguments = [
            (memory.data_ptr() + window.first_row * window_stride * size, row_stride, worker_stride * size)
            for memory, row_stride, worker_stride, window_stride in self.buffers.values()
        ]
        packed_weight_addresses = [packed_weight.data_ptr() for packed_weight in self.packed_weights]
        argument_lists = []
        for worker in range(plan.workers):
            arguments = [window.end_step - window.first_step, worker, plan.workers, *shared_arguments]
            for address, row_stride, worker_offset in buffer_arguments:
                arguments += (address + worker * worker_offset, row_stride)
            argument_lists.append(arguments + packed_weight_addresses)
        return argument_lists


class DirectionTensors(NamedTuple):
    """The tensors of one direction; autograd passes those of all directions as one flat list, in this order.

    Either the input weight and its bias, if there is one, or the projected input is not None.
    """

    weight_input: Any  # (blocks · U, D)
    bias: Any  # (blocks · U,)
    projected_input: Any  # (N, blocks · U)
    weight_hidden: Any  # (blocks · U, U)
    vector_parameters: Sequence[Any]  # as in `Direction`
    state: Sequence[Any]  # (B, U) each

    def flatten(self) -> list[Any]:
        """Returns the tensors as a flat list."""
        return [*self[:4], *self.vector_parameters, *self.state]


def split_directions(plan: ScanPlan, values: Sequence[Any]) -> list[DirectionTensors]:
    """Divides a flat list with one value per tensor of all directions by direction."""
    size, directions = len(values) // len(plan.reverse), []
    for start in range(0, len(values), size):
        first_state = start + size - plan.cell.num_states
        weight_input, bias, projected_input, weight_hidden = values[start : start + 4]
        parameters, state = values[start + 4 : first_state], values[first_state : start + size]
        directions.append(DirectionTensors(weight_input, bias, projected_input, weight_hidden, parameters, state))
    return directions


def run_forward(plan: ScanPlan, x: Tensor | None, tensors: Sequence[Any]) -> tuple[list[Tensor], list[DirectionScan]]:
    """Returns [outputs (B, T, directions · U), *final states], and the scan of each direction with its buffers.

    x is (B, T, D), or packed (N, D) if it is saved for the gradient; None if the input is projected already.
    """
    packing, width = plan.packing, plan.units * len(plan.reverse)
    directions = split_directions(plan, tensors)
    # Time first in memory, but no view, so that the caller may change the outputs in place.
    outputs = directions[0].weight_hidden.new_empty_strided(
        (packing.batch_size, packing.max_steps, width), (width, packing.batch_size * width, 1)
    )
    outputs = outputs.zero_() if packing.is_padded else outputs
    read_rows = packing.build_window_reader(x) if x is not None and x.dim() == 3 else None
    input_weights = [
        None if plan.is_projected else PackedWeight(direction.weight_input, transposed=True) for direction in directions
    ]
    scans = []
    for direction in directions:
        buffers = {f"parameter {n}": vector.contiguous() for n, vector in enumerate(direction.vector_parameters)}
        buffers |= {name: packing.sort(state) for name, state in zip(STATE_NAMES, direction.state)}
        if plan.is_projected:
            buffers["gates"] = direction.projected_input.contiguous()
        scans.append(DirectionScan(plan, direction.weight_hidden.contiguous(), False, buffers))
    for window_index in range(len(plan.windows)):
        arguments = []
        for index, (scan, input_weight, direction) in enumerate(zip(scans, input_weights, directions, strict=True)):
            window = plan.get_window(window_index, index, is_backward=False)
            if input_weight is not None and x is not None:
                rows = read_rows(window) if read_rows is not None else slice_rows(x, window.first_row, window.end_row)
                bias = None if direction.bias is None else direction.bias.contiguous()
                input_weight.multiply_rows(rows, bias, scan.get_window_rows("gates", window))
            arguments += scan.build_arguments(window, outputs, index, packing.batch_size * width, width)
        _run_loops(plan, arguments, is_backward=False)
    final_states = [
        packing.unsort(scan.buffers[name].memory) for scan in scans for name in STATE_NAMES[: plan.cell.num_states]
    ]
    return [outputs, *final_states], scans


def collect_activations(plan: ScanPlan, scan: DirectionScan, outputs: Tensor, index: int) -> dict[str, Tensor]:
    """Returns the recorded activations of a direction by name, (B, T, …) each, zero in the padding."""
    activations, units = {}, plan.units
    for name, buffer, first, end in plan.equation.recorded_activations:
        if buffer == "outputs":
            activations[name] = outputs[..., index * units : (index + 1) * units].detach().clone()
        else:
            rows = scan.buffers[buffer].memory[:, first * units : end * units].clone()
            activations[name] = plan.packing.unpack(rows)
    return activations


def _run_loops(plan: ScanPlan, arguments: list[list[int]], is_backward: bool) -> None:
    """Runs the loop of each worker, unless all sequences are empty."""
    if plan.packing.num_rows:
        plan.cell.run_on_threads(plan.cell.get_loop(is_backward), arguments, plan.threads)


class ScanFunction(torch.autograd.Function):
    """`run_forward` and its gradient. `scans_out` is a list that receives the scan of each direction."""

    @staticmethod
    def forward(
        ctx: Any, plan: ScanPlan, scans_out: list[DirectionScan], x: Tensor | None, *tensors: Any
    ) -> tuple[Tensor, ...]:
        results, scans = run_forward(plan, x, tensors)
        scans_out += scans
        ctx.plan, ctx.num_inputs = plan, len(tensors)
        directions = split_directions(plan, tensors)
        inputs = [tensor for each in directions for tensor in each._replace(projected_input=None).flatten()]
        saved = [
            tensor
            for scan in scans
            for tensor in (scan.weight_hidden, *(scan.buffers[name].memory for name in plan.cell.saved_names))
        ]
        ctx.save_for_backward(x, *inputs, *saved)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: ScanPlan = ctx.plan
        x, *saved = ctx.saved_tensors
        inputs, saved = split_directions(plan, saved[: ctx.num_inputs]), saved[ctx.num_inputs :]
        if torch.is_grad_enabled():  # inside a backward pass: create_graph=True
            return None, None, *_differentiate_reference(plan, x, inputs, gradients)
        grad_outputs = gradients[0] if gradients[0].stride(2) == 1 else gradients[0].contiguous()
        scans = _build_backward_scans(plan, saved, gradients[1:])
        _, _, needs_grad_x, *needs_grad = ctx.needs_input_grad
        weights = [] if plan.is_projected else [direction.weight_input for direction in inputs]
        sums = GradientSums(plan, x, weights, scans, needs_grad_x, split_directions(plan, needs_grad))
        for window_index in range(len(plan.windows)):
            arguments = []
            for index, scan in enumerate(scans):
                window = plan.get_window(window_index, index, is_backward=True)
                strides = grad_outputs.stride(1), grad_outputs.stride(0)
                arguments += scan.build_arguments(window, grad_outputs, index, *strides)
            _run_loops(plan, arguments, is_backward=True)
            for index in range(len(scans)):
                sums.add_window(index, plan.get_window(window_index, index, is_backward=True))
        return None, None, sums.grad_x, *(tensor for index in range(len(scans)) for tensor in sums.get_gradients(index))


def _differentiate_reference(
    plan: ScanPlan, x: Tensor | None, directions: list[DirectionTensors], gradients: Sequence[Tensor]
) -> list[Tensor | None]:
    """Returns the gradients of x and of the tensors of all directions, by the reference implementation: autograd can
    differentiate them again."""
    packing = plan.packing
    if plan.is_projected:
        projections = plan.recompute_projections()
        directions = [each._replace(projected_input=rows) for each, rows in zip(directions, projections, strict=True)]

    def run(x: Tensor | None, *tensors: Any) -> list[Tensor]:
        outputs, final_states = [], []
        for direction, reverse in zip(split_directions(plan, tensors), plan.reverse, strict=True):
            gates = direction.projected_input if x is None else F.linear(x, direction.weight_input, direction.bias)
            state, offsets = [packing.sort(part) for part in direction.state], packing.step_offsets.tolist()
            rows, final_state = scan_packed(
                plan.cell.spec, gates, direction.weight_hidden, direction.vector_parameters, state, offsets, reverse
            )
            outputs.append(rows)
            final_states += [packing.unsort(part) for part in final_state]
        return [torch.cat(outputs, dim=1), *final_states]

    inputs = [x, *(tensor for direction in directions for tensor in direction.flatten())]
    return differentiate(run, inputs, [packing.pack(gradients[0]), *gradients[1:]])


def _build_backward_scans(
    plan: ScanPlan, saved: Sequence[Tensor], grad_final_states: Sequence[Tensor]
) -> list[DirectionScan]:
    """Returns the scans of the backward pass, with the saved tensors in their buffers."""
    names, num_states, scans = ("weight_hidden", *plan.cell.saved_names), plan.cell.num_states, []
    for index in range(len(plan.reverse)):
        forward_tensors = dict(zip(names, saved[index * len(names) :], strict=False))
        buffers = {name: tensor for name, tensor in forward_tensors.items() if not name.startswith("parameter")}
        buffers |= {
            f"forward parameter {number}": forward_tensors[f"parameter {number}"]
            for number in range(plan.cell.num_parameters)
        }
        state_gradients = grad_final_states[index * num_states : (index + 1) * num_states]
        buffers |= {name: plan.packing.sort(gradient) for name, gradient in zip(STATE_GRADIENT_NAMES, state_gradients)}
        scans.append(DirectionScan(plan, forward_tensors["weight_hidden"], True, buffers))
    return scans
