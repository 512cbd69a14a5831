"""The forecasting model: one window of one series → its next values.

    past → minus its mean, divided by its deviation → patches → backbone → head ─┐
                                                    └→ linear map of the past ───┼→ + → mean and deviation restored
    values known in advance → their effect on each step ─────────────────────────┘

Normalising each window by its own mean and deviation (Kim et al. 2022, "Reversible instance normalization") makes the
model independent of levels that training does not have. The linear map (Zeng et al. 2023, "Are Transformers effective
for time series forecasting?") is hard to beat, so each backbone learns what exceeds it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.encoder import SeriesEncoder
from seqwise.backbones.states import ModelState
from seqwise.families import RECURRENT
from seqwise.heads.forecast import PointHead, QuantileHead, pinball_loss
from seqwise.layers.record import record_value
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import DefaultsContext, Fill, fill_batch_size, fill_transformer
from seqwise.tasks.forecast.windows import WindowBatch

MIN_CALIBRATION_WINDOWS = 100  # for an offset per step; fewer windows have one offset for all steps
EPSILON = 1e-5  # added to the variance of a window: that of a constant window is 0
MAX_STEPWISE_LOOKBACK = 64  # a longer past is read in patches
NUM_PATCHES = 14
MANY_WINDOWS = 2_000
EFFECT_UNITS = 32  # hidden units between the values known in advance of a step and their effect


@dataclass(frozen=True)
class Forecasts:
    """Standardised forecasts: the point (B, N) and the quantiles (B, N, Q), or None. `scale` (B, 1): of each window."""

    point: Tensor
    quantiles: Tensor | None
    scale: Tensor


class ForecastModel(nn.Module):
    """`num_known` is the number of values known in advance per step, with the calendar features.

    `calibration` (N, Q) is added to the quantiles of finished forecasts, in deviations of the window. It is computed on
    the validation split and saved with the weights; a run of an earlier version has none, which is 0.
    """

    calibration: Tensor
    optional_weights = ("calibration",)

    def __init__(self, settings: ResolvedSettings, num_known: int, quantiles: Sequence[float]):
        super().__init__()
        lookback, horizon = settings.forecast.lookback, settings.horizon
        self.quantiles = tuple(sorted(quantiles))
        self.encoder = SeriesEncoder(settings, 1 + num_known, lookback)
        self.head = PointHead(self.encoder.width, horizon)
        self.spread = QuantileHead(self.encoder.width, horizon, self.quantiles) if quantiles else None
        if quantiles:
            self.register_buffer("calibration", torch.zeros(horizon, len(self.quantiles)))
        # The linear map of the past is called `straight` in saved weights.
        self.straight = nn.Linear(lookback, horizon) if settings.forecast.linear else None
        self.effect = (
            nn.Sequential(nn.Linear(num_known, EFFECT_UNITS), nn.ReLU(), nn.Linear(EFFECT_UNITS, 1))
            if num_known
            else None
        )
        for linear in (self.straight, self.effect[2] if self.effect else None):
            if linear is not None:  # a new model forecasts the mean of the window
                nn.init.zeros_(linear.weight)  # type: ignore[arg-type]
                nn.init.zeros_(linear.bias)  # type: ignore[arg-type]

    def forward(self, batch: WindowBatch, state: ModelState = None) -> tuple[Loss, ModelState]:
        """Returns squared errors plus the mean pinball loss of quantiles, summed over observed values; no state."""
        return self.loss(self.forecast(batch), batch), None

    def loss(self, forecasts: Forecasts, batch: WindowBatch) -> Loss:
        losses = F.mse_loss(forecasts.point, batch.future, reduction="none")
        if forecasts.quantiles is not None and self.spread is not None:
            losses = losses + pinball_loss(forecasts.quantiles, batch.future, self.spread.levels).mean(dim=-1)
        return total(losses, batch.mask)

    def forecast(self, batch: WindowBatch) -> Forecasts:
        past = batch.past
        mean = past.mean(dim=1, keepdim=True)
        deviation = (past.var(dim=1, keepdim=True, correction=0) + EPSILON).sqrt()
        x = (past - mean) / deviation
        record_value(self, "normalised", x)
        known = batch.known[:, : past.shape[1]]
        summary = self.encoder(torch.cat([x[..., None], known], dim=-1))
        y = self.head(summary).to(past.dtype)
        record_value(self, "beyond", y)  # what exceeds the linear map
        if self.straight is not None:
            straight = self.straight(x).to(past.dtype)
            record_value(self, "straight", straight)
            y = y + straight
        if self.effect is not None:
            y = y + self.effect(batch.known[:, past.shape[1] :]).squeeze(-1).to(past.dtype)
        quantiles = None if self.spread is None else self.spread(summary, y).to(past.dtype)
        if quantiles is not None:
            quantiles = quantiles * deviation[..., None] + mean[..., None]
        return Forecasts(y * deviation + mean, quantiles, deviation)

    def calibrate(self, forecasts: Forecasts) -> Forecasts:
        """Returns the forecasts with calibrated quantiles."""
        if forecasts.quantiles is None:
            return forecasts
        offsets = self.calibration * forecasts.scale[..., None]
        return replace(forecasts, quantiles=(forecasts.quantiles + offsets).sort(dim=-1).values)

    def fit_calibration(self, errors: np.ndarray) -> None:
        """Computes the calibration from (W, N, Q): truth minus quantile, in deviations of its window; NaN if unknown.

        Conformalised quantile regression (Romano et al. 2019): the interval between the quantiles a and b becomes wider
        or narrower on both sides by the smallest distance with which the share b − a of the values is inside, on data
        that the weights were not trained on. Each step of the horizon has its own distance, if there are enough
        windows. A quantile without a partner is moved by itself.
        """
        offsets, num_quantiles = np.zeros(self.calibration.shape), len(self.quantiles)
        for low in range((num_quantiles + 1) // 2):
            high = num_quantiles - 1 - low
            if low == high:
                offsets[:, low] = compute_offsets(errors[..., low], self.quantiles[low])
            else:
                outside = np.maximum(-errors[..., low], errors[..., high])
                offsets[:, high] = compute_offsets(outside, self.quantiles[high] - self.quantiles[low])
                offsets[:, low] = -offsets[:, high]
        self.calibration.copy_(torch.from_numpy(offsets))


def compute_offsets(errors: np.ndarray, level: float) -> np.ndarray:
    """Returns (N,): the quantile `level` of errors (W, N), with the correction for a finite number of them."""
    if len(errors) < MIN_CALIBRATION_WINDOWS:
        errors = np.broadcast_to(errors.reshape(-1, 1), (errors.size, errors.shape[1]))
    offsets = np.zeros(errors.shape[1])
    for step, column in enumerate(errors.T):
        column = np.sort(column[~np.isnan(column)])
        count = len(column)
        # With n errors the next one is below the k-th smallest with probability k / (n + 1).
        rank = math.ceil(level * (count + 1)) if level > 0.5 else math.floor(level * (count + 1))
        offsets[step] = column[min(max(rank, 1), count) - 1] if count else 0.0
    return offsets


def fill_forecast(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Sets everything but budget and patience. Series are short and noisy: small networks, much dropout.

    Horizon, lookback, season, splits and quantiles are chosen when the data is read (`tasks/forecast/task.py`).
    """
    model, has_few_windows = settings.model, context.examples < MANY_WINDOWS
    fill("network.width", {"transformer": 16, "feedforward": 128}.get(model, 32 if has_few_windows else 64))
    fill("network.depth", 2 if model == "transformer" else 1)
    fill("network.embedding", settings.network.width)
    # Without it the noise is memorised within two epochs.
    fill("network.dropout", 0.5 if model in RECURRENT else 0.3)
    if model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
    if model == "transformer":
        fill_transformer(settings, fill, settings.network.width // 4)
    fill("forecast.patch", choose_patch_size(context.max_length))
    fill_batch_size(min(1024 if context.cuda else 256, context.examples // 8), context, fill)
    # Few windows make few updates. builtin:sunspots, gru, 60 epochs, one seed: validation MSE 0.454, with 5e-4 0.470.
    fill("training.learning_rate", 2e-3 if has_few_windows else 1e-3 if model == "transformer" else 5e-4)
    fill("training.weight_decay", 0.01)
    fill("training.precision", "float32")  # the models are small, and values have more digits than bfloat16


def choose_patch_size(lookback: int) -> int:
    """Returns the steps per patch: 1 for a short past, else the largest size that divides it, near NUM_PATCHES."""
    if lookback <= MAX_STEPWISE_LOOKBACK:
        return 1
    max_size = lookback // NUM_PATCHES
    return next((size for size in range(max_size, max_size // 2, -1) if lookback % size == 0), max_size)
