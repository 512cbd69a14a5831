"""The Transformer decoder: reads all at once over a memory, or step by step with the beams of a search side by side.

Searching, the keys and values of all beams of a memory row lie in *slots* that they share: a new step fills one slot
per beam, and a table says which slots each beam descends from. When the search drops one beam and splits another, only
that table changes; no key is copied. The queries of a row's beams are folded into one product over the row's slots, as
they are over its memory. It knows nothing of tokens, nor of how beams are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.backbones.memory import Decoded, Decoder, Memory
from seqwise.backbones.states import ModelState
from seqwise.backbones.transformer import added_positions
from seqwise.kernels.packed_linear import MIN_SEQUENCES, PackedLinear
from seqwise.layers.attention import KeysValues, attend_with_weights, causal_mask
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.layers.positions import rotary as turn
from seqwise.layers.record import is_recorded
from seqwise.layers.transformer import Decoder as Layers
from seqwise.layers.transformer import DecoderLayer, PreNormDecoderLayer
from seqwise.resolved_settings import ResolvedTransformerSettings

ROOM = 16  # slots that are made at first; they double when full


@dataclass(frozen=True)
class Slots:
    """The carry of a search: B memory rows, R = B·k beams."""

    layers: tuple[Stepper, ...]
    memory: tuple[KeysValues, ...]  # per layer, (B, H, S, K) each
    mask: Tensor | None  # (B, 1, 1, S): 0 for positions of the memory that are there, else -inf
    kept: tuple[Tensor, ...]  # per layer keys and values (B, capacity, 2, H, K), filled in place; none at first
    seen: Tensor  # (R, filled): slots a beam descends from
    time: int  # steps read


class TransformerDecoder(Decoder):
    """Positions, then layers of causal self-attention, attention over the memory and feed-forward."""

    def __init__(
        self,
        inputs: int,
        memory_width: int,
        width: int,
        depth: int,
        longest: int,
        settings: ResolvedTransformerSettings,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.width = width
        self.enter, self.remember = _entrance(inputs, width), _entrance(memory_width, width)
        self.positions = added_positions(settings.positions, width, longest)
        self.factor = 1 / EMBEDDING_STD if settings.positions == "sinusoidal" else 1.0  # as in TransformerBackbone
        kind = PreNormDecoderLayer if settings.norm == "pre" else DecoderLayer
        heads, hidden = settings.heads, settings.hidden
        rotary = settings.positions == "rotary"
        self.decoder = Layers([kind(width, heads, hidden, settings.activation, dropout, rotary) for _ in range(depth)])

    def forward(
        self, vectors: Tensor, carry: ModelState = None, memory: Memory | None = None, weights: bool = False
    ) -> Decoded:
        """Without a carry everything is read at once, with gradients, and nothing is kept to continue it."""
        if carry is None and memory is not None and not weights:
            x = self._enter(vectors, 0)
            return Decoded(self.decoder(x, self.remember(memory.vectors), memory.lengths)[0])
        if carry is None and memory is not None:
            carry = self.start(memory)
        return self._read_on(self._enter(vectors, carry.time), carry, weights)

    def _enter(self, vectors: Tensor, start: int) -> Tensor:
        x = self.enter(vectors)
        return x if self.positions is None else self.positions(x * self.factor, start=start)

    def start(self, memory: Memory) -> Slots:
        vectors, mask = self.remember(memory.vectors), memory.mask()
        layers = tuple(Stepper(layer, len(vectors)) for layer in self.decoder.layer)
        projected = tuple(stepper.layer.cross.project_memory(vectors) for stepper in layers)
        seen = torch.ones(len(vectors), 0, dtype=torch.bool, device=vectors.device)
        additive = None if mask is None else _additive(mask[:, None], vectors)
        return Slots(layers, projected, additive, (), seen, 0)

    def select(self, carry: Slots, rows: Tensor, sources: Tensor | None = None) -> Slots:
        carry = replace(carry, seen=carry.seen.index_select(0, rows))
        if sources is None:
            return carry
        return replace(
            carry,
            memory=tuple(
                (keys.index_select(0, sources), values.index_select(0, sources)) for keys, values in carry.memory
            ),
            mask=None if carry.mask is None else carry.mask.index_select(0, sources),
            kept=tuple(slots.index_select(0, sources) for slots in carry.kept),
        )

    def _read_on(self, x: Tensor, carry: Slots, weights: bool) -> Decoded:
        rows, steps = len(carry.memory[0][0]), x.shape[1]
        beams, filled = len(x) // rows, carry.seen.shape[1]
        seen = _see_new(carry.seen, beams, steps)  # (R, T, slots)
        moment = Moment(_additive(seen.view(rows, 1, beams * steps, -1), x), carry.mask, filled, carry.time, steps)
        x = x.reshape(rows, beams * steps, self.width)  # the beams of a row side by side
        kept, looked = [], None
        for number, (stepper, memory) in enumerate(zip(carry.layers, carry.memory, strict=True)):
            x, slots = stepper.look_back(x, carry.kept[number] if carry.kept else None, moment)
            x, looked = stepper.look_over(x, memory, moment, weights and number == len(carry.layers) - 1)
            x = stepper.think(x)
            kept.append(slots)
        vectors = self.decoder.norm(x).view(rows * beams, steps, self.width)
        if looked is not None:
            looked = looked.reshape(rows * beams, steps, -1)
        after = replace(carry, kept=tuple(kept), seen=seen[:, -1], time=carry.time + steps)
        return Decoded(vectors, after, looked)


@dataclass(frozen=True)
class Moment:
    """What all layers share while some steps are read. Masks are added to scores: 0 or -inf."""

    seen: Tensor  # (B, 1, k·T, slots)
    memory: Tensor | None  # (B, 1, 1, S)
    filled: int  # slots before these steps
    time: int  # steps before
    steps: int


class Stepper:
    """One layer, part by part, over slots; equal to the layer itself. It holds the layer's weights, packed."""

    def __init__(self, layer: Any, rows: int):
        self.layer, attention, cross, forward = layer, layer.attention, layer.cross, layer.feedforward
        self.heads, copy = attention.heads, rows >= MIN_SEQUENCES

        def packed(weight: Tensor, bias: Tensor, activation: str = "none") -> PackedLinear:
            return PackedLinear(weight, bias, rows, copy, activation)

        self.inward = packed(attention.inward.weight, attention.inward.bias)
        self.outward = packed(attention.outward.weight, attention.outward.bias)
        queries = slice(0, cross.width)
        self.ask = packed(cross.inward.weight[queries], cross.inward.bias[queries])
        self.answer = packed(cross.outward.weight, cross.outward.bias)
        self.widen = packed(forward.inward.weight, forward.inward.bias, forward.activation)
        self.narrow = packed(forward.outward.weight, forward.outward.bias)

    def look_back(self, x: Tensor, slots: Tensor | None, now: Moment) -> tuple[Tensor, Tensor]:
        """Self-attention. The new keys and values (B, k·T, …) fill the next slots."""
        kept: list[Tensor] = []

        def part(x: Tensor) -> Tensor:
            stacked = self.inward(x).unflatten(-1, (3, self.heads, -1))  # (B, k·T, 3, H, K)
            if self.layer.attention.rotary:
                turned = turn(stacked[:, :, :2].unflatten(1, (-1, now.steps)).transpose(2, -2), now.time)
                turned = turned.transpose(2, -2).flatten(1, 2)
                stacked = torch.cat([turned, stacked[:, :, 2:]], dim=2)
            kept.append(_fill(slots, stacked[:, :, 1:], now.filled))
            queries, (keys, values) = stacked[:, :, 0], kept[0][:, : now.filled + x.shape[1]].unbind(2)
            queries, keys, values = (heads.transpose(1, 2) for heads in (queries, keys, values))  # (B, H, …, K)
            return self.outward(_context(self.layer.attention, queries, keys, values, now.seen))

        return self.layer.around(self.layer.attention_norm, x, part), kept[0]

    def look_over(self, x: Tensor, memory: KeysValues, now: Moment, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attention over the memory, and its weights (B, k·T, S) if asked for, the mean over heads."""
        looked: list[Tensor] = []

        def part(x: Tensor) -> Tensor:
            queries = self.ask(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            if weights:
                mask = None if now.memory is None else now.memory == 0
                looked.append(attend_with_weights(queries, *memory, mask)[1].mean(1))
            return self.answer(_context(self.layer.cross, queries, *memory, now.memory))

        x = self.layer.around(self.layer.cross_norm, x, part)
        return x, looked[0] if looked else None

    def think(self, x: Tensor) -> Tensor:
        """The feed-forward part."""
        part = self.layer.feedforward
        if not is_recorded(part):
            part = lambda x: self.narrow(self.widen(x))  # noqa: E731
        return self.layer.around(self.layer.feedforward_norm, x, part)


def _context(attention: Any, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """(B, H, T, K) each → (B, T, D), with a look at the weights for whoever records them."""
    if is_recorded(attention) and mask is not None:
        mask = mask == 0
    return attention.look(queries, keys, values, mask, False).transpose(1, 2).flatten(2)


def _see_new(seen: Tensor, beams: int, steps: int) -> Tensor:
    """(R, filled) → (R, T, filled + k·T): a step sees the past of its beam and its beam's new steps up to itself."""
    own = torch.eye(beams, dtype=torch.bool, device=seen.device)[:, None, :, None]
    new = own & causal_mask(steps, device=seen.device)[None, :, None, :]  # (k, T, k, T)
    new = new.reshape(beams, steps, -1).repeat(len(seen) // beams, 1, 1)
    return torch.cat([seen[:, None].expand(-1, steps, -1), new], dim=-1)


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """0 where the mask is True, else -inf."""
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(~mask, -torch.inf)


def _fill(slots: Tensor | None, new: Tensor, filled: int) -> Tensor:
    """The slots with `new` (B, n, 2, H, K) behind those that are filled; twice the room where there is none."""
    stop = filled + new.shape[1]
    if slots is None or stop > slots.shape[1]:
        larger = new.new_empty(len(new), max(2 * stop, ROOM), *new.shape[2:])
        if slots is not None:
            larger[:, :filled] = slots[:, :filled]
        slots = larger
    slots[:, filled:stop] = new
    return slots


def _entrance(inputs: int, width: int) -> nn.Module:
    if inputs == width:
        return nn.Identity()
    linear = nn.Linear(inputs, width, bias=False)
    nn.init.normal_(linear.weight, std=inputs**-0.5)  # keeps the variance of the rows
    return linear
