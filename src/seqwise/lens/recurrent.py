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
from seqwise.layers.diagnostics import LayerName, name_layer
from seqwise.layers.record import Recording
from seqwise.lens.subject import Subject


class LayerPart(Protocol):
    """A layer of any kind, or a part of it: one of its directions, or the self- or cross-attention of a decoder."""

    @property
    def name(self) -> LayerName: ...
    @property
    def label(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def layer_name(self) -> str: ...
    @property
    def layer_path(self) -> str: ...


Part = TypeVar("Part", bound=LayerPart)


@dataclass(frozen=True)
class RecurrentLayer:
    """A layer of a model, or one direction of it. A backward one reads, and records, the last token first."""

    path: str  # of the cell, such as "backbone.stack.layer.0.lstm"
    name: LayerName
    cell: Cell

    @property
    def label(self) -> str:
        """The name with the direction, such as "layer 1, backward"."""
        return self.name.label

    @property
    def layer_name(self) -> str:
        """The name without the direction, such as "layer 1"."""
        return self.name.get_label_without("direction")

    @property
    def layer_path(self) -> str:
        """The path without the direction: equal for both directions of a layer, and for no other."""
        return strip_direction_of_path(self.path)

    @property
    def is_backward(self) -> bool:
        return self.name.direction == "backward"

    def get_values(self, recording: Recording, name: str) -> Tensor:
        """Returns recorded values (T, U) of the first sequence, in the order of the text."""
        values = recording[f"{self.path}.{name}"][0]
        return values.flip(0) if self.is_backward else values


def list_layers(subject: Subject) -> list[RecurrentLayer]:
    """Returns each direction of the recurrent layers of a model, encoder before decoder, lower layers first."""
    layers = []
    for path, module in subject.module.named_modules():
        if isinstance(module, Cell) and subject.runs(path):
            layers.append(RecurrentLayer(path, name_layer(path), module))
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
    return select_layers(layers, layer, "recurrent")


def select_layers(layers: Sequence[Part], layer: int | str | None, kind: str) -> list[Part]:
    """Returns all layers, or all parts of the one with a number (from 1) or name, or the part with a label or path.

    Raises an error that lists the layers if there is no such one.
    """
    if layer is None:
        return list(layers)
    groups: dict[str, list[Part]] = {}
    for one in layers:
        groups.setdefault(one.layer_path, []).append(one)
    numbered = dict(enumerate(groups.values(), start=1))
    if str(layer).isdigit() and int(layer) in numbered:
        return numbered[int(layer)]
    chosen = [one for one in layers if str(layer) in (one.layer_name, one.label, one.path)]
    if not chosen:
        listed = "; ".join(f"{number} ({group[0].layer_name})" for number, group in numbered.items())
        parts = [one for group in groups.values() if len(group) > 1 for one in group]
        part = "direction" if parts and parts[-1].name.direction else "attention module"
        one_part = f"; or one {part}, such as {parts[-1].label!r}" if parts else ""
        raise UsageError(f"there is no {kind} layer {layer!r}.", fix=f"Choose from: {listed}{one_part}.")
    return chosen


def strip_direction_of_path(path: str) -> str:
    """Returns the path of a module, equal for both directions of a layer."""
    return re.sub(r"\b(forward|backward)_layer\b", "", path)


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
