"""Recurrent backbones: a deep stack of one cell, plain or with self-attention added to its states."""

from __future__ import annotations

from torch import Tensor, nn

from seqwise.backbones.states import ModelState, States
from seqwise.layers.attentive import StateAttention
from seqwise.layers.cells import make_cell
from seqwise.layers.recurrent import Bidirectional, Recurrent, StackedRecurrent
from seqwise.resolved_settings import ResolvedRecurrentSettings


def _layers(cell: str, inputs: int, width: int, depth: int, settings: ResolvedRecurrentSettings) -> list[Recurrent]:
    return [
        Recurrent(
            make_cell(cell, inputs if i == 0 else width, width, settings),
            weight_dropout=settings.weight_dropout,
        )
        for i in range(depth)
    ]


def bidirectional_layers(
    cell: str, inputs: int, units: int, depth: int, settings: ResolvedRecurrentSettings
) -> list[Bidirectional]:
    """Layers that read in both directions, each `units` wide per direction."""
    return [
        Bidirectional(*(_layers(cell, inputs if i == 0 else 2 * units, units, 1, settings)[0] for _ in range(2)))
        for i in range(depth)
    ]


class RecurrentBackbone(nn.Module):
    """RNN, GRU or LSTM, one cell scanned over time per layer."""

    carries = True

    def __init__(
        self, cell: str, inputs: int, width: int, depth: int, settings: ResolvedRecurrentSettings, dropout: float = 0.0
    ):
        super().__init__()
        self.width = width
        self.deep = StackedRecurrent(_layers(cell, inputs, width, depth, settings), dropout=dropout)

    def forward(self, vectors: Tensor, carry: ModelState = None, lengths: Tensor | None = None) -> States:
        outputs, state = self.deep(vectors, carry, lengths)
        return States(outputs, state)


class AttentiveBackbone(nn.Module):
    """A recurrent stack whose states look back: h_t = s_t + a_t, with a_t attending to the last `memory` states."""

    carries = True

    def __init__(self, inputs: int, width: int, depth: int, settings: ResolvedRecurrentSettings, dropout: float = 0.0):
        super().__init__()
        self.width = width
        self.deep = StackedRecurrent(_layers(settings.cell, inputs, width, depth, settings), dropout=dropout)
        self.look_back = StateAttention(width, settings.attention_span)

    def forward(self, vectors: Tensor, carry: ModelState = None, lengths: Tensor | None = None) -> States:
        state, past = (None, None) if carry is None else carry
        outputs, state = self.deep(vectors, state, lengths)
        outputs, past = self.look_back(outputs, past, lengths)
        return States(outputs, (state, past))
