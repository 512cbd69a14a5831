"""`SeriesEncoder`: a window of numbers → patches → backbone → one vector that summarises it.

Several steps are read at once as one vector, a patch (Nie et al. 2023, "A Time Series is Worth 64 Words", §3.1; for
recurrent networks Lin et al. 2023, "SegRNN", §3): fewer and richer steps, so a long past is cheap to read and gradients
have a short path. It knows nothing of time, scales or horizons.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.encoder import FeedForwardBackbone, build_encoder
from seqwise.layers.record import record_value
from seqwise.resolved_settings import ResolvedSettings


def split_into_patches(x: Tensor, size: int) -> Tensor:
    """(B, L, F) → (B, ⌈L / size⌉, size · F), padded with zeros before the first step."""
    x = F.pad(x, (0, 0, -x.shape[1] % size, 0))
    return x.reshape(x.shape[0], -1, size * x.shape[2])


class SeriesEncoder(nn.Module):
    """(B, L, F) → (B, width): all states of a Transformer concatenated, or the last state of another backbone."""

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
