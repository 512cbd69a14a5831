"""Statistics of the training part of series, saved with a run: means and deviations, season, calendar features.

Validation and test values have no influence on them. It knows nothing of windows or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from seqwise.errors import DataError
from seqwise.tasks.forecast.reader import SeriesData
from seqwise.tasks.forecast.table import SeriesColumns
from seqwise.tasks.forecast.timestamps import TimeGrid

MIN_CYCLES = 2  # that the training part must have of a calendar cycle to use it as a feature
MIN_AUTOCORRELATION = 0.2  # of a peak that counts as a season
ROUNDING = 1e-12  # of the largest value: numbers that differ by less are equal


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
        return cls(np.nanmean(values, axis=0), np.where(is_constant(values), 1.0, np.nanstd(values, axis=0)))

    def transform(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.deviation

    def inverse_transform(self, values: np.ndarray) -> np.ndarray:
        return values * self.deviation + self.mean


@dataclass(frozen=True)
class SeriesStatistics:
    """All statistics of a run. `names` are the series in the order of the arrays."""

    columns: SeriesColumns
    grid: TimeGrid
    names: list[str]
    scaler: Standardizer
    known_scaler: Standardizer
    in_sample_error: np.ndarray  # (C,) mean |y_t - y_{t-season}| of the training part, for MASE
    season: int
    calendar: list[str]

    @classmethod
    def fit(cls, series: SeriesData, stop: int, season: int, calendar: bool) -> SeriesStatistics:
        """Computes the statistics of the steps before `stop`."""
        values = series.values[:stop]
        return cls(
            series.columns,
            series.grid,
            series.names,
            Standardizer.fit(values),
            Standardizer.fit(np.concatenate(list(series.known[:, :stop]))),
            compute_in_sample_error(values, season),
            season,
            choose_calendar_features(series, stop) if calendar else [],
        )

    def select(self, series: SeriesData) -> SeriesStatistics:
        """Returns the statistics for the series of another table; a new series is scaled by its own values."""
        own = Standardizer.fit(series.values)
        indices = {name: index for index, name in enumerate(self.names)}
        trained = np.array([indices.get(name, -1) for name in series.names])

        def pick(values: np.ndarray, new_values: np.ndarray) -> np.ndarray:
            return np.where(trained >= 0, values[trained], new_values)

        return replace(
            self,
            columns=series.columns,
            grid=series.grid,
            names=series.names,
            scaler=Standardizer(
                pick(self.scaler.mean, own.mean),
                pick(self.scaler.deviation, own.deviation),
            ),
            in_sample_error=pick(self.in_sample_error, np.full(len(trained), np.nan)),
        )

    def find_new(self, series: SeriesData) -> list[str]:
        """Returns the series of a table that training did not have."""
        return [name for name in series.names if name not in self.names]

    def to_facts(self) -> dict[str, Any]:
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
    def from_facts(cls, facts: dict[str, Any]) -> SeriesStatistics:
        columns = facts["columns"]
        return cls(
            SeriesColumns(columns["time"], tuple(columns["targets"]), tuple(columns["known"]), columns["series"]),
            TimeGrid(**facts["clock"]),
            facts["names"],
            Standardizer(np.array(facts["mean"]), np.array(facts["deviation"])),
            Standardizer(np.array(facts["known_mean"]), np.array(facts["known_deviation"])),
            np.array([np.nan if value is None else value for value in facts["in_sample"]]),
            facts["season"],
            facts["calendar"],
        )


def is_constant(values: np.ndarray) -> np.ndarray:
    """Returns (C,): the columns of (T, C) that never change, up to rounding: their deviation is rarely exactly 0."""
    highest = np.fmax.reduce(values, axis=0, initial=-np.inf)
    lowest = np.fmin.reduce(values, axis=0, initial=np.inf)
    return highest - lowest <= _rounding_error(values)


def _rounding_error(values: np.ndarray) -> np.ndarray:
    return ROUNDING * np.fmax.reduce(np.abs(values), axis=0, initial=0.0)


def choose_calendar_features(series: SeriesData, num_steps: int) -> list[str]:
    """Returns the calendar features whose cycle occurs at least MIN_CYCLES times in the first steps."""
    phases = series.grid.calendar_phases(np.arange(1))
    return [name for name, (_, length) in phases.items() if length * MIN_CYCLES <= num_steps]


def compute_calendar_features(series: SeriesData, names: Sequence[str], num_steps: int) -> np.ndarray:
    """Returns (num_steps, 2 × names): sine and cosine of the phase in each cycle."""
    phases = series.grid.calendar_phases(np.arange(num_steps))
    columns = [wave(2 * np.pi * phases[name][0]) for name in names for wave in (np.sin, np.cos)]
    return np.stack(columns, axis=1) if columns else np.zeros((num_steps, 0))


def compute_in_sample_error(values: np.ndarray, season: int) -> np.ndarray:
    """Returns (C,): mean |y_t − y_{t−season}|, the scale of MASE; NaN without any such pair, 0 without change."""
    if season >= len(values):
        return np.full(values.shape[1], np.nan)
    distances = np.abs(values[season:] - values[:-season])
    counts = (~np.isnan(distances)).sum(axis=0)
    mean = np.nansum(distances, axis=0) / np.maximum(counts, 1)
    return np.where(counts, np.where(mean > _rounding_error(values), mean, 0.0), np.nan)


def detect_season(values: np.ndarray) -> int | None:
    """Returns the first clear peak of the mean autocorrelation of (T, C) after it was negative, or None."""
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
    """Refuses series without a value in the training part: they cannot be scaled."""
    for index, name in enumerate(series.names):
        if np.isnan(series.values[:stop, index]).all():
            raise DataError(
                f"series {name!r} has no value in the training part, which ends at {series.grid.label(stop - 1)}.",
                repair="Leave it out, or move the border with --forecast.splits.",
                file=series.source,
            )
