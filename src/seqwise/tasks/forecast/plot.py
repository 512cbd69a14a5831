"""Plots forecasts as SVG: the end of the history, the point, the band of the quantiles and, if known, the truth.

One panel per series. It reads the plain data of a prediction and knows nothing of models. Readable in light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from seqwise.files import check_output_path, write_text

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
