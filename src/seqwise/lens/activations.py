"""The activations of all units of a model: the states of recurrent layers, the blocks of Transformers.

    layer                       kinds
    RNN, GRU                    state (h)
    LSTM                        state (h), cell (c)
    Transformer block           output (after both residual sums), feed-forward (after the activation function)
    feed-forward network        output
    attention over past states  output
    network of your own         output

A unit is one entry of such a vector. The module knows nothing of texts, features or figures.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import CentredFeedForward, FeedForwardBackbone
from seqwise.backbones.registered import RegisteredBackbone
from seqwise.errors import UsageError
from seqwise.layers.attentive import AttentiveRecurrent, StateAttention
from seqwise.layers.cells import Cell
from seqwise.layers.diagnostics import LayerName, name_layer
from seqwise.layers.record import Recording, record
from seqwise.layers.transformer import TransformerLayer
from seqwise.lens.subject import Subject, evaluation_mode

# Modules whose activations are their output, which a forward hook reads.
HOOKED_CLASSES = (TransformerLayer, StateAttention, AttentiveRecurrent, RegisteredBackbone)


@dataclass(frozen=True)
class ActivationLayer:
    """One kind of activations of a layer; `module` records them as `value`, or returns them if there is no value."""

    name: LayerName  # its kind is "state", "cell", "output" or "feed-forward"
    path: str  # of the module
    module: nn.Module
    value: str = ""

    @property
    def label(self) -> str:
        return self.name.label

    @property
    def is_backward(self) -> bool:
        """Whether the layer reads, and records, the last token first."""
        return self.name.direction == "backward"


def list_activations(subject: Subject) -> list[ActivationLayer]:
    """Returns the layers of a model, encoder before decoder, lower layers first."""
    layers: list[ActivationLayer] = []
    for path, module in subject.module.named_modules():
        layers += _list_kinds(path, module)
    return layers


def _list_kinds(path: str, module: nn.Module) -> Iterator[ActivationLayer]:
    name = name_layer(path)
    if isinstance(module, Cell):
        yield ActivationLayer(replace(name, kind="state"), path, module, "hidden")
        if "cell" in module.gates:
            yield ActivationLayer(replace(name, kind="cell"), path, module, "cell")
    elif isinstance(module, FeedForwardBackbone):
        for index in range(len(module.layer) + 1):
            numbered = replace(name, layer=index + 1, kind="output")
            yield ActivationLayer(numbered, path, module, f"hidden.{index}")
    elif isinstance(module, HOOKED_CLASSES):
        if isinstance(module, StateAttention | AttentiveRecurrent):
            name = replace(name, layer="attention over past states")
        yield ActivationLayer(replace(name, kind="output"), path, module)
        if isinstance(module, TransformerLayer):
            inner = f"{path}.feedforward" if path else "feedforward"
            yield ActivationLayer(replace(name, kind="feed-forward"), inner, module.feedforward, "hidden")


def choose_activations(layers: Sequence[ActivationLayer], layer: int | str | None) -> list[ActivationLayer]:
    """Returns all layers; or those with a number (from 1), a name ("layer 1"), a label ("layer 1, cell") or a path.

    A number, or a name or label without a direction, chooses both directions of a layer.
    """
    if layer is None:
        return list(layers)
    layer_names = list(dict.fromkeys(one.name.get_label_without("direction", "kind") for one in layers))
    wanted = layer_names[int(layer) - 1] if str(layer).isdigit() and 0 < int(layer) <= len(layer_names) else str(layer)
    left_out = ((), ("kind",), ("direction",), ("direction", "kind"))
    chosen = [
        one
        for one in layers
        if wanted == one.path or wanted in [one.name.get_label_without(*parts) for parts in left_out]
    ]
    if not chosen:
        names = "; ".join(f"{number} ({layer_name})" for number, layer_name in enumerate(layer_names, start=1))
        kinds = ", ".join(repr(one.label) for one in layers[:2])
        raise UsageError(f"there is no layer {layer!r}.", fix=f"Choose from: {names}; or one kind, such as {kinds}.")
    return chosen


def select_directions(layers: Sequence[ActivationLayer], layer: ActivationLayer) -> list[ActivationLayer]:
    """Returns those of the layers that are `layer` or its other direction."""
    label = layer.name.get_label_without("direction")
    return [one for one in layers if one.name.get_label_without("direction") == label]


def name_layers(layers: Sequence[ActivationLayer]) -> str:
    """Returns the label of a layer, or of both directions of one."""
    return layers[0].label if len(layers) == 1 else layers[0].name.get_label_without("direction")


def read_activations(
    module: nn.Module, call: Callable[[], Any], layers: Sequence[ActivationLayer]
) -> dict[str, np.ndarray]:
    """Calls the model once and returns label → activations (B, T, U) in the order of the text.

    The model stays as it was. Layers that did not run are missing.
    """
    with evaluation_mode(module), torch.no_grad(), ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore", category=UserWarning))  # layers that do not run
        values = {layer.label: stack.enter_context(_record_layer(module, layer)) for layer in layers}
        call()
    arrays = {}
    for layer in layers:
        recorded = list(values[layer.label].values())
        if recorded:
            array = recorded[-1].float().cpu().numpy()
            if isinstance(layer.module, CentredFeedForward):
                array = array[:, layer.module.window // 2 :]  # it also records positions before the text
            arrays[layer.label] = array[:, ::-1] if layer.is_backward else array
    return arrays


@contextmanager
def _record_layer(model: nn.Module, layer: ActivationLayer) -> Iterator[Recording | dict[str, Tensor]]:
    """Yields a mapping that has the activations of one layer after the model has been called inside the block."""
    if layer.value:
        # A pattern without wildcards: other layers, such as attention, then need not compute what they would record.
        with record(model, f"{layer.path}.{layer.value}" if layer.path else layer.value) as recording:
            yield recording
        return
    outputs: dict[str, Tensor] = {}

    def keep(module: nn.Module, arguments: Any, output: Any) -> None:
        vectors = getattr(output, "vectors", None)
        outputs["output"] = (output[0] if vectors is None else vectors).detach()

    handle = layer.module.register_forward_hook(keep)
    try:
        yield outputs
    finally:
        handle.remove()
