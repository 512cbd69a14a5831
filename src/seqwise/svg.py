"""`Chart`: lines over a grid as SVG, readable on light and dark pages. It knows nothing of what is plotted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from seqwise.printable import escape_xml

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 64, 16, 34, 40  # in pixels: the width of the image, and its four margins
RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-12, 1e-300  # smaller differences count as zero
GREY, BLUE, ORANGE = "#888", "#5b8def", "#e07a3f"

Point = tuple[float, float]


class Chart:
    """An image `height` pixels high with a grid, x from 0 to `x_end` and y over the range of `values`.

    Its SVG elements are in `parts`; later ones cover earlier ones.
    """

    def __init__(self, height: int, x_end: float, values: Iterable[float], num_ticks: int = 5):
        values = list(values)
        ticks = choose_ticks(min(values), max(values), num_ticks)
        self.height, self.x_end, self.low, self.high = height, x_end or 1, ticks[0], ticks[-1]
        self.parts: list[str] = []
        for tick in ticks:
            (x, y), (end, _) = self.to_pixels((0, tick)), self.to_pixels((self.x_end, tick))
            self.parts.append(f'<line x1="{x}" y1="{y}" x2="{end}" y2="{y}" stroke="{GREY}" stroke-opacity="0.25"/>')
            self.add_text(LEFT - 8, y + 4, f"{tick:g}", anchor="end")

    def to_pixels(self, point: Point) -> Point:
        """Returns the position of a data point in the image."""
        x = LEFT + (WIDTH - LEFT - RIGHT) * point[0] / self.x_end
        y = TOP + (self.height - TOP - BOTTOM) * (self.high - point[1]) / (self.high - self.low)
        return round(x, 1), round(y, 1)

    def add_line(self, points: Iterable[Point], colour: str, width: float, style: str = "") -> None:
        """Adds a line through data points; `style` is further SVG attributes."""
        self.parts.append(
            f'<polyline points="{self._format_points(points)}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-linejoin="round" stroke-linecap="round"{style}/>'
        )

    def add_area(self, outline: Iterable[Point], colour: str) -> None:
        """Adds a filled area with this outline of data points."""
        self.parts.append(f'<polygon points="{self._format_points(outline)}" fill="{colour}" fill-opacity="0.22"/>')

    def add_text(self, x: float, y: float, text: str, colour: str = GREY, anchor: str = "start") -> None:
        """Adds a text at a position in pixels."""
        start = f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">'
        self.parts.append(f"{start}{escape_xml(text)}</text>")

    def add_legend(self, entries: Sequence[tuple[str, str, str]]) -> None:
        """Adds a line of texts above the plot; an entry is (text, colour, attributes)."""
        spans = "".join(
            f'<tspan dx="{14 if index else 0}" fill="{colour}"{attributes}>{escape_xml(text)}</tspan>'
            for index, (text, colour, attributes) in enumerate(entries)
        )
        self.parts.append(f'<text x="{LEFT}" y="18">{spans}</text>')

    def _format_points(self, points: Iterable[Point]) -> str:
        """Returns data points as the SVG attribute `points`."""
        return " ".join(f"{x},{y}" for x, y in map(self.to_pixels, points))


def build_document(parts: Iterable[str], height: int, label: str, width: int = WIDTH) -> str:
    """Returns an SVG document with these elements; `label` is its accessible name."""
    body, name = "\n".join(parts), escape_xml(label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{name}">\n{body}\n</svg>\n'
    )


def choose_ticks(low: float, high: float, num_ticks: int = 5) -> list[float]:
    """Returns at least two distinct multiples of a round step (1, 2 or 5 times a power of ten) that cover the range."""
    span, size = high - low, max(abs(low), abs(high))
    if span <= max(RELATIVE_TOLERANCE * size, ABSOLUTE_TOLERANCE):
        span = size if size > ABSOLUTE_TOLERANCE else 1.0
    raw_step = span / num_ticks
    exponent = math.floor(math.log10(raw_step))
    step = next(factor * 10.0**exponent for factor in (1, 2, 5, 10) if factor * 10.0**exponent >= raw_step * 0.999)
    first_multiple, last_multiple = math.floor(low / step), math.ceil(high / step)
    multiples = range(first_multiple, max(last_multiple, first_multiple + 1) + 1)
    return [round(multiple * step, 1 - exponent) for multiple in multiples]
