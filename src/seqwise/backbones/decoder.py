"""Recurrent decoders, and `build_decoder`, which builds the decoder of any family.

Each computes its initial state from a summary of the memory, and returns one vector per step. They differ in when they
attend to the memory:

    InitialStateDecoder   never: the initial state is all it gets of the memory (Sutskever et al. 2014)
    LuongDecoder          after the recurrent (or fixed-window) layers: all steps run in parallel
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
from seqwise.families import RECURRENT_FAMILIES
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
    """Returns the decoder that the settings describe, for vectors of width `inputs` over a memory of width
    `memory_width`.

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
        if settings.model not in RECURRENT_FAMILIES:
            raise UsageError(
                f"the {settings.model} decoder has no initial state, so it needs attention; received none.",
                fix="Pass --translate.attention general.",
            )
        return InitialStateDecoder(settings, inputs, memory_width)
    score = build_score(attention, settings.network.width, memory_width)
    if settings.model in RECURRENT_FAMILIES and attention == "additive":
        return BahdanauDecoder(settings, inputs, memory_width, score)
    if input_feeding and supports_input_feeding(settings.model, attention):
        return InputFeedingDecoder(settings, inputs, memory_width, score)
    return LuongDecoder(settings, inputs, memory_width, score)


def supports_input_feeding(model: str, attention: str) -> bool:
    """Returns whether the attention of a step can enter the next: in RNN, GRU or LSTM that attend after the cell."""
    return model in RECURRENT_FAMILIES and model != "attentive-rnn" and attention in ("dot", "general")


def build_score(attention: str, width: int, memory_width: int) -> Score:
    """Returns the module that scores states of `width` against vectors of the memory."""
    if attention == "additive":
        return Additive(width, memory_width, width)
    if attention == "general":
        return General(width, memory_width)
    if width != memory_width:
        raise UsageError(
            f"dot attention compares vectors of one width; the decoder's is {width}, the encoder's {memory_width}.",
            fix="Use general attention, or choose the width so that both agree.",
        )
    return Dot()


class Bridge(nn.Module):
    """Computes the initial states of all layers from a summary s of the memory: h = tanh(W s + b), or c = W s + b.

    So encoder and decoder may differ in width, depth and cell.
    """

    def __init__(self, memory_width: int, cells: list[Cell]):
        super().__init__()
        self.tensors_per_state = [len(cell.start(1, cell.weight_input)) for cell in cells]
        self.units = cells[0].units
        self.linear = nn.Linear(3 * memory_width, sum(self.tensors_per_state) * self.units)
        xavier_(self.linear.weight, blocks=sum(self.tensors_per_state))
        nn.init.zeros_(self.linear.bias)

    def forward(self, memory: Memory) -> tuple[State, ...]:
        tensors = iter(self.linear(memory.compute_summary()).split(self.units, dim=-1))
        return tuple(
            (next(tensors).tanh(), *(next(tensors) for _ in range(count - 1))) for count in self.tensors_per_state
        )


