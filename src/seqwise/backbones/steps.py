"""One step of a backbone at fixed addresses: what generation computes for every token.

    step = build_step(backbone, state)        # the state after the prompt
    step.prepare_cache()
    vector = step.advance(x)                  # (B, D) → (B, width), as `backbone(x[:, None], state)` computes it

A step changes its own state in place, with operations whose shapes and addresses never change, so that a CUDA graph can
capture `advance` (`decoding/steps.py`). Weights are prepared once and must not change meanwhile. `prepare_cache` comes
before each `advance`, outside of the graph; `get_state` returns the state from which the backbone itself continues.
Nothing is recorded, and there are no gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.encoder import AttentiveBackbone, FeedForwardBackbone, RecurrentBackbone
from seqwise.backbones.states import ModelState, map_state
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.kernels.packed_linear import PackedLinear
from seqwise.layers.attention import KeysValues
from seqwise.layers.cells import State
from seqwise.layers.positions import rotary, sines_and_cosines
from seqwise.layers.record import pause_recording
from seqwise.layers.recurrent import Recurrent
from seqwise.layers.scan import build_cell_step


def build_step(backbone: nn.Module, state: ModelState) -> BackboneStep | None:
    """Returns the step that continues from a state, or None for a backbone that has none, such as a registered one."""
    step_class = STEP_CLASSES.get(type(backbone))
    if step_class is None or state is None:
        return None
    if isinstance(backbone, RecurrentBackbone) and any(type(layer) is not Recurrent for layer in backbone.stack.layer):
        return None
    return step_class(backbone, state)


class BackboneStep(ABC):
    """The base of all steps."""

    batch_size: int

    def prepare_cache(self) -> None:  # noqa: B027 - most steps need nothing
        """Prepares the cache of past steps for one more: chooses its slot, and makes room if the cache is full."""

    @abstractmethod
    def advance(self, x: Tensor) -> Tensor:
        """Returns the vectors (B, width) of one more step x (B, D). The next call may overwrite them."""

    @abstractmethod
    def get_state(self) -> ModelState:
        """Returns the state after the last step, as the backbone returns it."""


class FeedForwardStep(BackboneStep):
    """The fixed window, shifted by one vector per step."""

    def __init__(self, backbone: FeedForwardBackbone, state: Tensor):
        self.batch_size = batch_size = len(state)
        self.history = F.pad(state.transpose(1, 2), (1, 0))  # (B, D, window), the newest at the end
        self.first_layer = PackedLinear(backbone.first.weight, backbone.first.bias, batch_size, "relu")
        layers: Any = backbone.layer
        self.layers = [PackedLinear(layer.weight, layer.bias, batch_size, "relu") for layer in layers]

    def advance(self, x: Tensor) -> Tensor:
        history = torch.cat([self.history[:, :, 1:], x[:, :, None]], dim=2)
        self.history.copy_(history)
        h = self.first_layer(history.flatten(1))
        for layer in self.layers:
            h = h + layer(h)
        return h

    def get_state(self) -> ModelState:
        return self.history[:, :, 1:].transpose(1, 2).clone()


class RecurrentStep(BackboneStep):
    """One step of each cell."""

    def __init__(self, backbone: RecurrentBackbone, state: tuple[State, ...]):
        layers: Any = backbone.stack.layer
        self.cell_steps = [build_cell_step(layer.cell) for layer in layers]
        self.state, self.batch_size = map_state(torch.clone, state), len(state[0][0])
        self.sum_layers = backbone.stack.sum_layers

    def advance(self, x: Tensor) -> Tensor:
        for cell_step, state in zip(self.cell_steps, self.state, strict=True):
            for old, new in zip(state, cell_step(x, state), strict=True):
                old.copy_(new)
            x = state[0]
        return sum((state[0] for state in self.state[1:]), self.state[0][0]) if self.sum_layers else x

    def get_state(self) -> ModelState:
        return map_state(torch.clone, self.state)


class Slots:
    """The slots of several `KeyValueBuffer`s: which are filled, and the one of the current step."""

    def __init__(self, batch_size: int, size: int, like: Tensor):
        self.size = size
        self.current = torch.zeros(1, dtype=torch.long, device=like.device)
        self.mask = like.new_full((batch_size, 1, 1, size), -torch.inf)  # added to scores

    def mark_filled(self, count: int) -> None:
        """Marks the first `count` slots as filled, and no others."""
        self.mask.fill_(-torch.inf)[..., :count] = 0


class KeyValueBuffer:
    """Keys and values of the steps in the slots; H heads of width K."""

    def __init__(self, batch_size: int, heads: int, width: int, slots: Slots):
        self.slots = slots
        self.keys_values = slots.mask.new_zeros(batch_size, slots.size, 2, heads, width)
        self.keys, self.values = self.keys_values.permute(2, 0, 3, 1, 4).unbind(0)  # views (B, H, size, K)

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Writes keys and values (B, H, n, K) to the first n slots."""
        count = keys.shape[2]
        self.keys[:, :, :count], self.values[:, :, :count] = keys, values

    def attend(self, stacked: Tensor) -> Tensor:
        """Writes the key and value of a step to the current slot; returns the context (B, H·K) over all filled slots.

        `stacked` (B, 3, H, K) is query, key and value of the step.
        """
        self.keys_values.index_copy_(1, self.slots.current, stacked[:, None, 1:])
        query = stacked[:, 0, :, None]
        return F.scaled_dot_product_attention(query, self.keys, self.values, self.slots.mask).flatten(1)


