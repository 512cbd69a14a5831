"""The fixed-window network (Bengio et al. 2003): the last n vectors side by side, through a multilayer perceptron.

It has no memory beyond its window; its state is the end of the segment before.
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
        padded = torch.cat([past, vectors], dim=1)  # (B, window - 1 + T, D)
        windows = padded.unfold(1, self.window, 1)  # (B, T, D, window)
        h = self.dropout(F.relu(self.first(windows.flatten(2))))
        record_value(self, "hidden.0", h)
        for depth, linear in enumerate(self.layer, start=1):
            h = h + self.dropout(F.relu(linear(h)))
            record_value(self, f"hidden.{depth}", h)
        return States(zero_padding(h, valid), self._last(padded, lengths))

    def _last(self, padded: Tensor, lengths: Tensor | None) -> Tensor:
        """The last window - 1 valid vectors, (B, window - 1, D)."""
        count = self.window - 1
        if lengths is None:
            return padded[:, padded.shape[1] - count :]
        index = lengths.to(padded.device)[:, None] + torch.arange(count, device=padded.device)
        return padded.gather(1, index[..., None].expand(-1, -1, padded.shape[2]))
