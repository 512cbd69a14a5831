"""Rolling evaluation: forecasts every window of a split, and compares the model with naive and linear forecasts.

Errors are summed over batches of windows. The module knows nothing of files, and of the model only `forecast(batch)`
and its calibration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.data.shuffle import mix_bits
from seqwise.metrics.evaluation import Baseline, Evaluation, ExampleScores, ExampleText, ScoreSums, Table
from seqwise.tasks.forecast.linear import forecast_linearly
from seqwise.tasks.forecast.model import ForecastModel, Forecasts
from seqwise.tasks.forecast.windows import RollingWindows, WindowBatch
from seqwise.tasks.training_summary import hash_sequences, hash_texts

MODEL, NAIVE, SEASONAL_NAIVE, LINEAR = "model", "naive", "seasonal_naive", "linear"
BASELINES = {LINEAR: "linear model", SEASONAL_NAIVE: "seasonal-naive forecast", NAIVE: "naive forecast"}
BATCH_SIZE = 1024  # windows at a time
MAX_PLOTTED_SERIES = 4  # in the plot of an evaluation
MAX_SHOWN_VALUES = 12  # values of a window that are listed in texts
MIN_HASHED_VALUES = 8  # values of a window that its hash depends on


def get_definitions(season: int, quantiles: Sequence[float]) -> dict[str, str]:
    """Returns the definition of each metric."""
    scope = "over all windows, steps and series, on standardised values"
    definitions = {
        "mse": f"mean squared error {scope}",
        "mae": f"mean absolute error {scope}",
        "mase": f"mean over series of MAE / mean |y(t) - y(t-{season})| in the training split; any scale",
    }
    rules = {
        NAIVE: "the last value again",
        SEASONAL_NAIVE: f"the last {season} values again",
        LINEAR: "a linear map of the look-back window (ridge regression)",
    }
    for name, rule in rules.items():
        definitions |= {f"{name}_{m}": f"{m} of the {BASELINES[name]}: {rule}" for m in ("mse", "mae", "mase")}
    if quantiles:
        definitions["quantile_loss"] = f"mean of max(q e, (q-1) e), e = truth - forecast of quantile q, {scope}"
    if len(quantiles) > 1:
        low, high = min(quantiles), max(quantiles)
        between = f"between the quantiles {low:g} and {high:g}"
        definitions["coverage"] = f"share of true values {between}; ideal {high - low:g}"
    return definitions | {"windows": "forecasts made, one per step and series (rolling, stride 1)"}


class ErrorSums:
    """Errors of the model and the baselines on standardised values, summed over the windows of C series."""

    def __init__(
        self,
        num_series: int,
        quantiles: Sequence[float] = (),
        forecasters: Sequence[str] = (MODEL, NAIVE, SEASONAL_NAIVE),
    ):
        self.quantiles = tuple(quantiles)
        self.num_targets = np.zeros(num_series)
        self.num_windows = 0
        self.squared = {name: np.zeros(num_series) for name in forecasters}
        self.absolute = {name: np.zeros(num_series) for name in forecasters}
        self.pinball = 0.0  # summed pinball loss of all quantiles
        self.num_covered = 0.0  # number of targets between the smallest and the largest quantile

    def add(self, series: np.ndarray, truth: np.ndarray, mask: np.ndarray, forecasts: dict[str, np.ndarray]) -> None:
        """Adds windows of the series with these indices (B,); truth, mask and each forecast are (B, N)."""
        np.add.at(self.num_targets, series, mask.sum(axis=1))
        self.num_windows += len(series)
        for name, forecast in forecasts.items():
            error = np.where(mask, truth - forecast, 0.0).astype(np.float64)
            np.add.at(self.squared[name], series, (error**2).sum(axis=1))
            np.add.at(self.absolute[name], series, np.abs(error).sum(axis=1))

    def add_quantiles(self, truth: np.ndarray, mask: np.ndarray, forecasts: np.ndarray) -> None:
        """Adds forecasts of the quantiles (B, N, Q)."""
        for index, q in enumerate(self.quantiles):
            error = truth - forecasts[..., index]  # pinball loss: Koenker & Bassett 1978
            self.pinball += float(np.where(mask, np.maximum(q * error, (q - 1) * error), 0.0).sum())
        low, high = int(np.argmin(self.quantiles)), int(np.argmax(self.quantiles))
        self.num_covered += float(((truth >= forecasts[..., low]) & (truth <= forecasts[..., high]) & mask).sum())

    def compute_metrics(self, deviation: np.ndarray, in_sample_error: np.ndarray) -> dict[str, float]:
        """Returns all metrics by name; MASE from the standard deviation and the in-sample error of each series (C,)."""
        count = max(1.0, float(self.num_targets.sum()))
        metrics: dict[str, float] = {}
        for name in self.squared:
            prefix = "" if name == MODEL else f"{name}_"
            metrics[f"{prefix}mse"] = float(self.squared[name].sum()) / count
            metrics[f"{prefix}mae"] = float(self.absolute[name].sum()) / count
            mase = self.compute_mase(name, deviation, in_sample_error)
            metrics[f"{prefix}mase"] = float(np.nanmean(mase)) if not np.isnan(mase).all() else float("nan")
        if self.quantiles:
            metrics["quantile_loss"] = self.pinball / count / len(self.quantiles)
        if len(self.quantiles) > 1:
            metrics["coverage"] = self.num_covered / count
        return metrics | {"windows": self.num_windows}

    def compute_mase(self, name: str, deviation: np.ndarray, in_sample_error: np.ndarray) -> np.ndarray:
        """Returns the MASE of each series (Hyndman & Koehler 2006); NaN if it is constant in training, or absent."""
        mae = self.compute_means(self.absolute[name]) * deviation
        return np.divide(mae, in_sample_error, out=np.full_like(mae, np.nan), where=in_sample_error > 0)

    def compute_means(self, sums: np.ndarray) -> np.ndarray:
        """Returns sums (C,) divided by the number of targets of each series; NaN for a series without targets."""
        return np.divide(sums, self.num_targets, out=np.full_like(sums, np.nan), where=self.num_targets > 0)


class BlockErrors:
    """Squared errors of the steps start … stop-1, summed by block of time; blocks are the examples of a comparison.

    Neighbouring windows forecast nearly the same steps, so they are not independent examples. A block has as many steps
    as the horizon, of all series together; a remainder at the end belongs to the last block. An error belongs to the
    block of the forecast step, whatever its window: a step that is hard to forecast is so for every window that
    contains it, and must not count in two blocks.
    """

    def __init__(self, rolling: RollingWindows, start: int, stop: int):
        self.rolling, self.start, self.length = rolling, start, rolling.horizon
        self.sums = ScoreSums(max(1, (stop - start) // self.length))
        self.first_windows: dict[int, tuple[int, int, np.ndarray]] = {}  # block → (origin, series, point forecast)

    def add(self, windows: np.ndarray, batch: WindowBatch, point: Tensor) -> None:
        """Adds windows (B, 2), in the order of time, with their point forecasts (B, N)."""
        mask = batch.mask.numpy()
        blocks = self.find_block(windows[:, :1] + np.arange(self.length))  # (B, N)
        error = np.where(mask, batch.future.numpy() - point.numpy(), 0.0).astype(np.float64)
        self.sums.add(blocks.ravel(), (error**2).ravel(), mask.ravel())
        # The text of a block shows the first window that begins in it or, if values are missing, that ends in it.
        for window_blocks in (blocks[:, 0], blocks[:, -1]):
            for block, index in zip(*(array.tolist() for array in np.unique(window_blocks, return_index=True))):
                origin, series = windows[index].tolist()
                earlier = self.first_windows.get(block)
                if earlier is None or self.find_block(earlier[0]) < block == self.find_block(origin):
                    self.first_windows[block] = origin, series, point[index].double().numpy()

    def find_block(self, step: np.ndarray | int) -> np.ndarray:
        """Returns the block of a step, or of an array of steps."""
        return np.minimum((step - self.start) // self.length, len(self.sums.sums) - 1)

    def to_scores(self) -> ExampleScores:
        """Returns the blocks with an observed value, and the first window of each, on the original scale, as text."""
        blocks = np.flatnonzero(self.sums.sums[:, 1]).tolist()
        texts = tuple(self._format_window(*self.first_windows[block]) for block in blocks)
        unit = f"blocks of {self.length} step{'s' if self.length > 1 else ''}"
        return ExampleScores("mse", unit, self.sums.sums[blocks], texts)

    def _format_window(self, origin: int, series: int, point: np.ndarray) -> ExampleText:
        rolling = self.rolling
        past = rolling.original[max(0, origin - MAX_SHOWN_VALUES) : origin, series]
        truth = rolling.original[origin : origin + rolling.horizon, series]
        point = rolling.statistics.scaler.inverse_transform(point, series)
        history = f"{rolling.series.names[series]} before {rolling.series.grid.format_timestamp(origin)}: …"
        text = ExampleText.single_line(
            f"{history} {_format_values(past)}", _format_values(truth), _format_values(point)
        )
        before = rolling.original[max(0, origin - min(rolling.lookback, 2 * rolling.horizon)) : origin, series]
        curves = {"input": before, "expected": truth, "answer": point}
        return replace(text, values={name: _to_list(np.round(values, 6)) for name, values in curves.items()})


def _format_values(values: np.ndarray) -> str:
    """Returns the first values as text, with a dash for a missing value."""
    texts = ["–" if np.isnan(value) else f"{value:.4g}" for value in values[:MAX_SHOWN_VALUES]]
    return ", ".join([*texts, *(["…"] if len(values) > MAX_SHOWN_VALUES else [])])


@torch.no_grad()
def forecast_windows(model: ForecastModel, batch: WindowBatch) -> Forecasts:
    """Returns standardised forecasts of a batch of windows with calibrated quantiles, on the CPU."""
    device = next(model.parameters()).device
    model.eval()
    forecasts = model.calibrate(model.forecast(batch.to(device)))
    quantiles = None if forecasts.quantiles is None else forecasts.quantiles.cpu()
    return Forecasts(forecasts.point.cpu(), quantiles, forecasts.scale.cpu())


@torch.no_grad()
def compute_validation_sums(model: ForecastModel, rolling: RollingWindows, windows: np.ndarray) -> list[float]:
    """Returns loss, squared errors, absolute errors and number of targets, summed over the windows.

    It also calibrates the quantiles of the model on these windows; the returned sums do not depend on the calibration.
    """
    device = next(model.parameters()).device
    model.eval()
    sums, quantile_errors = np.zeros(4), []
    for start in range(0, len(windows), BATCH_SIZE):
        batch = rolling.collate(windows[start : start + BATCH_SIZE]).to(device)
        forecasts = model.forecast(batch)
        error = (forecasts.point - batch.future).masked_fill(~batch.mask, 0.0)
        loss = model.loss(forecasts, batch)
        sums += [float(loss.total), float(error.square().sum()), float(error.abs().sum()), loss.count]
        if forecasts.quantiles is not None:
            distances = (batch.future[..., None] - forecasts.quantiles) / forecasts.scale[..., None]
            quantile_errors.append(distances.masked_fill(~batch.mask[..., None], torch.nan).cpu().numpy())
    if quantile_errors:
        model.fit_calibration(np.concatenate(quantile_errors))
    return sums.tolist()


def compute_errors(
    model: ForecastModel,
    rolling: RollingWindows,
    windows: np.ndarray,
    progress: ProgressCallback = no_progress,
    block_errors: BlockErrors | None = None,
    linear: np.ndarray | None = None,
) -> ErrorSums:
    """Returns the errors of the model and the baselines on all windows; `linear` are the weights of the linear one."""
    forecasters = [MODEL, NAIVE, SEASONAL_NAIVE, *([] if linear is None else [LINEAR])]
    errors = ErrorSums(len(rolling.series.names), model.quantiles, forecasters)
    season = rolling.statistics.season
    for start in range(0, len(windows), BATCH_SIZE):
        batch_windows = windows[start : start + BATCH_SIZE]
        batch = rolling.collate(batch_windows)
        forecasts = forecast_windows(model, batch)
        truth, mask = batch.future.numpy(), batch.mask.numpy()
        baselines = {
            NAIVE: rolling.forecast_naively(batch_windows, 1),
            SEASONAL_NAIVE: rolling.forecast_naively(batch_windows, season),
        }
        if linear is not None:
            baselines[LINEAR] = forecast_linearly(batch.past, linear)
        errors.add(batch_windows[:, 1], truth, mask, {MODEL: forecasts.point.numpy(), **baselines})
        if forecasts.quantiles is not None:
            errors.add_quantiles(truth, mask, forecasts.quantiles.numpy())
        if block_errors is not None:
            block_errors.add(batch_windows, batch, forecasts.point)
        progress(start + len(batch_windows), len(windows))
    return errors


def build_evaluation(errors: ErrorSums, data: str, rolling: RollingWindows, warnings: list[str]) -> Evaluation:
    """Returns the metrics with their definitions, and a table with a row per series on its original scale."""
    statistics = rolling.statistics
    deviation, in_sample_error, season = statistics.scaler.deviation, statistics.in_sample_error, statistics.season
    columns = {"mse": errors.compute_means(errors.squared[MODEL]) * deviation**2}
    for name, absolute in errors.absolute.items():
        prefix = "" if name == MODEL else f"{name.replace('_', ' ')} "
        columns[f"{prefix}mae"] = errors.compute_means(absolute) * deviation
        columns[f"{prefix}mase"] = errors.compute_mase(name, deviation, in_sample_error)
    rows = {
        name: tuple(float(column[index]) for column in columns.values())
        for index, name in enumerate(statistics.names)
        if errors.num_targets[index]
    }
    metrics, definitions = errors.compute_metrics(deviation, in_sample_error), get_definitions(season, errors.quantiles)
    return Evaluation(
        metrics,
        definitions,
        data,
        f"rolling, stride 1: {rolling.horizon} steps from the last {rolling.lookback}; "
        f"seasonal naive: season of {season} steps",
        (Table("per series, on its original scale", tuple(columns), rows),),
        tuple(warnings),
        primary_metric="mse",
        baselines=tuple(
            Baseline(name, metrics[f"{key}_mse"], f"It predicts {definitions[f'{key}_mse'].partition(': ')[2]}.")
            for key, name in BASELINES.items()
            if key in errors.squared and not (key == SEASONAL_NAIVE and season == 1)  # then it equals the naive one
        ),
    )


def forecast_first_windows(model: ForecastModel, rolling: RollingWindows, windows: np.ndarray) -> dict[str, Any]:
    """Returns the forecast of the first window of each series with the true values, for a plot of a few series."""
    _, first_windows = np.unique(windows[:, 1], return_index=True)
    windows = windows[np.sort(first_windows)[:MAX_PLOTTED_SERIES]]
    forecasts = format_forecasts(model, rolling, windows)
    for (origin, series), forecast in zip(windows, forecasts.values()):
        forecast["truth"] = _to_list(rolling.original[origin : origin + rolling.horizon, series])
    return forecasts


def format_forecasts(model: ForecastModel, rolling: RollingWindows, windows: np.ndarray) -> dict[str, Any]:
    """Returns the forecast of one window of each series, by its name."""
    names = [rolling.series.names[series] for series in windows[:, 1]]
    return dict(zip(names, iterate_forecasts(model, rolling, windows)))


def iterate_forecasts(model: ForecastModel, rolling: RollingWindows, windows: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yields for each window the timestamps, point and quantiles on the original scale, and the history."""
    grid = rolling.series.grid
    forecasts = forecast_windows(model, rolling.collate(windows))
    to_original_scale = rolling.statistics.scaler.inverse_transform
    for index, (origin, series) in enumerate(windows):
        start = max(origin - rolling.lookback, origin - 3 * rolling.horizon)
        forecast: dict[str, Any] = {
            "timestamps": [grid.format_timestamp(step) for step in range(origin, origin + rolling.horizon)],
            "point": to_original_scale(forecasts.point[index].double().numpy(), series).tolist(),
        }
        if forecasts.quantiles is not None:
            values = to_original_scale(forecasts.quantiles[index].double().numpy(), series)  # (N, Q)
            forecast["quantiles"] = {f"{q:g}": values[:, k].tolist() for k, q in enumerate(model.quantiles)}
        forecast["history"] = {
            "timestamps": [grid.format_timestamp(step) for step in range(start, origin)],
            "values": _to_list(rolling.original[start:origin, series]),
        }
        yield forecast


