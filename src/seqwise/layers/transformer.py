"""Transformer layers and their stacks. They know nothing of tokens, nor of positions other than rotary ones.

Post-norm layers are the published ones (Vaswani et al. 2017, §3.1): norm after each sum, Xavier weights. Pre-norm
layers normalise what enters a part and leave the sum alone (Radford et al. 2019, §2.3), which trains without warm-up
(Xiong et al. 2020). Their weights start with variance 1 / inputs, and those that write into the sum are divided by the
root of the number of additions, so that the sum keeps its variance at any depth (GPT-2, same section).

`dropout` acts on what each part adds (Vaswani et al. 2017, §5.4) and inside the feed-forward part. Attention weights
are not dropped: the paper does not, and CPUs would lose the fused kernel.

A decoder-only model is an `Encoder` that runs causally. `Decoder` also looks at a memory, `EncoderDecoder` joins both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.layers.attention import KeysValues, MultiHeadAttention, padding_mask
from seqwise.layers.feedforward import FeedForward
from seqwise.layers.norm import LayerNorm
from seqwise.layers.record import is_recorded_within

KeyValueCache = tuple[KeysValues, ...]  # per layer keys and values, (B, H, S, K) each
DecoderCache = tuple[tuple[KeysValues, KeysValues], ...]  # per layer those of itself and those of the memory


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each followed by its norm: post-norm, as published."""

    pre_norm = False

    def __init__(
        self, width: int, heads: int, hidden: int, activation: str, dropout: float = 0.0, rotary: bool = False
    ):
        super().__init__()
        self.width = width
        self.attention = MultiHeadAttention(width, heads, rotary=rotary)
        self.attention_norm = LayerNorm(width)
        self.feedforward = FeedForward(width, hidden, activation, dropout)
        self.feedforward_norm = LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeysValues | None = None,
        turns: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        attended, cache = self.attention(x, mask=mask, causal=causal, cache=cache, turns=turns)
        x = self.attention_norm(x + self.drop(attended))
        x = self.feedforward_norm(x + self.drop(self.feedforward(x)))
        return x, cache


