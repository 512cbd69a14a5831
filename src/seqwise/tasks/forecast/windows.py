"""Rolling windows over series: splits by time, statistics of the training split, batches of (past, future).

    … past past past past | future future …         one window: the last `lookback` steps, and the `horizon` to forecast
        past past past past | future future …       the next one, one step later

Splits are consecutive in time. The past of a window may be in the split before, but its targets are in its own split.
The statistics (means and deviations, season, calendar features) are saved with a run; they do not depend on validation
and test values. A window has values of one series. The module knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from seqwise.data.batch import Batch
from seqwise.data.examples import SPLITS
from seqwise.data.tables import split_commas
from seqwise.errors import DataError, UsageError
from seqwise.tasks.forecast.reader import SeriesData, fill_missing
from seqwise.tasks.forecast.table import SeriesColumns
from seqwise.tasks.forecast.timestamps import TimeGrid

MIN_CYCLES = 2  # a calendar cycle is a feature if the training split is at least this many cycles long
MIN_AUTOCORRELATION = 0.2  # at the lag of a season
DEFAULT_SPLITS = "0.7,0.1,0.2"  # shares of the steps for training, validation and test
MAX_SCALED = 1e15  # standard deviations; the square of a larger number may overflow as a 32-bit float
ROUNDING = 1e-12  # relative to the largest value: numbers that differ by less are equal


@dataclass(frozen=True)
class Standardizer:
    """Mean and standard deviation of each column."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def fit(cls, values: np.ndarray) -> Standardizer:
        """Computes both from (T, C), ignoring NaN. The deviation of a constant column counts as 1."""
        if not values.size:
            return cls(np.zeros(values.shape[1]), np.ones(values.shape[1]))
        deviation = np.nanstd(values, axis=0)
        if not deviation.all():  # the squares of numbers such as 1e-200 are zero
            largest = np.fmax.reduce(np.abs(values), axis=0, initial=0.0)
            scaled = np.nanstd(values / np.where(largest > 0, largest, 1.0), axis=0) * largest
            deviation = np.where(deviation > 0, deviation, scaled)
        return cls(np.nanmean(values, axis=0), np.where(is_constant(values), 1.0, deviation))

    def transform(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.deviation

    def inverse_transform(self, values: np.ndarray, column: int | slice = slice(None)) -> np.ndarray:
        """Returns standardised values of all columns, or of one, on their original scale."""
        return values * self.deviation[column] + self.mean[column]


@dataclass(frozen=True)
class SeriesStatistics:
    """The statistics of the C series of a run."""

    columns: SeriesColumns
    grid: TimeGrid
    names: list[str]  # of the series, in the order of the arrays
    scaler: Standardizer
    known_scaler: Standardizer  # of the values known in advance
    in_sample_error: np.ndarray  # (C,) mean |y_t - y_{t-season}| of the training split, for MASE
    season: int
    calendar: list[str]  # names of the calendar features
    indices: np.ndarray | None = None  # (C,) of the series in the training data; -1: not there; None: all, in order

    @classmethod
    def fit(cls, series: SeriesData, stop: int, season: int, calendar: bool) -> SeriesStatistics:
        """Computes the statistics of the steps before `stop`."""
        values, phases = series.values[:stop], series.grid.compute_calendar_phases(np.arange(1))
        return cls(
            series.columns,
            series.grid,
            series.names,
            Standardizer.fit(values),
            Standardizer.fit(np.concatenate(list(series.known[:, :stop]))),
            compute_in_sample_error(values, season),
            season,
            [name for name, (_, length) in phases.items() if length * MIN_CYCLES <= stop] if calendar else [],
        )

    def select_series(self, series: SeriesData) -> SeriesStatistics:
        """Returns the statistics for the series of another table; a new series is scaled by its own values."""
        own_scaler = Standardizer.fit(series.values)
        indices_by_name = {name: index for index, name in enumerate(self.names)}
        indices = np.array([indices_by_name.get(name, -1) for name in series.names])

        def select_values(values: np.ndarray, new_values: np.ndarray) -> np.ndarray:
            return np.where(indices >= 0, values[indices], new_values)

        return replace(
            self,
            columns=series.columns,
            grid=series.grid,
            names=series.names,
            scaler=Standardizer(
                select_values(self.scaler.mean, own_scaler.mean),
                select_values(self.scaler.deviation, own_scaler.deviation),
            ),
            in_sample_error=select_values(self.in_sample_error, np.full(len(indices), np.nan)),
            indices=indices,
        )

    def to_attributes(self) -> dict[str, Any]:
        """Returns the statistics as plain data, for JSON."""
        return {
            "columns": {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self.columns).items()},
            "clock": asdict(self.grid),
            "names": self.names,
            "mean": self.scaler.mean.tolist(),
            "deviation": self.scaler.deviation.tolist(),
            "known_mean": self.known_scaler.mean.tolist(),
            "known_deviation": self.known_scaler.deviation.tolist(),
            "in_sample": [None if np.isnan(value) else value for value in self.in_sample_error.tolist()],
            "season": self.season,
            "calendar": self.calendar,
        }

    @classmethod
    def from_attributes(cls, attributes: dict[str, Any]) -> SeriesStatistics:
        columns = attributes["columns"]
        return cls(
            SeriesColumns(columns["time"], tuple(columns["targets"]), tuple(columns["known"]), columns["series"]),
            TimeGrid(**attributes["clock"]),
            attributes["names"],
            Standardizer(np.array(attributes["mean"]), np.array(attributes["deviation"])),
            Standardizer(np.array(attributes["known_mean"]), np.array(attributes["known_deviation"])),
            np.array([np.nan if value is None else value for value in attributes["in_sample"]]),
            attributes["season"],
            attributes["calendar"],
        )