class AttentiveStep(RecurrentStep):
    """The recurrent step, then attention over a ring of the newest states: itself and `attention_span` before it."""

    def __init__(self, backbone: AttentiveBackbone, state: tuple[Any, tuple[Tensor, Tensor, Tensor]]):
        recurrent_state, (keys, values, is_valid) = state
        super().__init__(backbone, recurrent_state)
        batch_size, self.count, size = len(keys), keys.shape[1], backbone.state_attention.attention_span + 1
        self.project = PackedLinear(backbone.state_attention.weight, None, batch_size)
        self.slots = Slots(batch_size, size, keys)
        self.buffer = KeyValueBuffer(batch_size, 1, keys.shape[2], self.slots)
        self.slots.mark_filled(self.count)
        self.slots.mask[:, 0, 0, : self.count].masked_fill_(~is_valid, -torch.inf)
        self.buffer.fill(keys[:, None], values[:, None])

    def prepare_cache(self) -> None:
        self.slots.current.fill_(self.count % self.slots.size)
        self.count += 1

    def advance(self, x: Tensor) -> Tensor:
        s = super().advance(x)
        self.slots.mask.index_fill_(3, self.slots.current, 0)
        return s + self.buffer.attend(self.project(s).view(len(s), 3, 1, -1))

    def get_state(self) -> ModelState:
        size, device = self.slots.size, self.slots.mask.device
        newest = torch.arange(max(0, self.count - size + 1), self.count, device=device) % size
        keys, values = (tensor[:, 0].index_select(1, newest) for tensor in (self.buffer.keys, self.buffer.values))
        is_valid = self.slots.mask[:, 0, 0].index_select(1, newest) == 0
        return super().get_state(), (keys, values, is_valid)


class TransformerStep(BackboneStep):
    """All layers with their keys and values. When the window is full, its newer half is read again."""

    def __init__(self, backbone: TransformerBackbone, state: tuple[Tensor, tuple[KeysValues, ...]]):
        history, cache = state
        self.backbone, window, (self.batch_size, _, inputs) = backbone, backbone.window, history.shape
        layers: Any = backbone.encoder.layer
        self.slots = Slots(1, window, history)
        self.layers = [LayerStep(layer, self.batch_size, self.slots) for layer in layers]
        self.history = history.new_zeros(self.batch_size, window, inputs)
        self.positions = self.rotations = None
        if backbone.positions is not None:
            self.positions = backbone.positions(history.new_zeros(1, window, backbone.width))[0]  # (window, D)
        if layers[0].attention.rotary:
            sine, cosine = sines_and_cosines(window, backbone.width // layers[0].attention.heads, history).unbind(1)
            self.rotations = torch.complex(cosine, sine)  # (window, K/2)
        self._load_state(history, cache)

    def _load_state(self, history: Tensor, cache: Sequence[KeysValues]) -> None:
        """Continues from this state."""
        self.count = history.shape[1]
        self.slots.mark_filled(self.count)
        self.history[:, : self.count] = history
        for layer, (keys, values) in zip(self.layers, cache):  # none, if there is no history
            layer.buffer.fill(rotary(keys) if layer.layer.attention.rotary else keys, values)

    def prepare_cache(self) -> None:
        if self.count == self.slots.size:
            recent = self.history[:, self.count - max(self.count // 2, 1) + 1 :]
            self._load_state(*(self.backbone(recent).state if recent.shape[1] else (recent, ())))
        self.slots.current.fill_(self.count)
        self.count += 1

    def advance(self, x: Tensor) -> Tensor:
        current = self.slots.current
        self.history.index_copy_(1, current, x[:, None])
        self.slots.mask.index_fill_(3, current, 0)
        x = self.backbone.input_projection(x)
        if self.positions is not None:
            x = x * self.backbone.factor + self.positions.index_select(0, current)
        rotation = None if self.rotations is None else self.rotations.index_select(0, current)
        for layer in self.layers:
            x = layer(x, rotation)
        return self.backbone.encoder.norm(x)

    def get_state(self) -> ModelState:
        with pause_recording():
            return self.backbone(self.history[:, : self.count].clone()).state


class LayerStep:
    """One Transformer layer for one step, (B, D) → (B, D)."""

    def __init__(self, layer: Any, batch_size: int, slots: Slots):
        self.layer, attention, feedforward = layer, layer.attention, layer.feedforward
        self.heads = attention.heads
        self.buffer = KeyValueBuffer(batch_size, self.heads, attention.width // self.heads, slots)
        self.project = PackedLinear(attention.in_proj.weight, attention.in_proj.bias, batch_size)
        self.project_output = PackedLinear(attention.out_proj.weight, attention.out_proj.bias, batch_size)
        in_proj, out_proj = feedforward.in_proj, feedforward.out_proj
        self.up_projection = PackedLinear(in_proj.weight, in_proj.bias, batch_size, feedforward.activation)
        self.down_projection = PackedLinear(out_proj.weight, out_proj.bias, batch_size)

    def __call__(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        layer, norm = self.layer, self.layer.attention_norm
        stacked = self.project(layer.prepare_input(norm, x)).view(len(x), 3, self.heads, -1)
        if rotation is not None:  # rotates query and key, as `rotary` does
            torch.view_as_complex(stacked[:, :2].unflatten(-1, (-1, 2))).mul_(rotation)
        x = layer.add_residual(norm, x, self.project_output(self.buffer.attend(stacked)))
        norm = layer.feedforward_norm
        hidden = self.up_projection(layer.prepare_input(norm, x))
        return layer.add_residual(norm, x, self.down_projection(hidden))


STEP_CLASSES: dict[type[nn.Module], Callable[[Any, ModelState], BackboneStep]] = {
    FeedForwardBackbone: FeedForwardStep,
    RecurrentBackbone: RecurrentStep,
    AttentiveBackbone: AttentiveStep,
    TransformerBackbone: TransformerStep,
}
