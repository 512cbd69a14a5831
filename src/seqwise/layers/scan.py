"""Scans one cell over time by one of four backends, and chooses the backend.

    reference   a loop over the cell's own equation; the tests compare all others with it
    aten        PyTorch's scan, on a GPU cuDNN's. It returns no activations, so recording runs the reference as well
    triton      persistent kernels of this package on a GPU
    compiled    compiled loops of this package on a CPU

If a kernel of this package cannot be compiled or launched, another backend takes its place. Kernels know nothing of
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
from seqwise.kernels.recurrence.cell_spec import CellSpec, Direction, NormalizedProjection, Projection, get_scan_dtype
from seqwise.kernels.recurrence.cpu import compiled
from seqwise.kernels.recurrence.packing import SequencePacking, to_time_first
from seqwise.layers import cells
from seqwise.layers.cells import Cell, State
from seqwise.layers.norm import LayerNorm
from seqwise.layers.record import is_recorded, is_recorded_live, pause_recording, record_value

CELL_SPECS: dict[type[Cell], CellSpec] = {
    cells.RNNCell: CellSpec("rnn"),
    cells.LSTMCell: CellSpec("lstm"),
    cells.CappedLSTMCell: CellSpec("lstm", capped=True),
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

FUSED = ("triton", "compiled")  # the backends that are kernels of this package

Function = TypeVar("Function", bound=Callable[..., Any])

_failed_kernels: set[tuple[Any, ...]] = set()  # keys of kernels that cannot be compiled or launched on this machine


class StepRecorder:
    """Collects the values of a module step by step and records them as (B, T, …) when the scan ends.

    A live recording adds a leaf of zeros to each value, and the scan continues from the sum. When the scan ends, the
    leaf takes the recorded values, so that a gradient with respect to it is the total one: through this step and all
    later ones. If the module is not recorded, values pass unchanged.
    """

    def __init__(self, module: nn.Module, steps: int):
        self.module, self.steps = module, steps
        self.is_recorded, self.is_live = is_recorded(module), is_recorded_live(module)
        self.values: dict[str, list[Tensor]] = {}
        self.leaves: dict[str, tuple[Tensor, tuple[Tensor, ...]]] = {}

    def record(self, name: str, value: Tensor) -> Tensor:
        """Collects one value of the current step; returns the value from which the scan continues."""
        if not self.is_recorded:
            return value
        values = self.values.setdefault(name, [])
        values.append(value.detach())
        if not self.is_live:
            return value
        if name not in self.leaves:
            leaf = value.new_zeros(len(value), self.steps, *value.shape[1:]).requires_grad_()
            self.leaves[name] = leaf, leaf.unbind(1)
        return value + self.leaves[name][1][len(values) - 1]

    def finish(self, is_valid: Tensor | None) -> None:
        """Records the collected values, zero where `is_valid` (B, T) is False."""
        for name, step_values in self.values.items():
            value = zero_padding(torch.stack(step_values, dim=1), is_valid)
            if self.is_live:
                leaf, _ = self.leaves[name]
                leaf.data.copy_(value)
                value = leaf
            record_value(self.module, name, value)


def scan_reference(
    cell: Cell,
    x: Tensor,
    state: State,
    weight_hidden: Tensor,
    is_valid: Tensor | None,
    state_mask: Tensor | None = None,
) -> tuple[Tensor, State]:
    """Scans x (B, T, D) step by step, by the reference implementation. Returns the outputs (B, T, U), zero in the
    padding, and the final state.

    A sequence keeps its state at steps where `is_valid` (B, T) is False. The `state_mask` (B, U) of an LSTM, whose h
    enters a product only, multiplies h there.
    """
    recorder = StepRecorder(cell, x.shape[1])
    outputs = []
    for t, x_t in enumerate(cell.project(x).unbind(1)):
        step_state = state if state_mask is None else (state[0] * state_mask, *state[1:])
        new_state = cell.step(x_t, step_state, weight_hidden, recorder.record)
        outputs.append(new_state[0])
        state = new_state if is_valid is None else select_state(is_valid[:, t], new_state, state)
    recorder.finish(is_valid)
    return zero_padding(torch.stack(outputs, dim=1), is_valid), state


def scan_aten(
    cell: Cell, x: Tensor, state: State, weight_hidden: Tensor, lengths: Tensor | None
) -> tuple[Tensor, State]:
    """Scans x (B, T, D) by ATen. Returns the outputs (B, T, U), zero in the padding, and the final state.

    ATen refuses empty sequences, so they run one step whose result is discarded.
    """
    if lengths is None or bool((lengths == x.shape[1]).all()):
        return _run_aten(cell, x, None, state, weight_hidden)
    packed = pack_padded_sequence(x, lengths.cpu().clamp(min=1), batch_first=True, enforce_sorted=False)
    data, batch_sizes, sorted_indices, unsorted_indices = packed
    sorted_state = tuple(part[sorted_indices] for part in state)
    data, final_state = _run_aten(cell, data, batch_sizes, sorted_state, weight_hidden)
    packed = PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)
    outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
    is_nonempty = lengths.to(x.device) > 0
    final_state = select_state(is_nonempty, tuple(part[unsorted_indices] for part in final_state), state)
    return zero_padding(outputs, is_nonempty[:, None]), final_state


def _run_aten(
    cell: Cell, x: Tensor, batch_sizes: Tensor | None, state: State, weight_hidden: Tensor
) -> tuple[Tensor, State]:
    """Runs ATen's scan on x (B, T, D), or with `batch_sizes` on the data of a `PackedSequence`."""
    function, weights = _get_aten_arguments(cell, weight_hidden)
    tensors = [part.unsqueeze(0).contiguous() for part in state]  # ATen's first dimension is the layer
    initial_state = tensors if len(tensors) == 2 else tensors[0]
    # cuDNN computes gradients in training mode only, so an evaluated layer needs that mode as well. Dropout is 0.
    options = (weights, True, 1, 0.0, torch.is_grad_enabled(), False)
    # cuDNN warns that it copies weights which are not in one buffer: the copy is cheap compared with the scan.
    ignore_warnings = warnings.catch_warnings(action="ignore", category=UserWarning) if x.is_cuda else nullcontext()
    with ignore_warnings:
        if batch_sizes is None and x.is_cuda:  # cuDNN would copy batch-first input slowly
            outputs, *final_state = function(to_time_first(x), initial_state, *options, False)
            outputs = outputs.transpose(0, 1)
        elif batch_sizes is None:
            outputs, *final_state = function(x, initial_state, *options, True)
        else:
            outputs, *final_state = function(x, batch_sizes, initial_state, *options)
    return outputs, tuple([part.squeeze(0) for part in final_state])


