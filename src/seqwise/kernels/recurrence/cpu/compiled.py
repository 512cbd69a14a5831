"""Recurrent scans on the CPU: each cell's loop over time, forward and backward, as machine code.

    project = Projection(weight_input, bias)
    direction = Direction(project, weight_hidden, (), (h, c))
    outputs, final_states, _ = scan(CellSpec("lstm"), x, [direction], SequencePacking(B, T, lengths))

Compared with the reference implementation, autograd records one operation instead of a graph of all steps, padding is
skipped, and the recurrent weight is rearranged for the processor once instead of at every step. Threads share the
sequences and never wait for each other; both directions run at the same time. Numbers are float32 or float64. It knows
nothing of `nn.Module`.

`is_faster_than_aten` follows measurements on two cores (Zen 4, oneDNN 3.12), T 1–128, batches of 1–64, 32–650 units,
against `nn.LSTM`, `nn.GRU` and `nn.RNN`. ATen computes GRUs, RNNs and padded batches one operation at a time; there the
compiled scan is slower only for small inputs, because of its fixed cost: rearranging the weights, and 0.1 ms, with
gradients 0.3 ms. An LSTM batch without padding, in one direction, is computed by oneDNN, whose products are as fast:
there the compiled scan is used only for the shapes for which it was faster.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from seqwise.errors import UsageError
from seqwise.kernels.recurrence.cell_spec import CellSpec, Direction, Projection
from seqwise.kernels.recurrence.cpu.linear import PRECISIONS
from seqwise.kernels.recurrence.cpu.scan import (
    CompiledCell,
    DirectionScan,
    DirectionTensors,
    ScanFunction,
    ScanPlan,
    collect_activations,
    get_compiled_cell,
    run_forward,
)
from seqwise.kernels.recurrence.decorators import thread_safe_cache
from seqwise.kernels.recurrence.packing import SequencePacking

__all__ = ["CellSpec", "Direction", "Projection", "SequencePacking", "compile_cell", "scan"]

# Raised where LLVM is missing or cannot compile. (Some of its failures end the process instead.)
COMPILE_ERRORS = (ImportError, OSError, RuntimeError, AttributeError, TypeError)
PLAIN_TYPES = (Tensor, Parameter)
ONEDNN_BLOCK = 16  # oneDNN is slower if the number of units is not a multiple of it


def compile_cell(spec: CellSpec, dtype: torch.dtype) -> None:
    """Compiles the functions of a scan, so that a failure to compile comes before anything is computed."""
    cell = get_compiled_cell(spec, dtype)
    cell.get_loop(is_backward=False)
    if torch.is_grad_enabled():
        cell.get_loop(is_backward=True)


def scan(
    spec: CellSpec, x: Tensor, directions: Sequence[Direction], packing: SequencePacking, should_record: bool = False
) -> tuple[Tensor, list[tuple[Tensor, ...]], list[dict[str, Tensor]]]:
    """Scans x (B, T, D). Returns the outputs (B, T, directions · U), zero in the padding; for each direction the final
    state, after each sequence's last step; and with `should_record`, for each direction, the activations (B, T, …) by
    name."""
    units = directions[0].weight_hidden.shape[-1]
    cell = _check_tensors(spec, x, directions, packing, units)
    is_projected = not all(isinstance(direction.project, Projection) for direction in directions)
    rows = packing.pack(x) if is_projected or torch.is_grad_enabled() else x
    tensors: list[Any] = []
    for direction in directions:
        weight_input, bias = (None, None) if is_projected else direction.project  # type: ignore[misc]
        projected_input = _project(cell, rows, direction, packing) if is_projected else None
        _, weight_hidden, parameters, state, *_ = direction
        tensors += DirectionTensors(weight_input, bias, projected_input, weight_hidden, parameters, state).flatten()
    inputs = None if is_projected else rows
    needs_grad = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (inputs, *tensors))
    reverse = tuple(direction.reverse for direction in directions)
    plan = ScanPlan(
        cell, packing, reverse, units, is_projected, needs_grad, should_record,
        lambda: [_project(cell, rows, direction, packing) for direction in directions],
    )  # fmt: skip
    scans: list[DirectionScan] = []
    if needs_grad:
        outputs, *flat_states = ScanFunction.apply(plan, scans, inputs, *tensors)
    else:
        (outputs, *flat_states), scans = run_forward(plan, inputs, tensors)
    count = cell.num_states
    final_states = [tuple(flat_states[index : index + count]) for index in range(0, len(flat_states), count)]
    if not should_record:
        return outputs, final_states, []
    return outputs, final_states, [collect_activations(plan, each, outputs, n) for n, each in enumerate(scans)]


# --- when the compiled scans are used ---------------------------------------------------------------------------------


def is_supported(*tensors: Tensor) -> bool:
    """Returns whether the compiled scans can compute with this input and these weights.

    They access memory directly, so tensors of subclasses, traced and fake tensors are excluded.
    """
    x = tensors[0]
    if not x.is_cpu or x.dtype not in PRECISIONS or torch.is_autocast_enabled("cpu"):
        return False
    if has_active_transforms() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack():
        return False
    return all(type(tensor) in PLAIN_TYPES for tensor in tensors)


def has_active_transforms() -> bool:
    """Returns whether forward-mode differentiation or `torch.func` is active, which compiled code does not support."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def is_faster_than_aten(spec: CellSpec, x: Tensor, units: int, directions: int = 1, is_padded: bool = False) -> bool:
    """Returns whether the compiled scan of x (B, T, D) is faster than ATen's.

    `is_padded` says that some sequences are shorter than others.
    """
    batch_size, steps, _ = x.shape
    if steps < 4:
        return False
    if directions > 1 or (is_padded and batch_size > 1):
        return True
    if spec.name != "lstm":
        return torch.is_grad_enabled() or steps >= 16 or batch_size * steps >= 64
    has_sequence_per_thread = batch_size >= torch.get_num_threads()  # threads share the sequences
    if torch.is_grad_enabled():
        return has_sequence_per_thread or units < 200 or steps < 64
    return units <= 100 or (has_sequence_per_thread and steps >= 16 and units % ONEDNN_BLOCK > 0)


