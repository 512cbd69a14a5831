"""Builds the backbone or encoder of any family from settings; the Transformer's is in `transformer.py`.

An encoder is a backbone that reads whole sequences and may be bidirectional. It is called as
`encoder(vectors, lengths=…) → BackboneOutput` and never continues a sequence; its state is the one after the last valid
step, or None.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.registered import RegisteredBackbone, is_registered_network
from seqwise.backbones.states import BackboneOutput, ModelState
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.errors import UsageError
from seqwise.layers.attentive import StateAttention
from seqwise.layers.cells import make_cell
from seqwise.layers.initialise import he_
from seqwise.layers.record import record, record_value
from seqwise.layers.recurrent import Bidirectional, Recurrent, StackedRecurrent, build_step_mask, reverse_steps
from seqwise.layers.scan import zero_padding
from seqwise.resolved_settings import ResolvedRecurrentSettings, ResolvedSettings


def build_backbone(settings: ResolvedSettings, inputs: int) -> nn.Module:
    """Returns the causal backbone that the settings describe, for vectors of width `inputs`."""
    network, recurrent, window = settings.network, settings.recurrent, settings.data.window
    if is_registered_network(settings):
        return RegisteredBackbone(settings, inputs, causal=True)
    if settings.model == "feedforward":
        return FeedForwardBackbone(inputs, network.width, network.depth, settings.context.length, network.dropout)
    if settings.model == "transformer":
        assert isinstance(window, int)  # the language task refuses "full"
        return TransformerBackbone(settings, inputs, window)
    layers = build_recurrent_layers(get_cell_name(settings), inputs, network.width, network.depth, recurrent)
    stack = StackedRecurrent(layers, network.dropout, recurrent.sum_layers, recurrent.variational_dropout)
    if settings.model == "attentive-rnn":
        return AttentiveBackbone(stack, recurrent.attention_span)
    return RecurrentBackbone(stack)


def build_encoder(settings: ResolvedSettings, inputs: int, max_length: int) -> nn.Module:
    """Returns the encoder that the settings describe, for sequences of up to `max_length` vectors of width `inputs`."""
    network, recurrent = settings.network, settings.recurrent
    if is_registered_network(settings):
        return RegisteredBackbone(settings, inputs)
    if settings.model == "transformer":
        return TransformerBackbone(settings, inputs, max_length, causal=False)
    if settings.model == "feedforward":
        return CentredFeedForward(inputs, network.width, network.depth, settings.context.length, network.dropout)
    if not recurrent.bidirectional:
        return build_backbone(settings, inputs)
    units = -(-network.width // 2)  # units of each direction
    if settings.model != "attentive-rnn" and recurrent.concat_directions:
        layers = build_recurrent_layers(settings.model, inputs, units, network.depth, recurrent, bidirectional=True)
        return BidirectionalBackbone(StackedRecurrent(layers, network.dropout))
    half_settings = settings.model_copy(update={"network": network.model_copy(update={"width": units})})
    return SeparateDirections(build_backbone(half_settings, inputs), build_backbone(half_settings, inputs))


def get_cell_name(settings: ResolvedSettings) -> str:
    """Returns the name of a recurrent family's cell: rnn, gru, lstm or a registered one."""
    return settings.recurrent.cell if settings.model == "attentive-rnn" else settings.model


def build_recurrent_layers(
    cell: str, inputs: int, units: int, depth: int, settings: ResolvedRecurrentSettings, bidirectional: bool = False
) -> list[Any]:
    """Returns `depth` recurrent layers, or bidirectional ones with `units` in each direction."""

    def build_layer(layer_inputs: int, layer_units: int) -> Recurrent:
        layer_cell = make_cell(cell, layer_inputs, layer_units, settings)
        return Recurrent(layer_cell, settings.weight_dropout, settings.state_dropout)

    if bidirectional:
        sizes = [inputs, *[2 * units] * (depth - 1)]
        return [Bidirectional(build_layer(size, units), build_layer(size, units)) for size in sizes]
    widths = [*[units] * (depth - 1), settings.last_width or units]
    return [build_layer(*sizes) for sizes in zip([inputs, *widths[:-1]], widths)]