class PreNormEncoderLayer(EncoderLayer):
    """Self-attention and feed-forward, each preceded by its norm."""

    pre_norm = True

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeysValues | None = None,
        turns: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        attended, cache = self.attention(self.attention_norm(x), mask=mask, causal=causal, cache=cache, turns=turns)
        x = x + self.drop(attended)
        x = x + self.drop(self.feedforward(self.feedforward_norm(x)))
        return x, cache


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the memory (`cross`) and feed-forward: post-norm, as published."""

    pre_norm = False

    def __init__(
        self, width: int, heads: int, hidden: int, activation: str, dropout: float = 0.0, rotary: bool = False
    ):
        super().__init__()
        self.width = width
        self.attention = MultiHeadAttention(width, heads, rotary=rotary)
        self.attention_norm = LayerNorm(width)
        self.cross = MultiHeadAttention(width, heads)
        self.cross_norm = LayerNorm(width)
        self.feedforward = FeedForward(width, hidden, activation, dropout)
        self.feedforward_norm = LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        cache: tuple[KeysValues, KeysValues] | None = None,
        turns: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KeysValues, KeysValues]]:
        own, other = cache or (None, None)
        attended, own = self.attention(x, causal=True, cache=own, turns=turns)
        x = self.attention_norm(x + self.drop(attended))
        attended, other = self.cross(x, memory, mask=memory_mask, cache=other)
        x = self.cross_norm(x + self.drop(attended))
        x = self.feedforward_norm(x + self.drop(self.feedforward(x)))
        return x, (own, other)

    def around(self, norm: LayerNorm, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """What a part adds, with its norm: for callers that run the parts one by one."""
        return norm(x + self.drop(part(x)))


class PreNormDecoderLayer(DecoderLayer):
    """The three parts of a decoder layer, each preceded by its norm."""

    pre_norm = True

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        cache: tuple[KeysValues, KeysValues] | None = None,
        turns: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KeysValues, KeysValues]]:
        own, other = cache or (None, None)
        attended, own = self.attention(self.attention_norm(x), causal=True, cache=own, turns=turns)
        x = x + self.drop(attended)
        attended, other = self.cross(self.cross_norm(x), memory, mask=memory_mask, cache=other)
        x = x + self.drop(attended)
        x = x + self.drop(self.feedforward(self.feedforward_norm(x)))
        return x, (own, other)

    def around(self, norm: LayerNorm, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.drop(part(norm(x)))


Through = Callable[..., Tensor]  # a layer and its arguments → what it makes of x


def through(layer: nn.Module, *arguments: Any) -> Tensor:
    """A layer without the cache it returns: a function that can be compiled once for all layers of a stack."""
    return layer(*arguments)[0]


class Stack(nn.Module):
    """Layers one after the other. In training a compiled function may take their place, which keeps nothing."""

    through: Through | None = None  # belongs to a process: copies and files are without it

    def __init__(self, layers: Sequence[EncoderLayer] | Sequence[DecoderLayer]):
        super().__init__()
        self.layer = nn.ModuleList(layers)
        self.norm = _final_norm(layers)
        _initialise(layers)

    def goes_through(self, cache: object, *sequences: Tensor) -> bool:
        """Is this call one for the compiled function?

        Not where it goes on from something, where somebody looks inside, or with sequences of one vector: sizes of 1
        would have graphs of their own.
        """
        if self.through is None or not self.training or cache is not None:
            return False
        return all(x.shape[1] > 1 for x in sequences) and not is_recorded_within(self)

    def run_through(self, x: Tensor, *arguments: Any) -> Tensor:
        assert self.through is not None
        first: Any = self.layer[0]
        turns = first.attention.turns_of(x)  # alike in all layers
        for layer in self.layer:
            x = self.through(layer, x, *arguments, None, turns)
        return self.norm(x)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "through"}


class Encoder(Stack):
    """A stack of encoder layers: bidirectional, or causal for decoder-only models. Pre-norm stacks end with a norm."""

    def __init__(self, layers: Sequence[EncoderLayer]):
        super().__init__(layers)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, causal: bool = True, cache: KeyValueCache | None = None
    ) -> tuple[Tensor, KeyValueCache | None]:
        """x (B, T, D) → the same shape, and the cache that continues it.

        Causally, padding lies behind every real position and needs no mask. Rows of different `lengths` cannot be
        continued together, nor can bidirectional ones: their cache is None.
        """
        continues = causal and lengths is None
        if cache is not None and not continues:
            raise UsageError(
                "a cache continues causal rows of equal length; received "
                + ("lengths." if causal else "causal=False."),
                repair="Group the rows by length, or run them without a cache.",
            )
        mask = None if causal or lengths is None else padding_mask(lengths, x.shape[1])
        if self.goes_through(cache, x):
            return self.run_through(x, mask, causal), None
        kept = []
        for number, layer in enumerate(self.layer):
            x, entry = layer(x, mask, causal, None if cache is None else cache[number])
            kept.append(entry)
        return self.norm(x), tuple(kept) if continues else None


class Decoder(Stack):
    """A stack of decoder layers over a memory. Pre-norm stacks end with a norm."""

    def __init__(self, layers: Sequence[DecoderLayer]):
        super().__init__(layers)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_lengths: Tensor | None = None,
        cache: DecoderCache | None = None,
    ) -> tuple[Tensor, DecoderCache]:
        """x (B, T, D) over memory (B, S, D) → (B, T, D), and the cache that continues it.

        Padding at the end of x needs no mask: no earlier position looks at it.
        """
        mask = None if memory_lengths is None else padding_mask(memory_lengths, memory.shape[1])
        if self.goes_through(cache, x, memory):
            return self.run_through(x, memory, mask), ()
        kept = []
        for number, layer in enumerate(self.layer):
            x, entry = layer(x, memory, mask, None if cache is None else cache[number])
            kept.append(entry)
        return self.norm(x), tuple(kept)


class EncoderDecoder(nn.Module):
    """An encoder that reads the source in both directions, and a decoder that looks at what it made of it.

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
    """How many positions the cache holds: the `start` of what comes next."""
    return cache[0][0].shape[2] if cache else 0


def _final_norm(layers: Sequence[EncoderLayer] | Sequence[DecoderLayer]) -> nn.Module:
    return LayerNorm(layers[-1].width) if layers[-1].pre_norm else nn.Identity()


@torch.no_grad()
def _initialise(layers: Sequence[EncoderLayer] | Sequence[DecoderLayer]) -> None:
    """The start of pre-norm stacks; parts of post-norm layers start as Xavier by themselves."""
    if not layers[-1].pre_norm:
        return
    parts = [
        part for layer in layers for part in layer.children() if isinstance(part, MultiHeadAttention | FeedForward)
    ]
    for part in parts:  # each part adds once to the sum
        part.inward.weight.normal_(std=part.inward.in_features**-0.5)
        part.outward.weight.normal_(std=(part.outward.in_features * len(parts)) ** -0.5)
