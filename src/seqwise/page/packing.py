"""Figures as JSON values of a limited size: large matrices are packed, and made coarser where that is not enough.

Numbers have six significant digits, except those of matrices with more than `PLAIN_CELLS` cells (heatmaps, weights over
images), which are packed as base64 of zlib-compressed codes in row-major order. In this order, until all fits:

| code | a value is | precision |
|---|---|---|
| `half` | the half-precision float with these bits, times 2^exponent; all low bytes precede all high bytes | 3 digits |
| `byte` | low + code / 254 × (high − low), where low and high are the exact extremes; 255 is NaN | 1/508 of the range |
| `byte`, pooled | the same of the means of blocks of cells; `block` has the rows and columns of one | the same |

The exponent is chosen so that the largest value just fits; half precision then keeps three digits down to a billionth
of it. The page says what a value stands for: `±` half a step of a byte, or the size of the block.
"""

from __future__ import annotations

import math
import zlib
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqwise.page.figures import BarChart, Figure, Heatmap, HeatmapGrid, ImageOverlay, LineChart, ScatterPlot, to_plain
from seqwise.page.palette import choose_bar_styles, choose_group_styles, choose_styles
from seqwise.page.script import dump_json_for_script

DIGITS = 6  # significant digits of a number
PLAIN_CELLS = 200  # a matrix with at most this many cells is a list of numbers
MAX_EXPONENT = 15  # 2^15 is the largest power of two of a half-precision float
MIN_SIDE = 8  # a matrix is not pooled to fewer rows or columns
MAX_IMAGE_SIDE, MIN_IMAGE_SIDE = 512, 64  # pixels


def pack_figures(figures: Sequence[Figure], max_bytes: int) -> list[dict[str, Any]]:
    """Returns the figures as JSON values of `max_bytes` in all, or more if nothing can be made coarser.

    The largest figure is made coarser first.
    """
    steps = [0] * len(figures)
    packed = [pack_figure(figure) for figure in figures]
    sizes = [_measure(one) for one in packed]
    reducible = {index for index, one in enumerate(figures) if isinstance(one, (Heatmap, HeatmapGrid, ImageOverlay))}
    while sum(sizes) > max_bytes and reducible:
        largest = max(reducible, key=lambda index: sizes[index])
        steps[largest] += 1
        coarser = pack_figure(figures[largest], steps[largest])
        if coarser == packed[largest]:
            reducible.remove(largest)
        packed[largest], sizes[largest] = coarser, _measure(coarser)
    return packed


def pack_figure(figure: Figure, step: int = 0) -> dict[str, Any]:
    """Returns a figure as JSON values with packed matrices; each `step` makes it coarser."""
    if isinstance(figure, Heatmap):
        return _pack_heatmap(figure, step, _find_range([figure]))
    if isinstance(figure, HeatmapGrid):
        return _pack_grid(figure, step)
    if isinstance(figure, ImageOverlay):
        return _pack_overlay(figure, step)
    return {**to_plain(figure, DIGITS), **_pack_styles(figure)}


def _pack_styles(figure: Figure) -> dict[str, Any]:
    """Returns what the series, bars or groups of points of a figure look like."""
    if isinstance(figure, LineChart):
        styles = choose_styles([each.name for each in figure.series], [each.role for each in figure.series])
        return {"styles": [style.to_plain() for style in styles]}
    if isinstance(figure, BarChart):
        bars = choose_bar_styles(figure.names, figure.roles)
        return {"colours": [style.to_plain()["colour"] for style in bars]}
    if isinstance(figure, ScatterPlot):
        return {"styles": [(group, style.to_plain()) for group, style in choose_group_styles(figure.groups).items()]}
    return {}


def _pack_heatmap(figure: Heatmap, step: int, limits: tuple[float, float]) -> dict[str, Any]:
    values = pack_matrix(figure.values, step)
    return {**_pack_fields(figure, "values"), "values": values, "low": limits[0], "high": limits[1]}


def _pack_grid(figure: HeatmapGrid, step: int) -> dict[str, Any]:
    """Returns a grid whose rows, columns and labels are stored once, and whose panels share a colour scale."""
    shared = ("rows", "columns", "row_label", "column_label", "value_label", "scale")
    limits = _find_range(figure.panels)
    panels = [_pack_heatmap(panel, step, limits) for panel in figure.panels]
    first = {key: panels[0][key] for key in shared} if panels else {}
    own = [{key: value for key, value in panel.items() if first.get(key) != value} for panel in panels]
    return {**_pack_fields(figure, "panels"), "shared": first, "panels": own}


