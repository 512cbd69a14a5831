"""What is measured on the training part of series and kept with a run: scales, the season, which calendar cycles count.

Nothing here looks at validation or test values. It knows nothing of windows or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from seqwise.errors import DataError
from seqwise.tasks.forecast.reader import Series
from seqwise.tasks.forecast.table import Columns
from seqwise.tasks.forecast.timestamps import Clock

CYCLES = 2  # a calendar feature is used if the training part has so many of its cycles
CLEAR = 0.2  # autocorrelation from which on a peak is a season
ROUNDING = 1e-12  # of the largest value: what differs by less does not differ


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of each series or known column, learned on the training part."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def learn(cls, values: np.ndarray) -> Scale:
        """From (T, C) with gaps. A constant keeps its size: its deviation counts as 1."""
        if not values.size:
            return cls(np.zeros(values.shape[1]), np.ones(values.shape[1]))
        return cls(np.nanmean(values, axis=0), np.where(constant(values), 1.0, np.nanstd(values, axis=0)))

    def apply(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.deviation

    def undo(self, values: np.ndarray) -> np.ndarray:
        return values * self.deviation + self.mean


@dataclass(frozen=True)
class Measures:
    """All of it. `names` are the series that were measured, in the order of the arrays."""

    columns: Columns
    clock: Clock
    names: list[str]
    scale: Scale
    known: Scale
    in_sample: np.ndarray  # (C,) mean |y_t - y_{t-season}| of the training part, for MASE
    season: int
    calendar: list[str]

    @classmethod
    def learn(cls, series: Series, stop: int, season: int, calendar: bool) -> Measures:
        """From the steps before `stop`."""
        values = series.values[:stop]
        known = np.concatenate(list(series.known[:, :stop]))
        cycles = calendar_names(series, stop) if calendar else []
        in_sample = in_sample_error(values, season)
        scales = Scale.learn(values), Scale.learn(known)
        return cls(series.columns, series.clock, series.names, *scales, in_sample, season, cycles)

    def of(self, series: Series) -> Measures:
        """The measures for the series of another table, in its order; one that is new is measured on all it has."""
        own = Scale.learn(series.values)
        place = {name: at for at, name in enumerate(self.names)}
        at = [place.get(name) for name in series.names]

        def pick(known: np.ndarray, new: np.ndarray) -> np.ndarray:
            return np.array([new[i] if j is None else known[j] for i, j in enumerate(at)])

        scale = Scale(pick(self.scale.mean, own.mean), pick(self.scale.deviation, own.deviation))
        in_sample = pick(self.in_sample, np.full(len(at), np.nan))
        return Measures(
            series.columns, series.clock, series.names, scale, self.known, in_sample, self.season, self.calendar
        )

    def unknown(self, series: Series) -> list[str]:
        """The series that were not measured in training."""
        return [name for name in series.names if name not in self.names]

    def facts(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "columns": {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self.columns).items()},
            "clock": asdict(self.clock),
            "names": self.names,
            "mean": self.scale.mean.tolist(),
            "deviation": self.scale.deviation.tolist(),
            "known_mean": self.known.mean.tolist(),
            "known_deviation": self.known.deviation.tolist(),
            "in_sample": [None if np.isnan(value) else value for value in self.in_sample.tolist()],
            "season": self.season,
            "calendar": self.calendar,
        }

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Measures:
        columns = facts["columns"]
        return cls(
            Columns(columns["time"], tuple(columns["targets"]), tuple(columns["known"]), columns["series"]),
            Clock(**facts["clock"]),
            facts["names"],
            Scale(np.array(facts["mean"]), np.array(facts["deviation"])),
            Scale(np.array(facts["known_mean"]), np.array(facts["known_deviation"])),
            np.array([np.nan if value is None else value for value in facts["in_sample"]]),
            facts["season"],
            facts["calendar"],
        )


def constant(values: np.ndarray) -> np.ndarray:
    """(C,): which columns of (T, C) never change. The deviation of equal numbers is seldom 0: their mean is rounded."""
    highest = np.fmax.reduce(values, axis=0, initial=-np.inf)
    lowest = np.fmin.reduce(values, axis=0, initial=np.inf)
    return highest - lowest <= _rounding(values)


def _rounding(values: np.ndarray) -> np.ndarray:
    return ROUNDING * np.fmax.reduce(np.abs(values), axis=0, initial=0.0)


def calendar_names(series: Series, steps: int) -> list[str]:
    """The calendar features whose cycle the first `steps` steps have at least twice."""
    return [name for name, (_, length) in series.clock.phases(np.arange(1)).items() if length * CYCLES <= steps]


def calendar_features(series: Series, names: Sequence[str], steps: int) -> np.ndarray:
    """(steps, 2 × names): sine and cosine of the place in each cycle."""
    phases = series.clock.phases(np.arange(steps))
    columns = [wave(2 * np.pi * phases[name][0]) for name in names for wave in (np.sin, np.cos)]
    return np.stack(columns, axis=1) if columns else np.zeros((steps, 0))


def in_sample_error(values: np.ndarray, season: int) -> np.ndarray:
    """(C,): mean |y_t − y_{t−season}| of the training part, the scale of MASE; NaN or 0 where there is none."""
    distances = (
        np.abs(values[season:] - values[:-season]) if season < len(values) else np.full((1, values.shape[1]), np.nan)
    )
    counts = (~np.isnan(distances)).sum(axis=0)
    mean = np.nansum(distances, axis=0) / np.maximum(counts, 1)
    return np.where(counts, np.where(mean > _rounding(values), mean, 0.0), np.nan)


def season_of_values(values: np.ndarray) -> int | None:
    """The first clear peak of the mean autocorrelation of (T, C), after it was negative; None where there is none."""
    steps = len(values)
    centred = np.nan_to_num(values - np.nanmean(values, axis=0))
    centred = centred[:, ~constant(values)]
    if steps < 8 or not centred.shape[1]:
        return None
    spectrum = np.fft.rfft(centred, 2 * steps, axis=0)
    shape = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[: steps // 3]
    wave = (shape / shape[0]).mean(axis=1)
    below = np.flatnonzero(wave < 0)
    if not len(below) or below[0] + 1 >= len(wave):
        return None
    lag = int(below[0] + wave[below[0] :].argmax())
    return lag if wave[lag] >= CLEAR and lag < len(wave) - 1 else None


def check_series(series: Series, stop: int) -> None:
    """Every series needs a value in the training part, or there is nothing to scale it by."""
    for at, name in enumerate(series.names):
        if np.isnan(series.values[:stop, at]).all():
            raise DataError(
                f"series {name!r} has no value in the training part, which ends at {series.clock.label(stop - 1)}.",
                repair="Leave it out, or move the border with --forecast.splits.",
                file=series.name,
            )
