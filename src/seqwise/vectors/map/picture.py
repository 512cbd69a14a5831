"""A `WordMap` as a PNG, drawn with Pillow at twice the size of a screen. It knows nothing of vectors."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from seqwise.vectors.map.labels import Box, place_labels
from seqwise.vectors.map.word_map import COLOURS, WordMap

WIDTH, MIN_HEIGHT, MAX_HEIGHT, MARGIN, SCALE = 1400, 560, 1000, 28, 2
SIDES, EDGE = 120, 24  # room for the labels of the outermost dots, across and up
TITLE, SMALL, LABEL, ASKED = 19, 13, 12, 16  # sizes of writing
DOT, ASKED_DOT = 3, 5  # radii
INK, GREY, PAPER = "#1c1917", "#6b6560", "#ffffff"

# Looked for where the system keeps its typefaces. The first that shows most of the words is taken.
TYPEFACES = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "Arial Unicode.ttf", "arial.ttf", "NotoSansCJK-Regular.ttc")
MAX_LABEL, MAX_TITLE = 40, 120  # characters of a label, and of the title
NO_GLYPH = "\U0010fffe"  # no typeface has it: what is drawn for it is drawn for all that is missing

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class Picture:
    """The file's bytes, and what a reader of the picture should be told."""

    png: bytes
    labelled: int
    unreadable: int  # words with characters that no typeface of this machine has


def draw(chart: WordMap) -> Picture:
    """Dots in the colours of their groups; labels where there is room, the first words first."""
    words = [_make_printable(word) for word in chart.words]
    typeface = Typeface(words, _make_printable(chart.title, MAX_TITLE))
    image = Image.new("RGB", (WIDTH * SCALE, MAX_HEIGHT * SCALE), PAPER)
    pen = ImageDraw.Draw(image)
    frame = _compute_frame(chart.points, _draw_head(pen, chart, typeface))
    dots = _scale_points(chart.points, frame)
    asked = [at < chart.asked for at in range(len(chart.words))]
    fonts = [typeface.of(ASKED if named else LABEL) for named in asked]
    radii = [SCALE * (ASKED_DOT if named else DOT) for named in asked]
    sizes = [_measure_label(font, word) for font, word in zip(fonts, words)]
    boxes = place_labels(dots, radii, sizes, frame, chart.asked)
    for at in reversed(range(len(dots))):  # the most important last: on top
        _draw_dot(pen, dots[at], chart.groups[at], radii[at])
    for at, box in enumerate(boxes):
        if box:
            _draw_label(pen, words[at], box, fonts[at], COLOURS[chart.groups[at]])
    file = io.BytesIO()
    image.crop((0, 0, image.width, int(frame[3]) + MARGIN * SCALE)).save(file, "PNG", optimize=True)
    return Picture(file.getvalue(), sum(box is not None for box in boxes), typeface.unreadable)


class Typeface:
    """The typeface that shows most of the words and of the title, in any size."""

    def __init__(self, words: Iterable[str], title: str = ""):
        self.words, self.title = tuple(words), title

    def of(self, size: int) -> Font:
        return _load(self._name, size * SCALE)

    @property
    def unreadable(self) -> int:
        """How many words hold characters that it does not have."""
        missing = _find_missing(self._name, self._characters)
        return sum(not missing.isdisjoint(word) for word in self.words)

    @cached_property
    def _characters(self) -> frozenset[str]:
        return frozenset("".join((*self.words, self.title)))

    @cached_property
    def _name(self) -> str | None:
        best, fewest = None, len(_find_missing(None, self._characters))  # None: the one that Pillow brings along
        for name in TYPEFACES if fewest else ():
            try:
                missing = len(_find_missing(name, self._characters))
            except OSError:
                continue  # not on this machine
            if missing < fewest:
                best, fewest = name, missing
        return best


@cache
def _load(name: str | None, size: int) -> Font:
    return ImageFont.load_default(size) if name is None else ImageFont.truetype(name, size)


def _find_missing(name: str | None, characters: frozenset[str]) -> set[str]:
    font = _load(name, 24)
    absent = bytes(font.getmask(NO_GLYPH))
    return {one for one in characters if not one.isspace() and bytes(font.getmask(one)) == absent}


def _draw_head(pen: ImageDraw.ImageDraw, chart: WordMap, typeface: Typeface) -> int:
    """Title, how the map was made, and the groups by their most central words; returns where it ends."""
    left, y = MARGIN, MARGIN - 6
    pen.text((left * SCALE, y * SCALE), _make_printable(chart.title, MAX_TITLE), fill=INK, font=typeface.of(TITLE))
    pen.text((left * SCALE, (y + 28) * SCALE), chart.how, fill=GREY, font=typeface.of(SMALL))
    font, x, y = typeface.of(SMALL), left, y + 52
    for number, name in enumerate(map(_make_printable, chart.names)):
        width = int(font.getlength(name) / SCALE) + 34
        if x + width > WIDTH - MARGIN and x > left:
            x, y = left, y + 22
        _draw_dot(pen, np.array([x + 5, y + 8]) * SCALE, number, 4 * SCALE)
        pen.text(((x + 14) * SCALE, y * SCALE), name, fill=COLOURS[number], font=font)
        x += width
    return y + 34


def _compute_frame(points: np.ndarray, top: int) -> Box:
    """Where dots and labels may be: below the head, and as high as a map of this shape needs."""
    across, up = np.ptp(points, axis=0)
    room = WIDTH - 2 * MARGIN - SIDES
    height = room * up / max(across, 1e-9) + EDGE
    bottom = min(MAX_HEIGHT - MARGIN, max(MIN_HEIGHT - MARGIN, top + height))
    return SCALE * MARGIN, SCALE * top, SCALE * (WIDTH - MARGIN), SCALE * bottom


def _scale_points(points: np.ndarray, frame: Box) -> np.ndarray:
    """Points of the chart → pixels, as large as the frame allows."""
    left, top, right, bottom = frame
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([right - left - SIDES * SCALE, bottom - top - EDGE * SCALE])
    scale = float((room / np.maximum(high - low, 1e-9)).min())
    middle = np.array([(left + right) / 2, (top + bottom) / 2])
    return middle + (points - (low + high) / 2) * scale * np.array([1, -1])


def _make_printable(text: str, longest: int = MAX_LABEL) -> str:
    """Any word as one short line: what cannot be printed becomes a sign that says so."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in short)


def _measure_label(font: Font, word: str) -> tuple[float, float]:
    left, top, right, bottom = font.getbbox(word)
    return right - left + 2 * SCALE, bottom - top + 2 * SCALE


def _draw_dot(pen: ImageDraw.ImageDraw, at: np.ndarray, group: int, radius: float) -> None:
    x, y = map(float, at)
    box = (x - radius, y - radius, x + radius, y + radius)
    pen.ellipse(box, fill=COLOURS[group], outline=PAPER, width=SCALE)


def _draw_label(pen: ImageDraw.ImageDraw, word: str, box: Box, font: Font, colour: str) -> None:
    left, top, _, _ = font.getbbox(word)
    at = (box[0] + SCALE - left, box[1] + SCALE - top)
    pen.text(at, word, fill=colour, font=font, stroke_width=SCALE, stroke_fill=PAPER)
