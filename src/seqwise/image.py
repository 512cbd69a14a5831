"""`write_plot`: saves an SVG document of `svg` as it is, or drawn by Pillow as a PNG of twice its size.

It draws the elements that our own plots consist of, on white: g, line, polyline, polygon, rect, circle, image (of a
PNG inside the document) and text.
"""

from __future__ import annotations

import base64
import io
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import cycle, groupby, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from seqwise.files import check_output_path, write_bytes, write_text

SUFFIXES = (".svg", ".png")
SCALE = 2
MAX_OPTIMISED = 4_000_000  # pixels of an image that is compressed as far as possible, which takes time
SMOOTHING = 4  # shapes are drawn at this many times their size, then reduced
FONT_SIZE = 12  # of `svg.build_document`
# Fonts for characters that the font of Pillow lacks, and what is written if none of them is installed.
FALLBACK_FONTS = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "NotoSansCJK-Regular.ttc", "NotoSansSymbols2-Regular.ttf"),
    *("Arial Unicode.ttf", "PingFang.ttc", "arial.ttf", "seguisym.ttf", "msyh.ttc"),
)
REPLACEMENTS = {"…": "...", "−": "-", "–": "-", "→": "->", "↵": "\\n", "⇥": "\\t", "␣": "_", "×": "x", "·": "."}
INVISIBLE = "\u200c\u200d\u200e\ufe0e\ufe0f"  # characters that change only how their neighbours look

Point = tuple[float, float]
Colour = tuple[int, int, int, int]


def write_plot(path: Path, svg: str) -> None:
    """Writes a plot; the suffix of the file decides the format."""
    check_output_path(path, SUFFIXES)
    if path.suffix.lower() == ".png":
        write_bytes(path, draw_png(svg), concurrent=True)
    else:
        write_text(path, svg, concurrent=True)


def draw_png(svg: str) -> bytes:
    """Returns an SVG document of this package as a PNG file."""
    from PIL import Image

    root = ElementTree.fromstring(svg)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    image = Image.new("RGB", (round(width * SCALE), round(height * SCALE)), "white")
    _draw_children(root, image, (0.0, 0.0))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=image.width * image.height < MAX_OPTIMISED)
    return file.getvalue()


def _draw_children(parent: ElementTree.Element, image: Any, offset: Point) -> None:
    """Draws the elements of a group whose origin is `offset` pixels from the corner of the image."""
    for element in parent:
        values = element.attrib
        match element.tag.rpartition("}")[2]:
            case "g":
                x, y = values["transform"].removeprefix("translate(").rstrip(")").split()
                _draw_children(element, image, (offset[0] + float(x), offset[1] + float(y)))
            case "line":
                ends = [(float(values[f"x{end}"]), float(values[f"y{end}"])) for end in "12"]
                _draw_line(image, _scale(ends, offset), values)
            case "polyline":
                _draw_line(image, _scale(_read_points(values["points"]), offset), values)
            case "polygon":
                _draw_polygon(image, _scale(_read_points(values["points"]), offset), values)
            case "rect":
                _draw_rectangle(image, _scale_box(values, offset), values)
            case "circle":
                _draw_circle(image, _scale([(float(values["cx"]), float(values["cy"]))], offset)[0], values)
            case "image":
                _draw_image(image, _scale_box(values, offset), values["href"])
            case "text":
                _draw_text(image, element, offset)


def _draw_line(image: Any, points: Sequence[Point], values: Mapping[str, str]) -> None:
    width = float(values.get("stroke-width", 1)) * SCALE
    dashes = [float(each) * SCALE for each in values.get("stroke-dasharray", "").split()]
    pieces = list(_cut_into_dashes(points, dashes)) if dashes else [list(points)]
    is_straight = any(len({round(point[axis], 3) for point in points}) == 1 for axis in (0, 1))
    if is_straight:  # along an axis: crisp without smoothing
        pen = _get_pen(image)
        for piece in pieces:
            pen.line(piece, fill=_get_colour(values, "stroke"), width=max(1, round(width)))
        return

    def draw(pen: Any, enlarge: Callable[[Sequence[Point]], list[Point]]) -> None:
        for piece in pieces:
            pen.line(enlarge(piece), fill=255, width=max(1, round(width * SMOOTHING)), joint="curve")

    _draw_smoothly(image, points, width, _get_colour(values, "stroke"), draw)


def _draw_polygon(image: Any, points: Sequence[Point], values: Mapping[str, str]) -> None:
    if values.get("fill", "none") != "none":
        colour = _get_colour(values, "fill")
        _draw_smoothly(image, points, 0, colour, lambda pen, enlarge: pen.polygon(enlarge(points), fill=255))
    if values.get("stroke", "none") != "none":
        _draw_line(image, [*points, points[0]], values)