def is_constant(values: np.ndarray) -> np.ndarray:
    """Returns for each column of (T, C) whether it is constant, up to rounding errors."""
    highest = np.fmax.reduce(values, axis=0, initial=-np.inf)
    lowest = np.fmin.reduce(values, axis=0, initial=np.inf)
    return highest - lowest <= _estimate_rounding_error(values)


def _estimate_rounding_error(values: np.ndarray) -> np.ndarray:
    return ROUNDING * np.fmax.reduce(np.abs(values), axis=0, initial=0.0)


def compute_calendar_features(series: SeriesData, names: Sequence[str], num_steps: int) -> np.ndarray:
    """Returns (num_steps, 2 × names): sine and cosine of the phase in each cycle."""
    phases = series.grid.compute_calendar_phases(np.arange(num_steps))
    columns = [function(2 * np.pi * phases[name][0]) for name in names for function in (np.sin, np.cos)]
    return np.stack(columns, axis=1) if columns else np.zeros((num_steps, 0))


def compute_in_sample_error(values: np.ndarray, season: int) -> np.ndarray:
    """Returns mean |y_t − y_{t−season}| of each series (C,), the scale of MASE.

    It is NaN if there is no such pair, and exactly 0 if the values are constant up to rounding errors.
    """
    if season >= len(values):
        return np.full(values.shape[1], np.nan)
    distances = np.abs(values[season:] - values[:-season])
    counts = (~np.isnan(distances)).sum(axis=0)
    mean = np.nansum(distances, axis=0) / np.maximum(counts, 1)
    return np.where(counts, np.where(mean > _estimate_rounding_error(values), mean, 0.0), np.nan)


