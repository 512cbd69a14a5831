"""The forecasting model: one window of one series → its next values.

    past → its own mean and deviation taken out → patches → backbone → head ─┐
                                              └→ straight path ──────────────┼→ + → mean and deviation put back
    what is known of the future → its effect on each step ───────────────────┘

Taking out the window's mean and deviation (Kim et al. 2022, "Reversible instance normalization") lets a level that was
never seen in training do no harm. The straight path is a linear map of the past (Zeng et al. 2023, "Are Transformers
effective for time series forecasting?"): hard to beat, so each family learns what goes beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.series import SeriesEncoder
from seqwise.backbones.states import ModelState
from seqwise.heads.forecast import PointHead, QuantileHead, pinball
from seqwise.layers.record import record_value
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.forecast.windows import SeriesBatch

EPSILON = 1e-5  # added to a window's variance: a constant window has none
EFFECT = 32  # hidden units between what is known of a step and its effect


@dataclass(frozen=True)
class Forecasts:
    """Standardised values: the point (B, N) and the quantiles (B, N, Q), or None where none are forecast."""

    point: Tensor
    quantiles: Tensor | None


class ForecastModel(nn.Module):
    """`known` is the number of values known in advance per step, calendar included."""

    def __init__(self, settings: ResolvedSettings, known: int, quantiles: Sequence[float]):
        super().__init__()
        past, horizon = settings.forecast.lookback, settings.horizon
        self.quantiles = tuple(sorted(quantiles))
        self.encoder = SeriesEncoder(settings, 1 + known, past)
        self.head = PointHead(self.encoder.width, horizon)
        self.spread = QuantileHead(self.encoder.width, horizon, self.quantiles) if quantiles else None
        self.straight = nn.Linear(past, horizon) if settings.forecast.linear else None
        self.effect = nn.Sequential(nn.Linear(known, EFFECT), nn.ReLU(), nn.Linear(EFFECT, 1)) if known else None
        for linear in (self.straight, self.effect[2] if self.effect else None):
            if linear is not None:  # a new model forecasts the mean of the window
                nn.init.zeros_(linear.weight)  # type: ignore[arg-type]
                nn.init.zeros_(linear.bias)  # type: ignore[arg-type]

    def forward(self, batch: SeriesBatch, carry: ModelState = None) -> tuple[Loss, ModelState]:
        """Squared errors, plus the mean pinball loss of the quantiles, summed over the values that were observed."""
        return self.loss(self.forecast(batch), batch), None

    def loss(self, forecasts: Forecasts, batch: SeriesBatch) -> Loss:
        losses = F.mse_loss(forecasts.point, batch.future, reduction="none")
        if forecasts.quantiles is not None and self.spread is not None:
            losses = losses + pinball(forecasts.quantiles, batch.future, self.spread.levels).mean(dim=-1)
        return total(losses, batch.there)

    def forecast(self, batch: SeriesBatch) -> Forecasts:
        past = batch.past
        mean = past.mean(dim=1, keepdim=True)
        deviation = (past.var(dim=1, keepdim=True, correction=0) + EPSILON).sqrt()
        x = (past - mean) / deviation
        record_value(self, "normalised", x)
        known = batch.known[:, : past.shape[1]]
        summary = self.encoder(torch.cat([x[..., None], known], dim=-1))
        y = self.head(summary).to(past.dtype)
        record_value(self, "beyond", y)
        if self.straight is not None:
            straight = self.straight(x).to(past.dtype)
            record_value(self, "straight", straight)
            y = y + straight
        if self.effect is not None:
            y = y + self.effect(batch.known[:, past.shape[1] :]).squeeze(-1).to(past.dtype)
        spread = None if self.spread is None else self.spread(summary, y).to(past.dtype)
        if spread is not None:
            spread = spread * deviation[..., None] + mean[..., None]
        return Forecasts(y * deviation + mean, spread)
