"""Encoders: backbones that read whole sequences and may be bidirectional.

An encoder is called as `encoder(vectors, lengths=…) → States`. It never continues a sequence; the state that it returns
is the one after the last valid step, or None.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.build import build_backbone
from seqwise.backbones.feedforward import FeedForwardBackbone
from seqwise.backbones.recurrent import build_bidirectional_layers
from seqwise.backbones.states import ModelState, States
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.layers.recurrent import StackedRecurrent, reverse_steps, valid_steps
from seqwise.layers.scan import zero_padding
from seqwise.resolved_settings import ResolvedSettings

CELLS = ("rnn", "gru", "lstm")


def build_encoder(settings: ResolvedSettings, inputs: int, max_length: int) -> nn.Module:
    """The encoder that the settings describe, for vectors of width `inputs` and sequences up to `max_length`."""
    network = settings.network
    width, depth, dropout = network.width, network.depth, network.dropout
    bidirectional = settings.recurrent.bidirectional
    if settings.model == "transformer":
        return TransformerBackbone(inputs, width, depth, max_length, settings.transformer, dropout, causal=False)
    if settings.model == "feedforward":
        return CentredFeedForward(inputs, width, depth, settings.context.length, dropout)
    if settings.model in CELLS and bidirectional and settings.recurrent.concat_directions:
        return BidirectionalBackbone(settings.model, inputs, width, depth, settings, dropout)
    if not bidirectional:
        return build_backbone(settings, inputs)
    half = settings.model_copy(update={"network": network.model_copy(update={"width": -(-width // 2)})})
    return SeparateDirections(build_backbone(half, inputs), build_backbone(half, inputs))


class BidirectionalBackbone(nn.Module):
    """Stacked bidirectional layers: each layer reads both directions of the layer below. `width` counts both."""

    stateful = False

    def __init__(
        self, cell: str, inputs: int, width: int, depth: int, settings: ResolvedSettings, dropout: float = 0.0
    ):
        super().__init__()
        units = -(-width // 2)
        self.width = 2 * units
        self.deep = StackedRecurrent(
            build_bidirectional_layers(cell, inputs, units, depth, settings.recurrent), dropout=dropout
        )

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        outputs, state = self.deep(vectors, state, lengths)
        return States(outputs, state)


class SeparateDirections(nn.Module):
    """Two independent backbones, one reading in reverse; outputs concatenated after the last layer."""

    stateful = False

    def __init__(self, forwards: nn.Module, backwards: nn.Module):
        super().__init__()
        self.forwards, self.backwards = forwards, backwards
        self.width: int = forwards.width + backwards.width  # type: ignore[operator,assignment]

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        forward = self.forwards(vectors, None, lengths)
        backward = self.backwards(reverse_steps(vectors, lengths), None, lengths)
        vectors = torch.cat([forward.vectors, reverse_steps(backward.vectors, lengths)], dim=-1)
        return States(vectors, (forward.state, backward.state))


class CentredFeedForward(FeedForwardBackbone):
    """A fixed window centred on its position: it covers as many vectors before as after it."""

    stateful = False

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        future = self.window // 2
        valid = valid_steps(vectors, self.inputs, lengths)
        h = super().forward(F.pad(zero_padding(vectors, valid), (0, 0, 0, future))).vectors[:, future:]
        return States(zero_padding(h, valid))
