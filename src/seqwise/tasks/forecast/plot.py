"""Forecasts as one SVG picture: the end of the history, the point, the band of the quantiles and, if known, the truth.

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
PANELS = 8  # more series than that make no readable picture
GREY, PAST, AHEAD = "#888", "#5b8def", "#e07a3f"

Point = tuple[float, float]
TrainerState = Callable[[Point], str]


def save_picture(path: Path, panels: Mapping[str, Any]) -> None:
    """Draw into a file, which must be called .svg."""
    check_output_path(path, SUFFIXES)
    write_text(path, forecast_svg(panels), concurrent=True)


def forecast_svg(panels: Mapping[str, Any]) -> str:
    """The picture of `Prediction.values["series"]`: series → stamps, point, quantiles, history and perhaps truth."""
    shown = list(panels.items())[:PANELS]
    body = "\n".join(
        f'<g transform="translate(0 {number * HEIGHT})">\n{_panel(name, panel)}\n</g>'
        for number, (name, panel) in enumerate(shown)
    )
    more = len(panels) - len(shown)
    height = len(shown) * HEIGHT + (20 if more else 0)
    if more:
        body += f'\n<text x="{LEFT}" y="{height - 6}" fill="{GREY}">and {more:,} more series</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="forecast">\n{body}\n</svg>\n'
    )


def _panel(name: str, panel: Mapping[str, Any]) -> str:
    past, point = panel["history"]["values"], panel["point"]
    levels = panel.get("quantiles", {})
    order = sorted(levels, key=float)
    band = (levels[order[0]], levels[order[-1]]) if len(order) > 1 else ([], [])
    truth = panel.get("truth", [])
    numbers = [value for part in (past, point, *band, truth) for value in part if value is not None]
    ticks = round_ticks(min(numbers), max(numbers))
    low, high, steps = ticks[0], ticks[-1], max(1, len(past) + len(point) - 1)

    def place(at: Point) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * at[0] / steps
        return f"{x:.1f},{TOP + (HEIGHT - TOP - BOTTOM) * (high - at[1]) / (high - low):.1f}"

    begin = len(past)
    joint = [(begin - 1, past[-1])] if past and past[-1] is not None else []
    parts = [_grid(tick, place) for tick in ticks]
    if band[0]:
        edge = [*joint, *enumerate(band[1], begin), *reversed(list(enumerate(band[0], begin)))]
        parts.append(f'<polygon points="{" ".join(map(place, edge))}" fill="{AHEAD}" fill-opacity="0.22"/>')
    parts += [_line(pieces, place, PAST, 1.5) for pieces in unbroken(past, 0)]
    parts += [_line(pieces, place, PAST, 1.5, ' stroke-dasharray="4 3"') for pieces in unbroken(truth, begin)]
    parts.append(_line([*joint, *enumerate(point, begin)], place, AHEAD, 2.0))
    parts += _stamps(panel, place((begin, low)), begin)
    said = f"quantiles {order[0]} to {order[-1]}" if band[0] else ""
    return "\n".join([*parts, _legend(name, said, bool(truth))])


def unbroken(values: Sequence[float | None], start: int) -> list[list[Point]]:
    """The pieces of a line between its missing values."""
    pieces: list[list[Point]] = [[]]
    for at, value in enumerate(values, start):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((at, value))
    return [piece for piece in pieces if piece]


def round_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) that cover the range."""
    raw = ((high - low) or abs(high) or 1.0) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def _grid(value: float, place: TrainerState) -> str:
    y = float(place((0, value)).split(",")[1])
    return (
        f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GREY}" stroke-opacity="0.25"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{GREY}">{value:g}</text>'
    )


def _line(points: Sequence[Point], place: TrainerState, colour: str, width: float, more: str = "") -> str:
    path = " ".join(map(place, points))
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
        f'stroke-linejoin="round" stroke-linecap="round"{more}/>'
    )


def _stamps(panel: Mapping[str, Any], border: str, begin: int) -> list[str]:
    """The first stamp of the history, that of the first forecast step, and the last."""
    x = float(border.split(",")[0])
    y = HEIGHT - BOTTOM + 18
    before, after = panel["history"]["stamps"], panel["stamps"]
    found = [
        f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}" stroke="{AHEAD}" stroke-opacity="0.5" '
        'stroke-dasharray="2 3"/>'
    ]
    labels: list[tuple[float, str, str]] = [(WIDTH - RIGHT, "end", after[-1])] if len(after) > 1 else []
    anchor = "middle" if len(after[0]) < 12 else "end"  # a long stamp would run into the last one
    labels += [(x, anchor, after[0])] if begin else [(LEFT, "start", after[0])]
    labels += [(LEFT, "start", before[0])] if begin > 2 else []
    return found + [
        f'<text x="{at:.1f}" y="{y}" text-anchor="{side}" fill="{GREY}">{escape(stamp)}</text>'
        for at, side, stamp in labels
    ]


def _legend(name: str, band: str, truth: bool) -> str:
    words = [(name, GREY, ' font-weight="bold"'), ("history", PAST, ""), ("forecast", AHEAD, "")]
    words += [(band, AHEAD, ' fill-opacity="0.7"')] if band else []
    words += [("what came true (dashed)", PAST, "")] if truth else []
    spans = "".join(
        f'<tspan dx="{14 if at else 0}" fill="{c}"{more}>{escape(w)}</tspan>' for at, (w, c, more) in enumerate(words)
    )
    return f'<text x="{LEFT}" y="18">{spans}</text>'
