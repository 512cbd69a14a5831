"""Recurrent decoders: without attention, with Luong's, with Luong's and input feeding, with Bahdanau's.

Each begins in a state made from a summary of the memory and ends in one vector per step. They differ in when they
look at the memory:

    HandedOver   never: the first state is all that is known of it (Sutskever et al. 2014)
    Luong        after the network has made its state: all steps run at once
    Feeding      the same, and what was seen enters the next step (Luong et al. 2015, §3.3): step by step
    Bahdanau     before: the previous state asks, the answer enters the cell (Bahdanau et al. 2015): step by step

They know nothing of tokens. Scores are in `layers/attention.py`, cells in `layers/cells.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.build import build_backbone
from seqwise.backbones.memory import Decoded, Decoder, Memory, begun
from seqwise.backbones.states import ModelState
from seqwise.layers.attention import Score, masked_softmax
from seqwise.layers.attentive import StateAttention
from seqwise.layers.cells import Cell, State, make_cell
from seqwise.layers.dropout import VariationalDropout, drop_weights
from seqwise.layers.initialise import xavier_
from seqwise.layers.record import record_value
from seqwise.layers.recurrent import Recurrent, StackedRecurrent
from seqwise.layers.scan import StepRecorder
from seqwise.resolved_settings import ResolvedSettings


class Bridge(nn.Module):
    """The first states of all layers from the memory: h = tanh(W s + b), an LSTM's c without the tanh.

    s is the memory's summary, so that encoder and decoder may differ in width, depth and kind.
    """

    def __init__(self, memory_width: int, cells: list[Cell]):
        super().__init__()
        self.parts = [len(cell.start(1, cell.weight_input)) for cell in cells]
        self.units = cells[0].units
        self.linear = nn.Linear(3 * memory_width, sum(self.parts) * self.units)
        xavier_(self.linear.weight, blocks=sum(self.parts))
        nn.init.zeros_(self.linear.bias)

    def forward(self, memory: Memory) -> tuple[State, ...]:
        parts = iter(self.linear(memory.summary()).split(self.units, dim=-1))
        return tuple((next(parts).tanh(), *(next(parts) for _ in range(count - 1))) for count in self.parts)


class Readout(nn.Module):
    """The attentional vector h~ = tanh(W [c; h]) (Luong et al. 2015, eq. 5)."""

    def __init__(self, memory_width: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(xavier_(torch.empty(width, memory_width + width)))

    def forward(self, context: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(F.linear(torch.cat([context, h], dim=-1), self.weight))


def look(score: Score, queries: Tensor, shared: ModelState) -> tuple[Tensor, Tensor]:
    """queries (R, T, U) over the memory → context (R, T, D) and weights (R, T, S).

    The beams of a memory row are folded into its queries, so that keys and values lie in memory once.
    """
    prepared, values, mask = shared
    folded = queries.reshape(len(values), -1, queries.shape[-1])  # (B, k·T, U)
    weights = masked_softmax(score.compare(folded, prepared), mask)
    context = weights @ values
    return context.view(*queries.shape[:2], -1), weights.view(*queries.shape[:2], -1)


def projected(score: Score, memory: Memory) -> ModelState:
    """What `look` needs of a memory: keys multiplied once, values, and which are there."""
    return score.prepare(memory.vectors), memory.vectors, memory.mask()


class HandedOver(Decoder):
    """A recurrent network that begins where the encoder ended."""

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int):
        super().__init__()
        self.backbone = build_backbone(settings, inputs)
        self.width: int = self.backbone.width  # type: ignore[assignment]
        self.looks_back = settings.model == "attentive-rnn"
        self.bridge = Bridge(memory_width, [layer.cell for layer in self.backbone.deep.layer])  # type: ignore[union-attr]

    def start(self, memory: Memory) -> ModelState:
        state = self.bridge(memory)
        return (), (state, None) if self.looks_back else state

    def forward(
        self, vectors: Tensor, carry: ModelState = None, memory: Memory | None = None, weights: bool = False
    ) -> Decoded:
        shared, own = begun(carry, memory, self)
        states = self.backbone(vectors, own)
        return Decoded(states.vectors, (shared, states.carry))


class Luong(Decoder):
    """Attention after the network: h_t asks the memory, h~_t = tanh(W [c_t; h_t]) is the state of the step.

    Without input feeding no step waits for the attention of the one before, so all run at once. It serves any causal
    backbone; the fixed-window one begins without a state.
    """

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int, score: Score):
        super().__init__()
        self.backbone = build_backbone(settings, inputs)
        self.width: int = self.backbone.width  # type: ignore[assignment]
        self.looks_back = settings.model == "attentive-rnn"
        self.bridge = None
        if settings.model != "feedforward":
            cells = [layer.cell for layer in self.backbone.deep.layer]  # type: ignore[union-attr]
            self.bridge = Bridge(memory_width, cells)
        self.score = score
        self.readout = Readout(memory_width, self.width)

    def start(self, memory: Memory) -> ModelState:
        state = None if self.bridge is None else self.bridge(memory)
        return projected(self.score, memory), (state, None) if self.looks_back else state

    def forward(
        self, vectors: Tensor, carry: ModelState = None, memory: Memory | None = None, weights: bool = False
    ) -> Decoded:
        shared, own = begun(carry, memory, self)
        states = self.backbone(vectors, own)
        context, looked = look(self.score, states.vectors, shared)
        record_value(self, "weights", looked)
        h = self.readout(context, states.vectors)
        return Decoded(h, (shared, states.carry), looked if weights else None)


class Fed:
    """A layer stepped by hand, whose input is x_t and beside it something that only then is known.

    The product of x runs for all steps at once where the cell allows, and the weight's mask is drawn once.
    """

    def __init__(self, layer: Recurrent, x: Tensor):
        self.cell, self.recorder = layer.cell, StepRecorder(layer.cell, x.shape[1])
        self.weight_hidden = drop_weights(layer.cell.weight_hidden, layer.weight_dropout, layer.training)
        own, self.weight_fed = self.cell.weight_input.split([x.shape[2], self.cell.inputs - x.shape[2]], dim=1)
        self.apart = type(self.cell).project is Cell.project  # a cell that norms the product needs it whole
        self.x = (F.linear(x, own, self.cell.bias) if self.apart else x).unbind(1)

    def step(self, t: int, fed: Tensor, state: State) -> State:
        if self.apart:
            a = self.x[t] + F.linear(fed, self.weight_fed)
        else:
            a = self.cell.project(torch.cat([self.x[t], fed], dim=-1))
        return self.cell.step(a, state, self.weight_hidden, self.recorder.record)


class Bahdanau(Decoder):
    """s_t = cell([x_t; c_t], s_{t−1}), where s_{t−1} asks the memory for c_t (Bahdanau et al. 2015, §3.1 and A.2.2).

    The first layer attends. Layers above it read its states and run at once, as does the readout: h~ = tanh(W [c; h])
    stands where the paper has a maxout layer.
    """

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int, score: Score):
        super().__init__()
        recurrent, network = settings.recurrent, settings.network
        self.width = width = network.width
        name = recurrent.cell if settings.model == "attentive-rnn" else settings.model
        drop = recurrent.weight_dropout
        self.first = Recurrent(make_cell(name, inputs + memory_width, width, recurrent), drop)
        above = [Recurrent(make_cell(name, width, width, recurrent), drop) for _ in range(network.depth - 1)]
        self.above = StackedRecurrent(above, dropout=network.dropout) if above else None
        self.dropout = VariationalDropout(network.dropout)
        self.look_back = StateAttention(width, recurrent.attention_span) if settings.model == "attentive-rnn" else None
        self.bridge = Bridge(memory_width, [layer.cell for layer in (self.first, *above)])
        self.score = score
        self.readout = Readout(memory_width, width)

    def start(self, memory: Memory) -> ModelState:
        first, *above = self.bridge(memory)
        return projected(self.score, memory), (first, tuple(above), None)

    def forward(
        self, vectors: Tensor, carry: ModelState = None, memory: Memory | None = None, weights: bool = False
    ) -> Decoded:
        shared, (state, above, past) = begun(carry, memory, self)
        recorder, layer = StepRecorder(self, vectors.shape[1]), Fed(self.first, vectors)
        outputs, contexts, looked = [], [], []
        for t in range(vectors.shape[1]):
            context, weight = look(self.score, state[0][:, None], shared)
            recorder.record("weights", weight[:, 0])
            state = layer.step(t, context[:, 0], state)
            outputs.append(state[0])
            contexts.append(context)
            looked.append(weight)
        recorder.finish(None)
        layer.recorder.finish(None)
        h = torch.stack(outputs, dim=1)
        if self.above is not None:
            h, above = self.above(self.dropout(h), above)
        if self.look_back is not None:
            h, past = self.look_back(h, past)
        h = self.readout(torch.cat(contexts, dim=1), h)
        return Decoded(h, (shared, (state, above, past)), torch.cat(looked, dim=1) if weights else None)


class Feeding(Decoder):
    """Luong's attention with input feeding: cell([x_t; h~_{t−1}]), so that a step knows where the last one looked."""

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int, score: Score):
        super().__init__()
        recurrent, network = settings.recurrent, settings.network
        self.width = width = network.width
        drop = recurrent.weight_dropout
        sizes = [inputs + width, *[width] * (network.depth - 1)]
        self.layer = nn.ModuleList(Recurrent(make_cell(settings.model, size, width, recurrent), drop) for size in sizes)
        self.dropout = network.dropout
        self.bridge = Bridge(memory_width, [layer.cell for layer in self.layer])  # type: ignore[misc]
        self.score = score
        self.readout = Readout(memory_width, width)

    def start(self, memory: Memory) -> ModelState:
        states = self.bridge(memory)
        return projected(self.score, memory), (states, torch.zeros_like(states[0][0]))

    def forward(
        self, vectors: Tensor, carry: ModelState = None, memory: Memory | None = None, weights: bool = False
    ) -> Decoded:
        shared, (states, h) = begun(carry, memory, self)
        recorder, stack, looked, outputs = StepRecorder(self, vectors.shape[1]), self._stack(vectors), [], []
        for t in range(vectors.shape[1]):
            states = stack(t, h, states)
            context, weight = look(self.score, states[-1][0][:, None], shared)
            recorder.record("weights", weight[:, 0])
            h = self.readout(context[:, 0], states[-1][0])
            outputs.append(h)
            looked.append(weight)
        recorder.finish(None)
        for fed in stack.fed:
            fed.recorder.finish(None)
        found = torch.cat(looked, dim=1) if weights else None
        return Decoded(torch.stack(outputs, dim=1), (shared, (states, h)), found)

    def _stack(self, vectors: Tensor) -> Stack:
        return Stack(list(self.layer), vectors, self.dropout if self.training else 0.0)


class Stack:
    """Layers stepped together, the lowest of them fed. Dropout between them has one mask per row."""

    def __init__(self, layers: list[Any], vectors: Tensor, dropout: float):
        rows, steps = vectors.shape[:2]
        self.fed = [Fed(layers[0], vectors)]
        nothing = vectors.new_zeros(rows, steps, 0)  # the layers above have no input but what is fed
        self.fed += [Fed(layer, nothing) for layer in layers[1:]]
        ones = vectors.new_ones(rows, layers[0].units)
        self.masks = [F.dropout(ones, dropout) if dropout else None for _ in layers[1:]]

    def __call__(self, t: int, h: Tensor, states: tuple[State, ...]) -> tuple[State, ...]:
        after = [self.fed[0].step(t, h, states[0])]
        for fed, mask, state in zip(self.fed[1:], self.masks, states[1:], strict=True):
            x = after[-1][0]
            after.append(fed.step(t, x if mask is None else x * mask, state))
        return tuple(after)
