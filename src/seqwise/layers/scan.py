"""The scan of one cell over time by four backends, and the choice between them.

    reference   a loop over the cell's own equation; the tests compare all others with it
    aten        PyTorch's scan, on a GPU cuDNN's. It returns no gates, so recording runs the reference as well
    triton      persistent kernels of this package on a GPU
    compiled    compiled loops of this package on a CPU

Where a kernel of this package cannot be compiled or launched, another backend takes its place. Kernels know nothing of
cells; cells know nothing of kernels. This module knows nothing of stacked layers or dropout.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqwise.kernels.recurrence.availability import get_unavailable_reason
from seqwise.kernels.recurrence.cell_spec import CellSpec, Direction, NormalisedProjection, Projection, scan_dtype
from seqwise.kernels.recurrence.cpu import compiled
from seqwise.kernels.recurrence.packing import SequencePacking, time_first
from seqwise.layers import cells
from seqwise.layers.cells import Cell, State
from seqwise.layers.norm import LayerNorm
from seqwise.layers.record import is_recorded, is_recorded_live, pause_recording, record_value

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
INPUT_NORMS = ("input_norm", "input_gates_norm", "input_candidate_norm")

FUSED = ("triton", "compiled")  # the backends of this package

Function = TypeVar("Function", bound=Callable[..., Any])

_failed_kernels: set[tuple[Any, ...]] = set()  # those that cannot be compiled or launched on this machine


class StepRecorder:
    """Collects the values of a module step by step and records them as (B, T, …) when the scan ends.

    A live recording adds a leaf of zeros to each value, from which the scan continues. When the scan ends, the leaf
    takes the recorded values, so that a gradient with respect to it is the total one: through this step and all later
    ones. If the module is not recorded, values pass unchanged.
    """

    def __init__(self, module: nn.Module, steps: int):
        self.module, self.steps = module, steps
        self.is_recorded, self.live = is_recorded(module), is_recorded_live(module)
        self.values: dict[str, list[Tensor]] = {}
        self.leaves: dict[str, tuple[Tensor, tuple[Tensor, ...]]] = {}

    def record(self, name: str, value: Tensor) -> Tensor:
        """Collect one value of the current step; returns the value from which the scan continues."""
        if not self.is_recorded:
            return value
        values = self.values.setdefault(name, [])
        values.append(value.detach())
        if not self.live:
            return value
        if name not in self.leaves:
            leaf = value.new_zeros(len(value), self.steps, *value.shape[1:]).requires_grad_()
            self.leaves[name] = leaf, leaf.unbind(1)
        return value + self.leaves[name][1][len(values) - 1]

    def finish(self, valid: Tensor | None) -> None:
        """Record what was collected, zero in the padding."""
        for name, step_values in self.values.items():
            value = zero_padding(torch.stack(step_values, dim=1), valid)
            if self.live:
                leaf, _ = self.leaves[name]
                leaf.data.copy_(value)
                value = leaf
            record_value(self.module, name, value)


def scan(cell: Cell, x: Tensor, state: State, weight_hidden: Tensor, valid: Tensor | None) -> tuple[Tensor, State]:
    """The reference implementation, step by step. A row keeps its state where `valid` (B, T) is False."""
    recorder = StepRecorder(cell, x.shape[1])
    outputs = []
    for t, x_t in enumerate(cell.project(x).unbind(1)):
        new_state = cell.step(x_t, state, weight_hidden, recorder.record)
        outputs.append(new_state[0])
        state = new_state if valid is None else select_state(valid[:, t], new_state, state)
    recorder.finish(valid)
    return zero_padding(torch.stack(outputs, dim=1), valid), state


def aten_scan(
    cell: Cell, x: Tensor, state: State, weight_hidden: Tensor, lengths: Tensor | None
) -> tuple[Tensor, State]:
    """The same scan by ATen, on packed rows. It refuses empty rows, so they run one step whose result is discarded."""
    if lengths is None or bool((lengths == x.shape[1]).all()):
        return _run_aten(cell, x, None, state, weight_hidden)
    packed = pack_padded_sequence(x, lengths.cpu().clamp(min=1), batch_first=True, enforce_sorted=False)
    data, sizes, order, original_order = packed
    data, last_state = _run_aten(cell, data, sizes, tuple(part[order] for part in state), weight_hidden)
    packed = PackedSequence(data, sizes, order, original_order)
    outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
    is_nonempty = lengths.to(x.device) > 0
    last_state = select_state(is_nonempty, tuple(part[original_order] for part in last_state), state)
    return zero_padding(outputs, is_nonempty[:, None]), last_state


def _run_aten(
    cell: Cell, x: Tensor, batch_sizes: Tensor | None, state: State, weight_hidden: Tensor
) -> tuple[Tensor, State]:
    function, weights = _get_aten_arguments(cell, weight_hidden)
    hidden = [part.unsqueeze(0).contiguous() for part in state]  # ATen's first dimension is the layer
    initial_state = hidden if len(hidden) == 2 else hidden[0]
    # cuDNN computes gradients in training mode only, so an evaluated layer needs that mode as well. Dropout is 0.
    options = (weights, True, 1, 0.0, torch.is_grad_enabled(), False)
    # cuDNN warns that it copies weights which are not in one buffer: the copy is cheap compared with the scan.
    ignore = warnings.catch_warnings(action="ignore", category=UserWarning) if x.is_cuda else nullcontext()
    with ignore:
        if batch_sizes is None and x.is_cuda:  # cuDNN would copy batch-first input slowly
            outputs, *last_state = function(time_first(x), initial_state, *options, False)
            outputs = outputs.transpose(0, 1)
        elif batch_sizes is None:
            outputs, *last_state = function(x, initial_state, *options, True)
        else:
            outputs, *last_state = function(x, batch_sizes, initial_state, *options)
    return outputs, tuple([part.squeeze(0) for part in last_state])


def _get_aten_arguments(cell: Any, weight_hidden: Tensor) -> tuple[Callable[..., Any], list[Tensor]]:
    """ATen's function for a cell, and the weights that it takes."""
    function: Callable[..., Any] = torch.gru
    bias = cell.bias
    if isinstance(cell, cells.GRUCell):
        bias_hidden = F.pad(cell.bias_hidden, (2 * cell.units, 0))
    else:
        bias_hidden = torch.zeros_like(bias)
        rnn = torch.rnn_relu if getattr(cell, "activation", "tanh") == "relu" else torch.rnn_tanh
        function = torch.lstm if isinstance(cell, cells.LSTMCell) else rnn
    weights = [cell.weight_input, weight_hidden, bias, bias_hidden]
    if isinstance(cell, cells.ReplacingGRUCell):
        # In ATen's GRU, z near 1 keeps the old state. 1 − σ(a) = σ(−a): the update gate's weights change their sign.
        sign = weight_hidden.new_ones(3, cell.units)
        sign[1] = -1
        sign = sign.flatten()
        weights = [weight * (sign[:, None] if weight.dim() == 2 else sign) for weight in weights]
    return function, weights


