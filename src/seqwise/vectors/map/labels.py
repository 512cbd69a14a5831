"""Places labels beside their dots without overlaps. It knows boxes, and neither words nor drawing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Directions from a dot to the centre of its label, in order of preference.
DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1))
Box = tuple[float, float, float, float]  # left, top, right, bottom


def place_labels(
    dots: np.ndarray, radii: Sequence[float], sizes: Sequence[tuple[float, float]], frame: Box, num_required: int = 0
) -> list[Box | None]:
    """Returns a box in pixels for each label, in order of importance, that covers no earlier label and no other dot.

    None if there is no such box; the first `num_required` labels may then cover a dot.
    """
    circles = np.column_stack([dots, np.asarray(radii, float)])
    occupied, num_occupied = np.empty((len(dots), 4)), 0
    result: list[Box | None] = []
    for index, (circle, size) in enumerate(zip(circles, sizes)):
        boxes = [_compute_box(circle, size, direction) for direction in DIRECTIONS]
        boxes = [box for box in boxes if _is_inside(box, frame) and not _overlaps(occupied[:num_occupied], box)]
        # A label may touch its own dot.
        clear = [box for box in boxes if _count_covered(circles, box) == _count_covered(circle[None], box)]
        best = next(iter([*clear, *(boxes if index < num_required else ())]), None)
        result.append(best)
        if best:
            occupied[num_occupied] = best
            num_occupied += 1
    return result


def _compute_box(circle: np.ndarray, size: tuple[float, float], direction: tuple[int, int]) -> Box:
    x, y, radius = map(float, circle)
    width, height = size
    # On a diagonal the corner of the label is nearest to the dot, so that a smaller gap per axis is enough.
    gap = radius * (0.8 if all(direction) else 1.5)
    x += direction[0] * (width / 2 + gap)
    y += direction[1] * (height / 2 + gap)
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _is_inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _overlaps(boxes: np.ndarray, box: Box) -> bool:
    left, top, right, bottom = boxes.T
    return bool(((left < box[2]) & (right > box[0]) & (top < box[3]) & (bottom > box[1])).any())


def _count_covered(circles: np.ndarray, box: Box) -> int:
    x, y, radius = circles.T
    across = (x + radius > box[0]) & (x - radius < box[2])
    return int((across & (y + radius > box[1]) & (y - radius < box[3])).sum())
