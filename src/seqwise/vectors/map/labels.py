"""Where labels go: beside their dots, upon nothing else. It knows boxes, and neither words nor drawing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Places of a label around its dot, the preferred first: direction of its middle, in halves of its size.
PLACES = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1))
Box = tuple[float, float, float, float]  # left, top, right, bottom


def place_labels(
    dots: np.ndarray, radii: Sequence[float], sizes: Sequence[tuple[float, float]], frame: Box, certain: int = 0
) -> list[Box | None]:
    """A box for each label, in order of importance: the first place that covers no label before it and no foreign dot.
    None where there is no such place; the first `certain` labels then rather cover a dot. Everything is in pixels."""
    circles = np.column_stack([dots, np.asarray(radii, float)])
    taken, placed = np.empty((len(dots), 4)), 0
    found: list[Box | None] = []
    for at, (circle, size) in enumerate(zip(circles, sizes)):
        boxes = [box for box in (_box(circle, size, place) for place in PLACES) if _inside(box, frame)]
        boxes = [box for box in boxes if not _overlaps(taken[:placed], box)]
        # A label may touch its own dot.
        clear = [box for box in boxes if _covered(circles, box) == _covered(circle[None], box)]
        best = next(iter([*clear, *(boxes if at < certain else ())]), None)
        found.append(best)
        if best:
            taken[placed] = best
            placed += 1
    return found


def _box(circle: np.ndarray, size: tuple[float, float], place: tuple[int, int]) -> Box:
    x, y, radius = map(float, circle)
    width, height = size
    # A corner place meets the dot with its corner, which is further off: less distance per direction is enough.
    gap = radius * (0.8 if all(place) else 1.5)
    x += place[0] * (width / 2 + gap)
    y += place[1] * (height / 2 + gap)
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _overlaps(taken: np.ndarray, box: Box) -> bool:
    left, top, right, bottom = taken.T
    return bool(((left < box[2]) & (right > box[0]) & (top < box[3]) & (bottom > box[1])).any())


def _covered(circles: np.ndarray, box: Box) -> int:
    x, y, radius = circles.T
    across = (x + radius > box[0]) & (x - radius < box[2])
    return int((across & (y + radius > box[1]) & (y - radius < box[3])).sum())
