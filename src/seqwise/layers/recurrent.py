"""Recurrent layers: one cell over time, layers on top of each other, both directions.

They know nothing of tokens, and not what a state is for. The loop over time itself is in `scan.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.layers.cells import Cell, State
from seqwise.layers.dropout import VariationalDropout, drop_weights
from seqwise.layers.fused import FUSED, build_direction, choose_backend, fused_scan, get_kind
from seqwise.layers.norm import LayerNorm
from seqwise.layers.record import is_recorded, is_recorded_live, record_value
from seqwise.layers.scan import aten_scan, scan, zero_padding

NOWHERE = torch.empty(0, device="meta")  # what is made like it has a shape and no memory


class Recurrent(nn.Module):
    """One cell over time. The cell is registered under its name, so that paths read `layer.0.lstm.forget`."""

    diagnostic_attributes = ("backend",)  # written by a call, read by no other; see training/replay.py

    def __init__(self, cell: Cell, weight_dropout: float = 0.0):
        super().__init__()
        self.name, self.units, self.weight_dropout = cell.name, cell.units, weight_dropout
        self.backend: str | None = None  # how the last call was computed: "triton", "compiled", "aten" or "reference"
        self.add_module(cell.name, cell)

    def forward(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """x (B, T, D) → outputs (B, T, U), zero in the padding, and the state after each row's last real step."""
        cell = self.cell
        real = valid_steps(x, cell.inputs, lengths)
        backend = self._take("reference" if is_recorded_live(cell) else choose_backend(cell, x, lengths))
        start, weight, look = self.begin(x, state, backend), self.matrix(), is_recorded(cell)
        if backend in FUSED:
            done = fused_scan(backend, cell, x, [build_direction(cell, weight, start)], lengths, look)
            if done is not None:
                if look:
                    self.show(done.seen[0], x, start, weight, real)
                return done.outputs, done.states[0]
            backend = self._take(choose_backend(cell, x, lengths))
            start = self.begin(x, state, backend)
        x = zero_padding(x, real)  # not even a NaN in the padding may reach a gradient
        if backend == "reference":
            return scan(cell, x, start, weight, real)
        if look:
            self.show({}, x, start, weight, real)
        return aten_scan(cell, x, start, weight, lengths)

    def _take(self, backend: str) -> str:
        if self.backend != backend:  # a module is slow at noting the same again
            self.backend = backend
        return backend

    def begin(self, x: Tensor, state: State | None, backend: str = "reference") -> State:
        """The state before the first step, of the type of x; kernels of a GPU take any. One of another size or device
        is refused: kernels would read and write beside it."""
        zeros = self.cell.start(x.shape[0], x if state is None else NOWHERE)
        if state is None:
            return zeros
        shapes = [tuple(part.shape) for part in state]
        if shapes != [tuple(part.shape) for part in zeros]:
            wanted = " and ".join(str(tuple(part.shape)) for part in zeros)
            raise UsageError(f"expected a state of {wanted}, received {' and '.join(map(str, shapes)) or 'nothing'}.")
        if any(part.device != x.device for part in state):
            found = " and ".join(str(part.device) for part in state)
            raise UsageError(f"expected a state on {x.device}, received one on {found}.")
        return state if backend == "triton" else tuple(part.to(x.dtype) for part in state)

    def matrix(self) -> Tensor:
        """The recurrent matrix of one sequence."""
        return drop_weights(self.cell.weight_hidden, self.weight_dropout, self.training)

    def show(self, seen: dict[str, Tensor], x: Tensor, state: State, weight: Tensor, real: Tensor | None) -> None:
        """To whoever looks: what a kernel saw on its way, or else what the open scan sees."""
        cell = self.cell
        with torch.no_grad():
            x = zero_padding(x, real)
            if not set(cell.gates) <= set(seen):
                scan(cell, x, tuple(part.to(x.dtype) for part in state), weight, real)
                return
            if any(isinstance(part, LayerNorm) for part in cell.children()):
                cell.project(x)  # which has norms of its own to show
        for name in cell.gates:
            record_value(cell, name, zero_padding(seen[name], real))

    @property
    def cell(self) -> Cell:
        return self._modules[self.name]  # type: ignore[return-value]

    def extra_repr(self) -> str:
        parts = [f"backend={self.backend}"] if self.backend else []
        if self.weight_dropout:
            parts.append(f"weight_dropout={self.weight_dropout}")
        return ", ".join(parts)


