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
from seqwise.layers.record import observed, observed_live
from seqwise.layers.scan import blank, fast_scan, has_twin, scan


class Recurrent(nn.Module):
    """One cell over time. The cell is registered under its name, so that paths read `layer.0.lstm.forget`."""

    def __init__(self, cell: Cell, weight_dropout: float = 0.0):
        super().__init__()
        self.name, self.units, self.weight_dropout = cell.name, cell.units, weight_dropout
        self.add_module(cell.name, cell)

    def forward(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """x (B, T, D) → outputs (B, T, U), zero in the padding, and the state after each row's last real step."""
        cell = self.cell
        real = real_steps(x, cell.inputs, lengths)
        x = blank(x, real)  # not even a NaN in the padding may reach a gradient
        state = cell.start(len(x), x) if state is None else tuple(part.to(x.dtype) for part in state)
        weight = drop_weights(cell.weight_hidden, self.weight_dropout, self.training)
        if self.path == "open" or observed_live(cell):
            return scan(cell, x, state, weight, real)
        if observed(cell):
            with torch.no_grad():
                scan(cell, x, state, weight, real)
        return fast_scan(cell, x, state, weight, lengths)

    @property
    def cell(self) -> Cell:
        return self.get_submodule(self.name)  # type: ignore[return-value]

    @property
    def path(self) -> str:
        """The scan that runs when nobody looks inside: "aten" or "open"."""
        return "aten" if has_twin(self.cell) else "open"

    def extra_repr(self) -> str:
        return f"path={self.path}" + (f", weight_dropout={self.weight_dropout}" if self.weight_dropout else "")


class Deep(nn.Module):
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
        ahead, after_forwards = self.forwards(x, before_forwards, lengths)
        turned, after_backwards = self.backwards(turn(x, lengths), before_backwards, lengths)
        return torch.cat([ahead, turn(turned, lengths)], dim=-1), (after_forwards, after_backwards)


def real_steps(x: Tensor, inputs: int, lengths: Tensor | None) -> Tensor | None:
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


def turn(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each row's real steps in reverse order; its padding stays where it is."""
    if lengths is None:
        return x.flip(1)
    time, length = torch.arange(x.shape[1], device=x.device), lengths.to(x.device)[:, None]
    source = torch.where(time < length, length - 1 - time, time)
    return x.gather(1, source[..., None].expand_as(x))
