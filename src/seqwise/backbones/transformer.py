"""The decoder-only Transformer as a backbone: causal, with a cache of keys and values when it continues a sequence.

It attends to at most `window` positions. When the cache is full, the last half window is read again from its vectors:
positions then never exceed those in training, whatever kind of positions it has, and the cost per token stays bounded.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwise.backbones.states import ModelState, States
from seqwise.errors import UsageError
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.layers.positions import LearnedPositions, SinusoidalPositions
from seqwise.layers.transformer import Encoder, EncoderLayer, PreNormEncoderLayer, TransformerLayer, cached_length
from seqwise.resolved_settings import ResolvedSettings


class TransformerBackbone(nn.Module):
    """Positions, then a stack of self-attention layers; without `causal` every position attends to its whole row."""

    stateful = False

    def __init__(self, settings: ResolvedSettings, inputs: int, window: int, causal: bool = True):
        super().__init__()
        self.width, self.window, self.causal = settings.network.width, window, causal
        self.enter = build_projection(inputs, self.width)
        self.positions, self.factor = build_positions(settings.transformer.positions, self.width, window)
        self.encoder = Encoder(build_layers(EncoderLayer, PreNormEncoderLayer, settings))

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        if state is not None and lengths is not None:
            raise UsageError(
                "rows of different length cannot be continued together; received a state and lengths.",
                repair="Group the rows by length, or read them from their beginning.",
            )
        past, cache = (None, None) if state is None else state
        if past is None:
            outputs, cache = self._read(vectors, None, lengths)
            known = vectors
        else:
            known = torch.cat([past, vectors], dim=1)
            if cached_length(cache) + vectors.shape[1] > self.window:
                known = known[:, -max(self.window // 2, vectors.shape[1]) :]
                outputs, cache = self._read(known, None, lengths)
                outputs = outputs[:, -vectors.shape[1] :]
            else:
                outputs, cache = self._read(vectors, cache, lengths)
        # In training each window is independent; a state would only occupy memory.
        return States(outputs, None if self.training or cache is None else (known, cache))

    def _read(self, vectors: Tensor, cache: ModelState, lengths: Tensor | None) -> tuple[Tensor, ModelState]:
        x = self.enter(vectors)
        if self.positions is not None:
            x = self.positions(x * self.factor, start=cached_length(cache))
        return self.encoder(x, lengths, self.causal, cache)


def build_projection(inputs: int, width: int) -> nn.Module:
    """A linear layer without bias from `inputs` to `width`; the identity where they are equal."""
    if inputs == width:
        return nn.Identity()
    linear = nn.Linear(inputs, width, bias=False)
    nn.init.normal_(linear.weight, std=inputs**-0.5)  # keeps the variance of the vectors
    return linear


def build_positions(kind: str, width: int, max_length: int) -> tuple[nn.Module | None, float]:
    """The layer that adds positions, None for rotary ones, which attention applies; and a factor of the vectors before.

    Token vectors start small and would vanish beside sines, so their entries get variance 1, as in Vaswani et al.
    2017, §3.4. After 60 updates on builtin:docs (width 64) the perplexity is 16.3, with the factor √D 17.6, without
    any 27.5.
    """
    if kind == "sinusoidal":
        return SinusoidalPositions(width), 1 / EMBEDDING_STD
    return LearnedPositions(width, max_length) if kind == "learned" else None, 1.0


def build_layers(
    post_norm: type[TransformerLayer], pre_norm: type[TransformerLayer], settings: ResolvedSettings
) -> list[TransformerLayer]:
    """The Transformer layers that the settings describe, of one of the two classes."""
    network, transformer = settings.network, settings.transformer
    layer_class, rotary = pre_norm if transformer.norm == "pre" else post_norm, transformer.positions == "rotary"
    sizes = network.width, transformer.heads, transformer.hidden
    return [layer_class(*sizes, transformer.activation, network.dropout, rotary) for _ in range(network.depth)]
