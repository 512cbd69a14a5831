"""Forecast heads: one vector per window → its next values, as points and as quantiles.

All steps are forecast at once, so no forecast is fed back. The heads know nothing of the encoder, nor of scales.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqwise.layers.record import record_value


class PointHead(nn.Module):
    """y = W h + b, (B, D) → (B, N), for a horizon of N steps. Initial weights are zero, so that the linear map to
    which a model adds this forecast learns first."""

    def __init__(self, width: int, horizon: int):
        super().__init__()
        self.output = nn.Linear(width, horizon)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.output(vectors)


class QuantileHead(nn.Module):
    """Adds a distance for each quantile to the point forecast and sorts them, so that quantiles never cross.

    The initial distances are half the quantiles of a normal distribution with the standard deviation of the window.
    """

    levels: Tensor  # (Q,): the quantiles, on the device of the weights

    def __init__(self, width: int, horizon: int, quantiles: Sequence[float]):
        super().__init__()
        self.horizon, self.quantiles = horizon, tuple(sorted(quantiles))
        self.register_buffer("levels", torch.tensor(self.quantiles), persistent=False)
        self.output = nn.Linear(width, horizon * len(self.quantiles))
        nn.init.zeros_(self.output.weight)
        normal_distances = torch.special.ndtri(torch.tensor(self.quantiles, dtype=torch.float64))
        with torch.no_grad():
            self.output.bias.copy_(normal_distances.div(2).repeat(horizon))

    def forward(self, vectors: Tensor, point: Tensor) -> Tensor:
        """Returns the quantiles (B, N, Q) for vectors (B, D) and the point forecast (B, N)."""
        # The point is detached: it stays the mean, and the quantiles learn their distance from it.
        distances = self.output(vectors).view(-1, self.horizon, len(self.quantiles))
        record_value(self, "distances", distances)
        return (point.detach()[..., None] + distances).sort(dim=-1).values


def pinball_loss(forecast: Tensor, truth: Tensor, levels: Tensor) -> Tensor:
    """Returns max(q e, (q − 1) e), e = truth − forecast, of forecasts (B, N, Q), truth (B, N), quantiles q (Q,)."""
    error = truth[..., None] - forecast
    return torch.maximum(levels * error, (levels - 1) * error)
