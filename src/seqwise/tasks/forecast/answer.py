"""What comes after the end of a table: the answer of `predict`, as CSV and as data. It knows nothing of training."""

from __future__ import annotations

import csv
import io

import numpy as np

from seqwise.errors import DataError
from seqwise.tasks.forecast.model import ForecastModel
from seqwise.tasks.forecast.scaling import Measures
from seqwise.tasks.forecast.scoring import forecasts_of, panels_of
from seqwise.tasks.forecast.windows import Rolling
from seqwise.tasks.task import Prediction


def answer(model: ForecastModel, rolling: Rolling, measures: Measures) -> Prediction:
    """The next steps of every series. In a long table each begins after its own last row with a value."""
    windows = _last_windows(rolling)
    panels = panels_of(forecasts_of(model, rolling.batch(windows)), rolling, windows, measures, model.quantiles)
    series = rolling.series
    values = {"step": series.clock.spacing, "horizon": rolling.horizon, "series": panels}
    return Prediction(_as_csv(rolling, panels, model.quantiles), values)


def _last_windows(rolling: Rolling) -> np.ndarray:
    """(C, 2): for each series the window that begins after its end."""
    series, windows = rolling.series, []
    for at, name in enumerate(series.names):
        mates = rolling.there[:, series.group == series.group[at]].any(axis=1)
        origin = int(np.flatnonzero(mates)[-1]) + 1
        history = origin - int(rolling.begins[at])
        if history < rolling.past:
            raise DataError(
                f"the history of {name!r} has {history:,} steps; the model sees {rolling.past:,}.",
                repair="Give a longer history.",
                file=series.name,
            )
        future = series.known[series.group[at], origin : origin + rolling.horizon]
        known = int((~np.isnan(future)).all(axis=1).sum())
        if series.columns.known and known < rolling.horizon:
            raise DataError(
                f"{', '.join(series.columns.known)} must be known for the {rolling.horizon:,} steps after "
                f"{series.clock.label(origin - 1)}; {known:,} rows follow.",
                repair="Add rows with the stamps to forecast: what is known filled in, the targets empty.",
                file=series.name,
            )
        windows.append((origin, at))
    return np.array(windows)


def _as_csv(rolling: Rolling, panels: dict, quantiles: tuple[float, ...]) -> str:
    """One row per step, and per group of series where the table is long; quantiles beside the point."""
    columns = rolling.series.columns
    levels = [f"{q:g}" for q in quantiles]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = [head for target in columns.targets for head in (target, *(f"{target} q{level}" for level in levels))]
    writer.writerow([columns.time, *([columns.series] if columns.series else []), *heads])
    width = len(columns.targets)
    for number, group in enumerate(rolling.series.groups):
        mine = [panels[name] for name in rolling.series.names[number * width : (number + 1) * width]]
        for step, stamp in enumerate(mine[0]["stamps"]):
            fields = [panel["point"][step] for panel in mine]
            found = [
                value
                for panel, point in zip(mine, fields)
                for value in (point, *(panel["quantiles"][level][step] for level in levels))
            ]
            writer.writerow([stamp, *([group] if columns.series else []), *(f"{value:.6g}" for value in found)])
    return text.getvalue().rstrip("\n")
