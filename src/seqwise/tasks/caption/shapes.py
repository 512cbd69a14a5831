"""`builtin:shapes`: generated images of one or two shapes, each with the only caption that describes it.

    a small red circle
    a large white cross right of a small blue square

The larger shape comes first; of two of equal size the upper or the left one. So there is exactly one correct caption,
and an exact match means that the model recognised everything in the image. Edges are smooth, the background is grey
and noisy. The module knows nothing of files, splits or tokens.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

NUM_IMAGES, IMAGE_SIZE = 8_000, 32
SEED = 20  # of `np.random.RandomState`, whose numbers NumPy promises never to change
RADII = {"small": (4.0, 4.5), "large": (6.2, 6.7)}  # minimum and maximum half width of a shape, in pixels
COLOURS = {
    "red": (225, 40, 40),
    "green": (40, 175, 60),
    "blue": (45, 75, 230),
    "yellow": (235, 215, 40),
    "purple": (165, 45, 185),
    "white": (245, 245, 245),
}
SHAPES = ("circle", "square", "triangle", "cross")
SINGLE_SHARE = 0.125  # share of the images that have one shape
MARGIN = 2.0  # empty pixels at each edge, so that small shifts cut nothing off
MIN_GAP = 1.0  # pixels between two shapes
MAX_SLANT = 0.4  # maximum sideways offset of a shape above another, as a share of their distance
PIXEL_NOISE, COLOUR_NOISE = 17.0, 18.0  # maximum deviation of a pixel, and of the colour of a shape


@lru_cache(maxsize=2)
def draw_shapes(count: int = NUM_IMAGES) -> tuple[np.ndarray, list[str]]:
    """Returns images (N, 32, 32, 3) uint8 and a caption for each; the same on every machine."""
    generator = np.random.RandomState(SEED)
    is_large, colour, shape = (generator.randint(0, stop, (2, count)) for stop in (2, len(COLOURS), len(SHAPES)))
    is_vertical = generator.random_sample(count) < 0.5  # one above the other, rather than side by side
    is_single = generator.random_sample(count) < SINGLE_SHARE
    bounds = np.array(list(RADII.values()))[is_large]  # (2, N, 2)
    radius = bounds[..., 0] + generator.random_sample((2, count)) * (bounds[..., 1] - bounds[..., 0])
    along, across = _draw_centres(radius, generator)
    centre = np.where(is_vertical, np.stack([across, along]), np.stack([along, across]))  # (x and y, shape, N)
    is_visible = np.stack([np.ones(count, bool), ~is_single])
    images = _draw_images(centre, radius, shape, colour, is_visible, generator)
    captions = []
    for i in range(count):
        properties = zip(is_large[:, i], colour[:, i], shape[:, i])
        first, second = (f"a {list(RADII)[r]} {list(COLOURS)[c]} {SHAPES[s]}" for r, c, s in properties)
        if is_single[i]:
            captions.append(first)
        elif is_large[1, i] > is_large[0, i]:
            captions.append(f"{second} {'below' if is_vertical[i] else 'right of'} {first}")
        else:
            captions.append(f"{first} {'above' if is_vertical[i] else 'left of'} {second}")
    return images, captions


def _draw_centres(radius: np.ndarray, generator: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Returns the centres of both shapes along the axis that roughly joins them, and across it: (2, N) each."""
    count, available = radius.shape[1], IMAGE_SIZE - 2 * MARGIN
    min_distance = radius.sum(0) + MIN_GAP
    distance = min_distance + generator.random_sample(count) * (available - radius.sum(0) - min_distance)
    first = MARGIN + radius[0] + generator.random_sample(count) * (available - radius.sum(0) - distance)
    first_across = MARGIN + radius[0] + generator.random_sample(count) * (available - 2 * radius[0])
    second_across = first_across + (2 * generator.random_sample(count) - 1) * MAX_SLANT * distance
    second_across = np.clip(second_across, MARGIN + radius[1], IMAGE_SIZE - MARGIN - radius[1])
    return np.stack([first, first + distance]), np.stack([first_across, second_across])


def _draw_images(
    centre: np.ndarray,
    radius: np.ndarray,
    shape: np.ndarray,
    colour: np.ndarray,
    is_visible: np.ndarray,
    generator: np.random.RandomState,
) -> np.ndarray:
    """Returns images (N, 32, 32, 3) of two shapes each, with noise; `centre` is (2, 2, N), the others are (2, N)."""
    count = radius.shape[1]
    grid = np.arange(IMAGE_SIZE) + 0.5
    canvas = np.tile(60 + 60 * generator.random_sample((count, 1, 1, 1)), (1, IMAGE_SIZE, IMAGE_SIZE, 3))
    for i in range(2):
        x = grid[None, None, :] - centre[0, i][:, None, None]
        y = grid[None, :, None] - centre[1, i][:, None, None]
        distance = _compute_signed_distance(x, y, radius[i][:, None, None], shape[i])
        coverage = np.clip(0.5 - distance, 0, 1) * is_visible[i][:, None, None]  # pixels at the edge: partly
        rgb = np.array(list(COLOURS.values()))[colour[i]] + COLOUR_NOISE * _draw_noise(generator, (count, 3))
        canvas += coverage[..., None] * (rgb[:, None, None] - canvas)
    canvas += PIXEL_NOISE * _draw_noise(generator, canvas.shape)
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8)


def _draw_noise(generator: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
    """Returns random numbers, uniform between -1 and 1."""
    return 2 * generator.random_sample(shape) - 1


def _compute_signed_distance(x: np.ndarray, y: np.ndarray, r: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Returns the distance of each pixel from a shape, in pixels, negative inside: (N, 32, 32)."""
    ax, ay = np.abs(x), np.abs(y)
    circle = np.hypot(x, y) - r
    square = np.maximum(ax, ay) - 0.97 * r
    # Upright and equilateral: its top r above the centre, its base 0.72 r below, two sides with normals (±√3/2, -1/2).
    triangle = np.maximum(y - 0.72 * r, 0.866 * ax - 0.5 * y - 0.5 * r)
    cross = np.minimum(np.maximum(ax - r, ay - 0.34 * r), np.maximum(ay - r, ax - 0.34 * r))
    return np.choose(shape[:, None, None], np.broadcast_arrays(circle, square, triangle, cross))