def iterate_predictions(model: ForecastModel, rolling: RollingWindows, windows: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yields past, true and predicted values of windows that do not overlap, so that every step is predicted once."""
    windows = windows[(windows[:, 0] - windows[0, 0]) % rolling.horizon == 0]
    for start in range(0, len(windows), BATCH_SIZE):
        batch = windows[start : start + BATCH_SIZE]
        for (origin, series), forecast in zip(batch.tolist(), iterate_forecasts(model, rolling, batch)):
            yield {
                "series": rolling.series.names[series],
                "time": forecast["timestamps"][0],
                "input": forecast["history"]["values"],
                "expected": _to_list(rolling.original[origin : origin + rolling.horizon, series]),
                "predicted": forecast["point"],
                **{f"q{level}": values for level, values in forecast.get("quantiles", {}).items()},
            }


def hash_windows(rolling: RollingWindows, windows: np.ndarray) -> np.ndarray:
    """Returns a hash of the time and the values of each window (B,), by which it is recognised in other tables.

    The values are the targets and, if these are few, some values before them. For constant values, which occur in many
    series, the name of the series is part of the hash.
    """
    length, grid = max(rolling.horizon, MIN_HASHED_VALUES), rolling.series.grid
    hashes = np.zeros(len(windows), dtype=np.uint64)
    for series in np.unique(windows[:, 1]):
        has_series = windows[:, 1] == series
        ends = windows[has_series, 0] + rolling.horizon
        values = np.concatenate([np.zeros(length), rolling.original[:, series]])  # a window may begin before the table
        num_repeats = np.concatenate([[0], np.cumsum(values[1:] == values[:-1])])  # up to each value
        is_constant = num_repeats[ends + length - 1] - num_repeats[ends] == length - 1
        times = (grid.first + (ends - 1) * grid.step).astype(np.int64).view(np.uint64)
        keys = hash_sequences(values.view(np.uint64), length)[ends] ^ mix_bits(times)
        name = hash_texts([rolling.series.names[series]])
        hashes[has_series] = mix_bits(np.where(is_constant, keys ^ name, keys))
    return hashes


def _to_list(values: np.ndarray) -> list[float | None]:
    """Returns the values as a list, with None for NaN."""
    return [None if np.isnan(value) else float(value) for value in values]
