"""Forecast heads: one vector per window → its next values, as points and as quantiles.

All steps are forecast at once, so no forecast is fed back. The heads know nothing of the encoder, nor of scales.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from seqwise.backbones.states import ModelState
from seqwise.layers.record import record_value
from seqwise.layers.recurrent import Recurrent


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


class SegmentHead(nn.Module):
    """Decodes the segments of the horizon in parallel from the last state of recurrent layers (Lin et al. 2023, §3.3).

    h_s = cell(p_s + c, h), y_s = W h_s + b: each segment s takes one more step from the same state h. Its input is a
    learned vector p_s of its position plus, if there are several series, the vector c of the series. The cells are
    those of the encoder, so each forecast segment is computed like one more segment of the past, in training without
    dropout between layers.
    """

    def __init__(self, inputs: int, width: int, horizon: int, segment: int, num_series: int, dropout: float):
        super().__init__()
        self.horizon = horizon
        self.positions = nn.Parameter(torch.randn(-(-horizon // segment), inputs))
        self.series = nn.Parameter(torch.randn(num_series, inputs)) if num_series > 1 else None
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, segment)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, state: ModelState, layers: Iterable[Recurrent], series: Tensor | None = None) -> Tensor:
        """Returns the forecasts (B, N) from the `state` of stacked `layers`; `series` (B,) is -1 for a new one."""
        batch, count = state[0][0].shape[0], len(self.positions)
        x = (self.positions + self._get_series_vectors(batch, series)[:, None]).flatten(0, 1)  # (B · S, E)
        for layer, layer_state in zip(layers, state, strict=True):
            repeated = tuple(part.repeat_interleave(count, dim=0) for part in layer_state)
            mask = layer.draw_state_mask(x)
            if mask is not None:
                repeated = (repeated[0] * mask, *repeated[1:])
            x = layer.cell.step(layer.cell.project(x), repeated, layer.get_weight_hidden())[0]
        segments = self.output(self.dropout(x))  # (B · S, segment)
        return segments.view(batch, -1)[:, : self.horizon]

    def _get_series_vectors(self, batch: int, series: Tensor | None) -> Tensor:
        """Returns (B, E); a series that is not in the training data has the mean of the others' vectors."""
        if self.series is None:
            return self.positions.new_zeros(batch, 1)
        if series is None:
            return self.series.mean(dim=0).expand(batch, -1)
        return torch.where(series[:, None] >= 0, self.series[series.clamp(min=0)], self.series.mean(dim=0))


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
