"""The learning curve as an SVG image: training and validation loss over tokens, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 56, 16, 34, 44
MAX_POINTS = 500  # of the training curve: more would be closer together than a line is wide
GREY, TRAIN, VALID = "#888", "#5b8def", "#e07a3f"

Point = tuple[float, float]


def curve_svg(rows: Sequence[dict[str, Any]], unit: str = "tokens") -> str:
    """Return the image for the rows of `metrics.jsonl`."""
    train = downsample(smooth([(row["tokens"], row["loss"]) for row in rows]))
    valid = [(row["tokens"], row["validation"]["loss"]) for row in rows if row.get("validation")]
    points = train + valid
    if not points:
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"></svg>\n'
    x_end = max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    ticks = nice_ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])

    def to_pixels(point: Point) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * point[0] / x_end
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - point[1]) / ((high - low) or 1)
        return f"{x:.1f},{y:.1f}"

    parts = [_grid_line(y, to_pixels((0, y)), to_pixels((x_end, y))) for y in ticks]
    parts += [_x_label(x, to_pixels((x, low))) for x in nice_ticks(0, x_end)]
    parts += [_line(train, to_pixels, TRAIN, 1.5), _line(valid, to_pixels, VALID, 2.5)]
    parts += [
        f'<circle cx="{x}" cy="{y}" r="3" fill="{VALID}"/>' for x, y in (to_pixels(point).split(",") for point in valid)
    ]
    parts.append(_legend(valid, unit))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="learning curve">\n{body}\n</svg>\n'
    )


def smooth(points: list[Point], keep: float = 0.7) -> list[Point]:
    """Return an exponential moving average, which shows the trend behind the noise of single batches."""
    smoothed: list[Point] = []
    for x, y in points:
        before = smoothed[-1][1] if smoothed else y
        smoothed.append((x, keep * before + (1 - keep) * y))
    return smoothed


def downsample(points: list[Point], max_points: int = MAX_POINTS) -> list[Point]:
    """Return at most `max_points` points, each the mean of neighbours; the first and the last stay."""
    if len(points) <= max_points:
        return points
    inner, parts = points[1:-1], max_points - 2
    bounds = [i * len(inner) // parts for i in range(parts + 1)]
    return [points[0], *(_mean(inner[a:b]) for a, b in pairwise(bounds)), points[-1]]


def _mean(points: list[Point]) -> Point:
    xs, ys = zip(*points)
    return sum(xs) / len(xs), sum(ys) / len(ys)


def nice_ticks(low: float, high: float, num_ticks: int = 5) -> list[float]:
    """Return round numbers (1, 2 or 5 times a power of ten) that cover the range."""
    span = (high - low) or abs(high) or 1.0
    raw = span / num_ticks
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    first = math.floor(low / step)
    return [round(i * step, 10) for i in range(first, math.ceil(high / step) + 1)]


def format_count(number: float) -> str:
    """Abbreviate a number: 1,500,000 → 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def _grid_line(value: float, start: str, end: str) -> str:
    (x1, y1), (x2, y2) = start.split(","), end.split(",")
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{GREY}" stroke-opacity="0.25"/>'
        f'<text x="{LEFT - 8}" y="{float(y1) + 4:.1f}" text-anchor="end" fill="{GREY}">{value:g}</text>'
    )


def _x_label(value: float, at: str) -> str:
    x = float(at.split(",")[0])
    if x > WIDTH - RIGHT + 1:
        return ""
    return (
        f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="{GREY}">{format_count(value)}</text>'
    )


def _line(points: list[Point], to_pixels: Any, colour: str, width: float) -> str:
    path = " ".join(to_pixels(point) for point in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>'


def _legend(valid: list[Point], unit: str) -> str:
    best = f" (best {min(y for _, y in valid):.3f})" if valid else ""
    return (
        f'<text x="{LEFT}" y="18" fill="{TRAIN}">training loss</text>'
        f'<text x="{LEFT + 100}" y="18" fill="{VALID}">validation loss{best}</text>'
        f'<text x="{WIDTH - RIGHT}" y="18" text-anchor="end" fill="{GREY}">per target</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end" fill="{GREY}">{unit} trained on</text>'
    )
