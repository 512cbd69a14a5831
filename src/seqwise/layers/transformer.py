"""Transformer layers and their stacks. They know nothing of tokens, nor of positions other than rotary ones.

Post-norm layers are the published ones (Vaswani et al. 2017, §3.1): norm after each sum, Xavier weights. Pre-norm
layers normalise the input of each sub-layer, not the sum (Radford et al. 2019, §2.3), which needs no warm-up
(Xiong et al. 2020). Their weights start with variance 1 / inputs, and those that write into the sum are divided by the
root of the number of additions, so that the sum keeps its variance at any depth (GPT-2, same section).

`dropout` acts on what each sub-layer adds (Vaswani et al. 2017, §5.4) and inside the feed-forward network. Attention
weights are not dropped: the paper drops none, and CPUs would lose the fused kernel.

A decoder-only model is an `Encoder` that runs causally. `Decoder` also attends to a memory, an encoder's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.errors import UsageError, suggest
from seqwise.layers.attention import KeysValues, MultiHeadAttention, padding_mask
from seqwise.layers.initialise import xavier_
from seqwise.layers.norm import LayerNorm
from seqwise.layers.record import is_recorded_within, record_value

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}

KeyValueCache = tuple[KeysValues, ...]  # per layer keys and values, (B, H, S, K) each
DecoderCache = tuple[tuple[KeysValues, KeysValues], ...]  # per layer those of the target and those of the memory


class FeedForward(nn.Module):
    """y = W₂ · activation(W₁ x + b₁) + b₂ (Vaswani et al. 2017, eq. 2; GELU: Hendrycks & Gimpel 2016, exact form).

    Weights start as Xavier, biases at 0.
    """

    def __init__(self, width: int, hidden: int, activation: str, dropout: float = 0.0):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UsageError(f"unknown activation {activation!r}.", repair=suggest(activation, ACTIVATIONS))
        self.activation, self.dropout = activation, dropout
        self.inward = nn.Linear(width, hidden)
        self.outward = nn.Linear(hidden, width)
        for linear in (self.inward, self.outward):
            xavier_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = ACTIVATIONS[self.activation](self.inward(x))
        record_value(self, "hidden", hidden)
        return self.outward(F.dropout(hidden, self.dropout, self.training))

    def extra_repr(self) -> str:
        return f"activation={self.activation}, dropout={self.dropout}"


class TransformerLayer(nn.Module):
    """What all layers share: each sub-layer is added to its input and has a norm, after the sum or before itself."""

    pre_norm = False
    has_cross_attention = False

    def __init__(
        self, width: int, heads: int, hidden: int, activation: str, dropout: float = 0.0, rotary: bool = False
    ):
        super().__init__()
        self.width = width
        self.attention = MultiHeadAttention(width, heads, rotary=rotary)
        self.attention_norm = LayerNorm(width)
        if self.has_cross_attention:
            self.cross = MultiHeadAttention(width, heads)
            self.cross_norm = LayerNorm(width)
        self.feedforward = FeedForward(width, hidden, activation, dropout)
        self.feedforward_norm = LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def sublayer_input(self, norm: LayerNorm, x: Tensor) -> Tensor:
        """The input of a sub-layer: normalised in pre-norm layers."""
        return norm(x) if self.pre_norm else x

    def add_residual(self, norm: LayerNorm, x: Tensor, result: Tensor) -> Tensor:
        """The sum of a sub-layer's input and its result: normalised in post-norm layers."""
        x = x + self.drop(result)
        return x if self.pre_norm else norm(x)


