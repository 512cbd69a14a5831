"""The attention layers inside a model: names for readers, and the weights of one run, reduced head by head.

The weights of all heads of a long text do not fit into memory together: `measure_layers` reduces the weights of each
layer as soon as it has computed them. It knows nothing of figures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from seqwise.backbones.decoder import BahdanauDecoder, InputFeedingDecoder, LuongDecoder
from seqwise.backbones.memory import Decoder
from seqwise.errors import UsageError
from seqwise.heads.label import AttentionPooling
from seqwise.layers.attention import MultiHeadAttention
from seqwise.layers.attentive import AttentiveRecurrent, StateAttention
from seqwise.layers.diagnostics import LayerName, name_layer
from seqwise.lens.heads import HeadStatistics, measure_head, reduce_weights
from seqwise.lens.recurrent import select_layers, strip_direction_of_path
from seqwise.lens.subject import Subject

RECURRENT = (StateAttention, AttentiveRecurrent)
WITH_WEIGHTS = (MultiHeadAttention, *RECURRENT, BahdanauDecoder, InputFeedingDecoder, LuongDecoder, AttentionPooling)


@dataclass(frozen=True)
class AttentionLayer:
    """A module that records attention weights. A decoder layer has two, and so has a layer with two directions."""

    path: str  # such as "backbone.encoder.layer.0.attention"
    name: LayerName
    module: nn.Module

    @property
    def label(self) -> str:
        """The name of the module, such as "decoder, layer 1, cross"."""
        return self.name.label

    @property
    def layer_name(self) -> str:
        """The name of the layer that the module is a part of, as other views call it: "decoder, layer 1"."""
        return self.name.get_label_without("direction", "kind")

    @property
    def layer_path(self) -> str:
        """A path that all parts of the layer share."""
        return re.sub(r"(^|\.)(cross_)?attention$", "", strip_direction_of_path(self.path))

    def order_steps(self, value: Tensor, *dimensions: int) -> Tensor:
        """Returns recorded values in the order of the text: a backward layer reads the last token first."""
        return value.flip(dimensions) if self.name.direction == "backward" else value

    def get_name(self, value: str) -> str:
        """Returns the name under which a value of this layer is recorded."""
        return f"{self.path}.{value}" if self.path else value


@dataclass(frozen=True)
class LayerWeights:
    """The weights of a layer for the first sequence of a batch: statistics of its heads, and reduced weights."""

    layer: AttentionLayer
    is_self: bool  # queries and keys are of one sequence
    shape: tuple[int, int]  # (T, S)
    heads: Sequence[HeadStatistics]
    thumbnails: Tensor  # (H, T, S), or fewer rows and columns: means of areas
    strongest: Tensor  # (H, T): the key with the largest weight
    largest: Tensor  # (H, T): that weight
    mean: Tensor | None  # (T, S): over the heads; of layers in which other keys than the queries' are attended to
    full: Tensor | None  # (T, S): the weights of the chosen head, if there is one


def list_attention(subject: Subject) -> list[AttentionLayer]:
    """Returns the layers of a model that record attention weights, in the order of its modules."""
    modules = {
        path: module
        for path, module in subject.module.named_modules()
        if isinstance(module, WITH_WEIGHTS) and subject.runs(path)
    }
    layers: list[AttentionLayer] = []
    for path, module in modules.items():
        name = name_attention(path, module, f"{path.removesuffix('attention')}cross_attention" in modules)
        if any(layer.name == name for layer in layers):
            name = replace(name, path=path)
        layers.append(AttentionLayer(path, name, module))
    return layers


def name_attention(path: str, module: nn.Module, has_cross: bool) -> LayerName:
    """Returns a name of an attention layer for readers: "layer 2", "decoder, layer 1, cross", "decoder, cross".

    has_cross: whether the same layer has cross-attention too
    """
    if isinstance(module, AttentionPooling):
        return LayerName("pooling")
    if isinstance(module, Decoder):
        return LayerName("cross", "decoder")
    name = name_layer(path)
    if isinstance(module, StateAttention):
        return replace(name, layer="attention over past states")
    if path.endswith("cross_attention"):
        return replace(name, kind="cross")
    return replace(name, kind="self") if has_cross else name


def choose_attention(subject: Subject, layer: int | str | None) -> list[AttentionLayer]:
    """Returns all attention layers, or those of the layer with a number (from 1) or name, or that with a label or path.

    Raises an error if there is none.
    """
    layers = list_attention(subject)
    if not layers:
        raise UsageError(
            f"{subject.name} has no attention.",
            fix="Choose a transformer, an attentive-rnn or a decoder with attention, or --view gates.",
        )
    return select_layers(layers, layer, "attention")


def measure_layers(subject: Subject, layers: Sequence[AttentionLayer], head: int | None = None) -> list[LayerWeights]:
    """Runs the model once and returns what is known of each layer that ran. `head` (from 0) is kept in full."""
    by_name = {layer.get_name("weights"): layer for layer in layers}

    def reduce(name: str, value: Tensor) -> LayerWeights | None:
        return measure_layer(by_name[name], value, head) if name in by_name else None

    pattern = next(iter(by_name)) if len(by_name) == 1 else "*weights"
    recording = subject.record(pattern, transform=reduce)
    return [recording[name] for name in by_name if name in recording]  # type: ignore[misc]


def measure_layer(layer: AttentionLayer, weights: Tensor, head: int | None) -> LayerWeights:
    """Returns what is known of recorded weights (B, H, T, S), (B, T, S), or (B, S) of a pooling layer."""
    weights = weights[0]
    if weights.dim() > 1:
        weights = layer.order_steps(weights, -2, -1)
    while weights.dim() < 3:
        weights = weights[None]
    check_head(layer, head, len(weights))
    num_queries, num_keys = weights.shape[1:]
    is_self = is_self_attention(layer, num_queries, num_keys)
    heads = [one.float().cpu() for one in weights.unbind(0)]
    largest, strongest = zip(*(one.max(-1) for one in heads))
    return LayerWeights(
        layer,
        is_self,
        (num_queries, num_keys),
        [measure_head(one, is_self) for one in heads],
        torch.stack([reduce_weights(one) for one in heads]),
        torch.stack(strongest),
        torch.stack(largest),
        None if is_self else weights.float().mean(0).cpu(),
        None if head is None else heads[head].clone(),
    )


def is_self_attention(layer: AttentionLayer, num_queries: int, num_keys: int) -> bool:
    """Whether a layer attends to the sequence that its queries are from."""
    if isinstance(layer.module, (Decoder, AttentionPooling)) or layer.name.kind == "cross":
        return False
    return isinstance(layer.module, RECURRENT) or num_queries == num_keys


def check_head(layer: AttentionLayer, head: int | None, num_heads: int) -> None:
    """Raises an error if a layer has no such head."""
    if head is not None and not 0 <= head < num_heads:
        choice = f"Choose a number from 1 to {num_heads}." if num_heads > 1 else "It has one head: choose 1."
        raise UsageError(f"{layer.label} has no head {head + 1}.", fix=choice)


def name_head(layer_weights: LayerWeights, head: int) -> str:
    """Returns the name of a head: "layer 1, head 2", or only that of the layer if it has a single head."""
    label = layer_weights.layer.label
    return f"{label}, head {head + 1}" if len(layer_weights.heads) > 1 else label


def get_image_side(num_regions: int) -> int | None:
    """Returns the regions along a side of an image that has as many rows as columns; None if it has not."""
    side = math.isqrt(num_regions)
    return side if side * side == num_regions else None