def _get_aten_arguments(cell: Any, weight_hidden: Tensor) -> tuple[Callable[..., Any], list[Tensor]]:
    """Returns ATen's function for a cell, and the weights that it takes."""
    function: Callable[..., Any] = torch.gru
    bias = cell.bias  # may be a property that computes it
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
    """Returns a function of one step without gradients, from x (B, D) and the state to the new state.

    It is ATen's, or the cell's own equation if ATen has none.
    """
    spec = get_cell_spec(cell)
    if spec is None or not _has_aten(spec):
        return lambda x, state: cell.step(cell.project(x), state, cell.weight_hidden)
    function, weights = _get_aten_arguments(cell, cell.weight_hidden)
    aten_cell = getattr(torch, f"{function.__name__}_cell")  # such as torch.lstm_cell
    if spec.name == "lstm":
        return lambda x, state: aten_cell(x, state, *weights)
    return lambda x, state: (aten_cell(x, *state, *weights),)


def select_state(is_new: Tensor, new_state: State, old_state: State) -> State:
    """Returns the new state of the sequences where `is_new` (B,) is True, the old state of the others."""
    return tuple(torch.where(is_new[:, None], new, old) for new, old in zip(new_state, old_state, strict=True))


def zero_padding(values: Tensor, is_valid: Tensor | None) -> Tensor:
    """Returns the values (B, T, …) with zeros where `is_valid` (B, T) is False."""
    return values if is_valid is None else values.masked_fill(~is_valid[..., None], 0)


def _exclude_from_tracing(function: Function) -> Function:
    """Returns the function, excluded from tracing by `torch.compile`, as by `torch.compiler.disable`.

    `disable` itself imports the compiler, which takes two seconds; here it is called once the compiler is imported.
    """
    disabled_functions: list[Any] = []  # none, or the only one

    @wraps(function)
    def call(*arguments: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments)
        if not disabled_functions:
            disabled_functions.append(torch.compiler.disable(function))
        return disabled_functions[0](*arguments)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def get_cell_spec(cell: Cell) -> CellSpec | None:
    """Returns the kernels' description of a cell; None for other classes and subclasses, whose equations may differ."""
    spec = CELL_SPECS.get(type(cell))
    if spec is None or spec.name != "rnn":
        return spec
    activation: Any = cell.activation
    return spec if activation == spec.activation else replace(spec, activation=activation)


def _has_aten(spec: CellSpec) -> bool:
    """Returns whether ATen has this cell."""
    return spec.reset == "after" and not (spec.layer_norm or spec.capped) and spec.activation in ("tanh", "relu")


