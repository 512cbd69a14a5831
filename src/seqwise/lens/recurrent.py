"""The recurrent layers inside a model, with names that a reader understands. It knows nothing of figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.layers.cells import Cell, GatedCell, LSTMCell, ReplacingUpdate
from seqwise.layers.diagnostics import make_label as make_label
from seqwise.layers.record import Recording
from seqwise.lens.subject import Subject


class HasLabel(Protocol):
    """A layer of any kind."""

    @property
    def label(self) -> str: ...
    @property
    def path(self) -> str: ...


Named = TypeVar("Named", bound=HasLabel)


@dataclass(frozen=True)
class RecurrentLayer:
    """A layer of a model, or one direction of it. A backward one reads, and records, the last token first."""

    path: str  # of the cell, such as "backbone.stack.layer.0.lstm"
    label: str  # such as "layer 1, backward"
    cell: Cell
    is_backward: bool

    @property
    def layer_name(self) -> str:
        """The label without the direction, such as "layer 1"."""
        return strip_direction(self.label)

    @property
    def layer_path(self) -> str:
        """The path without the direction: equal for both directions of a layer, and for no other."""
        return re.sub(r"\b(forward|backward)_layer\b", "", self.path)

    def get_values(self, recording: Recording, name: str) -> Tensor:
        """Returns recorded values (T, U) of the first sequence, in the order of the text."""
        values = recording[f"{self.path}.{name}"][0]
        return values.flip(0) if self.is_backward else values


def list_layers(subject: Subject) -> list[RecurrentLayer]:
    """Returns each direction of the recurrent layers of a model, encoder before decoder, lower layers first."""
    layers = []
    for path, module in subject.module.named_modules():
        if isinstance(module, Cell) and subject.runs(path):
            layers.append(RecurrentLayer(path, make_label(path), module, ".backward_layer." in f".{path}."))
    return layers


def choose_layers(subject: Subject, layer: int | str | None) -> list[RecurrentLayer]:
    """Returns all recurrent layers, or both directions of the one with a number (from 1) or name, such as "layer 1".

    A label, such as "layer 1, backward", or a path chooses one direction. Raises an error if there is no such layer.
    """
    layers = list_layers(subject)
    if not layers:
        raise UsageError(
            f"{subject.name} has no recurrent layer, so it has no gates and no state through time.",
            fix="Choose a run of rnn, gru, lstm or attentive-rnn, or --view attention.",
        )
    return select_layers(layers, layer, "recurrent", [one.layer_path for one in layers])


def select_layers(
    layers: Sequence[Named], layer: int | str | None, kind: str, layer_paths: Sequence[str] | None = None
) -> list[Named]:
    """Returns all layers, or those with a number (from 1), name, label or path; raises an error that lists them.

    layer_paths: one per layer, equal for those that have one number because they are directions of one layer
    """
    if layer is None:
        return list(layers)
    groups: dict[str, list[Named]] = {}
    for one, path in zip(layers, layer_paths or [one.path for one in layers]):
        groups.setdefault(path, []).append(one)
    numbered = dict(enumerate(groups.values(), start=1))
    if str(layer).isdigit() and int(layer) in numbered:
        return numbered[int(layer)]
    chosen = [one for one in layers if str(layer) in (strip_direction(one.label), one.label, one.path)]
    if not chosen:
        listed = "; ".join(f"{number} ({strip_direction(group[0].label)})" for number, group in numbered.items())
        directions = [one.label for group in groups.values() if len(group) > 1 for one in group]
        one_direction = f"; or one direction, such as {directions[-1]!r}" if directions else ""
        raise UsageError(f"there is no {kind} layer {layer!r}.", fix=f"Choose from: {listed}{one_direction}.")
    return chosen


def strip_direction(label: str) -> str:
    """Returns the label of a layer without its direction."""
    return re.sub(r", (forward|backward)\b", "", label)


def list_gates(cell: Cell) -> Sequence[str]:
    """Returns the names of the gates, candidate, cell and state that a cell records, in the order of its equation."""
    wanted = ("input", "forget", "output", "update", "reset", "candidate", "cell", "hidden")
    return [name for name in wanted if name in cell.gates]


def get_keep_gate(layer: RecurrentLayer, recording: Recording) -> Tensor | None:
    """Returns the share (T, U) of the old state that each step keeps: f of an LSTM, z or 1 − z of a GRU."""
    if isinstance(layer.cell, LSTMCell):
        return layer.get_values(recording, "forget")
    if isinstance(layer.cell, GatedCell):
        update = layer.get_values(recording, "update")
        return 1 - update if isinstance(layer.cell, ReplacingUpdate) else update
    return None


def compute_time_constants(keep: Tensor) -> Tensor:
    """Returns 1 / (1 − mean keep) of each unit, (U,): the steps over which a kept value decays to 1/e, roughly.

    The mean is geometric, because what a state keeps over several steps is the product of the gates.
    """
    mean = keep.clamp(min=torch.finfo(keep.dtype).tiny).log().mean(0).exp()
    return 1 / (1 - mean).clamp(min=1e-6)
