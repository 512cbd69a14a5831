"""builtin:shapes: images are reproducible, and each caption describes its image."""

from __future__ import annotations

import re

import numpy as np
import pytest

from seqwise.tasks.caption.shapes import COLOURS, IMAGE_SIZE, SHAPES, _compute_signed_distance, draw_shapes

SHAPE_PATTERN = rf"a (small|large) ({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})"
CAPTION = re.compile(rf"{SHAPE_PATTERN}(?: (above|below|left of|right of) {SHAPE_PATTERN})?")


@pytest.fixture(scope="module")
def shapes():
    return draw_shapes(400)


def find_coloured_pixels(image: np.ndarray) -> np.ndarray:
    """Returns which pixels are clearly not background, which is grey with values of at most 137."""
    pixels = image.astype(int)
    return ((pixels.max(-1) - pixels.min(-1)) > 70) | (pixels.min(-1) > 170)


def test_the_images_are_reproducible(shapes):
    images, captions = shapes
    assert images.shape == (400, IMAGE_SIZE, IMAGE_SIZE, 3)
    assert images.dtype == np.uint8
    assert captions[:2] == [
        "a large yellow square above a small green triangle",
        "a large red cross right of a small purple square",
    ]
    drawn_again, _ = draw_shapes.__wrapped__(400)
    assert np.array_equal(drawn_again, images)


def test_every_caption_follows_the_grammar(shapes):
    matches = [CAPTION.fullmatch(caption) for caption in shapes[1]]
    assert all(matches)
    assert {match[4] for match in matches if match} == {None, "above", "below", "left of", "right of"}


def test_the_larger_shape_comes_first_or_the_upper_or_left_one(shapes):
    for caption in shapes[1]:
        first, _, _, relation, second, *_ = CAPTION.fullmatch(caption).groups()  # type: ignore[union-attr]
        assert (first, second) != ("small", "large")
        if relation in ("below", "right of"):
            assert (first, second) == ("large", "small")


@pytest.mark.parametrize(("relation", "axis", "sign"), [("above", 0, 1), ("left of", 1, 1), ("below", 0, -1)])
def test_shapes_are_where_the_caption_says(relation: str, axis: int, sign: int):
    """Compares the centres of red and blue shapes, which are found by colour alone."""
    images, captions = draw_shapes(1500)
    num_checked = 0
    for image, caption in zip(images.astype(int), captions):
        match = CAPTION.fullmatch(caption)
        if match and match[4] == relation and {match[2], match[6]} == {"red", "blue"}:
            masks = {
                "red": image[..., 0] - image[..., 2] > 80,
                "blue": image[..., 2] - image[..., 0] > 80,
            }
            centres = {name: np.argwhere(mask)[:, axis].mean() for name, mask in masks.items()}
            assert sign * (centres[match[6]] - centres[match[2]]) > 3, caption
            num_checked += 1
    assert num_checked > 2


def test_large_shapes_cover_more_than_small_ones(shapes):
    areas: dict[tuple, list[int]] = {}
    for image, caption in zip(*shapes):
        if " of " not in caption and len(caption.split()) == 4:
            _, size, _, shape = caption.split()
            areas.setdefault((shape, size), []).append(int(find_coloured_pixels(image).sum()))
    for shape in SHAPES:
        assert min(areas[shape, "large"]) > 1.5 * max(areas[shape, "small"])


def test_nothing_is_drawn_at_the_edge(shapes):
    for image in shapes[0]:
        edge = find_coloured_pixels(image).copy()
        edge[2:-2, 2:-2] = False
        assert not edge.any()


def test_signed_distances_equal_hand_computed_values():
    x, y, r = np.array([[[3.0]]] * 4), np.array([[[4.0]]] * 4), np.array([[[2.0]]] * 4)
    distances = _compute_signed_distance(x, y, r, np.arange(4)).ravel()
    # circle: 5 - 2; square: max(3, 4) - 1.94; triangle: max(4 - 1.44, 2.598 - 2 - 1); cross: min over two bars
    assert distances == pytest.approx([3.0, 2.06, 2.56, min(max(3 - 2, 4 - 0.68), max(4 - 2, 3 - 0.68))])
