"""The scan of one cell over time, twice: open, as a loop over the cell's own equation, and by ATen (on a GPU, cuDNN).

Both run on the same weights, and the tests hold them together. Somebody who looks inside ATen's sees the open one's
values. Scans by kernels of our own, which show their gates themselves, are in `fused.py`.
This module knows nothing of stacks, directions or dropout.
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
    """Collects what each step sees and offers it to the recordings as (B, T, …) when the scan ends.

    If nobody looks at the module, values pass untouched. Live, a leaf of zeros is added to each value on its way.
    The leaf takes the recorded values afterwards, so a gradient with respect to it is the total one: through this
    step and all that follow.
    """

    def __init__(self, module: nn.Module, steps: int):
        self.module, self.steps = module, steps
        self.is_recording, self.live = is_recorded(module), is_recorded_live(module)
        self.values: dict[str, list[Tensor]] = {}
        self.leaves: dict[str, tuple[Tensor, tuple[Tensor, ...]]] = {}

    def record(self, name: str, value: Tensor) -> Tensor:
        if not self.is_recording:
            return value
        past = self.values.setdefault(name, [])
        past.append(value.detach())
        if not self.live:
            return value
        if name not in self.leaves:
            leaf = value.new_zeros(len(value), self.steps, *value.shape[1:]).requires_grad_()
            self.leaves[name] = leaf, leaf.unbind(1)
        return value + self.leaves[name][1][len(past) - 1]

    def close(self, real: Tensor | None) -> None:
        for name, steps in self.values.items():
            value = zero_padding(torch.stack(steps, dim=1), real)
            if self.live:
                leaf, _ = self.leaves[name]
                leaf.data.copy_(value)
                value = leaf
            record_value(self.module, name, value)


def scan(cell: Cell, x: Tensor, state: State, weight_hidden: Tensor, real: Tensor | None) -> tuple[Tensor, State]:
    """The open scan, step by step. A row whose real steps (B, T) have ended keeps its state."""
    tape = StepRecorder(cell, x.shape[1])
    outputs = []
    for t, x_t in enumerate(cell.project(x).unbind(1)):
        after = cell.step(x_t, state, weight_hidden, tape.record)
        outputs.append(after[0])
        state = after if real is None else choose(real[:, t], after, state)
    tape.close(real)
    return zero_padding(torch.stack(outputs, dim=1), real), state


def aten_scan(
    cell: Cell, x: Tensor, state: State, weight_hidden: Tensor, lengths: Tensor | None
) -> tuple[Tensor, State]:
    """The same scan by ATen. Padding is packed away; ATen knows no empty rows, so they run one step that is undone."""
    if lengths is None or bool((lengths == x.shape[1]).all()):
        return _aten(cell, x, None, state, weight_hidden)
    packed = pack_padded_sequence(x, lengths.cpu().clamp(min=1), batch_first=True, enforce_sorted=False)
    data, sizes, order, back = packed
    data, after = _aten(cell, data, sizes, tuple(part[order] for part in state), weight_hidden)
    outputs, _ = pad_packed_sequence(PackedSequence(data, sizes, order, back), True, total_length=x.shape[1])
    some = lengths.to(x.device) > 0
    return zero_padding(outputs, some[:, None]), choose(some, tuple(part[back] for part in after), state)


def has_aten_scan(cell: Cell) -> bool:
    """Has ATen this very cell? A class derived from one of these is another equation, and scans openly."""
    return type(cell) in ATEN_SCANS and (not isinstance(cell, RNNCell) or cell.activation in ("tanh", "relu"))


def choose(rows: Tensor, new: State, old: State) -> State:
    """The new state where `rows` (B,) is True, the old one elsewhere."""
    return tuple(torch.where(rows[:, None], a, b) for a, b in zip(new, old, strict=True))


def zero_padding(values: Tensor, real: Tensor | None) -> Tensor:
    """Zeros where a step (B, T) is not real."""
    return values if real is None else values.masked_fill(~real[..., None], 0)


def _aten(
    cell: Cell, x: Tensor, batch_sizes: Tensor | None, state: State, weight_hidden: Tensor
) -> tuple[Tensor, State]:
    function, weights = ATEN_SCANS[type(cell)](cell, weight_hidden)
    hidden = [part.unsqueeze(0).contiguous() for part in state]  # ATen's state counts layers first
    before = hidden if len(hidden) == 2 else hidden[0]
    # cuDNN trains in training mode only, also where an evaluated layer is asked for gradients; no dropout hangs on it.
    options = (weights, True, 1, 0.0, torch.is_grad_enabled(), False)
    with _quiet() if x.is_cuda else nullcontext():
        if batch_sizes is None and x.is_cuda:  # cuDNN wants time first, and would reorder everything slowly
            outputs, *after = function(time_first(x), before, *options, False)
            outputs = outputs.transpose(0, 1)
        elif batch_sizes is None:
            outputs, *after = function(x, before, *options, True)
        else:
            outputs, *after = function(x, batch_sizes, before, *options)
    return outputs, tuple([part.squeeze(0) for part in after])


def _quiet() -> Any:
    """cuDNN copies weights that do not lie in one buffer, and warns. The copy is small beside the scan."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)


def _rnn(cell: Any, weight_hidden: Tensor) -> tuple[Any, list[Tensor]]:
    function = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}[cell.activation]
    return function, [cell.weight_input, weight_hidden, cell.bias, torch.zeros_like(cell.bias)]


def _lstm(cell: Any, weight_hidden: Tensor) -> tuple[Any, list[Tensor]]:
    return torch.lstm, [cell.weight_input, weight_hidden, cell.bias, torch.zeros_like(cell.bias)]


def _gru(cell: Any, weight_hidden: Tensor) -> tuple[Any, list[Tensor]]:
    return torch.gru, [cell.weight_input, weight_hidden, cell.bias, F.pad(cell.bias_hidden, (2 * cell.units, 0))]


def _replacing_gru(cell: Any, weight_hidden: Tensor) -> tuple[Any, list[Tensor]]:
    """ATen's z keeps. 1 − σ(a) = σ(−a), so the update gate's weights change their sign."""
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