@thread_safe_cache
def get_compiler_problem() -> str | None:
    """Returns why LLVM cannot compile on this machine, in words, or None if it can. The first call takes 0.5 s."""
    return find_compiler_problem()


def find_compiler_problem() -> str | None:
    """Compiles a small product; returns why that fails, in words, or None if the product is correct."""
    try:
        is_correct = _is_product_correct()
    except COMPILE_ERRORS as error:
        return f"LLVM cannot compile for this machine ({type(error).__name__}: {error})"
    return None if is_correct else "LLVM's code for this machine computes wrong results"


def _is_product_correct() -> bool:
    """Returns whether a compiled product of small matrices is correct.

    It uses no tensors: the result is cached, so it must not depend on PyTorch's mode at the first call.
    """
    from seqwise.kernels.recurrence.cpu.product import compile_products, compute_packed_size

    rows, depth, width = 7, 2, 3
    x, weight = array("f", range(rows * depth)), array("f", range(depth * width))
    panels, result = array("f", [0.0] * compute_packed_size(width, depth, 4)), array("f", [0.0] * (rows * width))
    x_address, weight_address, panels_address, result_address = (
        values.buffer_info()[0] for values in (x, weight, panels, result)
    )
    functions = compile_products("float")
    functions["pack_columns"](weight_address, width, width, depth, panels_address)
    functions["product"](x_address, depth, panels_address, result_address, width, rows, depth, width, 0, 0)
    return list(result) == [
        sum(x[r * depth + k] * weight[k * width + j] for k in range(depth)) for r in range(rows) for j in range(width)
    ]


# --- checks of arguments ----------------------------------------------------------------------------------------------
# Compiled code accesses memory by address, so every tensor must have exactly the dtype, device and shape it assumes.


def _check_tensors(
    spec: CellSpec, x: Tensor, directions: Sequence[Direction], packing: SequencePacking, units: int
) -> CompiledCell:
    """Returns the compiled functions of the cell; raises `UsageError` if a tensor is not what they assume."""
    dtype = x.dtype
    if dtype not in PRECISIONS or not x.is_cpu or type(x) not in PLAIN_TYPES:
        raise UsageError(
            f"compiled scans take plain float32 or float64 tensors on CPUs, received {dtype} on {x.device}."
        )
    if x.dim() != 3 or x.shape[:2] != (packing.batch_size, packing.max_steps):
        raise UsageError(f"expected vectors ({packing.batch_size}, {packing.max_steps}, D), received {tuple(x.shape)}.")
    cell = get_compiled_cell(spec, dtype)
    gates_width, state_shape = cell.equation.blocks * units, (packing.batch_size, units)
    shapes = [
        (gates_width, units),
        *[(width * units,) for width in cell.equation.parameter_widths],
        *[state_shape] * cell.num_states,
    ]
    for direction in directions:
        tensors, expected = [direction.weight_hidden, *direction.vector_parameters, *direction.state], shapes
        if isinstance(direction.project, Projection):
            projection = [tensor for tensor in direction.project if tensor is not None]
            tensors = tensors + projection
            expected = shapes + [(gates_width, x.shape[2]), (gates_width,)][: len(projection)]
        for tensor, shape in zip_longest(tensors, expected):
            if tensor is None or tensor.shape != shape or tensor.dtype is not dtype or not tensor.is_cpu:
                raise _build_mismatch_error(x, tensors, expected)
            if type(tensor) not in PLAIN_TYPES:
                raise UsageError(f"compiled scans take plain tensors, received a {type(tensor).__name__}.")
    return cell


def _build_mismatch_error(
    x: Tensor, tensors: Sequence[Tensor], expected: Sequence[tuple[int, ...] | None]
) -> UsageError:
    received = sorted({f"{tensor.dtype} on {tensor.device}" for tensor in (x, *tensors)})
    if len(received) > 1:
        return UsageError(
            f"input, weights and state must have one dtype and one device, received {', '.join(received)}."
        )
    return UsageError(f"expected tensors of {list(expected)}, received {[tuple(each.shape) for each in tensors]}.")


def _project(cell: CompiledCell, rows: Tensor, direction: Direction, packing: SequencePacking) -> Tensor:
    """Returns the projected input (N, blocks · U) of a direction; raises `UsageError` if it is anything else."""
    gates = direction.project(rows)
    shape = packing.num_rows, cell.equation.blocks * direction.weight_hidden.shape[-1]
    if gates.shape != shape or gates.dtype != rows.dtype or gates.device != rows.device:
        received = f"{tuple(gates.shape)}, {gates.dtype} on {gates.device}"
        raise UsageError(f"expected a projection to {shape}, {rows.dtype} on {rows.device}, received {received}.")
    return gates