def _pack_overlay(figure: ImageOverlay, step: int) -> dict[str, Any]:
    image = shrink_image(figure.image, max(MIN_IMAGE_SIDE, MAX_IMAGE_SIDE >> step))
    pixels = {"height": image.shape[0], "width": image.shape[1], "codes": _compress(image.tobytes())}
    weights = [pack_matrix(panel) for panel in figure.weights]
    return {**_pack_fields(figure, "image", "weights"), "image": pixels, "weights": weights}


def _pack_fields(figure: Figure, *excluded: str) -> dict[str, Any]:
    """Returns all fields but the excluded ones, and the kind, as JSON values."""
    fields = {key: value for key, value in vars(figure).items() if key not in excluded}
    return {"kind": figure.kind, **to_plain(fields, DIGITS)}


def _find_range(figures: Sequence[Heatmap]) -> tuple[float, float]:
    """Returns the limits of the colour scale that heatmaps share; those of a diverging scale are symmetric."""
    finite = [figure.values[np.isfinite(figure.values)] for figure in figures]
    lows = [one.low if one.low is not None else cells.min(initial=math.inf) for one, cells in zip(figures, finite)]
    highs = [one.high if one.high is not None else cells.max(initial=-math.inf) for one, cells in zip(figures, finite)]
    low, high = float(min(lows, default=0.0)), float(max(highs, default=1.0))
    if not low <= high:
        return 0.0, 1.0
    if any(figure.scale == "diverging" for figure in figures):
        high = max(abs(low), abs(high))
        return -high, high
    return low, high


def pack_matrix(values: np.ndarray, step: int = 0) -> Any:
    """Returns a matrix as nested lists or, if it is large, packed: as half-precision floats, then (`step`) as bytes."""
    values = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    if values.size <= PLAIN_CELLS:
        return to_plain(values, DIGITS)
    values, block = pool_by_halving(values, step - 1)
    form = _encode_half(values) if step == 0 else _encode_byte(values)
    return {"shape": list(values.shape), "block": list(block), **form}


def pool_by_halving(values: np.ndarray, num_halvings: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Returns the means of blocks of cells and the shape of a block; each halving is that of the longer side."""
    rows, columns = 1, 1
    for _ in range(num_halvings):
        height, width = (-(-side // size) for side, size in zip(values.shape, (rows, columns)))
        if max(height, width) <= MIN_SIDE:
            break
        if height > width:
            rows *= 2
        else:
            columns *= 2
    padded = np.pad(
        values, [(0, -side % size) for side, size in zip(values.shape, (rows, columns))], constant_values=np.nan
    )
    blocks = padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns)
    is_value = np.isfinite(blocks)
    counts = is_value.sum(axis=(1, 3))
    means = np.where(is_value, blocks, 0).sum(axis=(1, 3)) / np.maximum(counts, 1)
    return np.where(counts > 0, means, np.nan), (rows, columns)


def shrink_image(image: np.ndarray, max_side: int) -> np.ndarray:
    """Returns an image of at most that many pixels per side: every pixel is the mean of a square."""
    step = -(-max(image.shape[:2]) // max_side)
    if step <= 1:
        return np.ascontiguousarray(image, dtype=np.uint8)
    channels = [pool_square(image[..., channel].astype(np.float64), step) for channel in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def pool_square(values: np.ndarray, step: int) -> np.ndarray:
    """Returns the means of squares of `step` × `step`, without an incomplete last row and column."""
    height, width = (side // step for side in values.shape)
    return values[: height * step, : width * step].reshape(height, step, width, step).mean(axis=(1, 3))


def _encode_half(values: np.ndarray) -> dict[str, Any]:
    largest = float(np.nanmax(np.abs(values), initial=0.0))
    exponent = math.frexp(largest)[1] - MAX_EXPONENT if largest > 0 else 0
    halves = np.ldexp(values, -exponent).astype("<f2")
    planes = halves.view(np.uint8).reshape(-1, 2).T
    return {"code": "half", "exponent": exponent, "codes": _compress(planes.tobytes())}


def _encode_byte(values: np.ndarray) -> dict[str, Any]:
    low, high = float(np.nanmin(values, initial=math.inf)), float(np.nanmax(values, initial=-math.inf))
    if not low <= high:
        low, high = 0.0, 0.0
    codes = np.full(values.shape, 255, np.uint8)
    is_value = np.isfinite(values)
    codes[is_value] = np.rint((values[is_value] - low) * (254 / (high - low) if high > low else 0.0))
    return {"code": "byte", "low": low, "high": high, "codes": _compress(codes.tobytes())}


def _compress(data: bytes) -> str:
    return b64encode(zlib.compress(data, 6)).decode("ascii")


def _measure(packed: dict[str, Any]) -> int:
    return len(dump_json_for_script(packed))
