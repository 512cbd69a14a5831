"""Rows of floats for the compiled loops: padded to whole SIMD registers, each aligned to a cache line.

This module knows nothing of the loops and does not import numba.
"""

from __future__ import annotations

import numpy as np

LANES = 16  # floats in one SIMD value
CACHE_LINE = 64  # bytes, which is also the size of one SIMD value
CHUNK_ROWS = 4096  # rows initialised or moved at once, which bounds the memory for temporary arrays


def pad_width(width: int) -> int:
    """Returns the next multiple of `LANES`."""
    return -(-width // LANES) * LANES


def allocate_rows(rows: int, width: int) -> np.ndarray:
    """Returns zeros of shape (rows, padded width); each row starts at a cache line."""
    width = pad_width(width)
    buffer = np.zeros(rows * width + LANES, dtype=np.float32)
    start = (-buffer.ctypes.data // 4) % LANES
    return buffer[start : start + rows * width].reshape(rows, width)


def build_lane_masks() -> np.ndarray:
    """Returns a flat (17, 16) table: row n has n ones and then zeros, to mask the unused lanes of a SIMD value."""
    masks = allocate_rows(LANES + 1, LANES)
    for count in range(LANES + 1):
        masks[count, :count] = 1
    return masks.reshape(-1)


def fill_uniform(rows: np.ndarray, random: np.random.Generator) -> None:
    """Fills rows (N, D) with uniform values in ±1/2 divided by D, the initialisation of word2vec and GloVe."""
    for start in range(0, len(rows), CHUNK_ROWS):
        part = rows[start : start + CHUNK_ROWS]
        part[:] = (random.random(part.shape, dtype=np.float32) - 0.5) / rows.shape[1]


def remove_padding(matrix: np.ndarray, width: int) -> np.ndarray:
    """Returns the first `width` columns as a contiguous matrix in the same memory; overwrites `matrix`."""
    rows, flat = len(matrix), matrix.reshape(-1)
    for start in range(0, rows if width < matrix.shape[1] else 0, CHUNK_ROWS):
        part = matrix[start : start + CHUNK_ROWS, :width].copy()
        flat[start * width : start * width + part.size] = part.reshape(-1)
    return flat[: rows * width].reshape(rows, width)