def detect_season(values: np.ndarray) -> int | None:
    """Returns the lag of the largest mean autocorrelation of (T, C) after the first negative one, or None."""
    num_steps = len(values)
    centred = np.nan_to_num(values - np.nanmean(values, axis=0))
    centred = centred[:, ~is_constant(values)]
    if num_steps < 8 or not centred.shape[1]:
        return None
    spectrum = np.fft.rfft(centred, 2 * num_steps, axis=0)
    autocovariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[: num_steps // 3]
    autocorrelation = (autocovariance / autocovariance[0]).mean(axis=1)
    negative = np.flatnonzero(autocorrelation < 0)
    if not len(negative) or negative[0] + 1 >= len(autocorrelation):
        return None
    lag = int(negative[0] + autocorrelation[negative[0] :].argmax())
    is_peak = lag < len(autocorrelation) - 1
    return lag if is_peak and autocorrelation[lag] >= MIN_AUTOCORRELATION else None


def check_training_values(series: SeriesData, stop: int) -> None:
    """Raises an error for series without a value in the training split, which cannot be scaled."""
    for index, name in enumerate(series.names):
        if np.isnan(series.values[:stop, index]).all():
            end = series.grid.format_timestamp(stop - 1)
            problem = f"series {name!r} has no value in the training split, which ends at {end}."
            fix = "Leave it out, or move the border with --forecast.splits."
            raise DataError(problem, fix=fix, file=series.source)


def _check_scaled_values(series: SeriesData, scaled: np.ndarray) -> None:
    """Raises an error for a value so far from those of the training split that its square overflows in training."""
    is_extreme = np.abs(scaled[: len(series.values)]) > MAX_SCALED
    if is_extreme.any():
        step, column = np.argwhere(is_extreme)[0].tolist()
        value, time = series.values[step, column], series.grid.format_timestamp(step)
        distance = f"{abs(scaled[step, column]):.2g} standard deviations from the mean of the training split"
        problem = f"series {series.names[column]!r}: the value {value:g} at {time} is {distance}."
        raise DataError(problem, fix="Correct it, or leave it empty if it is missing.", file=series.source)


@dataclass(frozen=True)
class WindowBatch(Batch):
    """Windows of single series, standardised."""

    position_unit = "window"

    past: Tensor  # (B, L) float32
    future: Tensor  # (B, N) float32; zero where the value is missing
    mask: Tensor  # (B, N) bool: the future values that were observed, which are the targets
    known: Tensor  # (B, L + N, F) float32: values known in advance, past and future
    series: Tensor | None = None  # (B,) int64: index of the series in the training data; -1 if it is not there

    @property
    def length(self) -> int:
        return self.past.shape[1]

    @property
    def num_targets(self) -> int:
        return int(self.mask.sum())


def compute_borders(series: SeriesData, splits: str) -> dict[str, tuple[int, int]]:
    """Returns (first step, step after the last) of each split. Steps after the last split are not used."""
    ends = _parse_splits(splits, series.end) if series.split_ends is None else list(series.split_ends)
    return dict(zip(SPLITS, zip([0, *ends], ends)))


def _parse_splits(splits: str, num_steps: int) -> list[int]:
    """Returns the step after each of three splits, which are given as numbers of steps or as fractions."""
    fix = "Give three numbers of steps, 8640,2880,2880, or three shares, 0.7,0.1,0.2."
    try:
        sizes = [float(part) for part in split_commas(splits) or []]
    except ValueError:
        sizes = []
    if len(sizes) != 3 or min(sizes) <= 0:
        raise UsageError(f"--forecast.splits: expected three numbers above 0, received {splits!r}.", fix=fix)
    if sum(sizes) <= 1 + 1e-9:
        sizes = [size * num_steps for size in sizes]
    elif any(size != round(size) for size in sizes):
        raise UsageError(f"--forecast.splits: the shares add up to {sum(sizes):g}, more than 1.", fix=fix)
    ends = [round(end) for end in np.cumsum(sizes)]
    if ends[-1] > num_steps:
        raise UsageError(f"--forecast.splits asks for {ends[-1]:,} steps; the data has {num_steps:,}.", fix=fix)
    return ends


def describe_splits(series: SeriesData, splits: str) -> str:
    """Returns a sentence about how the data is split. It is part of the fingerprint of the data."""
    borders = compute_borders(series, splits)
    sizes = ", ".join(f"{split} {stop - start:,}" for split, (start, stop) in borders.items())
    num_unused = series.end - borders["test"][1]
    rule = "as the files are named" if series.split_ends is not None else "by time, in this order"
    unused = f"; the last {num_unused:,} are not used" if num_unused else ""
    return f"steps are split {rule}: {sizes}{unused}."


class RollingWindows:
    """All windows of some series. A window is identified by (first step to forecast, index of the series)."""

    def __init__(self, series: SeriesData, statistics: SeriesStatistics, lookback: int, horizon: int, missing: str):
        self.series, self.statistics, self.lookback, self.horizon = series, statistics, lookback, horizon
        self.min_history = max(lookback, statistics.season)  # required steps before the first step to forecast
        num_table_steps = len(series.values)
        num_steps = max(num_table_steps, series.end + horizon)  # a forecast from the end reaches beyond the table
        self.original = np.full((num_steps, len(series.names)), np.nan)
        self.original[:num_table_steps] = series.values
        self.observed = np.asfortranarray(~np.isnan(self.original))
        # Each series is contiguous in memory, so that copying a window is fast.
        filled = statistics.scaler.transform(fill_missing(self.original, missing))
        _check_scaled_values(series, filled)
        self.values = np.asfortranarray(filled, dtype=np.float32)
        # If gaps are interpolated, the past of a window must end in an observed value: an interpolated one would depend
        # on a value of the future.
        self.can_end_past = (
            self.observed if missing == "interpolate" else np.logical_or.accumulate(self.observed, axis=0)
        )
        known = np.zeros((series.known.shape[0], num_steps, series.known.shape[2]))
        known[:, :num_table_steps] = np.nan_to_num(statistics.known_scaler.transform(series.known))
        calendar = compute_calendar_features(series, statistics.calendar, num_steps)
        known = np.concatenate([known, np.broadcast_to(calendar, (len(known), *calendar.shape))], axis=2)
        self.known = np.moveaxis(np.ascontiguousarray(np.moveaxis(known, 2, 0), dtype=np.float32), 0, 2)
        self.first_steps = np.where(self.observed.any(axis=0), self.observed.argmax(axis=0), num_steps)

    def find_windows(self, start: int, stop: int) -> np.ndarray:
        """Returns all windows (W, 2) whose targets are at steps start … stop-1, in the order of time.

        At least one target is observed, and the series has `min_history` steps before the window.
        """
        first_origin = max(start, self.min_history)
        origins = np.arange(first_origin, stop - self.horizon + 1)
        if not len(origins):
            return np.zeros((0, 2), dtype=np.int64)
        has_history = origins[:, None] - self.min_history >= self.first_steps
        counts = np.vstack([np.zeros((1, self.observed.shape[1]), dtype=np.int64), self.observed.cumsum(axis=0)])
        has_target = counts[origins + self.horizon] > counts[origins]
        return np.argwhere(self.can_end_past[origins - 1] & has_history & has_target) + np.array([first_origin, 0])

    def collate(self, windows: np.ndarray) -> WindowBatch:
        """Returns the windows (B, 2) as a batch."""
        starts, series = windows[:, 0] - self.lookback, windows[:, 1]
        length = self.lookback + self.horizon
        values = _gather(self.values.T, series, starts, length)
        mask = _gather(self.observed.T, series, starts, length)[:, self.lookback :]
        future = np.where(mask, values[:, self.lookback :], np.float32(0))
        group = self.series.group[series]
        features = [_gather(self.known[:, :, i], group, starts, length) for i in range(self.known.shape[2])]
        known = np.stack(features, axis=2) if features else np.zeros((len(windows), length, 0), dtype=np.float32)
        return WindowBatch(
            torch.from_numpy(values[:, : self.lookback]),
            torch.from_numpy(future),
            torch.from_numpy(mask),
            torch.from_numpy(known),
            torch.from_numpy(series if self.statistics.indices is None else self.statistics.indices[series]),
            positions=torch.from_numpy(windows[:, 0].astype(np.int64)),
        )

    def forecast_naively(self, windows: np.ndarray, season: int) -> np.ndarray:
        """Returns forecasts (B, N) that repeat the last `season` values before each window."""
        steps = windows[:, :1] - season + np.arange(self.horizon) % season
        return self.values[steps, windows[:, 1:]]


def _gather(table: np.ndarray, rows: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Returns table[rows[b], starts[b] : starts[b] + length] for each b, (B, length), of a table (C, T)."""
    return sliding_window_view(table, length, axis=1)[rows, starts]
