"""The scan of one cell over time, twice: the reference implementation and PyTorch's ATen (cuDNN on a GPU).

The reference implementation is a loop over the cell's own equation. Both use the same weights, and the tests compare
them. ATen does not return its gates, so recording runs the reference implementation as well. Scans by our own kernels
are in `fused.py`. This module knows nothing of stacked layers, directions or dropout.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqwise.kernels.recurrence.layout import time_first
from seqwise.layers.cells import Cell, GRUCell, LSTMCell, ReplacingGRUCell, RNNCell, State
from seqwise.layers.record import is_recorded, is_recorded_live, record_value


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
        for name, steps in self.values.items():
            value = zero_padding(torch.stack(steps, dim=1), valid)
            if self.live:
                leaf, _ = self.leaves[name]
                leaf.data.copy_(value)
                value = leaf
            record_value(self.module, name, value)


def scan(cell: Cell, x: Tensor, state: State, weight_hidden: Tensor, valid: Tensor | None) -> tuple[Tensor, State]:
    """The reference implementation, step by step. A row keeps its state after its last valid step (B, T)."""
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
        return _aten(cell, x, None, state, weight_hidden)
    packed = pack_padded_sequence(x, lengths.cpu().clamp(min=1), batch_first=True, enforce_sorted=False)
    data, sizes, order, original_order = packed
    data, after = _aten(cell, data, sizes, tuple(part[order] for part in state), weight_hidden)
    packed = PackedSequence(data, sizes, order, original_order)
    outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
    is_nonempty = lengths.to(x.device) > 0
    after = select_state(is_nonempty, tuple(part[original_order] for part in after), state)
    return zero_padding(outputs, is_nonempty[:, None]), after


def has_aten_scan(cell: Cell) -> bool:
    """Whether ATen has this cell. A subclass may have another equation: it uses the reference implementation."""
    return type(cell) in ATEN_SCANS and (not isinstance(cell, RNNCell) or cell.activation in ("tanh", "relu"))


def select_state(rows: Tensor, new: State, old: State) -> State:
    """The new state where `rows` (B,) is True, the old one elsewhere."""
    return tuple(torch.where(rows[:, None], a, b) for a, b in zip(new, old, strict=True))


def zero_padding(values: Tensor, valid: Tensor | None) -> Tensor:
    """The values (B, T, …) with zeros at steps that are not valid (B, T)."""
    return values if valid is None else values.masked_fill(~valid[..., None], 0)


def _aten(
    cell: Cell, x: Tensor, batch_sizes: Tensor | None, state: State, weight_hidden: Tensor
) -> tuple[Tensor, State]:
    function, weights = ATEN_SCANS[type(cell)](cell, weight_hidden)
    hidden = [part.unsqueeze(0).contiguous() for part in state]  # ATen's first dimension is the layer
    before = hidden if len(hidden) == 2 else hidden[0]
    # cuDNN computes gradients in training mode only, so an evaluated layer needs that mode as well. Dropout is 0.
    options = (weights, True, 1, 0.0, torch.is_grad_enabled(), False)
    with _ignore_warnings() if x.is_cuda else nullcontext():
        if batch_sizes is None and x.is_cuda:  # cuDNN would copy batch-first input slowly
            outputs, *after = function(time_first(x), before, *options, False)
            outputs = outputs.transpose(0, 1)
        elif batch_sizes is None:
            outputs, *after = function(x, before, *options, True)
        else:
            outputs, *after = function(x, batch_sizes, before, *options)
    return outputs, tuple([part.squeeze(0) for part in after])


def _ignore_warnings() -> Any:
    """No warning that cuDNN copies weights which are not in one buffer: the copy is cheap beside the scan."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)


def _rnn(cell: Any, weight_hidden: Tensor) -> tuple[Any, list[Tensor]]:
    function = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}[cell.activation]
    return function, [cell.weight_input, weight_hidden, cell.bias, torch.zeros_like(cell.bias)]


def _lstm(cell: Any, weight_hidden: Tensor) -> tuple[Any, list[Tensor]]:
    return torch.lstm, [cell.weight_input, weight_hidden, cell.bias, torch.zeros_like(cell.bias)]


def _gru(cell: Any, weight_hidden: Tensor) -> tuple[Any, list[Tensor]]:
    return torch.gru, [cell.weight_input, weight_hidden, cell.bias, F.pad(cell.bias_hidden, (2 * cell.units, 0))]


def _replacing_gru(cell: Any, weight_hidden: Tensor) -> tuple[Any, list[Tensor]]:
    """In ATen's GRU, z near 1 keeps the old state. 1 − σ(a) = σ(−a), so the update gate's weights change their sign."""
    function, weights = _gru(cell, weight_hidden)
    sign = weight_hidden.new_ones(3, cell.units)
    sign[1] = -1
    sign = sign.flatten()
    return function, [weight * (sign[:, None] if weight.dim() == 2 else sign) for weight in weights]


ATEN_SCANS: dict[type[Cell], Callable[[Any, Tensor], tuple[Any, list[Tensor]]]] = {
    RNNCell: _rnn,
    LSTMCell: _lstm,
    GRUCell: _gru,
    ReplacingGRUCell: _replacing_gru,
}