class StackedRecurrent(nn.Module):
    """Layers on top of each other, variational dropout between them. The state is a tuple with one entry per layer."""

    def __init__(self, layers: Sequence[nn.Module], dropout: float = 0.0):
        super().__init__()
        self.layer = nn.ModuleList(layers)
        self.dropout = VariationalDropout(dropout)
        self.units = self.layer[-1].units

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, tuple[Any, ...]]:
        """x (B, T, D) → outputs (B, T, U) of the last layer, and the states of all."""
        states = []
        for depth, layer in enumerate(self.layer):
            x = self.dropout(x) if depth else x
            x, after = layer(x, None if state is None else state[depth], lengths)
            states.append(after)
        return x, tuple(states)


class Bidirectional(nn.Module):
    """Two layers, one reading from the end; outputs side by side. Each output has seen the whole row.

    A row is turned around at its own length, so the backward layer begins with the last real step.
    """

    def __init__(self, forwards: Recurrent, backwards: Recurrent):
        super().__init__()
        self.forwards, self.backwards = forwards, backwards
        self.units = forwards.units + backwards.units

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, tuple[Any, Any]]:
        """x (B, T, D) → outputs (B, T, 2U) and (state of forwards, state of backwards)."""
        before_forwards, before_backwards = (None, None) if state is None else state
        done = self._at_once(x, before_forwards, before_backwards, lengths)
        if done is not None:
            return done
        ahead, after_forwards = self.forwards(x, before_forwards, lengths)
        reverse, after_backwards = self.backwards(reverse_steps(x, lengths), before_backwards, lengths)
        return torch.cat([ahead, reverse_steps(reverse, lengths)], dim=-1), (after_forwards, after_backwards)

    def _at_once(
        self, x: Tensor, before_forwards: Any, before_backwards: Any, lengths: Tensor | None
    ) -> tuple[Tensor, tuple[Any, Any]] | None:
        """Both directions by one kernel, where there is one."""
        sides, cell, other = (self.forwards, self.backwards), self.forwards.cell, self.backwards.cell
        same = (get_kind(cell), cell.inputs, cell.units) == (get_kind(other), other.inputs, other.units)
        if not same or any(is_recorded_live(side.cell) for side in sides):
            return None
        real = valid_steps(x, cell.inputs, lengths)
        backend = choose_backend(cell, x, lengths, scans=2)
        if backend not in FUSED:
            return None
        ahead = build_direction(cell, self.forwards.matrix(), self.forwards.begin(x, before_forwards, backend))
        back = build_direction(
            other, self.backwards.matrix(), self.backwards.begin(x, before_backwards, backend), reverse=True
        )
        look = any(is_recorded(side.cell) for side in sides)
        done = fused_scan(backend, cell, x, [ahead, back], lengths, look)
        if done is None:
            return None
        for place, (side, direction) in enumerate(zip(sides, (ahead, back), strict=True)):
            side._take(backend)
            if is_recorded(side.cell):  # the kernel shows gates in the order of x, the layer in that of its own reading
                read, seen = x, done.seen[place]
                if direction.reverse:
                    read, seen = (
                        reverse_steps(x, lengths),
                        {name: reverse_steps(value, lengths) for name, value in seen.items()},
                    )
                side.show(seen, read, direction.state, direction.weight_hidden, real)
        return done.outputs, (done.states[0], done.states[1])


def valid_steps(x: Tensor, inputs: int, lengths: Tensor | None) -> Tensor | None:
    """The steps (B, T) that are no padding, or None without lengths. Refuses what cannot be scanned."""
    if x.dim() != 3 or x.shape[1] == 0 or x.shape[2] != inputs:
        raise UsageError(f"expected vectors (batch, time > 0, {inputs}), received {tuple(x.shape)}.")
    if lengths is None:
        return None
    if lengths.shape != x.shape[:1]:
        raise UsageError(f"expected one length per row, ({len(x)},), received {tuple(lengths.shape)}.")
    if lengths.device.type == "cpu" and not bool(((lengths >= 0) & (lengths <= x.shape[1])).all()):
        raise UsageError(f"expected lengths from 0 to {x.shape[1]}, received {lengths.tolist()}.")
    return torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None]


def reverse_steps(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each row's real steps in reverse order; its padding stays where it is."""
    if lengths is None:
        return x.flip(1)
    time, length = torch.arange(x.shape[1], device=x.device), lengths.to(x.device)[:, None]
    source = torch.where(time < length, length - 1 - time, time)
    return x.gather(1, source[..., None].expand_as(x))
