"""Recurrent backbones: stacked layers of one cell, plain or with self-attention added to their states."""

from __future__ import annotations

from torch import Tensor, nn

from seqwise.backbones.states import ModelState, States
from seqwise.layers.attentive import StateAttention
from seqwise.layers.cells import make_cell
from seqwise.layers.recurrent import Bidirectional, Recurrent, StackedRecurrent
from seqwise.resolved_settings import ResolvedRecurrentSettings


def _build_layers(
    cell: str, inputs: int, width: int, depth: int, settings: ResolvedRecurrentSettings
) -> list[Recurrent]:
    return [
        Recurrent(
            make_cell(cell, inputs if i == 0 else width, width, settings),
            weight_dropout=settings.weight_dropout,
        )
        for i in range(depth)
    ]


def build_bidirectional_layers(
    cell: str, inputs: int, units: int, depth: int, settings: ResolvedRecurrentSettings
) -> list[Bidirectional]:
    """Bidirectional layers, `units` wide in each direction."""
    return [
        Bidirectional(*(_build_layers(cell, inputs if i == 0 else 2 * units, units, 1, settings)[0] for _ in range(2)))
        for i in range(depth)
    ]


class RecurrentBackbone(nn.Module):
    """RNN, GRU or LSTM, one cell scanned over time per layer."""

    stateful = True

    def __init__(
        self, cell: str, inputs: int, width: int, depth: int, settings: ResolvedRecurrentSettings, dropout: float = 0.0
    ):
        super().__init__()
        self.width = width
        self.deep = StackedRecurrent(_build_layers(cell, inputs, width, depth, settings), dropout=dropout)

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        outputs, state = self.deep(vectors, state, lengths)
        return States(outputs, state)


class AttentiveBackbone(nn.Module):
    """Stacked recurrent layers with self-attention: h_t = s_t + a_t, where a_t attends to the last `memory` states."""

    stateful = True

    def __init__(self, inputs: int, width: int, depth: int, settings: ResolvedRecurrentSettings, dropout: float = 0.0):
        super().__init__()
        self.width = width
        self.deep = StackedRecurrent(_build_layers(settings.cell, inputs, width, depth, settings), dropout=dropout)
        self.look_back = StateAttention(width, settings.attention_span)

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> States:
        recurrent_state, past = (None, None) if state is None else state
        outputs, recurrent_state = self.deep(vectors, recurrent_state, lengths)
        outputs, past = self.look_back(outputs, past, lengths)
        return States(outputs, (recurrent_state, past))