class RecurrentBackbone(nn.Module):
    """RNN, GRU or LSTM, one cell scanned over time per layer."""

    stateful = True

    def __init__(self, stack: StackedRecurrent):
        super().__init__()
        self.stack = stack
        self.width: int = stack.units  # type: ignore[assignment]

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> BackboneOutput:
        return BackboneOutput(*self.stack(vectors, state, lengths))


class BidirectionalBackbone(RecurrentBackbone):
    """Stacked bidirectional layers: each reads both directions of the layer below. `width` includes both directions."""

    stateful = False


class AttentiveBackbone(RecurrentBackbone):
    """Recurrent layers, then state attention: h_t = s_t + a_t, where a_t attends to s_{t−attention_span} … s_t."""

    def __init__(self, stack: StackedRecurrent, attention_span: int):
        super().__init__(stack)
        self.state_attention = StateAttention(self.width, attention_span)

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> BackboneOutput:
        recurrent_state, past = (None, None) if state is None else state
        outputs, recurrent_state = self.stack(vectors, recurrent_state, lengths)
        outputs, past = self.state_attention(outputs, past, lengths)
        return BackboneOutput(outputs, (recurrent_state, past))


class SeparateDirections(nn.Module):
    """Two independent backbones, one of which reads in reverse; the outputs of their last layers are concatenated."""

    stateful = False

    def __init__(self, forward_layer: nn.Module, backward_layer: nn.Module):
        super().__init__()
        self.forward_layer, self.backward_layer = forward_layer, backward_layer
        self.width: int = forward_layer.width + backward_layer.width  # type: ignore[operator,assignment]

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> BackboneOutput:
        forward = self.forward_layer(vectors, None, lengths)
        backward = self.backward_layer(reverse_steps(vectors, lengths), None, lengths)
        vectors = torch.cat([forward.vectors, reverse_steps(backward.vectors, lengths)], dim=-1)
        return BackboneOutput(vectors, (forward.state, backward.state))


class FeedForwardBackbone(nn.Module):
    """The fixed-window network: the last n vectors, concatenated, through an MLP (Bengio et al. 2003).

    h = relu(W [x_{t-n+1}; …; x_t] + b), then further layers of the same width, each added to its input. It knows
    nothing before its window; its state is the last n - 1 vectors of the previous segment.
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

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> BackboneOutput:
        is_valid = build_step_mask(vectors, self.inputs, lengths)
        vectors = zero_padding(vectors, is_valid)
        past = vectors.new_zeros(vectors.shape[0], self.window - 1, vectors.shape[2]) if state is None else state
        history = torch.cat([past, vectors], dim=1)  # (B, window - 1 + T, D)
        windows = history.unfold(1, self.window, 1)  # (B, T, D, window)
        h = self.dropout(F.relu(self.first(windows.flatten(2))))
        record_value(self, "hidden.0", h)
        for index, linear in enumerate(self.layer, start=1):
            h = h + self.dropout(F.relu(linear(h)))
            record_value(self, f"hidden.{index}", h)
        return BackboneOutput(zero_padding(h, is_valid), self._select_last_vectors(history, lengths))

    def _select_last_vectors(self, history: Tensor, lengths: Tensor | None) -> Tensor:
        """Returns the last window - 1 valid vectors, (B, window - 1, D)."""
        count = self.window - 1
        if lengths is None:
            return history[:, history.shape[1] - count :]
        index = lengths.to(history.device)[:, None] + torch.arange(count, device=history.device)
        return history.gather(1, index[..., None].expand(-1, -1, history.shape[2]))


class CentredFeedForward(FeedForwardBackbone):
    """A fixed window centred on its position: as many vectors before as after it; if it is even, one less before."""

    stateful = False

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> BackboneOutput:
        num_future = self.window // 2
        is_valid = build_step_mask(vectors, self.inputs, lengths)
        h = super().forward(F.pad(zero_padding(vectors, is_valid), (0, 0, 0, num_future))).vectors[:, num_future:]
        return BackboneOutput(zero_padding(h, is_valid))


def compute_layer_states(backbone: nn.Module, vectors: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
    """Returns the vectors (B, T, D), then the outputs (B, T, ·) of each layer; the last are the backbone's own."""
    if isinstance(backbone, SeparateDirections):
        forward = compute_layer_states(backbone.forward_layer, vectors, lengths)
        backward = compute_layer_states(backbone.backward_layer, reverse_steps(vectors, lengths), lengths)
        pairs = zip(forward[1:], backward[1:])
        return [vectors, *(torch.cat([a, reverse_steps(b, lengths)], dim=-1) for a, b in pairs)]
    if isinstance(backbone, FeedForwardBackbone):
        with record(backbone, "hidden.*") as recording:
            final_output = backbone(vectors, lengths=lengths).vectors
        inner = [recording[f"hidden.{index}"][:, -vectors.shape[1] :] for index in range(len(backbone.layer))]
        return [vectors, *inner, final_output]
    stack: Any = backbone.encoder if isinstance(backbone, TransformerBackbone) else getattr(backbone, "stack", None)
    if stack is None:
        raise UsageError(f"the layers of {type(backbone).__name__} cannot be listed.")
    outputs: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda module, inputs, output: outputs.append(output[0])) for layer in stack.layer
    ]
    try:
        final_output = backbone(vectors, None, lengths).vectors
    finally:
        for hook in hooks:
            hook.remove()
    return [vectors, *outputs[:-1], final_output]