class EncoderLayer(TransformerLayer):
    """Self-attention and feed-forward: post-norm, as published."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeysValues | None = None,
        rotations: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        context, cache = self.attention(
            self.sublayer_input(self.attention_norm, x), mask=mask, causal=causal, cache=cache, rotations=rotations
        )
        x = self.add_residual(self.attention_norm, x, context)
        output = self.feedforward(self.sublayer_input(self.feedforward_norm, x))
        x = self.add_residual(self.feedforward_norm, x, output)
        return x, cache


class PreNormEncoderLayer(EncoderLayer):
    """Self-attention and feed-forward, each preceded by its norm."""

    pre_norm = True


class DecoderLayer(TransformerLayer):
    """Causal self-attention, attention over the memory (`cross`) and feed-forward: post-norm, as published."""

    has_cross_attention = True

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        cache: tuple[KeysValues, KeysValues] | None = None,
        rotations: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KeysValues, KeysValues]]:
        self_cache, cross_cache = cache or (None, None)
        context, self_cache = self.attention(
            self.sublayer_input(self.attention_norm, x), causal=True, cache=self_cache, rotations=rotations
        )
        x = self.add_residual(self.attention_norm, x, context)
        context, cross_cache = self.cross(
            self.sublayer_input(self.cross_norm, x), memory, mask=memory_mask, cache=cross_cache
        )
        x = self.add_residual(self.cross_norm, x, context)
        output = self.feedforward(self.sublayer_input(self.feedforward_norm, x))
        x = self.add_residual(self.feedforward_norm, x, output)
        return x, (self_cache, cross_cache)


class PreNormDecoderLayer(DecoderLayer):
    """The three sub-layers of a decoder layer, each preceded by its norm."""

    pre_norm = True


LayerFunction = Callable[..., Tensor]  # a layer and its arguments → its output


def call_layer(layer: nn.Module, *arguments: Any) -> Tensor:
    """The output of a layer without its cache: a function that `torch.compile` compiles once for all layers."""
    return layer(*arguments)[0]


class Stack(nn.Module):
    """Layers one after the other; pre-norm stacks end with a norm. In training `compiled_layer` may compute them."""

    compiled_layer: LayerFunction | None = None  # of this process: neither copied nor pickled

    def __init__(self, layers: Sequence[TransformerLayer]):
        super().__init__()
        self.layer = nn.ModuleList(layers)
        self.norm = LayerNorm(layers[-1].width) if layers[-1].pre_norm else nn.Identity()
        if layers[-1].pre_norm:
            _initialise_pre_norm(layers)

    def _run(self, x: Tensor, arguments: tuple[Any, Any], cache: Any, min_length: int) -> tuple[Tensor, Any]:
        """The output of all layers, and the cache of each, which is empty if they run compiled.

        They do in training, without a cache or a recording, and not if some sequence has one vector: PyTorch would
        compile separate graphs for sizes of 1.
        """
        compiled: Any = self.compiled_layer
        if compiled and self.training and cache is None and min_length > 1 and not is_recorded_within(self):
            rotations = self.layer[0].attention.compute_rotations(x)  # type: ignore[union-attr,operator]
            for layer in self.layer:
                x = compiled(layer, x, *arguments, None, rotations)
            return self.norm(x), ()
        entries = []
        for number, layer in enumerate(self.layer):
            x, entry = layer(x, *arguments, None if cache is None else cache[number])
            entries.append(entry)
        return self.norm(x), tuple(entries)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "compiled_layer"}


class Encoder(Stack):
    """A stack of encoder layers: bidirectional, or causal for decoder-only models."""

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, causal: bool = True, cache: KeyValueCache | None = None
    ) -> tuple[Tensor, KeyValueCache | None]:
        """x (B, T, D) → the same shape, and the cache that continues it.

        With `causal`, padding follows every valid position and needs no mask. Rows of different `lengths` cannot be
        continued together, nor can bidirectional ones: their cache is None.
        """
        can_continue = causal and lengths is None
        if cache is not None and not can_continue:
            received = "lengths" if causal else "causal=False"
            raise UsageError(
                f"a cache continues causal rows of equal length; received {received}.",
                repair="Group the rows by length, or run them without a cache.",
            )
        mask = None if causal or lengths is None else padding_mask(lengths, x.shape[1])
        x, cache = self._run(x, (mask, causal), cache, x.shape[1])
        return x, cache if can_continue and cache else None


class Decoder(Stack):
    """A stack of decoder layers over a memory."""

    def forward(
        self, x: Tensor, memory: Tensor, memory_lengths: Tensor | None = None, cache: DecoderCache | None = None
    ) -> tuple[Tensor, DecoderCache]:
        """x (B, T, D) over memory (B, S, D) → (B, T, D), and the cache that continues it.

        Padding at the end of x needs no mask: no earlier position attends to it.
        """
        mask = None if memory_lengths is None else padding_mask(memory_lengths, memory.shape[1])
        return self._run(x, (memory, mask), cache, min(x.shape[1], memory.shape[1]))


class EncoderDecoder(nn.Module):
    """A bidirectional encoder of the source, and a decoder that attends to its output.

    Equal to `nn.Transformer` on the same weights where the layers are pre-norm; post-norm stacks have no norm at their
    end here, as published.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """source (B, S, D) and target (B, T, D) → (B, T, D), each position from the targets up to it."""
        return self.decode(target, self.encode(source, source_lengths), source_lengths)[0]

    def encode(self, source: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """The memory (B, S, D) of the source."""
        return self.encoder(source, source_lengths, causal=False)[0]

    def decode(
        self, target: Tensor, memory: Tensor, source_lengths: Tensor | None = None, cache: DecoderCache | None = None
    ) -> tuple[Tensor, DecoderCache]:
        """The next targets over a memory, and the cache that continues them."""
        return self.decoder(target, memory, source_lengths, cache)


def cached_length(cache: KeyValueCache | None) -> int:
    """How many positions the cache holds: the position of the next vector."""
    return cache[0][0].shape[2] if cache else 0


@torch.no_grad()
def _initialise_pre_norm(layers: Sequence[TransformerLayer]) -> None:
    """The initial weights of pre-norm stacks; those of post-norm layers are Xavier already."""
    children = [sublayer for layer in layers for sublayer in layer.children()]
    sublayers = [sublayer for sublayer in children if isinstance(sublayer, MultiHeadAttention | FeedForward)]
    for sublayer in sublayers:  # each sub-layer adds once to the sum
        sublayer.inward.weight.normal_(std=sublayer.inward.in_features**-0.5)
        sublayer.outward.weight.normal_(std=(sublayer.outward.in_features * len(sublayers)) ** -0.5)
