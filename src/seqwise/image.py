"""`write_plot`: saves an SVG document of `svg` as it is, or drawn by Pillow as a PNG of twice its size.

It draws the elements that our own plots consist of, on white: g, line, polyline, polygon, circle and text.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from seqwise.files import check_output_path, write_bytes, write_text

SUFFIXES = (".svg", ".png")
SCALE = 2
FONT_SIZE = 12  # of `svg.build_document`

Point = tuple[float, float]


def write_plot(path: Path, svg: str) -> None:
    """Write a plot; the suffix of the file decides the format."""
    check_output_path(path, SUFFIXES)
    if path.suffix.lower() == ".png":
        write_bytes(path, draw_png(svg), concurrent=True)
    else:
        write_text(path, svg, concurrent=True)


def draw_png(svg: str) -> bytes:
    """Return an SVG document of this package as a PNG file."""
    from PIL import Image

    root = ElementTree.fromstring(svg)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    image = Image.new("RGB", (round(width * SCALE), round(height * SCALE)), "white")
    _draw_children(root, image, 0.0)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _draw_children(parent: ElementTree.Element, image: Any, top: float) -> None:
    """Draw the elements of a group that begins `top` pixels below the top of the image."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(image, "RGBA")
    for element in parent:
        values = element.attrib
        match element.tag.rpartition("}")[2]:
            case "g":
                offset = float(values["transform"].removeprefix("translate(").rstrip(")").split()[1])
                _draw_children(element, image, top + offset)
            case "line":
                ends = [(float(values[f"x{end}"]), float(values[f"y{end}"])) for end in "12"]
                _draw_line(pen, _scale(ends, top), values)
            case "polyline":
                _draw_line(pen, _scale(_read_points(values["points"]), top), values)
            case "polygon":
                pen.polygon(_scale(_read_points(values["points"]), top), fill=_get_colour(values, "fill"))
            case "circle":
                [(x, y)] = _scale([(float(values["cx"]), float(values["cy"]))], top)
                radius = float(values["r"]) * SCALE
                pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_get_colour(values, "fill"))
            case "text":
                _draw_text(pen, element, top)


def _draw_line(pen: Any, points: Sequence[Point], values: Mapping[str, str]) -> None:
    width = max(1, round(float(values.get("stroke-width", 1)) * SCALE))
    dashes = [float(each) * SCALE for each in values.get("stroke-dasharray", "").split()]
    for piece in _cut_into_dashes(points, dashes) if dashes else [points]:
        pen.line(list(piece), fill=_get_colour(values, "stroke"), width=width, joint="curve")


def _cut_into_dashes(points: Sequence[Point], dashes: Sequence[float]) -> Iterator[list[Point]]:
    """Yield the visible parts of a line, whose visible and hidden lengths alternate."""
    lengths = cycle(dashes)
    left, is_visible = next(lengths), True
    for (x, y), end in pairwise(points):
        distance = math.dist((x, y), end)
        direction = ((end[0] - x) / distance, (end[1] - y) / distance) if distance else (0.0, 0.0)
        while distance > 0:
            step = min(left, distance)
            stop = (x + direction[0] * step, y + direction[1] * step)
            if is_visible:
                yield [(x, y), stop]
            (x, y), distance, left = stop, distance - step, left - step
            if left <= 0:
                left, is_visible = next(lengths), not is_visible


def _draw_text(pen: Any, element: ElementTree.Element, top: float) -> None:
    """Draw a text, or the spans of a legend one after the other."""
    from PIL import ImageFont

    font: Any = ImageFont.load_default(FONT_SIZE * SCALE)
    [(x, y)] = _scale([(float(element.attrib["x"]), float(element.attrib["y"]))], top)
    for part in list(element) or [element]:
        x += float(part.attrib.get("dx", 0)) * SCALE
        text, width = part.text or "", font.getlength(part.text or "")
        anchor = {"middle": 0.5, "end": 1.0}.get(element.attrib.get("text-anchor", ""), 0.0)
        pen.text((x - anchor * width, y), text, fill=_get_colour(part.attrib, "fill"), font=font, anchor="ls")
        x += width


def _get_colour(values: Mapping[str, str], kind: str) -> tuple[int, int, int, int]:
    """Return a colour with its opacity."""
    digits = values[kind].lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    red, green, blue = (int(digits[index : index + 2], 16) for index in (0, 2, 4))
    return red, green, blue, round(255 * float(values.get(f"{kind}-opacity", 1)))


def _read_points(text: str) -> list[Point]:
    pairs = (pair.split(",") for pair in text.split())
    return [(float(x), float(y)) for x, y in pairs]


def _scale(points: Sequence[Point], top: float) -> list[Point]:
    return [(x * SCALE, (y + top) * SCALE) for x, y in points]
