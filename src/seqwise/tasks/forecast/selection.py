"""Selects the windows of a table for a trained run: all, or those of a split. The module knows nothing of training."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import numpy as np

from seqwise.data.examples import SPLITS
from seqwise.errors import UsageError, suggest
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.forecast.reader import SeriesData, read_series
from seqwise.tasks.forecast.windows import RollingWindows, SeriesStatistics, compute_borders, describe_splits
from seqwise.tasks.task import ModelBundle


def build_windows(series: SeriesData, statistics: SeriesStatistics, settings: ResolvedSettings) -> RollingWindows:
    forecast = settings.forecast
    return RollingWindows(
        series, statistics.select_series(series), forecast.lookback, settings.horizon, forecast.missing
    )


def read_windows(bundle: ModelBundle, data: str) -> RollingWindows:
    """Reads a table, which is a path or the text itself, with the columns and the time grid of the training data."""
    statistics = SeriesStatistics.from_attributes(bundle.preprocessor.attributes)
    series = read_series(data, bundle.settings, statistics.columns, statistics.grid)
    return build_windows(series, statistics, bundle.settings)


def select_steps(series: SeriesData, bundle: ModelBundle, split: str | None) -> tuple[int, int, str]:
    """Returns the first step to evaluate, the step after the last, and a description of this part of the data."""
    if split not in (None, "all", *SPLITS):
        raise UsageError(f"there is no split {split!r}.", fix=suggest(str(split), [*SPLITS, "all"]))
    splits = bundle.settings.forecast.splits
    has_splits = split is not None or series.split_ends is not None
    if not has_splits:
        with suppress(UsageError):  # a table may be too short for these splits
            has_splits = compute_fingerprint(series, describe_splits(series, splits)) == bundle.training_fingerprint
    if split == "all" or not has_splits:
        return 0, series.end, "all of it"
    start, stop = compute_borders(series, splits)[split or "test"]
    return start, stop, f"the {split or 'test'} split"


def compute_fingerprint(series: SeriesData, split_rule: str) -> str:
    """Returns a digest of the values and of the split.

    It uses the names Clock and Columns of version 0.1, so that its runs recognise their data.
    """
    grid, columns = series.grid, series.columns
    description = (
        f"({split_rule!r}, {series.names!r}, Clock(unit={grid.unit!r}, step={grid.step!r}, first={grid.first!r}, "
        f"style={grid.style!r}, day={grid.day!r}), Columns(time={columns.time!r}, targets={columns.targets!r}, "
        f"known={columns.known!r}, series={columns.series!r}))"
    )
    digest = hashlib.blake2b(description.encode(), digest_size=16)
    digest.update(np.ascontiguousarray(series.values[: series.end]).tobytes())
    digest.update(np.ascontiguousarray(series.known[:, : series.end]).tobytes())
    return digest.hexdigest()
