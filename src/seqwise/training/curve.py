"""The learning curve as an SVG image: training and validation loss over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from seqwise.svg import BLUE, BOTTOM, GREY, ORANGE, RIGHT, WIDTH, Chart, Point, build_document, choose_ticks

HEIGHT = 320
MAX_POINTS = 500  # of the training curve: more would be closer together than a line is wide


def curve_svg(rows: Sequence[dict[str, Any]], unit: str = "tokens") -> str:
    """Return the image for the rows of `metrics.jsonl`."""
    train = downsample(smooth([(row["tokens"], row["loss"]) for row in rows]))
    valid = [(row["tokens"], row["validation"]["loss"]) for row in rows if row.get("validation")]
    points = train + valid
    if not points:
        return build_document([], HEIGHT, "learning curve")
    chart = Chart(HEIGHT, max(x for x, _ in points), [y for _, y in points])
    for tokens in choose_ticks(0, chart.x_end):
        x, _ = chart.to_pixels((tokens, chart.low))
        if x <= WIDTH - RIGHT + 1:
            chart.add_text(x, HEIGHT - BOTTOM + 18, format_count(tokens), anchor="middle")
    chart.add_line(train, BLUE, 1.5)
    chart.add_line(valid, ORANGE, 2.5)
    for x, y in map(chart.to_pixels, valid):
        chart.parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{ORANGE}"/>')
    best = f" (best {min(y for _, y in valid):.3f})" if valid else ""
    chart.add_legend([("training loss", BLUE, ""), (f"validation loss{best}", ORANGE, "")])
    chart.add_text(WIDTH - RIGHT, 18, "per target", GREY, "end")
    chart.add_text(WIDTH - RIGHT, HEIGHT - 8, f"{unit} trained on", GREY, "end")
    return build_document(chart.parts, HEIGHT, "learning curve")


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


def format_count(number: float) -> str:
    """Abbreviate a number: 1,500,000 → 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