def choose_backend(
    cell: Cell, x: Tensor, lengths: Tensor | None = None, directions: int = 1, has_state_mask: bool = False
) -> str:
    """Returns the backend of this call: "triton", "compiled", "aten" (on a GPU cuDNN) or "reference".

    Only "triton" and "reference" take a mask of the state.
    """
    spec = get_cell_spec(cell)
    if spec is None or (has_state_mask and x.is_cpu):
        return "reference"
    fallback = "aten" if _has_aten(spec) and not has_state_mask else "reference"
    if compiled.has_active_transforms():
        return "reference"  # ATen's scans have no batching rule, and not all have forward-mode derivatives
    if x.is_cpu:
        return _choose_cpu_backend(spec, cell, x, lengths, directions, fallback)
    if get_unavailable_reason(x.device) is not None or _failure_key(spec, x, cell.units, directions) in _failed_kernels:
        return fallback
    from seqwise.kernels.recurrence.gpu import persistent

    if not persistent.is_supported(spec, x, cell.units, directions):
        return fallback
    is_faster = fallback == "reference" or persistent.is_faster_than_cudnn(spec, x, cell.units, directions)
    return "triton" if is_faster else fallback


@_exclude_from_tracing
def _choose_cpu_backend(
    spec: CellSpec, cell: Cell, x: Tensor, lengths: Tensor | None, directions: int, fallback: str
) -> str:
    has_failed = bool(_failed_kernels) and _failure_key(spec, x) in _failed_kernels
    if has_failed or not compiled.is_supported(x, cell.weight_input, cell.weight_hidden):
        return fallback
    is_padded = lengths is not None and bool((lengths < x.shape[1]).any())
    is_faster = fallback == "reference" and x.shape[1] > 1
    is_faster = is_faster or compiled.is_faster_than_aten(spec, x, cell.units, directions, is_padded)
    return "compiled" if is_faster and get_unavailable_reason(x.device) is None else fallback


def build_direction(
    cell: Any, weight_hidden: Tensor, state: State, reverse: bool = False, state_mask: Tensor | None = None
) -> Direction:
    """Returns what a kernel needs of a cell in one direction."""
    vector_parameters = _get_norm_parameters(cell, NORMS)
    if isinstance(cell, cells.GRUCell):
        vector_parameters = (*vector_parameters, cell.bias_hidden)
    input_norm_parameters = _get_norm_parameters(cell, INPUT_NORMS)
    project: Any = Projection(cell.weight_input, cell.bias)
    if input_norm_parameters:
        project = NormalizedProjection(cell.weight_input, input_norm_parameters, cell.bias)
    return Direction(project, weight_hidden, vector_parameters, state, reverse, state_mask)


def _get_norm_parameters(cell: Cell, names: Sequence[str]) -> tuple[Tensor, ...]:
    """Returns weight and bias of each of these norms that the cell has."""
    norms = [norm for name in names if isinstance(norm := cell._modules.get(name), LayerNorm)]
    return tuple(parameter for norm in norms for parameter in (norm.weight, norm.bias))


class ScanResult(NamedTuple):
    """What a kernel returns."""

    outputs: Tensor  # (B, T, directions · U)
    final_states: list[State]  # of each direction
    activations: list[dict[str, Tensor]]  # of each direction by name, (B, T, …) each; empty unless recorded


def scan_fused(
    backend: str, cell: Cell, x: Tensor, directions: Sequence[Direction], lengths: Tensor | None, should_record: bool
) -> ScanResult | None:
    """Scans x (B, T, D) by a kernel, the backend "triton" or "compiled".

    Returns None if the kernel cannot be launched: it warns once, and the process does not try that kernel again.
    """
    spec = get_cell_spec(cell)
    assert spec is not None
    if backend == "compiled":
        result = _scan_on_cpu(spec, x, directions, lengths, should_record)
        if isinstance(result, Exception):
            _report_failed_kernel(_failure_key(spec, x), cell, result)
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
            _report_failed_kernel(_failure_key(spec, x, cell.units, len(directions)), cell, error)
            return None


@_exclude_from_tracing
def _scan_on_cpu(
    spec: CellSpec, x: Tensor, directions: Sequence[Direction], lengths: Tensor | None, should_record: bool
) -> ScanResult | Exception:
    """Returns the result of the scan, or the error if it cannot be compiled."""
    try:
        compiled.compile_cell(spec, x.dtype)
    except compiled.COMPILE_ERRORS as error:
        return error
    with pause_recording():
        packing = SequencePacking(len(x), x.shape[1], lengths)
        return ScanResult(*compiled.scan(spec, x, directions, packing, should_record))


def _report_failed_kernel(key: tuple[Any, ...], cell: Cell, error: Exception) -> None:
    """Warns that a kernel cannot run, and excludes it from then on."""
    _failed_kernels.add(key)
    reason = (str(error).strip() or "no reason given").splitlines()[-1]
    warnings.warn(
        f"the fused kernel of {cell.name} with {cell.units} units cannot run here; using PyTorch's operations instead. "
        f"({type(error).__name__}: {reason})",
        stacklevel=3,
    )


def _failure_key(spec: CellSpec, x: Tensor, *sizes: int) -> tuple[Any, ...]:
    """Returns what identifies a kernel; compiled loops have no `sizes`, since they take any units and directions."""
    return spec, get_scan_dtype(x), x.device, *sizes
