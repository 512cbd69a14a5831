"""Scans of cells by the kernels of this package: persistent Triton programs on a GPU, compiled loops on a CPU.

This module says which kernel computes which cell, chooses the backend of each call, and falls back where a kernel
cannot be compiled or launched. Kernels know nothing of cells; cells know nothing of kernels.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from seqwise.kernels.recurrence.availability import get_unavailable_reason
from seqwise.kernels.recurrence.cell_spec import CellSpec, Direction, Projection, scan_dtype
from seqwise.kernels.recurrence.cpu import compiled, support
from seqwise.kernels.recurrence.packing import SequencePacking
from seqwise.layers import cells
from seqwise.layers.cells import Cell, State
from seqwise.layers.norm import LayerNorm
from seqwise.layers.record import pause_recording
from seqwise.layers.scan import has_aten_scan

CELL_SPECS: dict[type[Cell], CellSpec] = {
    cells.RNNCell: CellSpec("rnn"),
    cells.LSTMCell: CellSpec("lstm"),
    cells.GRUCell: CellSpec("gru"),
    cells.ReplacingGRUCell: CellSpec("gru", update="replaces"),
    cells.EarlyResetGRUCell: CellSpec("gru", reset="before"),
    cells.EarlyResetReplacingGRUCell: CellSpec("gru", reset="before", update="replaces"),
    cells.LayerNormRNNCell: CellSpec("rnn", layer_norm=True),
    cells.LayerNormLSTMCell: CellSpec("lstm", layer_norm=True),
    cells.LayerNormGRUCell: CellSpec("gru", layer_norm=True),
    cells.LayerNormReplacingGRUCell: CellSpec("gru", update="replaces", layer_norm=True),
}
# The norms of a step, in the order of the kernels' arguments.
NORMS = ("norm", "hidden_norm", "gates_norm", "candidate_norm", "cell_norm")

FUSED = ("triton", "compiled")

F = TypeVar("F", bound=Callable[..., Any])

_failed: set[tuple[Any, ...]] = set()  # kernels that could not be launched, or compiled, on this machine


def _untraced(function: F) -> F:
    """The function, excluded from tracing by `torch.compile`, as by `torch.compiler.disable`.

    `disable` itself imports the compiler, which takes two seconds; here it is called once the compiler is imported.
    """
    disabled: list[Any] = []

    @wraps(function)
    def call(*arguments: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*arguments)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def get_cell_spec(cell: Cell) -> CellSpec | None:
    """The cell as kernels describe it; None for other classes, also subclasses: their equations may differ."""
    spec = CELL_SPECS.get(type(cell))
    if spec is None or spec.name != "rnn":
        return spec
    activation: Any = cell.activation
    return spec if activation == spec.activation else replace(spec, activation=activation)


def choose_backend(cell: Cell, x: Tensor, lengths: Tensor | None = None, scans: int = 1) -> str:
    """The backend of this call: "triton", "compiled", "aten" (on a GPU cuDNN) or "reference", the loop over steps."""
    spec = get_cell_spec(cell)
    fallback = "aten" if has_aten_scan(cell) else "reference"
    if spec is None:
        return fallback
    if support.has_active_transforms():
        return "reference"  # ATen's scans have no batching rule, and not all have forward-mode derivatives
    if x.is_cpu:
        return _choose_on_cpu(spec, cell, x, lengths, scans, fallback)
    if get_unavailable_reason(x.device) is not None or _gpu_key(spec, x, cell.units, scans) in _failed:
        return fallback
    from seqwise.kernels.recurrence.gpu import persistent

    if not persistent.is_supported(spec, x, cell.units, scans):
        return fallback
    is_faster = fallback == "reference" or persistent.is_faster_than_cudnn(spec, x, cell.units, scans)
    return "triton" if is_faster else fallback


@_untraced
def _choose_on_cpu(spec: CellSpec, cell: Cell, x: Tensor, lengths: Tensor | None, scans: int, fallback: str) -> str:
    if not support.is_supported(x, cell.weight_input, cell.weight_hidden) or (_failed and _cpu_key(spec, x) in _failed):
        return fallback
    padded = lengths is not None and bool((lengths < x.shape[1]).any())
    is_faster = fallback == "reference" and x.shape[1] > 1
    is_faster = is_faster or support.is_faster_than_aten(spec, x, cell.units, scans, padded)
    return "compiled" if is_faster and get_unavailable_reason(x.device) is None else fallback


def build_direction(cell: Any, weight_hidden: Tensor, state: State, reverse: bool = False) -> Direction:
    """What a kernel needs of a cell: weights, the vectors beside them, the state."""
    norms = [norm for name in NORMS if isinstance(norm := cell._modules.get(name), LayerNorm)]
    vectors = [vector for norm in norms for vector in (norm.weight, norm.bias)]
    if isinstance(cell, cells.GRUCell):
        vectors.append(cell.bias_hidden)
    is_linear = type(cell).project is Cell.project
    project: Any = Projection(cell.weight_input, cell.bias) if is_linear else cell.project
    return Direction(project, weight_hidden, tuple(vectors), state, reverse)


class ScanResult(NamedTuple):
    """Outputs (B, T, directions · U); for each direction its last state and, if recorded, its gates by name."""

    outputs: Tensor
    states: list[State]
    gates: list[dict[str, Tensor]]


def fused_scan(
    backend: str, cell: Cell, x: Tensor, directions: Sequence[Direction], lengths: Tensor | None, should_record: bool
) -> ScanResult | None:
    """The scan of x (B, T, D) by a kernel; with `should_record`, every gate by its name.

    None if the kernel cannot be launched: this is warned about once, and the process does not try it again.
    """
    spec = get_cell_spec(cell)
    assert spec is not None
    if backend == "compiled":
        result = _scan_on_cpu(spec, x, directions, lengths, should_record)
        if isinstance(result, Exception):
            _warn_failed(_cpu_key(spec, x), cell, result)
            return None
        return result
    from seqwise.kernels.recurrence.gpu import persistent

    packing = SequencePacking(len(x), x.shape[1], lengths, x.device)
    with pause_recording():
        inputs = persistent.prepare_inputs(x, directions, packing)
        try:
            persistent.verify_backward_launch(spec, inputs)
            return ScanResult(*persistent.run_scan(spec, inputs, packing, should_record))
        except Exception as error:
            # While a CUDA graph is captured, no kernel can be warmed up: such a failure is not the kernel's.
            if not persistent.is_launch_failure(error) or (x.is_cuda and torch.cuda.is_current_stream_capturing()):
                raise
            _warn_failed(_gpu_key(spec, x, cell.units, len(directions)), cell, error)
            return None


@_untraced
def _scan_on_cpu(
    spec: CellSpec, x: Tensor, directions: Sequence[Direction], lengths: Tensor | None, should_record: bool
) -> ScanResult | Exception:
    """The result of the scan, or the error if it cannot be compiled."""
    try:
        compiled.prepare(spec, x.dtype)
    except support.COMPILE_ERRORS as error:
        return error
    with pause_recording():
        packing = SequencePacking(len(x), x.shape[1], lengths)
        return ScanResult(*compiled.scan(spec, x, directions, packing, should_record))


def _warn_failed(key: tuple[Any, ...], cell: Cell, error: Exception) -> None:
    _failed.add(key)
    reason = (str(error).strip() or "no reason given").splitlines()[-1]
    warnings.warn(
        f"the fused kernel of {cell.name} with {cell.units} units cannot run here; using PyTorch's operations instead. "
        f"({type(error).__name__}: {reason})",
        stacklevel=3,
    )


def _gpu_key(spec: CellSpec, x: Tensor, units: int, scans: int) -> tuple[Any, ...]:
    return spec, units, scans, scan_dtype(x), x.device


def _cpu_key(spec: CellSpec, x: Tensor) -> tuple[Any, ...]:
    """One compiled loop serves any number of units and directions."""
    return spec, x.dtype, x.device