class Readout(nn.Module):
    """The attentional vector h~ = tanh(W [c; h]) (Luong et al. 2015, eq. 5)."""

    def __init__(self, memory_width: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(xavier_(torch.empty(width, memory_width + width)))

    def forward(self, context: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(F.linear(torch.cat([context, h], dim=-1), self.weight))


def attend_memory(score: Score, queries: Tensor, memory_state: ModelState) -> tuple[Tensor, Tensor]:
    """Returns the context (R, T, D) and the weights (R, T, S) of queries (R, T, U) over a prepared memory.

    The queries of a source's beams are put into one sequence, so that keys and values are stored once.
    """
    keys, values, mask = memory_state
    folded = queries.reshape(len(values), -1, queries.shape[-1])  # (B, k·T, U)
    weights = masked_softmax(score.compare(folded, keys), mask)
    context = weights @ values
    return context.view(*queries.shape[:2], -1), weights.view(*queries.shape[:2], -1)


def prepare_memory(score: Score, memory: Memory) -> ModelState:
    """Returns what `attend_memory` needs of a memory: keys projected once, values, and their mask."""
    return score.prepare(memory.vectors), memory.vectors, memory.build_mask()


class InitialStateDecoder(Decoder):
    """A causal backbone whose initial state is computed from the memory; a fixed-window backbone has none."""

    def __init__(self, settings: ResolvedSettings, inputs: int, memory_width: int):
        super().__init__()
        self.backbone = build_backbone(settings, inputs)
        self.width: int = self.backbone.width  # type: ignore[assignment]
        if self.width != settings.network.width:  # possible in a registered network
            expected, received = settings.network.width, f"the outputs of {settings.model} have {self.width}"
            problem = f"a decoder needs vectors of width {expected}; {received}."
            raise UsageError(problem, fix="Build the network with settings.network.width.")
        self.is_attentive = settings.model == "attentive-rnn"
        self.bridge = None
        if settings.model in RECURRENT_FAMILIES:
            cells = [layer.cell for layer in self.backbone.stack.layer]  # type: ignore[union-attr]
            self.bridge = Bridge(memory_width, cells)

    def start(self, memory: Memory) -> ModelState:
        state = None if self.bridge is None else self.bridge(memory)
        return (), (state, None) if self.is_attentive else state

    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        memory_state, backbone_state = continue_or_start(state, memory, self)
        output = self.backbone(vectors, backbone_state)
        return DecoderOutput(output.vectors, (memory_state, output.state))


class LuongDecoder(InitialStateDecoder):
    """Attention after the network: h_t is the query, h~_t = tanh(W [c_t; h_t]) the output of the step.

    Without input feeding no step needs the attention of the previous step, so all run in parallel.
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
        output = super().forward(vectors, state, memory)
        context, memory_weights = attend_memory(self.score, output.vectors, output.state[0])
        for name, value in (("queries", output.vectors), ("keys", output.state[0][0]), ("weights", memory_weights)):
            record_value(self, name, value)
        h = self.readout(context, output.vectors)
        return DecoderOutput(h, output.state, memory_weights if need_weights else None)


class LayerStepper:
    """A layer run step by step on [x_t; f_t], where the feedback f_t is known only when step t runs.

    The product of x is computed for all steps together where the cell allows it, and the dropout mask of the recurrent
    weights is drawn once.
    """

    def __init__(self, layer: Recurrent, x: Tensor):
        self.cell, self.recorder = layer.cell, StepRecorder(layer.cell, x.shape[1])
        self.weight_hidden = layer.get_weight_hidden()
        weight_x, self.weight_feedback = self.cell.weight_input.split(
            [x.shape[2], self.cell.inputs - x.shape[2]], dim=1
        )
        self.is_linear = type(self.cell).project is Cell.project  # a layer norm needs the whole product
        self.x = (F.linear(x, weight_x, self.cell.bias) if self.is_linear else x).unbind(1)

    def step(self, t: int, feedback: Tensor, state: State) -> State:
        """Returns the state after step t."""
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
        self.state_attention = (
            StateAttention(width, recurrent.attention_span) if settings.model == "attentive-rnn" else None
        )
        self.bridge = Bridge(memory_width, [layer.cell for layer in layers])
        self.score = score
        self.readout = Readout(memory_width, width)

    def start(self, memory: Memory) -> ModelState:
        first_state, *above_state = self.bridge(memory)
        return prepare_memory(self.score, memory), (first_state, tuple(above_state), None)

    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        memory_state, (first_state, above_state, past_states) = continue_or_start(state, memory, self)
        recorder, stepper = StepRecorder(self, vectors.shape[1]), LayerStepper(self.first, vectors)
        outputs, contexts, step_weights = [], [], []
        for t in range(vectors.shape[1]):
            query = recorder.record("queries", first_state[0])
            context, weights = attend_memory(self.score, query[:, None], memory_state)
            recorder.record("weights", weights[:, 0])
            first_state = stepper.step(t, context[:, 0], first_state)
            outputs.append(first_state[0])
            contexts.append(context)
            step_weights.append(weights)
        record_value(self, "keys", memory_state[0])
        recorder.finish(None)
        stepper.recorder.finish(None)
        h = torch.stack(outputs, dim=1)
        if self.above is not None:
            h, above_state = self.above(self.dropout(h), above_state)
        if self.state_attention is not None:
            h, past_states = self.state_attention(h, past_states)
        h = self.readout(torch.cat(contexts, dim=1), h)
        memory_weights = torch.cat(step_weights, dim=1) if need_weights else None
        return DecoderOutput(h, (memory_state, (first_state, above_state, past_states)), memory_weights)


class InputFeedingDecoder(Decoder):
    """Luong's attention with input feeding, cell([x_t; h~_{t−1}]): a step knows what the previous step attended to."""

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
        layer_states = self.bridge(memory)
        return prepare_memory(self.score, memory), (layer_states, torch.zeros_like(layer_states[0][0]))

    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        memory_state, (layer_states, h) = continue_or_start(state, memory, self)
        num_beams, steps = vectors.shape[:2]
        recorder = StepRecorder(self, steps)
        empty = vectors.new_zeros(num_beams, steps, 0)  # all input of the upper layers is known only when a step runs
        inputs = [vectors, *[empty] * (len(self.layer) - 1)]
        steppers = [LayerStepper(layer, x) for layer, x in zip(self.layer, inputs, strict=True)]  # type: ignore[arg-type]
        ones = vectors.new_ones(num_beams, self.width)  # dropout between layers has one mask for all steps
        dropout = self.dropout if self.training else 0.0
        masks = [None, *(F.dropout(ones, dropout) if dropout else None for _ in self.layer[1:])]
        outputs, step_weights = [], []
        for t in range(steps):
            x, new_states = h, []
            for stepper, mask, layer_state in zip(steppers, masks, layer_states, strict=True):
                new_states.append(stepper.step(t, x if mask is None else x * mask, layer_state))
                x = new_states[-1][0]
            layer_states = tuple(new_states)
            query = recorder.record("queries", x)
            context, weights = attend_memory(self.score, query[:, None], memory_state)
            recorder.record("weights", weights[:, 0])
            h = self.readout(context[:, 0], x)
            outputs.append(h)
            step_weights.append(weights)
        record_value(self, "keys", memory_state[0])
        for each_recorder in (recorder, *(stepper.recorder for stepper in steppers)):
            each_recorder.finish(None)
        memory_weights = torch.cat(step_weights, dim=1) if need_weights else None
        return DecoderOutput(torch.stack(outputs, dim=1), (memory_state, (layer_states, h)), memory_weights)