def _draw_rectangle(image: Any, box: Sequence[int], values: Mapping[str, str]) -> None:
    left, top, right, bottom = box
    fill, stroke = (
        _get_colour(values, kind) if values.get(kind, "none") != "none" else None for kind in ("fill", "stroke")
    )
    width = max(1, round(float(values.get("stroke-width", 1)) * SCALE))
    corner = (max(left, right - (0 if stroke else 1)), max(top, bottom - (0 if stroke else 1)))
    _get_pen(image).rectangle((left, top, *corner), fill=fill, outline=stroke, width=width if stroke else 0)


def _draw_circle(image: Any, centre: Point, values: Mapping[str, str]) -> None:
    def build_draw(size: float) -> Callable[[Any, Callable[[Sequence[Point]], list[Point]]], None]:
        box = [(centre[0] - size, centre[1] - size), (centre[0] + size, centre[1] + size)]
        return lambda pen, enlarge: pen.ellipse(enlarge(box), fill=255)

    radius = float(values["r"]) * SCALE
    half_stroke = float(values.get("stroke-width", 1)) * SCALE / 2 if values.get("stroke", "none") != "none" else 0.0
    if half_stroke:
        outer = radius + half_stroke
        _draw_smoothly(image, [centre], 2 * outer, _get_colour(values, "stroke"), build_draw(outer))
    _draw_smoothly(image, [centre], 2 * radius, _get_colour(values, "fill"), build_draw(radius - half_stroke))


