"""Forecasts the steps after the end of a table, as CSV and as data. It knows nothing of training."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.errors import DataError
from seqwise.files import check_output_path, write_text
from seqwise.tasks.forecast.evaluation import format_forecasts
from seqwise.tasks.forecast.model import ForecastModel
from seqwise.tasks.forecast.windows import RollingWindows, SeriesStatistics
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


SUFFIXES = (".svg",)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 240, 64, 16, 34, 36
MAX_PANELS = 8  # more series make the plot unreadable
GREY, HISTORY_COLOUR, FORECAST_COLOUR = "#888", "#5b8def", "#e07a3f"

Point = tuple[float, float]  # (step, value)
Transform = Callable[[Point], str]  # to SVG coordinates, "x,y"


def save_plot(path: Path, forecasts: Mapping[str, Any]) -> None:
    """Writes the plot into a file, whose name must end in .svg."""
    check_output_path(path, SUFFIXES)
    write_text(path, forecast_svg(forecasts), concurrent=True)


def forecast_svg(forecasts: Mapping[str, Any]) -> str:
    """Returns the plot of `Prediction.values["series"]`: name → timestamps, point, quantiles, history, truth."""
    plotted = list(forecasts.items())[:MAX_PANELS]
    body = "\n".join(
        f'<g transform="translate(0 {index * HEIGHT})">\n{_draw_panel(name, forecast)}\n</g>'
        for index, (name, forecast) in enumerate(plotted)
    )
    num_omitted = len(forecasts) - len(plotted)
    height = len(plotted) * HEIGHT + (20 if num_omitted else 0)
    if num_omitted:
        body += f'\n<text x="{LEFT}" y="{height - 6}" fill="{GREY}">and {num_omitted:,} more series</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="forecast">\n{body}\n</svg>\n'
    )


def _draw_panel(name: str, forecast: Mapping[str, Any]) -> str:
    past, point, truth = forecast["history"]["values"], forecast["point"], forecast.get("truth", [])
    quantiles = forecast.get("quantiles", {})
    levels = sorted(quantiles, key=float)
    lower, upper = (quantiles[levels[0]], quantiles[levels[-1]]) if len(levels) > 1 else ([], [])
    values = [value for part in (past, point, lower, upper, truth) for value in part if value is not None]
    ticks = choose_ticks(min(values), max(values))
    low, high, num_steps = ticks[0], ticks[-1], max(1, len(past) + len(point) - 1)

    def transform(at: Point) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * at[0] / num_steps
        return f"{x:.1f},{TOP + (HEIGHT - TOP - BOTTOM) * (high - at[1]) / (high - low):.1f}"

    start = len(past)
    last_value = [(start - 1, past[-1])] if past and past[-1] is not None else []
    parts = [_draw_grid_line(tick, transform) for tick in ticks]
    if lower:
        outline = [*last_value, *enumerate(upper, start), *reversed(list(enumerate(lower, start)))]
        points = " ".join(map(transform, outline))
        parts.append(f'<polygon points="{points}" fill="{FORECAST_COLOUR}" fill-opacity="0.22"/>')
    parts += [_draw_line(piece, transform, HISTORY_COLOUR, 1.5) for piece in split_at_gaps(past, 0)]
    dashes = ' stroke-dasharray="4 3"'
    parts += [_draw_line(piece, transform, HISTORY_COLOUR, 1.5, dashes) for piece in split_at_gaps(truth, start)]
    parts.append(_draw_line([*last_value, *enumerate(point, start)], transform, FORECAST_COLOUR, 2.0))
    parts += _draw_timestamps(forecast, float(transform((start, low)).split(",")[0]))
    band = f"quantiles {levels[0]} to {levels[-1]}" if lower else ""
    return "\n".join([*parts, _draw_legend(name, band, bool(truth))])


def split_at_gaps(values: Sequence[float | None], start: int) -> list[list[Point]]:
    """Returns the pieces of a line between its missing values."""
    pieces: list[list[Point]] = [[]]
    for step, value in enumerate(values, start):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((step, value))
    return [piece for piece in pieces if piece]


def choose_ticks(low: float, high: float, target_count: int = 4) -> list[float]:
    """Returns round numbers (1, 2 or 5 times a power of ten) that cover the range."""
    raw_step = ((high - low) or abs(high) or 1.0) / target_count
    power = 10.0 ** math.floor(math.log10(raw_step))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw_step * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def _draw_grid_line(value: float, transform: Transform) -> str:
    y = float(transform((0, value)).split(",")[1])
    return (
        f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GREY}" stroke-opacity="0.25"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{GREY}">{value:g}</text>'
    )


def _draw_line(points: Sequence[Point], transform: Transform, colour: str, width: float, style: str = "") -> str:
    coordinates = " ".join(map(transform, points))
    return (
        f'<polyline points="{coordinates}" fill="none" stroke="{colour}" stroke-width="{width}" '
        f'stroke-linejoin="round" stroke-linecap="round"{style}/>'
    )


def _draw_timestamps(forecast: Mapping[str, Any], x: float) -> list[str]:
    """Draws a line at the first forecast step, the first timestamps of history and forecast, and the last one."""
    history, future = forecast["history"]["timestamps"], forecast["timestamps"]
    line = (
        f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}" stroke="{FORECAST_COLOUR}" stroke-opacity="0.5" '
        'stroke-dasharray="2 3"/>'
    )
    labels: list[tuple[float, str, str]] = [(WIDTH - RIGHT, "end", future[-1])] if len(future) > 1 else []
    anchor = "middle" if len(future[0]) < 12 else "end"  # a long timestamp would overlap the last one
    labels += [(x, anchor, future[0])] if history else [(LEFT, "start", future[0])]
    labels += [(LEFT, "start", history[0])] if len(history) > 2 else []
    return [line] + [
        f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="{side}" fill="{GREY}">{escape(label)}</text>'
        for at, side, label in labels
    ]


def _draw_legend(name: str, band: str, has_truth: bool) -> str:
    entries = [(name, GREY, ' font-weight="bold"'), ("history", HISTORY_COLOUR, ""), ("forecast", FORECAST_COLOUR, "")]
    entries += [(band, FORECAST_COLOUR, ' fill-opacity="0.7"')] if band else []
    entries += [("true values (dashed)", HISTORY_COLOUR, "")] if has_truth else []
    spans = "".join(
        f'<tspan dx="{14 if index else 0}" fill="{colour}"{style}>{escape(text)}</tspan>'
        for index, (text, colour, style) in enumerate(entries)
    )
    return f'<text x="{LEFT}" y="18">{spans}</text>'
