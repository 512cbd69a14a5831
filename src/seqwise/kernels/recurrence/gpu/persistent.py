"""Recurrent scans on a GPU by persistent kernels. Importing this imports triton.

    outputs, after, seen = scan(Kind("lstm"), x, [Direction(project, weight_hidden, (), (h, c))], lengths)

One or two directions run at the same time. Beside each kernel stands the rule by which it is worth its launch; whether
the machine has what it takes is asked in `availability.py`. It knows nothing of modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seqwise.kernels.recurrence.gpu.gru_scan import early_gru_scan, gru_scan
from seqwise.kernels.recurrence.gpu.launch import HELD_ROWS, NAMES, OWN, Cut, Rows, cut
from seqwise.kernels.recurrence.gpu.lstm_scan import lstm_scan
from seqwise.kernels.recurrence.gpu.normalised import normalised_gru, normalised_lstm, normalised_rnn
from seqwise.kernels.recurrence.gpu.rnn_scan import rnn_scan
from seqwise.kernels.recurrence.kinds import Direction, Kind
from seqwise.kernels.recurrence.layout import time_first

FEW_STEPS = 4  # below which setting out costs more than the steps

Seen = dict[str, Tensor]
States = tuple[Tensor, ...]


def fits(kind: Kind, x: Tensor, units: int, scans: int) -> bool:
    """Can the kernels run this?"""
    return x.shape[1] > 0 and len(x) > 0 and kernel_dtype(x) in NAMES and _cut(kind, x, units, scans) is not None


def pays(kind: Kind, x: Tensor, units: int, scans: int) -> bool:
    """Are they faster than cuDNN? Where the matrix stays on chip and one launch takes all rows, they are."""
    shape = _cut(kind, x, units, scans)
    return shape is not None and x.shape[1] >= FEW_STEPS and shape.whole and shape.taken >= len(x)


def kernel_dtype(x: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype


def scan(
    kind: Kind, x: Tensor, directions: Sequence[Direction], lengths: Tensor | None, look: bool = False
) -> tuple[Tensor, list[States], list[Seen]]:
    """x (B, T, D) → outputs (B, T, U), directions side by side, zero in the padding; for each direction the state after
    each row's last step and, if `look` is set, every gate by its name, (B, T, U)."""
    dtype = kernel_dtype(x)
    rows, x = Rows.of(lengths, x.device), time_first(x)
    turned = turn(x, rows.lengths) if any(one.turned for one in directions) else x
    projected = [one.project(turned if one.turned else x).to(dtype) for one in directions]
    matrices = together([one.weight_hidden.to(dtype) for one in directions])
    vectors = [together(list(group)) for group in zip(*(one.vectors for one in directions), strict=True)]
    states = [
        together([part.to(dtype) for part in group]) for group in zip(*(one.state for one in directions), strict=True)
    ]
    run = RUNS[kind.name, kind.normed]
    outputs, after, seen = run(kind, together(projected), matrices, vectors, states, rows, look)
    sides = [turn(part, rows.lengths) if one.turned else part for one, part in zip(directions, outputs, strict=True)]
    joined = sides[0] if len(sides) == 1 else torch.cat(sides, dim=-1)
    looks = [
        {
            name: (turn(value[s], rows.lengths) if one.turned else value[s]).transpose(0, 1)
            for name, value in seen.items()
        }
        for s, one in enumerate(directions)
    ]
    return joined.transpose(0, 1), [tuple(part[s] for part in after) for s in range(len(directions))], looks


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
    return outputs, (h, c), _copied(input=i, forget=f, candidate=g, output=o, cell=cells[:, 1:], hidden=outputs)


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
    return outputs, (h,), _copied(reset=r, update=z, candidate=n, hidden=outputs)


def _copied(**values: Tensor) -> Seen:
    """The gradient will write over some of this memory."""
    return {name: value.detach().clone() for name, value in values.items()}


RUNS: dict[tuple[str, bool], Run] = {  # name, normed
    ("rnn", False): _rnn,
    ("lstm", False): _lstm,
    ("gru", False): _gru,
    ("rnn", True): normalised_rnn,
    ("lstm", True): normalised_lstm,
    ("gru", True): normalised_gru,
}


def _cut(kind: Kind, x: Tensor, units: int, scans: int) -> Cut | None:
    own = HELD_ROWS if kind.name == "rnn" else OWN
    return cut(units, own, len(x), scans, kernel_dtype(x).itemsize, x.device)
