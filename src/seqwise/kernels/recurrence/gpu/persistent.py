"""Recurrent scans on a GPU by persistent kernels. Importing this imports triton.

    steps = Steps(B, T, lengths, device)
    ready = prepare(x, [Direction(project, weight_hidden, (), (h, c))], steps)
    outputs, after, seen = run(Kind("lstm"), ready, steps)

One or two directions run at the same time. Beside each kernel stands the rule by which it is worth its launch; whether
the machine has what it takes is asked in `availability.py`. It knows nothing of modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from seqwise.kernels.recurrence.gpu.gru_scan import early_gru_scan, gru_scan
from seqwise.kernels.recurrence.gpu.launch import HELD_ROWS, NAMES, OWN, Cut, cut, needed
from seqwise.kernels.recurrence.gpu.layout import RowLayout
from seqwise.kernels.recurrence.gpu.lstm_scan import lstm_scan
from seqwise.kernels.recurrence.gpu.normalised import normalised_gru, normalised_lstm, normalised_rnn
from seqwise.kernels.recurrence.gpu.projection import projected
from seqwise.kernels.recurrence.gpu.rnn_scan import rnn_scan
from seqwise.kernels.recurrence.kinds import Direction, Kind, Projection, scan_dtype
from seqwise.kernels.recurrence.layout import time_first
from seqwise.kernels.recurrence.steps import Steps

_rehearsed: set[tuple[Any, ...]] = set()

Seen = dict[str, Tensor]
States = tuple[Tensor, ...]


def fits(kind: Kind, x: Tensor, units: int, scans: int) -> bool:
    """Can the kernels run this?"""
    dtype = scan_dtype(x)
    return len(x) > 0 and dtype in NAMES and _cut(kind, len(x), dtype, x.device, units, scans) is not None


def pays(kind: Kind, x: Tensor, units: int, scans: int) -> bool:
    """Are they faster than cuDNN? Where the matrix stays on chip and one launch takes all rows, they are; for single
    steps that is supposed: cuDNN copies weights that do not lie in one buffer, at every call."""
    shape = _cut(kind, len(x), scan_dtype(x), x.device, units, scans)
    return shape is not None and shape.whole and shape.taken >= len(x)


class Ready(NamedTuple):
    """What a launch needs: projected inputs (N, S, …), matrices (S, …), what stands beside them, states (B, S, U)."""

    gates: Tensor
    matrices: Tensor
    vectors: list[Tensor]
    states: list[Tensor]
    rows: RowLayout


def prepare(x: Tensor, directions: Sequence[Direction], steps: Steps) -> Ready:
    """Everything that is no kernel of ours."""
    dtype = scan_dtype(x)
    x = steps.pack(x) if steps.padded else time_first(x).flatten(0, 1)
    states = [_beside([part.to(dtype) for part in parts]) for parts in zip(*(one.state for one in directions))]
    return Ready(
        _inputs(x, [one.project for one in directions], dtype),
        _together([one.weight_hidden.to(dtype) for one in directions]),
        [_together(list(group)) for group in zip(*(one.vectors for one in directions), strict=True)],
        [steps.sort(state) if steps.padded else state for state in states],
        RowLayout.of(steps, tuple(one.reverse for one in directions)),
    )


def run(kind: Kind, ready: Ready, steps: Steps, look: bool = False) -> tuple[Tensor, list[States], list[Seen]]:
    """Outputs (B, T, U), directions side by side, zero in the padding; for each direction the state after each row's
    last step and, if `look` is set, every gate by its name, (B, T, …)."""
    outputs, after, seen = RUNS[kind.name, kind.layer_norm](kind, *ready, look)
    joined = steps.unpack(outputs.flatten(1)) if steps.padded else outputs.flatten(2).transpose(0, 1)
    after = tuple(steps.unsort(part) for part in after)
    places = range(len(ready.rows.reverse))
    looks = [{name: steps.unpack(value.flatten(0, -3)[:, place]) for name, value in seen.items()} for place in places]
    return joined, [tuple(part[:, place] for part in after) for place in places], looks


def rehearse(kind: Kind, ready: Ready) -> None:
    """One step forward and back, the first time that a shape is met with a gradient to come.

    So a kernel of the backward pass that this machine cannot launch is found while there is still another way.
    """
    gates, units, rows = ready.gates, ready.matrices.shape[-1], ready.rows
    shape = _cut(kind, rows.batch, gates.dtype, gates.device, units, len(rows.reverse))
    key = kind, units, shape, rows.variable, gates.dtype, gates.device
    if key in _rehearsed or not needed(gates, ready.matrices, *ready.vectors, *ready.states):
        return
    with torch.enable_grad():
        matrices, *others = (part.detach() for part in (ready.matrices, *ready.vectors, *ready.states))
        vectors, states = others[: len(ready.vectors)], others[len(ready.vectors) :]
        one = gates.new_zeros(rows.batch, *gates.shape[1:], requires_grad=True)
        outputs, *_ = RUNS[kind.name, kind.layer_norm](
            kind, one.clone(), matrices, vectors, states, rows.one_step(), False
        )
        torch.autograd.grad(outputs, one, torch.zeros_like(outputs))
    _rehearsed.add(key)


def cannot_launch(error: Exception) -> bool:
    """Is it the compiler's or the driver's refusal, and not somebody's mistake?"""
    refusals = (triton.CompilationError, triton.OutOfResources, triton.runtime.errors.PTXASError)
    return isinstance(error, refusals) or "Triton Error" in str(error)


