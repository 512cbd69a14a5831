"""The Transformer as a backbone and as a decoder.

The backbone is an encoder (bidirectional), or decoder-only: causal, with a cache of keys and values when it continues a
sequence. It attends to at most `window` positions. When the cache is full, the last half window is read again from its
vectors: positions then never exceed those in training, for any position encoding, and the cost per token stays bounded.

The decoder reads a whole sequence over a memory, or step by step with the beams of a search together. In a search, the
keys and values of all beams of a source are stored in *slots* that the beams share: a new step fills one slot per beam,
and a mask says which slots each beam may attend to, those of its ancestors. When the search drops one beam and splits
another, only that mask changes; no key is copied. The queries of a source's beams are put into one product over the
source's slots, as they are over its memory. It knows nothing of tokens, nor of how beams are selected.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.backbones.memory import Decoder, DecoderOutput, Memory
from seqwise.backbones.states import BackboneOutput, ModelState, map_state
from seqwise.errors import UsageError
from seqwise.kernels.packed_linear import PackedLinear
from seqwise.layers.attention import KeysValues, attend_with_weights, causal_mask
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.layers.positions import LearnedPositions, SinusoidalPositions
from seqwise.layers.positions import rotary as rotate
from seqwise.layers.record import is_recorded
from seqwise.layers.transformer import Decoder as DecoderStack
from seqwise.layers.transformer import (
    DecoderLayer,
    Encoder,
    EncoderLayer,
    PreNormDecoderLayer,
    PreNormEncoderLayer,
    TransformerLayer,
    get_cached_length,
)
from seqwise.resolved_settings import ResolvedSettings

MIN_SLOTS = 16  # allocated at first; they double when full


class TransformerBackbone(nn.Module):
    """Positions, then a stack of self-attention layers; without `causal`, positions attend to the whole sequence."""

    stateful = False

    def __init__(self, settings: ResolvedSettings, inputs: int, window: int, causal: bool = True):
        super().__init__()
        self.width, self.window, self.causal = settings.network.width, window, causal
        self.input_projection = build_projection(inputs, self.width)
        self.positions, self.factor = build_positions(settings.transformer.positions, self.width, window)
        self.encoder = Encoder(build_layers(EncoderLayer, PreNormEncoderLayer, settings))

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> BackboneOutput:
        if state is not None and lengths is not None:
            raise UsageError(
                "sequences of different length cannot be continued together; received a state and lengths.",
                fix="Group the sequences by length, or read them from their beginning.",
            )
        past, cache = (None, None) if state is None else state
        if past is None:
            outputs, cache = self._read(vectors, None, lengths)
            history = vectors
        else:
            history = torch.cat([past, vectors], dim=1)
            if get_cached_length(cache) + vectors.shape[1] > self.window:
                history = history[:, -max(self.window // 2, vectors.shape[1]) :]
                outputs, cache = self._read(history, None, lengths)
                outputs = outputs[:, -vectors.shape[1] :]
            else:
                outputs, cache = self._read(vectors, cache, lengths)
        # In training each window is independent; a state would only occupy memory.
        return BackboneOutput(outputs, None if self.training or cache is None else (history, cache))

    def _read(self, vectors: Tensor, cache: ModelState, lengths: Tensor | None) -> tuple[Tensor, ModelState]:
        """Returns the outputs and the new cache."""
        x = self.input_projection(vectors)
        if self.positions is not None:
            x = self.positions(x * self.factor, start=get_cached_length(cache))
        return self.encoder(x, lengths, self.causal, cache)


def build_projection(inputs: int, width: int) -> nn.Module:
    """Returns a linear layer without bias from `inputs` to `width`, or the identity if they are equal."""
    if inputs == width:
        return nn.Identity()
    linear = nn.Linear(inputs, width, bias=False)
    nn.init.normal_(linear.weight, std=inputs**-0.5)  # keeps the variance of the vectors
    return linear


def build_positions(kind: str, width: int, max_length: int) -> tuple[nn.Module | None, float]:
    """Returns the layer that adds positions, None for rotary ones, which attention applies, and a factor for its input.

    Initial token vectors are small compared with sines, so the factor gives their entries variance 1, as in Vaswani et
    al. 2017, §3.4. After 60 updates on builtin:docs (width 64) the perplexity is 16.3; with the factor √D it is 17.6,
    without a factor 27.5.
    """
    if kind == "sinusoidal":
        return SinusoidalPositions(width), 1 / EMBEDDING_STD
    return LearnedPositions(width, max_length) if kind == "learned" else None, 1.0


def build_layers(
    post_norm: type[TransformerLayer], pre_norm: type[TransformerLayer], settings: ResolvedSettings
) -> list[TransformerLayer]:
    """Returns the Transformer layers that the settings describe, of one of the two classes."""
    network, transformer = settings.network, settings.transformer
    layer_class, rotary = pre_norm if transformer.norm == "pre" else post_norm, transformer.positions == "rotary"
    sizes, dropout = (network.width, transformer.heads, transformer.hidden), network.dropout
    return [
        layer_class(
            *sizes, transformer.activation, dropout, rotary=rotary, attention_dropout=transformer.attention_dropout
        )
        for _ in range(network.depth)
    ]


@dataclass(frozen=True)
class SearchState:
    """The state of a search over B sources with R = B·k beams."""

    layers: tuple[DecoderLayerStepper, ...]
    memory: tuple[KeysValues, ...]  # keys and values of each layer, (B, H, S, K) each
    memory_mask: Tensor | None  # (B, 1, 1, S): 0 for valid positions of the memory, else -inf
    slots: tuple[Tensor, ...]  # of each layer, keys and values (B, capacity, 2, H, K), filled in place; () at first
    visible: Tensor  # (R, filled slots) bool: the slots that each beam may attend to
    time: int  # number of steps read


class TransformerDecoder(Decoder):
    """Positions, then layers of causal self-attention, attention over the memory and feed-forward."""

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int, max_length: int):
        super().__init__()
        self.width = settings.network.width
        self.input_projection = build_projection(inputs, self.width)
        self.remember = build_projection(memory_width, self.width)
        self.positions, self.factor = build_positions(settings.transformer.positions, self.width, max_length)
        self.decoder = DecoderStack(build_layers(DecoderLayer, PreNormDecoderLayer, settings))

    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        """Reads the whole sequence in one pass, with gradients, if there is no state, and returns no state then."""
        if state is None and memory is not None and not need_weights:
            x = self._add_positions(vectors, 0)
            return DecoderOutput(self.decoder(x, self.remember(memory.vectors), memory.lengths)[0])
        if state is None and memory is not None:
            state = self.start(memory)
        return self._step(self._add_positions(vectors, state.time), state, need_weights)

    def _add_positions(self, vectors: Tensor, start: int) -> Tensor:
        x = self.input_projection(vectors)
        return x if self.positions is None else self.positions(x * self.factor, start=start)

    def start(self, memory: Memory) -> SearchState:
        vectors, mask = self.remember(memory.vectors), memory.build_mask()
        layers = tuple(DecoderLayerStepper(layer, len(vectors)) for layer in self.decoder.layer)
        keys_values = tuple(stepper.layer.cross_attention.project_memory(vectors) for stepper in layers)
        visible = torch.ones(len(vectors), 0, dtype=torch.bool, device=vectors.device)
        memory_mask = None if mask is None else _to_additive(mask[:, None], vectors)
        return SearchState(layers, keys_values, memory_mask, (), visible, 0)

    def select(self, state: SearchState, beams: Tensor, sources: Tensor | None = None) -> SearchState:
        state = replace(state, visible=state.visible.index_select(0, beams))
        if sources is None:
            return state
        tensors = state.memory, state.memory_mask, state.slots
        memory, memory_mask, slots = map_state(lambda tensor: tensor.index_select(0, sources), tensors)
        return replace(state, memory=memory, memory_mask=memory_mask, slots=slots)

    def _step(self, x: Tensor, state: SearchState, need_weights: bool) -> DecoderOutput:
        """Reads the next T vectors x (R, T, D) of each beam."""
        num_sources, steps = len(state.memory[0][0]), x.shape[1]
        k = len(x) // num_sources  # beams of a source
        visible = _extend_visible(state.visible, k, steps)  # (R, T, slots)
        mask = _to_additive(visible.view(num_sources, 1, k * steps, -1), x)
        x = x.reshape(num_sources, k * steps, self.width)  # the beams of a source, concatenated
        all_slots, memory_weights = [], None
        for index, (stepper, memory) in enumerate(zip(state.layers, state.memory, strict=True)):
            x, slots = stepper.attend_self(x, state.slots[index] if state.slots else None, state, mask, steps)
            is_last_layer = index == len(state.layers) - 1
            x, memory_weights = stepper.attend_memory(x, memory, state.memory_mask, need_weights and is_last_layer)
            x = stepper.feed_forward(x)
            all_slots.append(slots)
        vectors = self.decoder.norm(x).view(num_sources * k, steps, self.width)
        if memory_weights is not None:
            memory_weights = memory_weights.reshape(num_sources * k, steps, -1)
        state = replace(state, slots=tuple(all_slots), visible=visible[:, -1], time=state.time + steps)
        return DecoderOutput(vectors, state, memory_weights)


class DecoderLayerStepper:
    """One decoder layer over slots, sub-layer by sub-layer, with packed weights; it computes what the layer computes.

    Masks are added to scores: 0 or -inf.
    """

    def __init__(self, layer: Any, num_sources: int):
        self.layer, attention, cross, feedforward = layer, layer.attention, layer.cross_attention, layer.feedforward
        self.heads = attention.heads

        def pack(weight: Tensor, bias: Tensor, activation: str = "none") -> PackedLinear:
            return PackedLinear(weight, bias, num_sources, activation)

        self.project_self = pack(attention.in_proj.weight, attention.in_proj.bias)
        self.project_self_output = pack(attention.out_proj.weight, attention.out_proj.bias)
        queries = slice(0, cross.width)
        self.project_queries = pack(cross.in_proj.weight[queries], cross.in_proj.bias[queries])
        self.project_cross_output = pack(cross.out_proj.weight, cross.out_proj.bias)
        self.up_projection = pack(feedforward.in_proj.weight, feedforward.in_proj.bias, feedforward.activation)
        self.down_projection = pack(feedforward.out_proj.weight, feedforward.out_proj.bias)

    def attend_self(
        self, x: Tensor, slots: Tensor | None, state: SearchState, mask: Tensor, steps: int
    ) -> tuple[Tensor, Tensor]:
        """Applies self-attention with a mask (B, 1, k·T, slots); returns x, and the slots with new keys and values."""
        layer, norm, filled = self.layer, self.layer.attention_norm, state.visible.shape[1]
        inputs = layer.prepare_input(norm, x)
        stacked = self.project_self(inputs).unflatten(-1, (3, self.heads, -1))  # (B, k·T, 3, H, K)
        if layer.attention.rotary:
            rotated = stacked[:, :, :2].unflatten(1, (-1, steps)).transpose(2, -2)
            rotated = rotate(rotated, state.time).transpose(2, -2).flatten(1, 2)
            stacked = torch.cat([rotated, stacked[:, :, 2:]], dim=2)
        slots = _fill_slots(slots, stacked[:, :, 1:], filled)
        queries, (keys, values) = stacked[:, :, 0], slots[:, : filled + x.shape[1]].unbind(2)
        queries, keys, values = (heads.transpose(1, 2) for heads in (queries, keys, values))  # (B, H, …, K)
        context = self.project_self_output(_attend(layer.attention, queries, keys, values, mask))
        return layer.add_residual(norm, x, context), slots

    def attend_memory(
        self, x: Tensor, memory: KeysValues, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Applies attention over the memory; returns x and, with `need_weights`, the weights (B, k·T, S), the mean over
        heads."""
        layer, norm = self.layer, self.layer.cross_attention_norm
        queries = self.project_queries(layer.prepare_input(norm, x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        mean_weights = None
        if need_weights:
            mean_weights = attend_with_weights(queries, *memory, None if mask is None else mask == 0)[1].mean(1)
        context = self.project_cross_output(_attend(layer.cross_attention, queries, *memory, mask))
        return layer.add_residual(norm, x, context), mean_weights

    def feed_forward(self, x: Tensor) -> Tensor:
        """Applies the feed-forward network."""
        layer, norm = self.layer, self.layer.feedforward_norm
        inputs = layer.prepare_input(norm, x)
        if is_recorded(layer.feedforward):
            return layer.add_residual(norm, x, layer.feedforward(inputs))
        return layer.add_residual(norm, x, self.down_projection(self.up_projection(inputs)))


def _attend(attention: Any, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the context (B, T, D) of queries, keys and values (B, H, ·, K). Recording needs a boolean mask."""
    if is_recorded(attention) and mask is not None:
        mask = mask == 0
    return attention.attend(queries, keys, values, mask, False).transpose(1, 2).flatten(2)


def _extend_visible(visible: Tensor, k: int, steps: int) -> Tensor:
    """Returns which slots the next T steps may attend to, (R, T, filled + k·T), for visible (R, filled).

    A step attends to its beam's past and to its beam's new steps up to itself.
    """
    is_same_beam = torch.eye(k, dtype=torch.bool, device=visible.device)[:, None, :, None]
    new = is_same_beam & causal_mask(steps, device=visible.device)[None, :, None, :]  # (k, T, k, T)
    new = new.reshape(k, steps, -1).repeat(len(visible) // k, 1, 1)
    return torch.cat([visible[:, None].expand(-1, steps, -1), new], dim=-1)


def _to_additive(mask: Tensor, like: Tensor) -> Tensor:
    """Returns 0 where the mask is True, else -inf."""
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(~mask, -torch.inf)


def _fill_slots(slots: Tensor | None, new: Tensor, filled: int) -> Tensor:
    """Writes `new` (B, n, 2, H, K) after the first `filled` slots; returns the slots, or more if they were full."""
    stop = filled + new.shape[1]
    if slots is None or stop > slots.shape[1]:
        larger = new.new_empty(len(new), max(2 * stop, MIN_SLOTS), *new.shape[2:])
        if slots is not None:
            larger[:, :filled] = slots[:, :filled]
        slots = larger
    slots[:, filled:stop] = new
    return slots
