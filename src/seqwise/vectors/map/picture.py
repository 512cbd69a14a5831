"""Draws a `WordMap` as a PNG with Pillow, at twice the resolution of a screen. It knows nothing of vectors."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from seqwise.vectors.map.word_map import COLOURS, WordMap

WIDTH, MIN_HEIGHT, MAX_HEIGHT, MARGIN = 1400, 560, 1000, 28  # of the image, in screen pixels
SCALE = 2  # pixels of the image per screen pixel
LABEL_WIDTH, LABEL_HEIGHT = 120, 24  # space for the labels of the outermost dots
TITLE_SIZE, SMALL_SIZE, LABEL_SIZE, HIGHLIGHTED_SIZE = 19, 13, 12, 16  # of fonts
RADIUS, HIGHLIGHTED_RADIUS = 3, 5  # of dots
INK, GREY, PAPER = "#1c1917", "#6b6560", "#ffffff"

# Fonts of the system. The one with the fewest missing characters is used.
FONT_FILES = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "Arial Unicode.ttf", "arial.ttf", "NotoSansCJK-Regular.ttc")
MAX_LABEL, MAX_TITLE = 40, 120  # characters of a label, and of the title
NO_GLYPH = "\U0010fffe"  # a character that no font has, drawn with the glyph of every missing character

# Directions from a dot to the centre of its label, in order of preference.
DIRECTIONS = np.array([(1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1)])

Box = tuple[float, float, float, float]  # left, top, right, bottom
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class Picture:
    """A PNG file, and counts to report."""

    png: bytes
    num_labels: int
    num_unreadable: int  # words with characters that no font of this machine has


def draw_picture(word_map: WordMap) -> Picture:
    """Draws dots in the colours of their clusters, and labels where there is space, in the order of the words."""
    words = [_make_printable(word) for word in word_map.words]
    font_file, missing = choose_font(frozenset("".join((*words, _make_printable(word_map.title, MAX_TITLE)))))
    image = Image.new("RGB", (WIDTH * SCALE, MAX_HEIGHT * SCALE), PAPER)
    pen = ImageDraw.Draw(image)
    frame = _compute_frame(word_map.points, _draw_header(pen, word_map, font_file))
    dots = _scale_points(word_map.points, frame)
    is_highlighted = [index < word_map.num_highlighted for index in range(len(word_map.words))]
    fonts = [_load_font(font_file, HIGHLIGHTED_SIZE if is_large else LABEL_SIZE) for is_large in is_highlighted]
    radii = [SCALE * (HIGHLIGHTED_RADIUS if is_large else RADIUS) for is_large in is_highlighted]
    text_boxes = [font.getbbox(word) for font, word in zip(fonts, words)]
    sizes = [(right - left + 2 * SCALE, bottom - top + 2 * SCALE) for left, top, right, bottom in text_boxes]
    boxes = place_labels(dots, radii, sizes, frame, word_map.num_highlighted)
    for index in reversed(range(len(dots))):  # the most important last: on top
        _draw_dot(pen, dots[index], word_map.clusters[index], radii[index])
    for word, box, text_box, font, cluster in zip(words, boxes, text_boxes, fonts, word_map.clusters):
        if box:
            position = (box[0] + SCALE - text_box[0], box[1] + SCALE - text_box[1])
            pen.text(position, word, fill=COLOURS[cluster], font=font, stroke_width=SCALE, stroke_fill=PAPER)
    file = io.BytesIO()
    image.crop((0, 0, image.width, int(frame[3]) + MARGIN * SCALE)).save(file, "PNG", optimize=True)
    num_unreadable = sum(not missing.isdisjoint(word) for word in words)
    return Picture(file.getvalue(), sum(box is not None for box in boxes), num_unreadable)


def place_labels(
    dots: np.ndarray, radii: Sequence[float], sizes: Sequence[tuple[float, float]], frame: Box, num_required: int = 0
) -> list[Box | None]:
    """Returns a box in pixels for each label, in order of importance, that covers no earlier label and no other dot.

    It is None if there is no such box; the first `num_required` labels may then cover a dot.
    """
    radius = np.asarray(radii, float)[:, None]
    dot_boxes, earlier_labels = np.hstack([dots - radius, dots + radius]), np.empty((0, 4))
    label_boxes: list[Box | None] = []
    for index, size in enumerate(sizes):
        half = np.asarray(size) / 2
        # On a diagonal the corner of the label is nearest to the dot, so that a smaller gap per axis is enough.
        gaps = radii[index] * np.where(DIRECTIONS.all(axis=1), 0.8, 1.5)
        centres = dots[index] + DIRECTIONS * (half + gaps[:, None])
        boxes = np.hstack([centres - half, centres + half])
        is_inside = (boxes[:, :2] >= frame[:2]).all(axis=1) & (boxes[:, 2:] <= frame[2:]).all(axis=1)
        boxes = boxes[is_inside & ~_find_overlaps(boxes, earlier_labels).any(axis=1)]
        covers_dot = _find_overlaps(boxes, dot_boxes)
        covers_dot[:, index] = False  # a label may touch its own dot
        candidates = [*boxes[~covers_dot.any(axis=1)], *(boxes if index < num_required else ())]
        label_boxes.append(tuple(candidates[0].tolist()) if candidates else None)
        earlier_labels = np.vstack([earlier_labels, *candidates[:1]])
    return label_boxes


def _find_overlaps(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns which of the boxes (N, 4) overlap which of the others (M, 4): (N, M)."""
    axes: np.ndarray = (boxes[:, None, :2] < others[:, 2:]) & (boxes[:, None, 2:] > others[:, :2])
    return np.all(axes, axis=2)


