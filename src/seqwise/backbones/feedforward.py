"""The fixed-window network (Bengio et al. 2003): the last n vectors side by side, through a multilayer perceptron.

It has no memory beyond its window; the carry is only the end of the piece before.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.states import ModelState, States
from seqwise.layers.initialise import he_
from seqwise.layers.record import record_value
from seqwise.layers.recurrent import valid_steps
from seqwise.layers.scan import zero_padding


class FeedForwardBackbone(nn.Module):
    """h = relu(W [x_{t-n+1}; …; x_t] + b), then further layers of the same width, each added to its input."""

    carries = True

    def __init__(self, inputs: int, width: int, depth: int, window: int, dropout: float = 0.0):
        super().__init__()
        self.inputs, self.window, self.width = inputs, window, width
        self.first = nn.Linear(window * inputs, width)
        self.layer = nn.ModuleList(nn.Linear(width, width) for _ in range(depth - 1))
        self.dropout = nn.Dropout(dropout)
        for linear in (self.first, *self.layer):
            he_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, vectors: Tensor, carry: ModelState = None, lengths: Tensor | None = None) -> States:
        real = valid_steps(vectors, self.inputs, lengths)
        vectors = zero_padding(vectors, real)
        past = vectors.new_zeros(vectors.shape[0], self.window - 1, vectors.shape[2]) if carry is None else carry
        known = torch.cat([past, vectors], dim=1)  # (B, window - 1 + T, D)
        windows = known.unfold(1, self.window, 1)  # (B, T, D, window)
        h = self.dropout(F.relu(self.first(windows.flatten(2))))
        record_value(self, "hidden.0", h)
        for depth, linear in enumerate(self.layer, start=1):
            h = h + self.dropout(F.relu(linear(h)))
            record_value(self, f"hidden.{depth}", h)
        return States(zero_padding(h, real), self._last(known, lengths))

    def _last(self, known: Tensor, lengths: Tensor | None) -> Tensor:
        """The last window - 1 vectors that are real, (B, window - 1, D)."""
        kept = self.window - 1
        if lengths is None:
            return known[:, known.shape[1] - kept :]
        places = lengths.to(known.device)[:, None] + torch.arange(kept, device=known.device)
        return known.gather(1, places[..., None].expand(-1, -1, known.shape[2]))
