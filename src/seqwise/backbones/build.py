"""Settings → backbone."""

from __future__ import annotations

from torch import nn

from seqwise.backbones.feedforward import FeedForwardBackbone
from seqwise.backbones.recurrent import AttentiveBackbone, RecurrentBackbone
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.resolved_settings import ResolvedSettings


def build_backbone(settings: ResolvedSettings, inputs: int) -> nn.Module:
    """The backbone that the settings describe, for vectors of width `inputs`."""
    network = settings.network
    width, depth, dropout = network.width, network.depth, network.dropout
    if settings.model == "feedforward":
        return FeedForwardBackbone(inputs, width, depth, settings.context.length, dropout)
    if settings.model == "attentive-rnn":
        return AttentiveBackbone(inputs, width, depth, settings.recurrent, dropout)
    if settings.model == "transformer":
        window = settings.data.window
        if not isinstance(window, int):
            raise ValueError("a Transformer needs a window")
        return TransformerBackbone(inputs, width, depth, window, settings.transformer, dropout)
    return RecurrentBackbone(settings.model, inputs, width, depth, settings.recurrent, dropout)
