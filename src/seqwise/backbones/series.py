"""Series as input of the families: a window of numbers → patches → backbone → one vector that sums it up.

Some steps are read at once as one vector, a patch (Nie et al. 2023, "A Time Series is Worth 64 Words", §3.1; for
recurrent networks Lin et al. 2023, "SegRNN", §3): fewer and richer steps, so a long past is cheap to read and gradients
have a short way. It knows nothing of time, scales or horizons.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.encoder import build_encoder
from seqwise.backbones.feedforward import FeedForwardBackbone
from seqwise.layers.record import record_value
from seqwise.resolved_settings import ResolvedSettings


def patches(x: Tensor, size: int) -> Tensor:
    """(B, L, F) → (B, ⌈L / size⌉, size · F). Where L is no multiple, zeros stand before the first step."""
    x = F.pad(x, (0, 0, -x.shape[1] % size, 0))
    return x.reshape(x.shape[0], -1, size * x.shape[2])


class SeriesEncoder(nn.Module):
    """(B, L, F) → (B, width). A Transformer gives all its states side by side, the other families their last."""

    def __init__(self, settings: ResolvedSettings, inputs: int, past: int):
        super().__init__()
        feedforward = settings.model == "feedforward"
        self.size = past if feedforward else settings.forecast.patch  # a fixed window reads all of it at once
        steps, dropout = math.ceil(past / self.size), settings.network.dropout
        self.whole = settings.model == "transformer"
        self.enter: nn.Module = nn.Identity()
        if feedforward:
            width, depth = settings.network.width, settings.network.depth
            self.backbone: nn.Module = FeedForwardBackbone(self.size * inputs, width, depth, 1, dropout)
        else:
            embedding = settings.network.embedding
            self.enter = nn.Linear(self.size * inputs, embedding)
            self.backbone = build_encoder(settings, embedding, steps)
        own: int = self.backbone.width  # type: ignore[assignment]
        self.width = own * steps if self.whole else own
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        vectors = self.enter(patches(x, self.size))
        record_value(self, "patches", vectors)
        states = self.backbone(vectors).vectors
        summary = states.flatten(1) if self.whole else states[:, -1]
        record_value(self, "summary", summary)
        return self.dropout(summary)
