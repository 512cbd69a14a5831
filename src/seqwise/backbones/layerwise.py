"""The states of every layer of a backbone, not only those of the last. It does not know what they are used for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import SeparateDirections
from seqwise.backbones.feedforward import FeedForwardBackbone
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.errors import UsageError
from seqwise.layers.record import record
from seqwise.layers.recurrent import reverse_steps


def compute_layer_states(backbone: nn.Module, vectors: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
    """The vectors (B, T, D), then the states (B, T, ·) of each layer; the last are those the backbone returns."""
    if isinstance(backbone, SeparateDirections):
        forward = compute_layer_states(backbone.forwards, vectors, lengths)
        backward = compute_layer_states(backbone.backwards, reverse_steps(vectors, lengths), lengths)
        pairs = zip(forward[1:], backward[1:])
        return [vectors, *(torch.cat([a, reverse_steps(b, lengths)], dim=-1) for a, b in pairs)]
    if isinstance(backbone, FeedForwardBackbone):
        with record(backbone, "hidden.*") as recording:
            last = backbone(vectors, lengths=lengths).vectors
        inner = [recording[f"hidden.{depth}"][:, -vectors.shape[1] :] for depth in range(len(backbone.layer))]
        return [vectors, *inner, last]
    outputs: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda module, inputs, output: outputs.append(output[0]))
        for layer in _get_layers(backbone)
    ]
    try:
        last = backbone(vectors, None, lengths).vectors
    finally:
        for hook in hooks:
            hook.remove()
    return [vectors, *outputs[:-1], last]


def _get_layers(backbone: nn.Module) -> nn.ModuleList:
    stack = backbone.encoder if isinstance(backbone, TransformerBackbone) else getattr(backbone, "deep", None)
    if stack is None:
        raise UsageError(f"the layers of {type(backbone).__name__} cannot be listed.")
    return stack.layer
