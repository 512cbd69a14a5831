"""Transformer layers and their stacks. They know nothing of tokens, nor of positions other than rotary ones.

Post-norm layers are as published (Vaswani et al. 2017, §3.1): norm after each residual sum, Xavier weights. Pre-norm
layers normalise the input of each sub-layer, not the sum (Radford et al. 2019, §2.3), which needs no warm-up
(Xiong et al. 2020). Their initial weights have variance 1 / inputs, and the output weights of a sub-layer are divided
by the root of the number of sub-layers, so that the sum keeps its variance at any depth (GPT-2, same section).

`dropout` acts on what each sub-layer adds (Vaswani et al. 2017, §5.4) and inside the feed-forward network,
`attention_dropout` on the attention weights. It is 0 unless set: the paper has none, and CPUs lose the fused kernel.

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

KeyValueCache = tuple[KeysValues, ...]  # keys and values of each layer, (B, H, S, K) each
DecoderCache = tuple[tuple[KeysValues, KeysValues], ...]  # of each layer: those of the target, and of the memory


class FeedForward(nn.Module):
    """y = W₂ · activation(W₁ x + b₁) + b₂ (Vaswani et al. 2017, eq. 2; GELU: Hendrycks & Gimpel 2016, exact form).

    Initial weights are Xavier's, biases 0.
    """

    def __init__(self, width: int, hidden: int, activation: str, dropout: float = 0.0):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UsageError(f"unknown activation {activation!r}.", fix=suggest(activation, ACTIVATIONS))
        self.activation, self.dropout = activation, dropout
        self.in_proj = nn.Linear(width, hidden)
        self.out_proj = nn.Linear(hidden, width)
        for linear in (self.in_proj, self.out_proj):
            xavier_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = ACTIVATIONS[self.activation](self.in_proj(x))
        record_value(self, "hidden", hidden)
        return self.out_proj(F.dropout(hidden, self.dropout, self.training))

    def extra_repr(self) -> str:
        return f"activation={self.activation}, dropout={self.dropout}"


class TransformerLayer(nn.Module):
    """The base of all layers: the result of each sub-layer is added to its input, with a norm after the sum (post-norm)
    or before the sub-layer (pre-norm)."""

    pre_norm = False
    has_cross_attention = False

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        activation: str,
        dropout: float = 0.0,
        rotary: bool = False,
        attention_dropout: float = 0.0,
    ):
        super().__init__()
        self.width = width
        self.attention = MultiHeadAttention(width, heads, attention_dropout, rotary)
        self.attention_norm = LayerNorm(width)
        if self.has_cross_attention:
            self.cross_attention = MultiHeadAttention(width, heads, attention_dropout)
            self.cross_attention_norm = LayerNorm(width)
        self.feedforward = FeedForward(width, hidden, activation, dropout)
        self.feedforward_norm = LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def prepare_input(self, norm: LayerNorm, x: Tensor) -> Tensor:
        """Returns the input of a sub-layer: x, normalised in pre-norm layers."""
        return norm(x) if self.pre_norm else x

    def add_residual(self, norm: LayerNorm, x: Tensor, result: Tensor) -> Tensor:
        """Returns the sum of x and the result of a sub-layer, normalised in post-norm layers."""
        x = x + self.drop(result)
        return x if self.pre_norm else norm(x)


class EncoderLayer(TransformerLayer):
    """Self-attention and feed-forward: post-norm, as published; causal in decoder-only models."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeysValues | None = None,
        rotations: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        context, cache = self.attention(
            self.prepare_input(self.attention_norm, x), mask=mask, causal=causal, cache=cache, rotations=rotations
        )
        x = self.add_residual(self.attention_norm, x, context)
        output = self.feedforward(self.prepare_input(self.feedforward_norm, x))
        x = self.add_residual(self.feedforward_norm, x, output)
        return x, cache


class PreNormEncoderLayer(EncoderLayer):
    """Self-attention and feed-forward, each preceded by its norm."""

    pre_norm = True


class DecoderLayer(TransformerLayer):
    """Causal self-attention, `cross_attention` over the memory, and feed-forward: post-norm, as published."""

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
            self.prepare_input(self.attention_norm, x), causal=True, cache=self_cache, rotations=rotations
        )
        x = self.add_residual(self.attention_norm, x, context)
        context, cross_cache = self.cross_attention(
            self.prepare_input(self.cross_attention_norm, x), memory, mask=memory_mask, cache=cross_cache
        )
        x = self.add_residual(self.cross_attention_norm, x, context)
        output = self.feedforward(self.prepare_input(self.feedforward_norm, x))
        x = self.add_residual(self.feedforward_norm, x, output)
        return x, (self_cache, cross_cache)


class PreNormDecoderLayer(DecoderLayer):
    """The three sub-layers of a decoder layer, each preceded by its norm."""

    pre_norm = True


LayerFunction = Callable[..., Tensor]  # a layer and its arguments → its output