def split_into_patches(x: Tensor, size: int) -> Tensor:
    """Returns x (B, L, F) as patches (B, ⌈L / size⌉, size · F), padded with zeros before the first step."""
    x = F.pad(x, (0, 0, -x.shape[1] % size, 0))
    return x.reshape(x.shape[0], -1, size * x.shape[2])


class SeriesEncoder(nn.Module):
    """Reads a window of numbers (B, L, F) in patches by a backbone; returns one vector (B, width) that summarises it.

    The summary concatenates all outputs of a Transformer, or is the last output of another backbone. A patch is several
    steps as one vector (Nie et al. 2023, "A Time Series is Worth 64 Words", §3.1; for recurrent networks Lin et al.
    2023, "SegRNN", §3): with fewer steps a long past is cheap to read, and gradients have a short path.
    """

    def __init__(self, settings: ResolvedSettings, num_features: int, lookback: int):
        super().__init__()
        network, is_feedforward = settings.network, settings.model == "feedforward"
        self.patch_size = lookback if is_feedforward else settings.forecast.patch  # feedforward reads all at once
        num_patches = math.ceil(lookback / self.patch_size)
        inputs = self.patch_size * num_features
        self.is_transformer = settings.model == "transformer"
        self.input_projection: nn.Module = nn.Identity()
        if is_feedforward:
            self.backbone: nn.Module = FeedForwardBackbone(inputs, network.width, network.depth, 1, network.dropout)
        else:
            self.input_projection = nn.Linear(inputs, network.embedding)
            self.backbone = build_encoder(settings, network.embedding, num_patches)
        output_width: int = self.backbone.width  # type: ignore[assignment]
        self.width = output_width * num_patches if self.is_transformer else output_width
        self.dropout = nn.Dropout(network.dropout)
        # As published with this decoder (Lin et al. 2023, eq. 2)
        self.activation: nn.Module = nn.ReLU() if settings.forecast.decoder == "segments" else nn.Identity()

    def forward(self, x: Tensor) -> tuple[Tensor, ModelState]:
        """Returns the summary, after dropout, and the state of the backbone after the last patch."""
        vectors = self.activation(self.input_projection(split_into_patches(x, self.patch_size)))
        record_value(self, "patches", vectors)
        outputs: BackboneOutput = self.backbone(vectors)
        summary = outputs.vectors.flatten(1) if self.is_transformer else outputs.vectors[:, -1]
        record_value(self, "summary", summary)
        return self.dropout(summary), outputs.state
