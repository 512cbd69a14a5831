"""Recurrent scans on the CPU: each cell's loop over time, forward and backward, as machine code. It knows no modules.

    project = Projection(weight_input, bias)
    direction = Direction(project, weight_hidden, (), (h, c))
    outputs, after, _ = scan(CellSpec("lstm"), x, [direction], SequencePacking(B, T, lengths))

Compared with the reference implementation, autograd records one operation instead of a graph of all steps, padding is
skipped, and the recurrent matrix is rearranged for the processor once instead of at every step. Threads share the
sequences and never wait for each other; both directions run at the same time. float32 and float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.kernels.recurrence.cell_spec import CellSpec, Direction, Projection
from seqwise.kernels.recurrence.cpu.linear import PRECISIONS
from seqwise.kernels.recurrence.cpu.memory import CompiledCell, Job, Plan, get_compiled_cell
from seqwise.kernels.recurrence.cpu.scan import Scan, collect_gates, run_forward
from seqwise.kernels.recurrence.cpu.support import PLAIN_TYPES
from seqwise.kernels.recurrence.packing import SequencePacking

__all__ = ["CellSpec", "Direction", "Projection", "SequencePacking", "prepare", "scan"]


def prepare(spec: CellSpec, dtype: torch.dtype) -> None:
    """Compile the functions of a scan, so that a failure to compile comes before anything is computed."""
    cell = get_compiled_cell(spec, dtype)
    cell.loop(backward=False)
    if torch.is_grad_enabled():
        cell.loop(backward=True)


def scan(
    spec: CellSpec, x: Tensor, directions: Sequence[Direction], packing: SequencePacking, record: bool = False
) -> tuple[Tensor, list[tuple[Tensor, ...]], list[dict[str, Tensor]]]:
    """x (B, T, D) → outputs (B, T, U), directions side by side, zero in the padding.

    Then, per direction, the state after each row's last step, and if `record` is set every gate by its name, (B, T, …).
    """
    units = directions[0].weight_hidden.shape[-1]
    cell = _check(spec, x, directions, packing, units)
    is_projected = not all(isinstance(direction.project, Projection) for direction in directions)
    needs_grad = torch.is_grad_enabled()
    rows = packing.pack(x) if is_projected or needs_grad else x
    tensors: list[Any] = []
    for direction in directions:
        source: Any = (_project(cell, rows, direction, packing), None) if is_projected else direction.project
        tensors += [*source, direction.weight_hidden, *direction.vectors, *direction.state]
    inputs = None if is_projected else rows
    backward = needs_grad and any(tensor is not None and tensor.requires_grad for tensor in (inputs, *tensors))
    plan = Plan(
        cell, packing, tuple(direction.reverse for direction in directions), units, is_projected, backward, record
    )
    jobs: list[Job] = []
    if backward:
        outputs, *after = Scan.apply(plan, jobs, inputs, *tensors)
    else:
        (outputs, *after), jobs = run_forward(plan, inputs, tensors)
    count = cell.states
    states = [tuple(after[index : index + count]) for index in range(0, len(after), count)]
    gates = [collect_gates(plan, job, outputs, index) for index, job in enumerate(jobs)] if record else []
    return outputs, states, gates


# --- checks of arguments ----------------------------------------------------------------------------------------------
# Compiled code accesses memory by address, so every tensor must have exactly the dtype, device and shape it assumes.


def _check(
    spec: CellSpec, x: Tensor, directions: Sequence[Direction], packing: SequencePacking, units: int
) -> CompiledCell:
    """The compiled functions of the cell, if all tensors are what they assume; raises `UsageError` otherwise."""
    dtype = x.dtype
    if dtype not in PRECISIONS or not x.is_cpu or type(x) not in PLAIN_TYPES:
        raise UsageError(
            f"compiled scans take plain float32 or float64 tensors on CPUs, received {dtype} on {x.device}."
        )
    if x.dim() != 3 or x.shape[:2] != (packing.batch_size, packing.max_steps):
        raise UsageError(f"expected vectors ({packing.batch_size}, {packing.max_steps}, D), received {tuple(x.shape)}.")
    cell = get_compiled_cell(spec, dtype)
    gates_width, state = cell.equation.blocks * units, (packing.batch_size, units)
    shapes = [
        (gates_width, units),
        *[(width * units,) for width in cell.equation.vector_widths],
        *[state] * cell.states,
    ]
    for direction in directions:
        tensors, expected = [direction.weight_hidden, *direction.vectors, *direction.state], shapes
        if isinstance(direction.project, Projection):
            projection = [part for part in direction.project if part is not None]
            tensors = tensors + projection
            expected = shapes + [(gates_width, x.shape[2]), (gates_width,)][: len(projection)]
        for part, shape in zip_longest(tensors, expected):
            if part is None or part.shape != shape or part.dtype is not dtype or not part.is_cpu:
                raise _mismatch_error(x, tensors, expected)
            if type(part) not in PLAIN_TYPES:
                raise UsageError(f"compiled scans take plain tensors, received a {type(part).__name__}.")
    return cell


def _mismatch_error(x: Tensor, tensors: Sequence[Tensor], expected: Sequence[tuple[int, ...] | None]) -> UsageError:
    received = sorted({f"{part.dtype} on {part.device}" for part in (x, *tensors)})
    if len(received) > 1:
        return UsageError(
            f"input, weights and state must have one dtype and one device, received {', '.join(received)}."
        )
    return UsageError(f"expected tensors of {list(expected)}, received {[tuple(part.shape) for part in tensors]}.")


def _project(cell: CompiledCell, rows: Tensor, direction: Direction, packing: SequencePacking) -> Tensor:
    gates = direction.project(rows)
    shape = packing.num_rows, cell.equation.blocks * direction.weight_hidden.shape[-1]
    if gates.shape != shape or gates.dtype != rows.dtype or gates.device != rows.device:
        received = f"{tuple(gates.shape)}, {gates.dtype} on {gates.device}"
        raise UsageError(f"expected a projection to {shape}, {rows.dtype} on {rows.device}, received {received}.")
    return gates
