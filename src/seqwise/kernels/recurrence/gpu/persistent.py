"""Recurrent scans on a GPU by persistent kernels. Importing this imports triton.

    ready = prepare(x, [Direction(project, weight_hidden, (), (h, c))], lengths)
    outputs, after, seen = run(Kind("lstm"), ready)

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
from seqwise.kernels.recurrence.gpu.launch import HELD_ROWS, NAMES, OWN, Cut, Rows, cut, needed
from seqwise.kernels.recurrence.gpu.lstm_scan import lstm_scan
from seqwise.kernels.recurrence.gpu.normalised import normalised_gru, normalised_lstm, normalised_rnn
from seqwise.kernels.recurrence.gpu.rnn_scan import rnn_scan
from seqwise.kernels.recurrence.kinds import Direction, Kind, scan_dtype
from seqwise.kernels.recurrence.layout import time_first

FEW_STEPS = 4  # below which setting out costs more than the steps

_rehearsed: set[tuple[Any, ...]] = set()

Seen = dict[str, Tensor]
States = tuple[Tensor, ...]


def fits(kind: Kind, x: Tensor, units: int, scans: int) -> bool:
    """Can the kernels run this?"""
    dtype = scan_dtype(x)
    return len(x) > 0 and dtype in NAMES and _cut(kind, len(x), dtype, x.device, units, scans) is not None


def pays(kind: Kind, x: Tensor, units: int, scans: int) -> bool:
    """Are they faster than cuDNN? Where the matrix stays on chip and one launch takes all rows, they are."""
    shape = _cut(kind, len(x), scan_dtype(x), x.device, units, scans)
    return shape is not None and x.shape[1] >= FEW_STEPS and shape.whole and shape.taken >= len(x)


class Ready(NamedTuple):
    """What a launch needs: projected inputs (S, T, B, …), matrices, what stands beside them, states, rows."""

    gates: Tensor
    matrices: Tensor
    vectors: list[Tensor]
    states: list[Tensor]
    rows: Rows
    turned: tuple[bool, ...]


def prepare(x: Tensor, directions: Sequence[Direction], lengths: Tensor | None) -> Ready:
    """Everything that is no kernel of ours. A length that does not fit must not leave the memory."""
    dtype = scan_dtype(x)
    rows = Rows.of(None if lengths is None else lengths.clamp(0, x.shape[1]), x.device)
    x = time_first(x)
    turned = turn(x, rows.lengths) if any(one.turned for one in directions) else x
    return Ready(
        together([one.project(turned if one.turned else x).to(dtype) for one in directions]),
        together([one.weight_hidden.to(dtype) for one in directions]),
        [together(list(group)) for group in zip(*(one.vectors for one in directions), strict=True)],
        [together([part.to(dtype) for part in g]) for g in zip(*(one.state for one in directions), strict=True)],
        rows,
        tuple(one.turned for one in directions),
    )


def run(kind: Kind, ready: Ready, look: bool = False) -> tuple[Tensor, list[States], list[Seen]]:
    """Outputs (B, T, U), directions side by side, zero in the padding; for each direction the state after each row's
    last step and, if `look` is set, every gate by its name, (B, T, U), in the order in which it was computed."""
    outputs, after, seen = RUNS[kind.name, kind.normed](kind, *ready[:5], look)
    sides = [
        turn(part, ready.rows.lengths) if turned else part for turned, part in zip(ready.turned, outputs, strict=True)
    ]
    joined = sides[0] if len(sides) == 1 else torch.cat(sides, dim=-1)
    places = range(len(ready.turned))
    looks = [{name: value[place].transpose(0, 1) for name, value in seen.items()} for place in places]
    return joined.transpose(0, 1), [tuple(part[place] for part in after) for place in places], looks


def rehearse(kind: Kind, ready: Ready) -> None:
    """One step forward and back, the first time that a shape is met with a gradient to come.

    So a kernel of the backward pass that this machine cannot launch is found while there is still another way.
    """
    gates, units = ready.gates, ready.matrices.shape[-1]
    shape = _cut(kind, gates.shape[2], gates.dtype, gates.device, units, len(gates))
    key = kind, units, shape, ready.rows.lengths is None, gates.dtype, gates.device
    if key in _rehearsed or not needed(gates, ready.matrices, *ready.vectors, *ready.states):
        return
    with torch.enable_grad():
        matrices, *others = (part.detach() for part in (ready.matrices, *ready.vectors, *ready.states))
        vectors, states = others[: len(ready.vectors)], others[len(ready.vectors) :]
        lengths = None if ready.rows.lengths is None else ready.rows.lengths.clamp(max=1)
        one = torch.zeros_like(gates[:, :1], requires_grad=True)
        rows = Rows(lengths, ready.rows.order)
        outputs, *_ = RUNS[kind.name, kind.normed](kind, one.clone(), matrices, vectors, states, rows, False)
        torch.autograd.grad(outputs, one, torch.zeros_like(outputs))
    _rehearsed.add(key)


def cannot_launch(error: Exception) -> bool:
    """Is it the compiler's or the driver's refusal, and not somebody's mistake?"""
    refusals = (triton.CompilationError, triton.OutOfResources, triton.runtime.errors.PTXASError)
    return isinstance(error, refusals) or "Triton Error" in str(error)


def together(tensors: list[Tensor]) -> Tensor:
    """(S, …) of S tensors."""
    return tensors[0][None].contiguous() if len(tensors) == 1 else torch.stack(tensors)


def turn(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each row's real steps (T, B, …) in reverse order; its padding stays where it is."""
    if lengths is None:
        return x.flip(0)
    time = torch.arange(len(x), device=x.device)[:, None]
    source = torch.where(time < lengths, lengths - 1 - time, time)
    return x.gather(0, source[..., None].expand_as(x))


Run = Callable[[Kind, Tensor, Tensor, list[Tensor], list[Tensor], Rows, bool], tuple[Tensor, States, Seen]]


def _rnn(
    kind: Kind, gates: Tensor, matrices: Tensor, vectors: list[Tensor], states: list[Tensor], rows: Rows, look: bool
) -> tuple[Tensor, States, Seen]:
    (h,) = states
    outputs, h = rnn_scan(gates, matrices, h, rows, kind.activation)
    return outputs, (h,), {}


def _lstm(
    kind: Kind, gates: Tensor, matrices: Tensor, vectors: list[Tensor], states: list[Tensor], rows: Rows, look: bool
) -> tuple[Tensor, States, Seen]:
    h, c = states
    outputs, h, c, cells = lstm_scan(gates, matrices, h, c, rows, keep=look)
    if not look:
        return outputs, (h, c), {}
    i, f, g, o = gates.detach().chunk(4, dim=-1)
    return outputs, (h, c), _seen(input=i, forget=f, candidate=g, output=o, cell=cells[:, 1:], hidden=outputs)


def _gru(
    kind: Kind, gates: Tensor, matrices: Tensor, vectors: list[Tensor], states: list[Tensor], rows: Rows, look: bool
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


RUNS: dict[tuple[str, bool], Run] = {  # name, normed
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
