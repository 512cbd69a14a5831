"""The forecasting model: one window of one series → its next values.

    past → minus its mean, divided by its deviation → patches → backbone → head ─┐
                                                    └→ linear map of the past ───┼→ + → mean and deviation restored
    values known in advance → their effect on each step ─────────────────────────┘

Normalising each window by its own mean and deviation (Kim et al. 2022, "Reversible instance normalization") lets the
model forecast series at levels that do not occur in training. The linear map (Zeng et al. 2023, "Are Transformers
effective for time series forecasting?") is a strong baseline; the backbone learns the difference from it.
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
from seqwise.families import RECURRENT_FAMILIES
from seqwise.heads.forecast import PointHead, QuantileHead, SegmentHead, pinball_loss
from seqwise.layers.record import record_value
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import (
    SAME_WIDTH,
    DefaultsContext,
    SetDefault,
    set_batch_size,
    set_max_epochs,
    set_transformer_defaults,
)
from seqwise.tasks.forecast.windows import WindowBatch

MIN_CALIBRATION_WINDOWS = 100  # for an offset per step; with fewer windows all steps have one offset
EPSILON = 1e-5  # added to the variance of a window, which is 0 if the window is constant
MAX_STEPWISE_LOOKBACK = 64  # a longer past is read in patches
NUM_PATCHES = 14  # approximate number of patches of a longer past
LARGE_DATASET = 500_000  # windows from which the epochs are not limited by rule; not measured
MANY_WINDOWS = 2_000  # training windows from which a larger network with a smaller learning rate is better
EFFECT_UNITS = 32  # hidden units of the network from values known in advance to their effect


@dataclass(frozen=True)
class Forecasts:
    """Standardised forecasts of a batch of windows."""

    point: Tensor  # (B, N)
    quantiles: Tensor | None  # (B, N, Q)
    scale: Tensor  # (B, 1) standard deviation of the past of each window


class ForecastModel(nn.Module):
    """Forecasts the next values of windows.

    `num_known` is the number of values known in advance per step, including the calendar features. The buffer
    `calibration` (N, Q), times the deviation of the window, is added to the quantiles of finished forecasts. It is
    computed on the validation split and saved with the weights; for a run of an earlier version it is 0.
    """

    calibration: Tensor
    optional_weights = ("calibration",)

    def __init__(self, settings: ResolvedSettings, num_known: int, quantiles: Sequence[float], num_series: int = 1):
        super().__init__()
        forecast, network, horizon = settings.forecast, settings.network, settings.horizon
        lookback = forecast.lookback
        self.quantiles, self.normalize, self.point_loss = tuple(sorted(quantiles)), forecast.normalize, forecast.loss
        self.encoder = SeriesEncoder(settings, 1 + num_known, lookback)
        self.head: PointHead | SegmentHead = (
            SegmentHead(
                network.embedding, self.encoder.width, horizon, self.encoder.patch_size, num_series, network.dropout
            )
            if forecast.decoder == "segments"
            else PointHead(self.encoder.width, horizon)
        )
        self.quantile_head = QuantileHead(self.encoder.width, horizon, self.quantiles) if quantiles else None
        if quantiles:
            self.register_buffer("calibration", torch.zeros(horizon, len(self.quantiles)))
        self.linear_map = nn.Linear(lookback, horizon) if settings.forecast.linear else None
        self.known_effect = (
            nn.Sequential(nn.Linear(num_known, EFFECT_UNITS), nn.ReLU(), nn.Linear(EFFECT_UNITS, 1))
            if num_known
            else None
        )
        for layer in (self.linear_map, self.known_effect[2] if self.known_effect else None):
            if layer is not None:  # an untrained model forecasts about the mean of the window
                nn.init.zeros_(layer.weight)  # type: ignore[arg-type]
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, batch: WindowBatch, state: ModelState = None) -> tuple[Loss, ModelState]:
        """Returns squared errors plus mean pinball losses of quantiles, summed over observed values, and no state."""
        return self.loss(self.forecast(batch), batch), None

    def loss(self, forecasts: Forecasts, batch: WindowBatch) -> Loss:
        compute_losses = F.l1_loss if self.point_loss == "mae" else F.mse_loss
        losses = compute_losses(forecasts.point, batch.future, reduction="none")
        if forecasts.quantiles is not None and self.quantile_head is not None:
            losses = losses + pinball_loss(forecasts.quantiles, batch.future, self.quantile_head.levels).mean(dim=-1)
        return total(losses, batch.mask)

    def forecast(self, batch: WindowBatch) -> Forecasts:
        past = batch.past
        level, deviation = self._compute_scale(past)
        x = (past - level) / deviation
        record_value(self, "normalised", x)
        known = batch.known[:, : past.shape[1]]
        summary, state = self.encoder(torch.cat([x[..., None], known], dim=-1))
        if isinstance(self.head, SegmentHead):
            layers = self.encoder.backbone.stack.layer  # type: ignore[union-attr]
            y = self.head(state, layers, batch.series).to(past.dtype)
        else:
            y = self.head(summary).to(past.dtype)
        record_value(self, "residual", y)  # what the network adds to the linear map
        if self.linear_map is not None:
            from_past = self.linear_map(x).to(past.dtype)
            record_value(self, "linear_map", from_past)
            y = y + from_past
        if self.known_effect is not None:
            y = y + self.known_effect(batch.known[:, past.shape[1] :]).squeeze(-1).to(past.dtype)
        quantiles = None if self.quantile_head is None else self.quantile_head(summary, y).to(past.dtype)
        if quantiles is not None:
            quantiles = quantiles * deviation[..., None] + level[..., None]
        return Forecasts(y * deviation + level, quantiles, deviation)

    def _compute_scale(self, past: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the level (B, 1) that is subtracted from each window, and the deviation it is divided by."""
        if self.normalize == "last":
            return past[:, -1:], torch.ones_like(past[:, -1:])
        deviation = (past.var(dim=1, keepdim=True, correction=0) + EPSILON).sqrt()
        return past.mean(dim=1, keepdim=True), deviation

    def calibrate(self, forecasts: Forecasts) -> Forecasts:
        """Returns the forecasts with calibrated quantiles."""
        if forecasts.quantiles is None:
            return forecasts
        offsets = self.calibration * forecasts.scale[..., None]
        return replace(forecasts, quantiles=(forecasts.quantiles + offsets).sort(dim=-1).values)

    def fit_calibration(self, errors: np.ndarray) -> None:
        """Sets the calibration from `errors` (W, N, Q): (truth − quantile) / deviation of the window; NaN if unknown.

        Conformalised quantile regression (Romano et al. 2019): both ends of the interval between the quantiles a and b
        move by the smallest distance with which the share b − a of the values is inside, on data that the weights were
        not trained on. Each step of the horizon has its own distance, if there are enough windows. The middle quantile
        of an odd number is moved by itself.
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
    """Returns the quantile `level` of errors (W, N) for each step (N,), with the correction for finite samples."""
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


def set_forecast_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Chooses the settings that are not set: series are short and noisy, so networks are small and dropout is strong.

    Horizon, lookback, season, splits and quantiles are chosen when the data is read (`tasks/forecast/task.py`).
    """
    model, has_few_windows = settings.model, context.num_examples < MANY_WINDOWS
    size = f"{context.num_examples:,} windows are {'few' if has_few_windows else 'many'}"
    width = {"transformer": 16, "feedforward": 128}.get(model, 32 if has_few_windows else 64)
    set_default("network.width", width, f"{model}; {size}, and series are noisy")
    set_default("network.depth", 2 if model == "transformer" else 1, f"{model}; series are short and noisy")
    set_default("network.embedding", settings.network.width, SAME_WIDTH)
    reason = "without dropout the noise is memorised within two epochs"
    set_default("network.dropout", 0.5 if model in RECURRENT_FAMILIES else 0.3, reason)
    if model in RECURRENT_FAMILIES:
        set_default("recurrent.weight_dropout", 0.0, "the dropout of the layers is enough")
    if model == "transformer":
        set_transformer_defaults(settings, set_default, settings.network.width // 4)
    reason = f"the past has {context.max_length:,} steps"
    set_default("forecast.patch", choose_patch_size(context.max_length), reason)
    reason = f"an epoch of {context.num_examples:,} windows has at least 8 updates; {context.machine}"
    set_batch_size(min(1024 if context.cuda else 256, context.num_examples // 8), context, set_default, reason)
    if context.num_examples < LARGE_DATASET:
        set_max_epochs(8, 1000 if has_few_windows else 1750, settings, context, set_default)
    # Few windows mean few updates. builtin:sunspots, gru, 60 epochs, one seed: validation MSE 0.454 with 2e-3, 0.470
    # with 5e-4.
    rate = 2e-3 if has_few_windows else 1e-3 if model == "transformer" else 5e-4
    set_default("training.learning_rate", rate, f"{size}: few windows mean few updates")
    set_default("training.weight_decay", 0.01, "usual")
    set_default("training.precision", "float32", "the models are small, and values have more digits than bfloat16")


def choose_patch_size(lookback: int) -> int:
    """Returns the steps per patch: 1 for a short past, else a divisor of `lookback` that gives about NUM_PATCHES."""
    if lookback <= MAX_STEPWISE_LOOKBACK:
        return 1
    max_size = lookback // NUM_PATCHES
    return next((size for size in range(max_size, max_size // 2, -1) if lookback % size == 0), max_size)