def _together(tensors: list[Tensor]) -> Tensor:
    """(S, …) of S tensors."""
    return tensors[0][None].contiguous() if len(tensors) == 1 else torch.stack(tensors)


def _beside(tensors: list[Tensor]) -> Tensor:
    """(B, S, …) of S tensors (B, …)."""
    return tensors[0][:, None].contiguous() if len(tensors) == 1 else torch.stack(tensors, 1)


def _inputs(x: Tensor, projects: Sequence[Callable[[Tensor], Tensor]], dtype: torch.dtype) -> Tensor:
    """x (N, D) → (N, S, …), in one product where that can be."""
    plain = [one for one in projects if isinstance(one, Projection)]
    weights, biases = [one.weight for one in plain], [one.bias for one in plain if one.bias is not None]
    if len(biases) < len(projects):
        return _beside([project(x).to(dtype) for project in projects])
    weight, bias = (parts[0] if len(parts) == 1 else torch.cat(parts) for parts in (weights, biases))
    return projected(x.to(dtype), weight.to(dtype), bias.to(dtype)).unflatten(1, (len(projects), -1))


Run = Callable[[Kind, Tensor, Tensor, list[Tensor], list[Tensor], RowLayout, bool], tuple[Tensor, States, Seen]]


def _rnn(
    kind: Kind,
    gates: Tensor,
    matrices: Tensor,
    vectors: list[Tensor],
    states: list[Tensor],
    rows: RowLayout,
    look: bool,
) -> tuple[Tensor, States, Seen]:
    (h,) = states
    outputs, h = rnn_scan(gates, matrices, h, rows, kind.activation)
    return outputs, (h,), {}


def _lstm(
    kind: Kind,
    gates: Tensor,
    matrices: Tensor,
    vectors: list[Tensor],
    states: list[Tensor],
    rows: RowLayout,
    look: bool,
) -> tuple[Tensor, States, Seen]:
    h, c = states
    outputs, h, c, cells = lstm_scan(gates, matrices, h, c, rows, keep=look)
    if not look:
        return outputs, (h, c), {}
    i, f, g, o = gates.detach().chunk(4, dim=-1)
    return outputs, (h, c), _seen(input=i, forget=f, candidate=g, output=o, cell=cells, hidden=outputs)


def _gru(
    kind: Kind,
    gates: Tensor,
    matrices: Tensor,
    vectors: list[Tensor],
    states: list[Tensor],
    rows: RowLayout,
    look: bool,
) -> tuple[Tensor, States, Seen]:
    (h,), replaces = states, kind.update == "replaces"
    if kind.reset == "before":
        outputs, h = early_gru_scan(gates, matrices, h, rows, replaces, keep=look)
    else:
        (bias,) = vectors
        outputs, h = gru_scan(gates, matrices, bias.to(gates.dtype), h, rows, replaces, keep=look)
    if not look:
        return outputs, (h,), {}
    r, z, n = gates.detach().chunk(3, dim=-1)
    return outputs, (h,), _seen(reset=r, update=z, candidate=n, hidden=outputs)


def _seen(**values: Tensor) -> Seen:
    return {name: value.detach() for name, value in values.items()}


RUNS: dict[tuple[str, bool], Run] = {  # name, layer_norm
    ("rnn", False): _rnn,
    ("lstm", False): _lstm,
    ("gru", False): _gru,
    ("rnn", True): normalised_rnn,
    ("lstm", True): normalised_lstm,
    ("gru", True): normalised_gru,
}


def _cut(kind: Kind, batch: int, dtype: torch.dtype, device: torch.device, units: int, scans: int) -> Cut | None:
    own = HELD_ROWS if kind.name == "rnn" else OWN
    return cut(units, own, batch, scans, dtype.itemsize, device)
