"""Forecasts the steps after the end of a table, and formats them as CSV and as a plot. It knows nothing of training."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.errors import DataError
from seqwise.image import write_plot
from seqwise.svg import BLUE, BOTTOM, GREY, LEFT, ORANGE, RIGHT, TOP, WIDTH, Chart, Point, build_document
from seqwise.tasks.forecast.evaluation import format_forecasts
from seqwise.tasks.forecast.model import ForecastModel
from seqwise.tasks.forecast.time_columns import split_timestamp
from seqwise.tasks.forecast.windows import RollingWindows
from seqwise.tasks.task import Prediction

HEIGHT = 240  # pixels of the panel of a series
MAX_PANELS = 8  # more series make the plot unreadable


def forecast_next_steps(model: ForecastModel, rolling: RollingWindows) -> Prediction:
    """Returns the next steps of every series. In a long table each series continues after its own last value."""
    forecasts = format_forecasts(model, rolling, find_last_windows(rolling))
    values = {"step": rolling.series.grid.step_name, "horizon": rolling.horizon, "series": forecasts}
    return Prediction(_format_csv(rolling, forecasts, model.quantiles), values)


def find_last_windows(rolling: RollingWindows) -> np.ndarray:
    """Returns (C, 2): for each series the window whose targets begin after its last value."""
    series, windows = rolling.series, []
    for index, name in enumerate(series.names):
        has_value = rolling.observed[:, series.group == series.group[index]].any(axis=1)
        origin = int(np.flatnonzero(has_value)[-1]) + 1
        history = origin - int(rolling.first_steps[index])
        if history < rolling.lookback:
            problem = f"the history of {name!r} has {history:,} steps; the model sees {rolling.lookback:,}."
            raise DataError(problem, fix="Give a longer history.", file=series.source)
        future = series.known[series.group[index], origin : origin + rolling.horizon]
        num_known = int((~np.isnan(future)).all(axis=1).sum())
        if series.columns.known and num_known < rolling.horizon:
            needed = f"{', '.join(series.columns.known)} must be known for the {rolling.horizon:,} steps after"
            problem = f"{needed} {series.grid.format_timestamp(origin - 1)}; {num_known:,} rows follow."
            fix = "Add rows with the timestamps to forecast: what is known filled in, the targets empty."
            raise DataError(problem, fix=fix, file=series.source)
        windows.append((origin, index))
    return np.array(windows)


def _format_csv(rolling: RollingWindows, forecasts: dict[str, Any], quantiles: tuple[float, ...]) -> str:
    """Returns one row per step, in a long table also per group of series; the quantiles follow the point forecast."""
    series, columns = rolling.series, rolling.series.columns
    levels = [f"{q:g}" for q in quantiles]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = [name for target in columns.targets for name in (target, *(f"{target} q{level}" for level in levels))]
    times = columns.time_columns or ["step"]
    writer.writerow([*times, *([columns.series] if columns.series else []), *header])
    for group, group_name in enumerate(series.group_names):
        names = [name for name, series_group in zip(series.names, series.group) if series_group == group]
        group_forecasts = [forecasts[name] for name in names]
        for step, timestamp in enumerate(group_forecasts[0]["timestamps"]):
            values = [
                value
                for forecast in group_forecasts
                for value in (forecast["point"][step], *(forecast["quantiles"][level][step] for level in levels))
            ]
            fields = split_timestamp(timestamp, times)
            writer.writerow([*fields, *([group_name] if columns.series else []), *(f"{v:.6g}" for v in values)])
    return text.getvalue().rstrip("\n")


# The plot has a panel per series: the end of its history, the point forecast, the band between the quantiles and, if
# they are known, the true values.


def save_plot(path: Path, forecasts: Mapping[str, Any]) -> None:
    """Writes the plot to a file, whose name must end in .svg or .png."""
    write_plot(path, build_forecast_svg(forecasts))


def build_forecast_svg(forecasts: Mapping[str, Any]) -> str:
    """Returns the plot of `Prediction.values["series"]`: name → timestamps, point, quantiles, history, truth."""
    plotted = list(forecasts.items())[:MAX_PANELS]
    parts = [
        f'<g transform="translate(0 {index * HEIGHT})">\n{_draw_panel(name, forecast)}\n</g>'
        for index, (name, forecast) in enumerate(plotted)
    ]
    height, num_omitted = len(plotted) * HEIGHT, len(forecasts) - len(plotted)
    if num_omitted:
        height += 20
        parts.append(f'<text x="{LEFT}" y="{height - 6}" fill="{GREY}">and {num_omitted:,} more series</text>')
    return build_document(parts, height, "forecast")


def _draw_panel(name: str, forecast: Mapping[str, Any]) -> str:
    past, point, truth = forecast["history"]["values"], forecast["point"], forecast.get("truth", [])
    quantiles, start = forecast.get("quantiles", {}), len(past)
    levels = sorted(quantiles, key=float)
    lower, upper = (quantiles[levels[0]], quantiles[levels[-1]]) if len(levels) > 1 else ([], [])
    curves = (past, point, lower, upper, truth)
    values = [value for curve in curves for value in curve if value is not None]
    chart = Chart(HEIGHT, max(1, len(past) + len(point) - 1), values, num_ticks=4)
    last_value = [(start - 1, past[-1])] if past and past[-1] is not None else []
    legend = [(name, GREY, ' font-weight="bold"'), ("history", BLUE, ""), ("forecast", ORANGE, "")]
    if lower:
        chart.add_area([*last_value, *enumerate(upper, start), *reversed(list(enumerate(lower, start)))], ORANGE)
        legend.append((f"quantiles {levels[0]} to {levels[-1]}", ORANGE, ' fill-opacity="0.7"'))
    if truth:
        legend.append(("true values (dashed)", BLUE, ""))
    for curve, first_step, style in ((past, 0, ""), (truth, start, ' stroke-dasharray="4 3"')):
        for segment in split_at_gaps(curve, first_step):
            chart.add_line(segment, BLUE, 1.5, style)
    chart.add_line([*last_value, *enumerate(point, start)], ORANGE, 2.0)
    _add_timestamps(chart, forecast, chart.to_pixels((start, chart.low))[0])
    chart.add_legend(legend)
    return "\n".join(chart.parts)


def split_at_gaps(values: Sequence[float | None], first_step: int) -> list[list[Point]]:
    """Returns the segments of a curve between its missing values."""
    segments: list[list[Point]] = [[]]
    for step, value in enumerate(values, first_step):
        if value is None:
            segments.append([])
        else:
            segments[-1].append((step, value))
    return [segment for segment in segments if segment]


def _add_timestamps(chart: Chart, forecast: Mapping[str, Any], x: float) -> None:
    """Draws a line at the first forecast step, the first timestamps of history and forecast, and the last one."""
    history, future = forecast["history"]["timestamps"], forecast["timestamps"]
    chart.parts.append(
        f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}" stroke="{ORANGE}" stroke-opacity="0.5" '
        'stroke-dasharray="2 3"/>'
    )
    anchor = "middle" if len(future[0]) < 12 else "end"  # a long timestamp would overlap the last one
    labels = [(x, anchor, future[0]) if history else (LEFT, "start", future[0])]
    labels += [(WIDTH - RIGHT, "end", future[-1])] if len(future) > 1 else []
    labels += [(LEFT, "start", history[0])] if len(history) > 2 else []
    for label_x, label_anchor, label in labels:
        chart.add_text(label_x, HEIGHT - BOTTOM + 18, label, anchor=label_anchor)