def build_cell_step(cell: Cell) -> Callable[[Tensor, State], State]:
    """One step without gradients, x (B, D) and state → state: ATen's, or where it has none the cell's own equation."""
    spec = get_cell_spec(cell)
    if spec is None or not _has_aten(spec):
        return lambda x, state: cell.step(cell.project(x), state, cell.weight_hidden)
    function, weights = _get_aten_arguments(cell, cell.weight_hidden)
    aten_cell = getattr(torch, f"{function.__name__}_cell")  # such as torch.lstm_cell
    if spec.name == "lstm":
        return lambda x, state: aten_cell(x, state, *weights)
    return lambda x, state: (aten_cell(x, *state, *weights),)


def select_state(rows: Tensor, new: State, old: State) -> State:
    """The new state where `rows` (B,) is True, the old one elsewhere."""
    return tuple(torch.where(rows[:, None], a, b) for a, b in zip(new, old, strict=True))


def zero_padding(values: Tensor, valid: Tensor | None) -> Tensor:
    """The values (B, T, …) with zeros at steps that are not valid (B, T)."""
    return values if valid is None else values.masked_fill(~valid[..., None], 0)


def _exclude_from_tracing(function: Function) -> Function:
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


def _has_aten(spec: CellSpec) -> bool:
    return spec.reset == "after" and not spec.layer_norm and spec.activation in ("tanh", "relu")