def call_layer(layer: nn.Module, *arguments: Any) -> Tensor:
    """Returns the output of a layer without its cache. `torch.compile` compiles this function once for all layers."""
    return layer(*arguments)[0]


class Stack(nn.Module):
    """Layers one after the other; pre-norm stacks end with a norm. In training `compiled_layer` may compute them."""

    compiled_layer: LayerFunction | None = None  # `call_layer`, compiled; it is neither copied nor pickled

    def __init__(self, layers: Sequence[TransformerLayer]):
        super().__init__()
        self.layer = nn.ModuleList(layers)
        self.norm = LayerNorm(layers[-1].width) if layers[-1].pre_norm else nn.Identity()
        if layers[-1].pre_norm:
            _initialise_pre_norm(layers)

    def _run(self, x: Tensor, arguments: tuple[Any, Any], cache: Any, min_length: int) -> tuple[Tensor, Any]:
        """Returns the output of the last layer, and the cache of each layer, or () if they run compiled.

        They do in training, unless there is a cache or a recording, or sequences of one vector (`min_length`), for
        which PyTorch would compile separate graphs.
        """
        compiled: Any = self.compiled_layer
        if compiled and self.training and cache is None and min_length > 1 and not is_recorded_within(self):
            rotations = self.layer[0].attention.compute_rotations(x)  # type: ignore[union-attr,operator]
            for layer in self.layer:
                x = compiled(layer, x, *arguments, None, rotations)
            return self.norm(x), ()
        layer_caches = []
        for index, layer in enumerate(self.layer):
            x, layer_cache = layer(x, *arguments, None if cache is None else cache[index])
            layer_caches.append(layer_cache)
        return self.norm(x), tuple(layer_caches)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "compiled_layer"}


class Encoder(Stack):
    """A stack of encoder layers: bidirectional, or causal for decoder-only models."""

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, causal: bool = True, cache: KeyValueCache | None = None
    ) -> tuple[Tensor, KeyValueCache | None]:
        """Returns the output (B, T, D) for x (B, T, D), and the cache from which a later call continues.

        With `causal`, padding follows every valid position and needs no mask. Sequences of different `lengths` cannot
        be continued together, nor can bidirectional ones: their cache is None.
        """
        can_continue = causal and lengths is None
        if cache is not None and not can_continue:
            received = "lengths" if causal else "causal=False"
            raise UsageError(
                f"a cache continues causal sequences of equal length; received {received}.",
                fix="Group the sequences by length, or run them without a cache.",
            )
        mask = None if causal or lengths is None else padding_mask(lengths, x.shape[1])
        x, cache = self._run(x, (mask, causal), cache, x.shape[1])
        return x, cache if can_continue and cache else None


class Decoder(Stack):
    """A stack of decoder layers over a memory."""

    def forward(
        self, x: Tensor, memory: Tensor, memory_lengths: Tensor | None = None, cache: DecoderCache | None = None
    ) -> tuple[Tensor, DecoderCache]:
        """Returns the output (B, T, D) for x (B, T, D) over memory (B, S, D), and the cache from which a later call
        continues.

        Padding at the end of x needs no mask: no earlier position attends to it.
        """
        mask = None if memory_lengths is None else padding_mask(memory_lengths, memory.shape[1])
        return self._run(x, (memory, mask), cache, min(x.shape[1], memory.shape[1]))


class EncoderDecoder(nn.Module):
    """A bidirectional encoder of the source, and a decoder that attends to its output.

    Equal to `nn.Transformer` on the same weights if the layers are pre-norm; post-norm stacks have no norm at their end
    here, as published.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """Returns the output (B, T, D) for source (B, S, D) and target (B, T, D), each from the targets up to it."""
        return self.decode(target, self.encode(source, source_lengths), source_lengths)[0]

    def encode(self, source: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """Returns the memory (B, S, D) of the source."""
        return self.encoder(source, source_lengths, causal=False)[0]

    def decode(
        self, target: Tensor, memory: Tensor, source_lengths: Tensor | None = None, cache: DecoderCache | None = None
    ) -> tuple[Tensor, DecoderCache]:
        """Returns the output for the next targets over a memory, and the cache from which a later call continues."""
        return self.decoder(target, memory, source_lengths, cache)


def get_cached_length(cache: KeyValueCache | None) -> int:
    """Returns how many positions the cache holds, which is the position of the next vector."""
    return cache[0][0].shape[2] if cache else 0


@torch.no_grad()
def _initialise_pre_norm(layers: Sequence[TransformerLayer]) -> None:
    """Draws the initial weights of a pre-norm stack; the Xavier weights of its layers are for post-norm."""
    children = [sublayer for layer in layers for sublayer in layer.children()]
    sublayers = [sublayer for sublayer in children if isinstance(sublayer, MultiHeadAttention | FeedForward)]
    for sublayer in sublayers:  # each adds once to the residual sum
        sublayer.in_proj.weight.normal_(std=sublayer.in_proj.in_features**-0.5)
        sublayer.out_proj.weight.normal_(std=(sublayer.out_proj.in_features * len(sublayers)) ** -0.5)
