"""The states of every layer of a backbone, not only those of the last. It knows nothing of what they are for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import BothWays
from seqwise.backbones.feedforward import FeedForwardBackbone
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.errors import UsageError
from seqwise.layers.record import record
from seqwise.layers.recurrent import reverse_steps


def every_layer(backbone: nn.Module, vectors: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
    """vectors (B, T, D) and then the states (B, T, ·) of each layer; the last are those the backbone returns."""
    if isinstance(backbone, BothWays):
        ahead = every_layer(backbone.forwards, vectors, lengths)
        back = every_layer(backbone.backwards, reverse_steps(vectors, lengths), lengths)
        return [vectors, *(torch.cat([a, reverse_steps(b, lengths)], dim=-1) for a, b in zip(ahead[1:], back[1:]))]
    if isinstance(backbone, FeedForwardBackbone):
        with record(backbone, "hidden.*") as seen:
            last = backbone(vectors, lengths=lengths).vectors
        inner = [seen[f"hidden.{depth}"][:, -vectors.shape[1] :] for depth in range(len(backbone.layer))]
        return [vectors, *inner, last]
    kept: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda module, inputs, output: kept.append(output[0]))
        for layer in _layers(backbone)
    ]
    try:
        last = backbone(vectors, None, lengths).vectors
    finally:
        for hook in hooks:
            hook.remove()
    return [vectors, *kept[:-1], last]


def _layers(backbone: nn.Module) -> nn.ModuleList:
    stack = backbone.encoder if isinstance(backbone, TransformerBackbone) else getattr(backbone, "deep", None)
    if stack is None:
        raise UsageError(f"the layers of {type(backbone).__name__} are not known.")
    return stack.layer
