"""Forecasts the steps after the end of a table, as CSV and as data. It knows nothing of training."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np

from seqwise.errors import DataError
from seqwise.tasks.forecast.evaluation import format_forecasts
from seqwise.tasks.forecast.model import ForecastModel
from seqwise.tasks.forecast.statistics import SeriesStatistics
from seqwise.tasks.forecast.windows import RollingWindows
from seqwise.tasks.task import Prediction


def forecast_next_steps(model: ForecastModel, rolling: RollingWindows, statistics: SeriesStatistics) -> Prediction:
    """Returns the next steps of every series. In a long table each begins after its own last row with a value."""
    forecasts = format_forecasts(model, rolling, _find_last_windows(rolling), statistics)
    values = {"step": rolling.series.grid.step_name, "horizon": rolling.horizon, "series": forecasts}
    return Prediction(_format_csv(rolling, forecasts, model.quantiles), values)


def _find_last_windows(rolling: RollingWindows) -> np.ndarray:
    """Returns (C, 2): for each series the window that begins after its end."""
    series, windows = rolling.series, []
    for index, name in enumerate(series.names):
        has_value = rolling.observed[:, series.group == series.group[index]].any(axis=1)
        origin = int(np.flatnonzero(has_value)[-1]) + 1
        history = origin - int(rolling.first_steps[index])
        if history < rolling.lookback:
            raise DataError(
                f"the history of {name!r} has {history:,} steps; the model sees {rolling.lookback:,}.",
                repair="Give a longer history.",
                file=series.source,
            )
        future = series.known[series.group[index], origin : origin + rolling.horizon]
        num_known = int((~np.isnan(future)).all(axis=1).sum())
        if series.columns.known and num_known < rolling.horizon:
            raise DataError(
                f"{', '.join(series.columns.known)} must be known for the {rolling.horizon:,} steps after "
                f"{series.grid.label(origin - 1)}; {num_known:,} rows follow.",
                repair="Add rows with the timestamps to forecast: what is known filled in, the targets empty.",
                file=series.source,
            )
        windows.append((origin, index))
    return np.array(windows)


def _format_csv(rolling: RollingWindows, forecasts: dict[str, Any], quantiles: tuple[float, ...]) -> str:
    """Returns one row per step, and per group of series where the table is long; quantiles follow the point."""
    series, columns = rolling.series, rolling.series.columns
    levels = [f"{q:g}" for q in quantiles]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = [name for target in columns.targets for name in (target, *(f"{target} q{level}" for level in levels))]
    writer.writerow([columns.time, *([columns.series] if columns.series else []), *header])
    for group, group_name in enumerate(series.group_names):
        group_forecasts = [forecasts[name] for name, its_group in zip(series.names, series.group) if its_group == group]
        for step, timestamp in enumerate(group_forecasts[0]["timestamps"]):
            values = [
                value
                for forecast in group_forecasts
                for value in (forecast["point"][step], *(forecast["quantiles"][level][step] for level in levels))
            ]
            writer.writerow([timestamp, *([group_name] if columns.series else []), *(f"{v:.6g}" for v in values)])
    return text.getvalue().rstrip("\n")