def choose_backend(cell: Cell, x: Tensor, lengths: Tensor | None = None, directions: int = 1) -> str:
    """The backend of this call: "triton", "compiled", "aten" (on a GPU cuDNN) or "reference", the loop over steps."""
    spec = get_cell_spec(cell)
    if spec is None:
        return "reference"
    fallback = "aten" if _has_aten(spec) else "reference"
    if compiled.has_active_transforms():
        return "reference"  # ATen's scans have no batching rule, and not all have forward-mode derivatives
    if x.is_cpu:
        return _choose_on_cpu(spec, cell, x, lengths, directions, fallback)
    if get_unavailable_reason(x.device) is not None or _failure_key(spec, x, cell.units, directions) in _failed_kernels:
        return fallback
    from seqwise.kernels.recurrence.gpu import persistent

    if not persistent.is_supported(spec, x, cell.units, directions):
        return fallback
    is_faster = fallback == "reference" or persistent.is_faster_than_cudnn(spec, x, cell.units, directions)
    return "triton" if is_faster else fallback


@_exclude_from_tracing
def _choose_on_cpu(
    spec: CellSpec, cell: Cell, x: Tensor, lengths: Tensor | None, directions: int, fallback: str
) -> str:
    has_failed = bool(_failed_kernels) and _failure_key(spec, x) in _failed_kernels
    if has_failed or not compiled.is_supported(x, cell.weight_input, cell.weight_hidden):
        return fallback
    padded = lengths is not None and bool((lengths < x.shape[1]).any())
    is_faster = fallback == "reference" and x.shape[1] > 1
    is_faster = is_faster or compiled.is_faster_than_aten(spec, x, cell.units, directions, padded)
    return "compiled" if is_faster and get_unavailable_reason(x.device) is None else fallback


def build_direction(cell: Any, weight_hidden: Tensor, state: State, reverse: bool = False) -> Direction:
    """What a kernel needs of a cell: its matrices, its bias and norm vectors, the state."""
    vectors = _get_norm_vectors(cell, NORMS)
    if isinstance(cell, cells.GRUCell):
        vectors = (*vectors, cell.bias_hidden)
    input_vectors = _get_norm_vectors(cell, INPUT_NORMS)
    project: Any = Projection(cell.weight_input, cell.bias)
    if input_vectors:
        project = NormalisedProjection(cell.weight_input, input_vectors, cell.bias)
    return Direction(project, weight_hidden, vectors, state, reverse)


def _get_norm_vectors(cell: Cell, names: Sequence[str]) -> tuple[Tensor, ...]:
    """Gain and bias of each of these norms that the cell has."""
    norms = [norm for name in names if isinstance(norm := cell._modules.get(name), LayerNorm)]
    return tuple(vector for norm in norms for vector in (norm.weight, norm.bias))


class ScanResult(NamedTuple):
    """Outputs (B, T, directions · U); for each direction its last state and, if recorded, its gates by name."""

    outputs: Tensor
    states: list[State]
    gates: list[dict[str, Tensor]]


def fused_scan(
    backend: str, cell: Cell, x: Tensor, directions: Sequence[Direction], lengths: Tensor | None, should_record: bool
) -> ScanResult | None:
    """The scan of x (B, T, D) by a kernel; with `should_record`, every gate by its name.

    None if the kernel cannot be launched: it warns once, and the process does not try that kernel again.
    """
    spec = get_cell_spec(cell)
    assert spec is not None
    if backend == "compiled":
        result = _scan_on_cpu(spec, x, directions, lengths, should_record)
        if isinstance(result, Exception):
            _warn_failed(_failure_key(spec, x), cell, result)
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
            _warn_failed(_failure_key(spec, x, cell.units, len(directions)), cell, error)
            return None


@_exclude_from_tracing
def _scan_on_cpu(
    spec: CellSpec, x: Tensor, directions: Sequence[Direction], lengths: Tensor | None, should_record: bool
) -> ScanResult | Exception:
    """The result of the scan, or the error if it cannot be compiled."""
    try:
        compiled.prepare(spec, x.dtype)
    except compiled.COMPILE_ERRORS as error:
        return error
    with pause_recording():
        packing = SequencePacking(len(x), x.shape[1], lengths)
        return ScanResult(*compiled.scan(spec, x, directions, packing, should_record))


def _warn_failed(key: tuple[Any, ...], cell: Cell, error: Exception) -> None:
    _failed_kernels.add(key)
    reason = (str(error).strip() or "no reason given").splitlines()[-1]
    warnings.warn(
        f"the fused kernel of {cell.name} with {cell.units} units cannot run here; using PyTorch's operations instead. "
        f"({type(error).__name__}: {reason})",
        stacklevel=3,
    )


def _failure_key(spec: CellSpec, x: Tensor, *sizes: int) -> tuple[Any, ...]:
    """What identifies a kernel. One compiled loop serves any number of units and directions, so it has no sizes."""
    return spec, scan_dtype(x), x.device, *sizes
