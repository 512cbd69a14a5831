"""Recurrent decoders, and `build_decoder`, which builds the decoder that the settings describe.

Each computes its initial state from a summary of the memory, and returns one vector per step. They differ in when they
attend to the memory:

    InitialStateDecoder   never: the initial state is all it gets of the memory (Sutskever et al. 2014)
    LuongDecoder          after the recurrent layers: all steps run in parallel
    InputFeedingDecoder   the same, and the result enters the next step (Luong et al. 2015, §3.3): step by step
    BahdanauDecoder       before: the previous state is the query, the context enters the cell (Bahdanau et al. 2015)

They know nothing of tokens. The interface of decoders is in `memory.py`, the Transformer's in `transformer.py`,
scores are in `layers/attention.py`, cells in `layers/cells.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.encoder import build_backbone, build_recurrent_layers, get_cell_name
from seqwise.backbones.memory import Decoder, DecoderOutput, Memory, continue_or_start
from seqwise.backbones.states import ModelState
from seqwise.backbones.transformer import TransformerDecoder
from seqwise.errors import UsageError
from seqwise.families import RECURRENT
from seqwise.layers.attention import Additive, Dot, General, Score, masked_softmax
from seqwise.layers.attentive import StateAttention
from seqwise.layers.cells import Cell, State
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.initialise import xavier_
from seqwise.layers.record import record_value
from seqwise.layers.recurrent import Recurrent, StackedRecurrent
from seqwise.layers.scan import StepRecorder
from seqwise.resolved_settings import ResolvedSettings


def build_decoder(
    settings: ResolvedSettings,
    inputs: int,
    memory_width: int,
    max_length: int,
    attention: str | None = None,
    input_feeding: bool | None = None,
) -> Decoder:
    """The decoder that the settings describe, for vectors of width `inputs` over a memory of width `memory_width`.

    `attention` of recurrent and fixed-window decoders is none, additive, dot or general; the default is
    `translate.attention`. The default of `input_feeding` is `translate.input_feeding`, or False for a task that passes
    its own `attention`. `max_length` is the number of learned positions.
    """
    if input_feeding is None:
        input_feeding = attention is None and settings.translate.input_feeding
    attention = attention or settings.translate.attention
    if settings.model == "transformer":
        return TransformerDecoder(settings, inputs, memory_width, max_length)
    if attention == "none":
        if settings.model not in RECURRENT:
            raise UsageError(
                f"the {settings.model} decoder has no initial state, so it needs attention; received none.",
                repair="Pass --translate.attention general.",
            )
        return InitialStateDecoder(settings, inputs, memory_width)
    score = build_score(attention, settings.network.width, memory_width)
    if settings.model in RECURRENT and attention == "additive":
        return BahdanauDecoder(settings, inputs, memory_width, score)
    if input_feeding and supports_input_feeding(settings.model, attention):
        return InputFeedingDecoder(settings, inputs, memory_width, score)
    return LuongDecoder(settings, inputs, memory_width, score)


def supports_input_feeding(model: str, attention: str) -> bool:
    """Whether the attention of a step can enter the next one: in recurrent decoders that attend after the cell."""
    return model in RECURRENT and model != "attentive-rnn" and attention in ("dot", "general")


def build_score(attention: str, width: int, memory_width: int) -> Score:
    """The module that scores states of `width` against vectors of the memory."""
    if attention == "additive":
        return Additive(width, memory_width, width)
    if attention == "general":
        return General(width, memory_width)
    if width != memory_width:
        raise UsageError(
            f"dot attention compares vectors of one width; the decoder's is {width}, the encoder's {memory_width}.",
            repair="Use general attention, or choose the width so that both agree.",
        )
    return Dot()


class Bridge(nn.Module):
    """The initial states of all layers: h = tanh(W s + b), an LSTM's c without the tanh, s a summary of the memory.

    So encoder and decoder may differ in width, depth and kind.
    """

    def __init__(self, memory_width: int, cells: list[Cell]):
        super().__init__()
        self.tensors_per_state = [len(cell.start(1, cell.weight_input)) for cell in cells]
        self.units = cells[0].units
        self.linear = nn.Linear(3 * memory_width, sum(self.tensors_per_state) * self.units)
        xavier_(self.linear.weight, blocks=sum(self.tensors_per_state))
        nn.init.zeros_(self.linear.bias)

    def forward(self, memory: Memory) -> tuple[State, ...]:
        parts = iter(self.linear(memory.summary()).split(self.units, dim=-1))
        return tuple((next(parts).tanh(), *(next(parts) for _ in range(count - 1))) for count in self.tensors_per_state)


class Readout(nn.Module):
    """The attentional vector h~ = tanh(W [c; h]) (Luong et al. 2015, eq. 5)."""

    def __init__(self, memory_width: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(xavier_(torch.empty(width, memory_width + width)))

    def forward(self, context: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(F.linear(torch.cat([context, h], dim=-1), self.weight))


def attend_memory(score: Score, queries: Tensor, shared: ModelState) -> tuple[Tensor, Tensor]:
    """queries (R, T, U) over the memory → context (R, T, D) and weights (R, T, S).

    The beams of a memory row are folded into its queries, so that keys and values are stored once.
    """
    keys, values, mask = shared
    folded = queries.reshape(len(values), -1, queries.shape[-1])  # (B, k·T, U)
    weights = masked_softmax(score.compare(folded, keys), mask)
    context = weights @ values
    return context.view(*queries.shape[:2], -1), weights.view(*queries.shape[:2], -1)


def prepare_memory(score: Score, memory: Memory) -> ModelState:
    """What `attend_memory` needs of a memory: keys projected once, values, and their mask."""
    return score.prepare(memory.vectors), memory.vectors, memory.mask()


class InitialStateDecoder(Decoder):
    """A causal backbone whose initial state is computed from the memory; a fixed-window backbone has none."""

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int):
        super().__init__()
        self.backbone = build_backbone(settings, inputs)
        self.width: int = self.backbone.width  # type: ignore[assignment]
        if self.width != settings.network.width:  # of a registered network
            problem = f"a decoder needs states of width {settings.network.width}; those of {settings.model} have "
            raise UsageError(f"{problem}{self.width}.", repair="Build the network with settings.network.width.")
        self.is_attentive = settings.model == "attentive-rnn"
        self.bridge = None
        if settings.model in RECURRENT:
            cells = [layer.cell for layer in self.backbone.deep.layer]  # type: ignore[union-attr]
            self.bridge = Bridge(memory_width, cells)

    def start(self, memory: Memory) -> ModelState:
        state = None if self.bridge is None else self.bridge(memory)
        return (), (state, None) if self.is_attentive else state

    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        shared, own_state = continue_or_start(state, memory, self)
        states = self.backbone(vectors, own_state)
        return DecoderOutput(states.vectors, (shared, states.state))


class LuongDecoder(InitialStateDecoder):
    """Attention after the network: h_t is the query, h~_t = tanh(W [c_t; h_t]) the output of the step.

    Without input feeding no step needs the attention of the one before, so all run in parallel.
    """

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int, score: Score):
        super().__init__(settings, inputs, memory_width)
        self.score = score
        self.readout = Readout(memory_width, self.width)

    def start(self, memory: Memory) -> ModelState:
        return prepare_memory(self.score, memory), super().start(memory)[1]

    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        states = super().forward(vectors, state, memory)
        context, memory_weights = attend_memory(self.score, states.vectors, states.state[0])
        record_value(self, "weights", memory_weights)
        h = self.readout(context, states.vectors)
        return DecoderOutput(h, states.state, memory_weights if need_weights else None)


class LayerStepper:
    """A layer run step by step on [x_t; f_t], where the feedback f_t is known only when step t runs.

    The product of x is computed for all steps together where the cell allows it, and the dropout mask of the recurrent
    weights is drawn once.
    """

    def __init__(self, layer: Recurrent, x: Tensor):
        self.cell, self.recorder = layer.cell, StepRecorder(layer.cell, x.shape[1])
        self.weight_hidden = layer.recurrent_matrix()
        weight_x, self.weight_feedback = self.cell.weight_input.split(
            [x.shape[2], self.cell.inputs - x.shape[2]], dim=1
        )
        self.is_linear = type(self.cell).project is Cell.project  # a layer norm needs the whole product
        self.x = (F.linear(x, weight_x, self.cell.bias) if self.is_linear else x).unbind(1)

    def step(self, t: int, feedback: Tensor, state: State) -> State:
        if self.is_linear:
            a = self.x[t] + F.linear(feedback, self.weight_feedback)
        else:
            a = self.cell.project(torch.cat([self.x[t], feedback], dim=-1))
        return self.cell.step(a, state, self.weight_hidden, self.recorder.record)


class BahdanauDecoder(Decoder):
    """s_t = cell([x_t; c_t], s_{t−1}), where s_{t−1} is the query for c_t (Bahdanau et al. 2015, §3.1 and A.2.2).

    The first layer attends. Layers above it run in parallel over time, as does the readout h~ = tanh(W [c; h]), which
    replaces the maxout layer of the paper.
    """

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int, score: Score):
        super().__init__()
        recurrent, network = settings.recurrent, settings.network
        self.width = width = network.width
        inputs += memory_width
        layers = build_recurrent_layers(get_cell_name(settings), inputs, width, network.depth, recurrent)
        self.first: Recurrent = layers[0]
        self.above = StackedRecurrent(layers[1:], dropout=network.dropout) if layers[1:] else None
        self.dropout = VariationalDropout(network.dropout)
        self.look_back = StateAttention(width, recurrent.attention_span) if settings.model == "attentive-rnn" else None
        self.bridge = Bridge(memory_width, [layer.cell for layer in layers])
        self.score = score
        self.readout = Readout(memory_width, width)

    def start(self, memory: Memory) -> ModelState:
        first, *above = self.bridge(memory)
        return prepare_memory(self.score, memory), (first, tuple(above), None)

    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        shared, (first, above, past) = continue_or_start(state, memory, self)
        recorder, stepper = StepRecorder(self, vectors.shape[1]), LayerStepper(self.first, vectors)
        outputs, contexts, step_weights = [], [], []
        for t in range(vectors.shape[1]):
            context, weight = attend_memory(self.score, first[0][:, None], shared)
            recorder.record("weights", weight[:, 0])
            first = stepper.step(t, context[:, 0], first)
            outputs.append(first[0])
            contexts.append(context)
            step_weights.append(weight)
        recorder.finish(None)
        stepper.recorder.finish(None)
        h = torch.stack(outputs, dim=1)
        if self.above is not None:
            h, above = self.above(self.dropout(h), above)
        if self.look_back is not None:
            h, past = self.look_back(h, past)
        h = self.readout(torch.cat(contexts, dim=1), h)
        memory_weights = torch.cat(step_weights, dim=1) if need_weights else None
        return DecoderOutput(h, (shared, (first, above, past)), memory_weights)


class InputFeedingDecoder(Decoder):
    """Luong's attention with input feeding: cell([x_t; h~_{t−1}]), so that a step knows what the last attended to."""

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int, score: Score):
        super().__init__()
        network = settings.network
        self.width = width = network.width
        layers = build_recurrent_layers(settings.model, inputs + width, width, network.depth, settings.recurrent)
        self.layer = nn.ModuleList(layers)
        self.dropout = network.dropout
        self.bridge = Bridge(memory_width, [layer.cell for layer in layers])
        self.score = score
        self.readout = Readout(memory_width, width)

    def start(self, memory: Memory) -> ModelState:
        states = self.bridge(memory)
        return prepare_memory(self.score, memory), (states, torch.zeros_like(states[0][0]))

    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        shared, (states, h) = continue_or_start(state, memory, self)
        rows, steps = vectors.shape[:2]
        recorder = StepRecorder(self, steps)
        empty = vectors.new_zeros(rows, steps, 0)  # all input of the upper layers is known only when a step runs
        inputs = [vectors, *[empty] * (len(self.layer) - 1)]
        steppers = [LayerStepper(layer, x) for layer, x in zip(self.layer, inputs, strict=True)]  # type: ignore[arg-type]
        ones = vectors.new_ones(rows, self.width)  # dropout between layers has one mask per row
        dropout = self.dropout if self.training else 0.0
        masks = [None, *(F.dropout(ones, dropout) if dropout else None for _ in self.layer[1:])]
        outputs, step_weights = [], []
        for t in range(steps):
            x, new_states = h, []
            for stepper, mask, layer_state in zip(steppers, masks, states, strict=True):
                new_states.append(stepper.step(t, x if mask is None else x * mask, layer_state))
                x = new_states[-1][0]
            states = tuple(new_states)
            context, weight = attend_memory(self.score, x[:, None], shared)
            recorder.record("weights", weight[:, 0])
            h = self.readout(context[:, 0], x)
            outputs.append(h)
            step_weights.append(weight)
        for each_recorder in (recorder, *(stepper.recorder for stepper in steppers)):
            each_recorder.finish(None)
        memory_weights = torch.cat(step_weights, dim=1) if need_weights else None
        return DecoderOutput(torch.stack(outputs, dim=1), (shared, (states, h)), memory_weights)
