"""Backbones and encoders of every family, built from settings; the Transformer's is in `transformer.py`.

An encoder is a backbone that reads whole sequences and may be bidirectional. It is called as
`encoder(vectors, lengths=…) → States` and never continues a sequence; the state that it returns is the one after the
last valid step, or None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.own import OwnBackbone, is_own_network
from seqwise.backbones.states import ModelState, States
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.errors import UsageError
from seqwise.layers.attentive import StateAttention
from seqwise.layers.cells import make_cell
from seqwise.layers.initialise import he_
from seqwise.layers.record import record, record_value
from seqwise.layers.recurrent import Bidirectional, Recurrent, StackedRecurrent, reverse_steps, valid_steps
from seqwise.layers.scan import zero_padding
from seqwise.resolved_settings import ResolvedRecurrentSettings, ResolvedSettings


def build_backbone(settings: ResolvedSettings, inputs: int) -> nn.Module:
    """The causal backbone that the settings describe, for vectors of width `inputs`."""
    network, recurrent, window = settings.network, settings.recurrent, settings.data.window
    if is_own_network(settings):
        return OwnBackbone(settings, inputs, causal=True)
    if settings.model == "feedforward":
        return FeedForwardBackbone(inputs, network.width, network.depth, settings.context.length, network.dropout)
    if settings.model == "transformer":
        assert isinstance(window, int)  # the language task refuses "full"
        return TransformerBackbone(settings, inputs, window)
    layers = build_recurrent_layers(get_cell_name(settings), inputs, network.width, network.depth, recurrent)
    if settings.model == "attentive-rnn":
        return AttentiveBackbone(layers, network.dropout, recurrent.attention_span)
    return RecurrentBackbone(layers, network.dropout)


def build_encoder(settings: ResolvedSettings, inputs: int, max_length: int) -> nn.Module:
    """The encoder that the settings describe, for vectors of width `inputs` and sequences up to `max_length`."""
    network, recurrent = settings.network, settings.recurrent
    if is_own_network(settings):
        return OwnBackbone(settings, inputs)
    if settings.model == "transformer":
        return TransformerBackbone(settings, inputs, max_length, causal=False)
    if settings.model == "feedforward":
        return CentredFeedForward(inputs, network.width, network.depth, settings.context.length, network.dropout)
    if not recurrent.bidirectional:
        return build_backbone(settings, inputs)
    units = -(-network.width // 2)  # of each direction
    if settings.model != "attentive-rnn" and recurrent.concat_directions:
        layers = build_recurrent_layers(settings.model, inputs, units, network.depth, recurrent, bidirectional=True)
        return BidirectionalBackbone(layers, network.dropout)
    half_settings = settings.model_copy(update={"network": network.model_copy(update={"width": units})})
    return SeparateDirections(build_backbone(half_settings, inputs), build_backbone(half_settings, inputs))


def get_cell_name(settings: ResolvedSettings) -> str:
    """The cell of a recurrent family: rnn, gru, lstm or a registered one."""
    return settings.recurrent.cell if settings.model == "attentive-rnn" else settings.model


def build_recurrent_layers(
    cell: str, inputs: int, units: int, depth: int, settings: ResolvedRecurrentSettings, bidirectional: bool = False
) -> list[Any]:
    """`depth` recurrent layers, or bidirectional ones with `units` in each direction."""

    def build(size: int) -> Recurrent:
        return Recurrent(make_cell(cell, size, units, settings), settings.weight_dropout)

    sizes = [inputs, *[units * (1 + bidirectional)] * (depth - 1)]
    return [Bidirectional(build(size), build(size)) if bidirectional else build(size) for size in sizes]


class RecurrentBackbone(nn.Module):
    """RNN, GRU or LSTM, one cell scanned over time per layer."""

    stateful = True

    def __init__(self, layers: Sequence[nn.Module], dropout: float = 0.0):
        super().__init__()
        self.deep = StackedRecurrent(layers, dropout=dropout)
        self.width: int = self.deep.units  # type: ignore[assignment]

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        return States(*self.deep(vectors, state, lengths))


class BidirectionalBackbone(RecurrentBackbone):
    """Stacked bidirectional layers: each layer reads both directions of the layer below. `width` counts both."""

    stateful = False


class AttentiveBackbone(RecurrentBackbone):
    """Recurrent layers, then self-attention: h_t = s_t + a_t, where a_t attends to the last `attention_span` states."""

    def __init__(self, layers: Sequence[nn.Module], dropout: float, attention_span: int):
        super().__init__(layers, dropout)
        self.look_back = StateAttention(self.width, attention_span)

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        recurrent_state, past = (None, None) if state is None else state
        outputs, recurrent_state = self.deep(vectors, recurrent_state, lengths)
        outputs, past = self.look_back(outputs, past, lengths)
        return States(outputs, (recurrent_state, past))


class SeparateDirections(nn.Module):
    """Two independent backbones, one reading in reverse; outputs concatenated after the last layer."""

    stateful = False

    def __init__(self, forwards: nn.Module, backwards: nn.Module):
        super().__init__()
        self.forwards, self.backwards = forwards, backwards
        self.width: int = forwards.width + backwards.width  # type: ignore[operator,assignment]

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        forward = self.forwards(vectors, None, lengths)
        backward = self.backwards(reverse_steps(vectors, lengths), None, lengths)
        vectors = torch.cat([forward.vectors, reverse_steps(backward.vectors, lengths)], dim=-1)
        return States(vectors, (forward.state, backward.state))


class FeedForwardBackbone(nn.Module):
    """The fixed-window network: the last n vectors, concatenated, through an MLP (Bengio et al. 2003).

    h = relu(W [x_{t-n+1}; …; x_t] + b), then further layers of the same width, each added to its input. It has no
    memory beyond its window; its state is the end of the segment before.
    """

    stateful = True

    def __init__(self, inputs: int, width: int, depth: int, window: int, dropout: float = 0.0):
        super().__init__()
        self.inputs, self.window, self.width = inputs, window, width
        self.first = nn.Linear(window * inputs, width)
        self.layer = nn.ModuleList(nn.Linear(width, width) for _ in range(depth - 1))
        self.dropout = nn.Dropout(dropout)
        for linear in (self.first, *self.layer):
            he_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        valid = valid_steps(vectors, self.inputs, lengths)
        vectors = zero_padding(vectors, valid)
        past = vectors.new_zeros(vectors.shape[0], self.window - 1, vectors.shape[2]) if state is None else state
        history = torch.cat([past, vectors], dim=1)  # (B, window - 1 + T, D)
        windows = history.unfold(1, self.window, 1)  # (B, T, D, window)
        h = self.dropout(F.relu(self.first(windows.flatten(2))))
        record_value(self, "hidden.0", h)
        for depth, linear in enumerate(self.layer, start=1):
            h = h + self.dropout(F.relu(linear(h)))
            record_value(self, f"hidden.{depth}", h)
        return States(zero_padding(h, valid), self._last_vectors(history, lengths))

    def _last_vectors(self, history: Tensor, lengths: Tensor | None) -> Tensor:
        """The last window - 1 valid vectors, (B, window - 1, D)."""
        count = self.window - 1
        if lengths is None:
            return history[:, history.shape[1] - count :]
        index = lengths.to(history.device)[:, None] + torch.arange(count, device=history.device)
        return history.gather(1, index[..., None].expand(-1, -1, history.shape[2]))


class CentredFeedForward(FeedForwardBackbone):
    """A fixed window centred on its position: it covers as many vectors before as after it."""

    stateful = False

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        future = self.window // 2
        valid = valid_steps(vectors, self.inputs, lengths)
        h = super().forward(F.pad(zero_padding(vectors, valid), (0, 0, 0, future))).vectors[:, future:]
        return States(zero_padding(h, valid))


def compute_layer_states(backbone: nn.Module, vectors: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
    """The vectors (B, T, D), then the states (B, T, ·) of each layer; the last are those the backbone returns."""
    if isinstance(backbone, SeparateDirections):
        forward = compute_layer_states(backbone.forwards, vectors, lengths)
        backward = compute_layer_states(backbone.backwards, reverse_steps(vectors, lengths), lengths)
        pairs = zip(forward[1:], backward[1:])
        return [vectors, *(torch.cat([a, reverse_steps(b, lengths)], dim=-1) for a, b in pairs)]
    if isinstance(backbone, FeedForwardBackbone):
        with record(backbone, "hidden.*") as recording:
            last = backbone(vectors, lengths=lengths).vectors
        inner = [recording[f"hidden.{depth}"][:, -vectors.shape[1] :] for depth in range(len(backbone.layer))]
        return [vectors, *inner, last]
    stack: Any = backbone.encoder if isinstance(backbone, TransformerBackbone) else getattr(backbone, "deep", None)
    if stack is None:
        raise UsageError(f"the layers of {type(backbone).__name__} cannot be listed.")
    outputs: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda module, inputs, output: outputs.append(output[0])) for layer in stack.layer
    ]
    try:
        last = backbone(vectors, None, lengths).vectors
    finally:
        for hook in hooks:
            hook.remove()
    return [vectors, *outputs[:-1], last]


def split_into_patches(x: Tensor, size: int) -> Tensor:
    """(B, L, F) → (B, ⌈L / size⌉, size · F), padded with zeros before the first step."""
    x = F.pad(x, (0, 0, -x.shape[1] % size, 0))
    return x.reshape(x.shape[0], -1, size * x.shape[2])


class SeriesEncoder(nn.Module):
    """A window of numbers (B, L, F) → patches → backbone → one vector (B, width) that summarises it.

    The summary concatenates all states of a Transformer, or is the last state of another backbone. Several steps are
    read at once as one vector, a patch (Nie et al. 2023, "A Time Series is Worth 64 Words", §3.1; for recurrent
    networks Lin et al. 2023, "SegRNN", §3): fewer and richer steps, so a long past is cheap to read and gradients have
    a short path.
    """

    def __init__(self, settings: ResolvedSettings, num_features: int, lookback: int):
        super().__init__()
        network, is_feedforward = settings.network, settings.model == "feedforward"
        self.patch_size = lookback if is_feedforward else settings.forecast.patch  # feedforward reads all at once
        num_patches = math.ceil(lookback / self.patch_size)
        inputs = self.patch_size * num_features
        self.is_transformer = settings.model == "transformer"
        self.enter: nn.Module = nn.Identity()
        if is_feedforward:
            self.backbone: nn.Module = FeedForwardBackbone(inputs, network.width, network.depth, 1, network.dropout)
        else:
            self.enter = nn.Linear(inputs, network.embedding)
            self.backbone = build_encoder(settings, network.embedding, num_patches)
        state_width: int = self.backbone.width  # type: ignore[assignment]
        self.width = state_width * num_patches if self.is_transformer else state_width
        self.dropout = nn.Dropout(network.dropout)

    def forward(self, x: Tensor) -> Tensor:
        vectors = self.enter(split_into_patches(x, self.patch_size))
        record_value(self, "patches", vectors)
        states = self.backbone(vectors).vectors
        summary = states.flatten(1) if self.is_transformer else states[:, -1]
        record_value(self, "summary", summary)
        return self.dropout(summary)
