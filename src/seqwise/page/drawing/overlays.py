"""Weights over an image, one panel per caption, as SVG."""

from __future__ import annotations

import numpy as np

from seqwise.page.drawing.canvas import INK, LINE_HEIGHT, MARGIN, MUTED, WIDTH, Canvas
from seqwise.page.drawing.colours import WHITE, Ramp, parse_colour
from seqwise.page.figures import ImageOverlay
from seqwise.page.labels import measure_pixels, shorten_all
from seqwise.page.palette import ROLES
from seqwise.page.scales import find_limits, to_fractions

PANEL_WIDTH, PANEL_GAP, MAX_PANELS = 136, 8, 30


def draw_overlay(figure: ImageOverlay) -> Canvas:
    """Returns the image, and for each caption the image in grey under its weights in colour."""
    canvas = Canvas()
    weights = np.asarray(figure.weights, dtype=float)
    image = np.asarray(figure.image, dtype=float)
    step = image.shape[1] // (2 * PANEL_WIDTH) or 1  # more pixels than twice those of the panel are not visible
    image = image[::step, ::step]
    if not weights.size or not image.size:
        canvas.add_paragraph("no values", colour=MUTED)
        return canvas
    low = 0.0 if np.nanmin(weights, initial=0.0) >= 0 else None
    limits = find_limits(weights, "sequential", low)
    strongest = tuple(_blend(np.full((1, 1, 3), 255.0), np.ones((1, 1)))[0, 0].tolist())
    canvas.add_colour_scale(MARGIN, 4, figure.value_label, limits, Ramp((0.0, 1.0), (WHITE, strongest)))
    top, size = canvas.height + 8, (PANEL_WIDTH, PANEL_WIDTH * image.shape[0] / image.shape[1])
    panels = [("image", image.astype(np.uint8))]
    for caption, each in zip(figure.captions[:MAX_PANELS], weights):
        panels.append((caption, _blend(image, to_fractions(each, limits))))
    per_row = (WIDTH - 2 * MARGIN + PANEL_GAP) // (PANEL_WIDTH + PANEL_GAP)
    for index, (caption, pixels) in enumerate(panels):
        x = MARGIN + index % per_row * (PANEL_WIDTH + PANEL_GAP)
        y = top + index // per_row * (size[1] + LINE_HEIGHT + PANEL_GAP)
        canvas.add_image(x, y, *size, pixels)
        name = shorten_all([caption], PANEL_WIDTH, measure_pixels)[0]
        canvas.add_text(x, y + size[1] + 14, name, colour=MUTED if index == 0 else INK)
    if len(weights) > MAX_PANELS:
        canvas.height += 4
        canvas.add_paragraph(f"{MAX_PANELS} of {len(weights):,} captions.", colour=MUTED)
    return canvas


def _blend(image: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """Returns a light grey image with a colour over it, the more the larger the fraction."""
    height, width = image.shape[:2]
    rows = np.arange(height) * fractions.shape[0] // height
    columns = np.arange(width) * fractions.shape[1] // width
    opacity = 0.85 * np.nan_to_num(fractions)[rows][:, columns, None]
    grey = 255 - 0.4 * (255 - image.mean(axis=2, keepdims=True))
    colour = np.array(parse_colour(ROLES["attention"][0]))
    return np.rint((1 - opacity) * grey + opacity * colour).astype(np.uint8)