def _draw_smoothly(
    image: Any,
    points: Sequence[Point],
    width: float,
    colour: Colour,
    draw: Callable[[Any, Callable[[Sequence[Point]], list[Point]]], None],
) -> None:
    """Draws a shape in white on an enlarged mask and then its colour through the mask.

    The mask covers `points` with a margin for a pen `width` pixels wide.
    """
    from PIL import Image

    if not points:
        return
    margin = width / 2 + 1
    left, top = (math.floor(min(point[axis] for point in points) - margin) for axis in (0, 1))
    right, bottom = (math.ceil(max(point[axis] for point in points) + margin) for axis in (0, 1))
    mask = Image.new("L", ((right - left) * SMOOTHING, (bottom - top) * SMOOTHING))
    draw(_get_pen(mask, "L"), lambda shape: [((x - left) * SMOOTHING, (y - top) * SMOOTHING) for x, y in shape])
    mask = mask.reduce(SMOOTHING)
    image.paste(colour[:3], (left, top), mask.point(lambda value: value * colour[3] // 255))


def _draw_image(image: Any, box: Sequence[int], address: str) -> None:
    from PIL import Image

    left, top, right, bottom = box
    picture = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB")
    size = (max(1, right - left), max(1, bottom - top))
    is_larger = size[0] >= picture.width and size[1] >= picture.height
    method = Image.Resampling.NEAREST if is_larger else Image.Resampling.BOX
    image.paste(picture.resize(size, method), (left, top))


def _cut_into_dashes(points: Sequence[Point], dashes: Sequence[float]) -> Iterator[list[Point]]:
    """Yields the visible parts of a line, whose visible and hidden lengths alternate."""
    lengths = cycle(dashes)
    remaining, is_visible = next(lengths), True  # length of the current dash or gap
    for (x, y), end in pairwise(points):
        distance = math.dist((x, y), end)
        direction = ((end[0] - x) / distance, (end[1] - y) / distance) if distance else (0.0, 0.0)
        while distance > 0:
            step = min(remaining, distance)
            stop = (x + direction[0] * step, y + direction[1] * step)
            if is_visible:
                yield [(x, y), stop]
            (x, y), distance, remaining = stop, distance - step, remaining - step
            if remaining <= 0:
                remaining, is_visible = next(lengths), not is_visible


def _draw_text(image: Any, element: ElementTree.Element, offset: Point) -> None:
    """Draws a text, or the spans of a legend one after the other; a text with a transform from bottom to top."""
    [(x, y)] = _scale([(float(element.attrib["x"]), float(element.attrib["y"]))], offset)
    parts = [(part.attrib, *_measure_text(part, element)) for part in list(element) or [element]]
    anchor = {"middle": 0.5, "end": 1.0}.get(element.attrib.get("text-anchor", ""), 0.0)
    shift = anchor * sum(width for _, _, width in parts)
    for values, runs, width in parts:
        x, y = (value + float(values.get(f"d{axis}", 0)) * SCALE for axis, value in (("x", x), ("y", y)))
        if "transform" in element.attrib:
            _draw_upwards(image, runs, (x, y + shift), _get_colour(values, "fill"))
        else:
            _draw_runs(_get_pen(image), runs, (x - shift, y), _get_colour(values, "fill"))
        x += width


def _measure_text(part: ElementTree.Element, element: ElementTree.Element) -> tuple[list[tuple[Any, str]], float]:
    """Returns the text of a part of an element with its fonts, and its width."""
    size = part.attrib.get("font-size") or element.attrib.get("font-size") or FONT_SIZE
    runs = _split_by_font(part.text or "", round(float(size) * SCALE))
    return runs, sum(font.getlength(run) for font, run in runs)


def _draw_runs(pen: Any, runs: Sequence[tuple[Any, str]], position: Point, colour: Any) -> None:
    x, y = position
    for font, run in runs:
        pen.text((x, y), run, fill=colour, font=font, anchor="ls")
        x += font.getlength(run)


def _draw_upwards(image: Any, runs: Sequence[tuple[Any, str]], start: Point, colour: Colour) -> None:
    """Draws a text from bottom to top; it begins at `start`, with its baseline on the right."""
    from PIL import Image

    width = math.ceil(sum(font.getlength(run) for font, run in runs)) + 1
    size = max((font.size for font, _ in runs), default=1)
    mask = Image.new("L", (width, 2 * size))
    _draw_runs(_get_pen(mask, "L"), runs, (0, 1.5 * size), 255)
    position = (round(start[0] - 1.5 * size), round(start[1]) - width)
    image.paste(colour[:3], position, mask.rotate(90, expand=True))


def _split_by_font(text: str, size: int) -> list[tuple[Any, str]]:
    """Returns the parts of a text, each with a font that has its characters; a word has letters of one font."""
    composed = unicodedata.normalize("NFC", text)
    visible = "".join(_replace_missing(character, size) for character in composed if character not in INVISIBLE)
    fonts = []
    for word in re.split("( )", visible):
        choices = [_find_font(character, size) or _load_font("", size) for character in word]
        letters = [each.isalpha() or unicodedata.combining(each) > 0 for each in word]
        others = [font for font, is_letter in zip(choices, letters) if is_letter and font != _load_font("", size)]
        is_common = bool(others) and all(_has_glyph(others[0], each) for each in word)
        fonts += others[:1] * len(word) if is_common else choices
    groups = groupby(zip(fonts, visible), lambda pair: pair[0])
    return [(font, "".join(character for _, character in pairs)) for font, pairs in groups]


def _replace_missing(character: str, size: int) -> str:
    """Returns a character, or what is written instead if no font has it."""
    if _find_font(character, size):
        return character
    base = unicodedata.normalize("NFD", character)[0]
    return REPLACEMENTS.get(character, base if base.isascii() else character)


@lru_cache(maxsize=4096)
def _find_font(character: str, size: int) -> Any:
    """Returns the first font that has a character; None if there is none."""
    names = ("", *FALLBACK_FONTS)
    return next((font for name in names if (font := _load_font(name, size)) and _has_glyph(font, character)), None)


@lru_cache
def _load_font(name: str, size: int) -> Any:
    """Returns the font of Pillow for an empty name, else an installed font; None if it is not installed."""
    from PIL import ImageFont

    try:
        return ImageFont.truetype(name, size) if name else ImageFont.load_default(size)
    except OSError:
        return None


def _has_glyph(font: Any, character: str) -> bool:
    missing, mask = font.getmask("\U0010fffe"), font.getmask(character)
    return mask.size != missing.size or bytes(mask) != bytes(missing)


def _get_pen(image: Any, mode: str = "RGBA") -> Any:
    from PIL import ImageDraw

    return ImageDraw.Draw(image, mode)


def _get_colour(values: Mapping[str, str], kind: str) -> Colour:
    """Returns a colour with its opacity."""
    digits = values[kind].lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    red, green, blue = (int(digits[index : index + 2], 16) for index in (0, 2, 4))
    return red, green, blue, round(255 * float(values.get(f"{kind}-opacity", 1)))


def _read_points(text: str) -> list[Point]:
    pairs = (pair.split(",") for pair in text.split())
    return [(float(x), float(y)) for x, y in pairs]


def _scale(points: Sequence[Point], offset: Point) -> list[Point]:
    return [((x + offset[0]) * SCALE, (y + offset[1]) * SCALE) for x, y in points]


def _scale_box(values: Mapping[str, str], offset: Point) -> list[int]:
    """Returns left, top, right and bottom of a rectangle in pixels of the image."""
    x, y, width, height = (float(values[name]) for name in ("x", "y", "width", "height"))
    return [round(each) for corner in _scale([(x, y), (x + width, y + height)], offset) for each in corner]
