"""Rolling evaluation: forecasts every window of a split and compares it with the naive forecasts of the same windows.

It knows nothing of files, and of the model only `forecast(batch)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqwise.metrics.evaluation import Evaluation, Table
from seqwise.tasks.forecast.block_errors import BlockErrors
from seqwise.tasks.forecast.metrics import MODEL, NAIVE, SEASONAL_NAIVE, ErrorSums, get_definitions
from seqwise.tasks.forecast.model import ForecastModel, Forecasts
from seqwise.tasks.forecast.statistics import SeriesStatistics
from seqwise.tasks.forecast.windows import RollingWindows, WindowBatch
from seqwise.tasks.task import ProgressCallback

BATCH_SIZE = 1024  # windows at a time
MAX_PLOTTED_SERIES = 4  # in the plot of an evaluation


@torch.no_grad()
def forecast_windows(model: ForecastModel, batch: WindowBatch) -> Forecasts:
    """Returns standardised forecasts of some windows, on the CPU."""
    device = next(model.parameters()).device
    model.eval()
    forecasts = model.forecast(batch.to(device))
    return Forecasts(forecasts.point.cpu(), None if forecasts.quantiles is None else forecasts.quantiles.cpu())


@torch.no_grad()
def compute_validation_sums(model: ForecastModel, rolling: RollingWindows, windows: np.ndarray) -> list[float]:
    """Returns loss, squared errors, absolute errors and number of targets, summed over the windows."""
    device = next(model.parameters()).device
    model.eval()
    sums = np.zeros(4)
    for start in range(0, len(windows), BATCH_SIZE):
        batch = rolling.collate(windows[start : start + BATCH_SIZE]).to(device)
        forecasts = model.forecast(batch)
        error = (forecasts.point - batch.future).masked_fill(~batch.mask, 0.0)
        loss = model.loss(forecasts, batch)
        sums += [float(loss.total), float(error.square().sum()), float(error.abs().sum()), loss.count]
    return sums.tolist()


def compute_errors(
    model: ForecastModel,
    rolling: RollingWindows,
    windows: np.ndarray,
    season: int,
    progress: ProgressCallback | None = None,
    block_errors: BlockErrors | None = None,
) -> ErrorSums:
    """Returns the errors of the model and of both naive forecasts on all windows."""
    errors = ErrorSums(len(rolling.series.names), model.quantiles)
    for start in range(0, len(windows), BATCH_SIZE):
        some = windows[start : start + BATCH_SIZE]
        batch = rolling.collate(some)
        forecasts = forecast_windows(model, batch)
        truth, mask = batch.future.numpy(), batch.mask.numpy()
        naive = {NAIVE: rolling.forecast_naively(some, 1), SEASONAL_NAIVE: rolling.forecast_naively(some, season)}
        errors.add(some[:, 1], truth, mask, {MODEL: forecasts.point.numpy(), **naive})
        if forecasts.quantiles is not None:
            errors.add_quantiles(truth, mask, forecasts.quantiles.numpy())
        if block_errors is not None:
            block_errors.add(some, batch, forecasts.point)
        if progress is not None:
            progress(start + len(some), len(windows))
    return errors


def build_evaluation(
    errors: ErrorSums, statistics: SeriesStatistics, on: str, rolling: RollingWindows, warnings: list[str]
) -> Evaluation:
    """Returns the metrics with their definitions, and a table with a row per series on its original scale."""
    deviation, in_sample_error = statistics.scaler.deviation, statistics.in_sample_error
    columns = {"mse": errors.mean_per_series(errors.squared[MODEL]) * deviation**2}
    for name, absolute in errors.absolute.items():
        prefix = "" if name == MODEL else f"{name.replace('_', ' ')} "
        columns[f"{prefix}mae"] = errors.mean_per_series(absolute) * deviation
        columns[f"{prefix}mase"] = errors.mase_per_series(name, deviation, in_sample_error)
    rows = {
        name: tuple(float(column[index]) for column in columns.values())
        for index, name in enumerate(statistics.names)
        if errors.count[index]
    }
    season = statistics.season
    return Evaluation(
        errors.metrics(deviation, in_sample_error),
        get_definitions(season, errors.quantiles),
        on,
        f"rolling, stride 1: {rolling.horizon} steps from the last {rolling.lookback}; "
        f"seasonal naive: season of {season} steps",
        (Table("per series, on its original scale", tuple(columns), rows),),
        tuple(warnings),
    )


def forecast_first_windows(
    model: ForecastModel, rolling: RollingWindows, windows: np.ndarray, statistics: SeriesStatistics
) -> dict[str, Any]:
    """Returns the forecast of the first window of some series with the true values, for a plot."""
    _, first_windows = np.unique(windows[:, 1], return_index=True)
    windows = windows[np.sort(first_windows)[:MAX_PLOTTED_SERIES]]
    forecasts = format_forecasts(model, rolling, windows, statistics)
    for (origin, series), forecast in zip(windows, forecasts.values()):
        forecast["truth"] = _to_list(rolling.original[origin : origin + rolling.horizon, series])
    return forecasts


def format_forecasts(
    model: ForecastModel, rolling: RollingWindows, windows: np.ndarray, statistics: SeriesStatistics
) -> dict[str, Any]:
    """Forecasts windows; returns by series the timestamps, point and quantiles on the original scale, and history."""
    grid, formatted = rolling.series.grid, {}
    forecasts = forecast_windows(model, rolling.collate(windows))
    for row, (origin, series) in enumerate(windows):
        mean, deviation = statistics.scaler.mean[series], statistics.scaler.deviation[series]
        start = max(origin - rolling.lookback, origin - 3 * rolling.horizon)
        forecast: dict[str, Any] = {
            "timestamps": [grid.label(step) for step in range(origin, origin + rolling.horizon)],
            "point": (forecasts.point[row].double().numpy() * deviation + mean).tolist(),
        }
        if forecasts.quantiles is not None:
            levels = forecasts.quantiles[row].double().numpy() * deviation + mean
            forecast["quantiles"] = {f"{q:g}": levels[:, k].tolist() for k, q in enumerate(model.quantiles)}
        forecast["history"] = {
            "timestamps": [grid.label(step) for step in range(start, origin)],
            "values": _to_list(rolling.original[start:origin, series]),
        }
        formatted[rolling.series.names[series]] = forecast
    return formatted


def _to_list(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