def choose_font(characters: frozenset[str]) -> tuple[str | None, set[str]]:
    """Returns the font file that lacks the fewest characters, None for Pillow's own font, and what it lacks."""
    best_file, fewest_missing = None, _find_missing_characters(None, characters)
    for font_file in FONT_FILES if fewest_missing else ():
        try:
            missing = _find_missing_characters(font_file, characters)
        except OSError:
            continue  # not on this machine
        if len(missing) < len(fewest_missing):
            best_file, fewest_missing = font_file, missing
    return best_file, fewest_missing


@cache
def _load_font(font_file: str | None, size: int) -> Font:
    size *= SCALE
    return ImageFont.load_default(size) if font_file is None else ImageFont.truetype(font_file, size)


def _find_missing_characters(font_file: str | None, characters: frozenset[str]) -> set[str]:
    """Returns the characters that a font does not have."""
    font = _load_font(font_file, 12)
    missing_glyph = bytes(font.getmask(NO_GLYPH))
    return {each for each in characters if not each.isspace() and bytes(font.getmask(each)) == missing_glyph}


def _draw_header(pen: ImageDraw.ImageDraw, word_map: WordMap, font_file: str | None) -> int:
    """Draws the title, the description and the names of the clusters; returns the y coordinate of its end."""
    left, y = MARGIN, MARGIN - 6
    font, title = _load_font(font_file, SMALL_SIZE), _make_printable(word_map.title, MAX_TITLE)
    pen.text((left * SCALE, y * SCALE), title, fill=INK, font=_load_font(font_file, TITLE_SIZE))
    pen.text((left * SCALE, (y + 28) * SCALE), word_map.description, fill=GREY, font=font)
    x, y = left, y + 52
    for cluster, name in enumerate(map(_make_printable, word_map.cluster_names)):
        width = int(font.getlength(name) / SCALE) + 34
        if x + width > WIDTH - MARGIN and x > left:
            x, y = left, y + 22
        _draw_dot(pen, np.array([x + 5, y + 8]) * SCALE, cluster, 4 * SCALE)
        pen.text(((x + 14) * SCALE, y * SCALE), name, fill=COLOURS[cluster], font=font)
        x += width
    return y + 34


def _compute_frame(points: np.ndarray, top: int) -> Box:
    """Returns the box of dots and labels: below the header, and as high as the aspect ratio of the map needs."""
    width, height = np.ptp(points, axis=0)
    available = WIDTH - 2 * MARGIN - LABEL_WIDTH
    height = available * height / max(width, 1e-9) + LABEL_HEIGHT
    bottom = min(MAX_HEIGHT - MARGIN, max(MIN_HEIGHT - MARGIN, top + height))
    return SCALE * MARGIN, SCALE * top, SCALE * (WIDTH - MARGIN), SCALE * bottom


def _scale_points(points: np.ndarray, frame: Box) -> np.ndarray:
    """Returns the points in pixels, as large as the frame allows."""
    left, top, right, bottom = frame
    low, high = points.min(axis=0), points.max(axis=0)
    available = np.array([right - left - LABEL_WIDTH * SCALE, bottom - top - LABEL_HEIGHT * SCALE])
    scale = float((available / np.maximum(high - low, 1e-9)).min())
    middle = np.array([(left + right) / 2, (top + bottom) / 2])
    return middle + (points - (low + high) / 2) * scale * np.array([1, -1])


def _make_printable(text: str, max_length: int = MAX_LABEL) -> str:
    """Returns a text as one short line, with a replacement character for what cannot be printed."""
    short = text if len(text) <= max_length else text[: max_length - 1] + "…"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in short)


def _draw_dot(pen: ImageDraw.ImageDraw, centre: np.ndarray, cluster: int, radius: float) -> None:
    x, y = map(float, centre)
    box = (x - radius, y - radius, x + radius, y + radius)
    pen.ellipse(box, fill=COLOURS[cluster], outline=PAPER, width=SCALE)
