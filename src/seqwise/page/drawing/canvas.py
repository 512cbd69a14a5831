"""`Canvas`: elements of an SVG drawing and how much room they take. It knows nothing of figures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence

import numpy as np

from seqwise.page.drawing.colours import MISSING, Ramp, find_levels
from seqwise.page.labels import format_tick, measure_pixels, show_text, wrap
from seqwise.printable import escape_xml
from seqwise.svg import WIDTH as WIDTH

MARGIN = 16  # around a document
FONT_SIZE, POWER_SIZE, LINE_HEIGHT = 12, 10, 17
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}  # the part of a text that is on the left of its position
INK, MUTED, RULE = "#222222", "#595959", "#d4d4d4"  # of texts, of secondary texts, of frames and grid lines
BAR_WIDTH, BAR_HEIGHT = 130, 10  # of a colour bar
SAMPLE_WIDTH = 28  # of a line in a legend

Point = tuple[float, float]


class Canvas:
    """SVG elements in the order in which they cover each other. `width` and `height` grow with them."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.width = self.height = 0.0

    def add_text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        colour: str = INK,
        size: float = FONT_SIZE,
        is_vertical: bool = False,
        attributes: str = "",
    ) -> float:
        """Adds a text with its baseline at y; a vertical one reads from bottom to top. Returns its width."""
        text = show_text(text)
        length = measure_pixels(text, size)
        before = length * ANCHORS[anchor]
        if is_vertical:
            attributes += f' transform="rotate(-90 {x:.1f} {y:.1f})"'
            self.extend(x + size / 3, y + before)
        else:
            self.extend(x + length - before, y + size / 3)
        if size != FONT_SIZE:
            attributes += f' font-size="{size:g}"'
        start = f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{attributes}>'
        self.parts.append(f"{start}{escape_xml(text)}</text>")
        return length

    def add_power(self, x: float, y: float, exponent: int, *, anchor: str) -> None:
        """Adds a power of ten."""
        power = str(exponent).replace("-", "−")
        length = measure_pixels("10") + measure_pixels(power, POWER_SIZE)
        self.extend(x + length * (1 - ANCHORS[anchor]), y + FONT_SIZE / 3)
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"><tspan fill="{INK}">10</tspan>'
            f'<tspan dy="-5" font-size="{POWER_SIZE}" fill="{INK}">{power}</tspan></text>'
        )

    def add_paragraph(self, text: str, *, colour: str = INK, size: float = FONT_SIZE, x: float = MARGIN) -> None:
        """Adds a text below everything else, wrapped to the width of a page."""
        for line in wrap(show_text(text), WIDTH - x - MARGIN, lambda part: measure_pixels(part, size)):
            self.height += LINE_HEIGHT * size / FONT_SIZE
            self.add_text(x, self.height - size / 3, line, colour=colour, size=size)

    def add_line(self, points: Iterable[Point], colour: str, width: float = 1, dashes: str = "") -> None:
        """Adds a line through points."""
        points = list(points)
        dashes = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._extend_by(points)
        self.parts.append(
            f'<polyline points="{_join(points)}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{dashes}/>'
        )

    def add_polygon(self, points: Iterable[Point], fill: str, opacity: float = 1, stroke: str = "none") -> None:
        points = list(points)
        self._extend_by(points)
        opacity_text = f' fill-opacity="{opacity:g}"' if opacity != 1 else ""
        self.parts.append(
            f'<polygon points="{_join(points)}" fill="{fill}"{opacity_text} stroke="{stroke}" stroke-width="0.7"/>'
        )

    def add_circle(self, x: float, y: float, radius: float, fill: str, stroke: str = "none") -> None:
        self.extend(x + radius, y + radius)
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="0.7"/>'
        )

    def add_rectangle(
        self, x: float, y: float, width: float, height: float, fill: str = "none", stroke: str = "none", line: float = 1
    ) -> None:
        self.extend(x + width, y + height)
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="{line:g}"/>'
        )

    def add_image(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        pixels: np.ndarray,
        palette: np.ndarray | None = None,
    ) -> None:
        """Adds an image of colours (rows, columns, 3) or, with a palette, of indices (rows, columns).

        Its pixels stay rectangles when it is enlarged.
        """
        self.extend(x + width, y + height)
        self.parts.append(
            f'<image x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none" '
            f'style="image-rendering:pixelated" href="data:image/png;base64,{_encode_png(pixels, palette)}"/>'
        )

    def add_colour_scale(self, x: float, y: float, label: str, limits: Sequence[float], ramp: Ramp) -> float:
        """Adds a label and a colour bar between the two limits; returns where it ends on the right."""
        baseline = y + BAR_HEIGHT
        x += self.add_text(x, baseline, label) + 12 if label else 0
        x += self.add_text(x, baseline, format_limit(limits[0]), colour=MUTED) + 6
        levels = find_levels(np.linspace(0, 1, BAR_WIDTH)[None])
        self.add_image(x, y, BAR_WIDTH, BAR_HEIGHT, levels, ramp.build_palette())
        self.add_rectangle(x, y, BAR_WIDTH, BAR_HEIGHT, stroke=RULE)
        x += BAR_WIDTH + 6
        return x + self.add_text(x, baseline, format_limit(limits[1]), colour=MUTED)

    def add_swatch(self, x: float, y: float, label: str, colour: str = MISSING) -> float:
        """Adds a small square of a colour and what it means; returns where it ends on the right."""
        self.add_rectangle(x, y, BAR_HEIGHT, BAR_HEIGHT, fill=colour, stroke=RULE)
        return x + BAR_HEIGHT + 6 + self.add_text(x + BAR_HEIGHT + 6, y + BAR_HEIGHT, label)

    def place(self, other: Canvas, x: float, y: float) -> None:
        """Adds all elements of another canvas, moved by x and y."""
        self.extend(x + other.width, y + other.height)
        self.parts += [f'<g transform="translate({x:g} {y:g})">', *other.parts, "</g>"]

    def extend(self, x: float, y: float) -> None:
        """Makes room up to a position."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def _extend_by(self, points: Iterable[Point]) -> None:
        for x, y in points:
            self.extend(x, y)


def format_limit(value: float) -> str:
    """Returns a number of an axis or a scale, with a typographic minus sign."""
    rounded = value if float(value).is_integer() and abs(value) < 1e6 else float(f"{value:.3g}")
    return replace_minus(format_tick(rounded))


def replace_minus(number: str) -> str:
    """Returns a number with a typographic minus sign instead of a hyphen."""
    return "−" + number[1:] if number.startswith("-") else number


def _join(points: Iterable[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _encode_png(pixels: np.ndarray, palette: np.ndarray | None) -> str:
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels))
    if palette is not None:
        image.putpalette(palette.tobytes())
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
