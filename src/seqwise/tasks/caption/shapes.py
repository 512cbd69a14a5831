"""`builtin:shapes`: drawn pictures of one or two things, with the caption that each determines. No file is needed.

    a small red circle
    a large white cross right of a small blue square

The larger thing comes first; of two alike in size the upper one, or the left one. So there is exactly one right
caption, and an exact match means that everything in the picture was seen. Edges are smooth, the background is grey and
noisy. It knows nothing of files, splits or tokens.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

COUNT, SIZE = 8_000, 32
SEED = 20  # of a generator whose numbers NumPy promises never to change
SIZES = {"small": (4.0, 4.5), "large": (6.2, 6.7)}  # half the width of a thing, in pixels
COLOURS = {
    "red": (225, 40, 40),
    "green": (40, 175, 60),
    "blue": (45, 75, 230),
    "yellow": (235, 215, 40),
    "purple": (165, 45, 185),
    "white": (245, 245, 245),
}
FORMS = ("circle", "square", "triangle", "cross")
ALONE = 0.125  # share of pictures of one thing
MARGIN = 2.0  # pixels that stay free at each edge, so that small shifts cut nothing off
GAP = 1.0  # least pixels between two things
SLANT = 0.4  # how far "above" may lean to the side, as a share of the distance
NOISE, SHADE = 17.0, 18.0  # how far single pixels stray, and the colour of a thing

Drawn = tuple[np.ndarray, list[str]]


@lru_cache(maxsize=2)
def shapes(count: int = COUNT) -> Drawn:
    """Pictures (N, 32, 32, 3) uint8, and a caption for each. The same for everybody, always."""
    draw = np.random.RandomState(SEED)
    large, colour, form = (draw.randint(0, top, (2, count)) for top in (2, len(COLOURS), len(FORMS)))
    upright = draw.random_sample(count) < 0.5  # one above the other, rather than side by side
    alone = draw.random_sample(count) < ALONE
    bounds = np.array(list(SIZES.values()))[large]  # (2, N, 2)
    radius = bounds[..., 0] + draw.random_sample((2, count)) * (bounds[..., 1] - bounds[..., 0])
    along, across = _places(radius, draw)
    centre = np.where(upright, np.stack([across, along]), np.stack([along, across]))  # (x and y, thing, N)
    shown = np.stack([np.ones(count, bool), ~alone])
    pictures = _paint(centre, radius, form, colour, shown, draw)
    captions = []
    for n in range(count):
        things = [_words(*parts) for parts in zip(large[:, n], colour[:, n], form[:, n])]
        captions.append(things[0] if alone[n] else _both(things, large[:, n], bool(upright[n])))
    return pictures, captions


def _places(radius: np.ndarray, draw: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the two things along the line that joins them roughly, and across it: (2, N) each."""
    count, room = radius.shape[1], SIZE - 2 * MARGIN
    least = radius.sum(0) + GAP
    free = room - radius.sum(0) - least
    distance = least + draw.random_sample(count) * free
    first = MARGIN + radius[0] + draw.random_sample(count) * (room - radius.sum(0) - distance)
    across = MARGIN + radius[0] + draw.random_sample(count) * (room - 2 * radius[0])
    beside = across + (2 * draw.random_sample(count) - 1) * SLANT * distance
    beside = np.clip(beside, MARGIN + radius[1], SIZE - MARGIN - radius[1])
    return np.stack([first, first + distance]), np.stack([across, beside])


def _paint(
    centre: np.ndarray,
    radius: np.ndarray,
    form: np.ndarray,
    colour: np.ndarray,
    shown: np.ndarray,
    draw: np.random.RandomState,
) -> np.ndarray:
    count = radius.shape[1]
    grid = np.arange(SIZE) + 0.5
    canvas = np.tile(60 + 60 * draw.random_sample((count, 1, 1, 1)), (1, SIZE, SIZE, 3))
    for thing in range(2):
        x = grid[None, None, :] - centre[0, thing][:, None, None]
        y = grid[None, :, None] - centre[1, thing][:, None, None]
        outside = _distance(x, y, radius[thing][:, None, None], form[thing])
        cover = np.clip(0.5 - outside, 0, 1) * shown[thing][:, None, None]  # a pixel at the edge is partly covered
        paint = np.array(list(COLOURS.values()))[colour[thing]] + SHADE * _stray(draw, (count, 3))
        canvas += cover[..., None] * (paint[:, None, None] - canvas)
    canvas += NOISE * _stray(draw, canvas.shape)
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8)


def _stray(draw: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
    """Even chances between -1 and 1."""
    return 2 * draw.random_sample(shape) - 1


def _distance(x: np.ndarray, y: np.ndarray, r: np.ndarray, form: np.ndarray) -> np.ndarray:
    """How far each pixel lies outside a thing, in pixels; negative inside. (N, 32, 32)"""
    ax, ay = np.abs(x), np.abs(y)
    circle = np.hypot(x, y) - r
    square = np.maximum(ax, ay) - 0.97 * r
    # Upright and equilateral: its top r above the centre, its base 0.72 r below, two sides with normals (±√3/2, -1/2).
    triangle = np.maximum(y - 0.72 * r, 0.866 * ax - 0.5 * y - 0.5 * r)
    cross = np.minimum(np.maximum(ax - r, ay - 0.34 * r), np.maximum(ay - r, ax - 0.34 * r))
    return np.choose(form[:, None, None], np.broadcast_arrays(circle, square, triangle, cross))


def _words(large: int, colour: int, form: int) -> str:
    return f"a {list(SIZES)[large]} {list(COLOURS)[colour]} {FORMS[form]}"


def _both(things: list[str], large: np.ndarray, upright: bool) -> str:
    if large[1] > large[0]:
        return f"{things[1]} {'below' if upright else 'right of'} {things[0]}"
    return f"{things[0]} {'above' if upright else 'left of'} {things[1]}"
