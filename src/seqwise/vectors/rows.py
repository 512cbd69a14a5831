"""Rows of floats as the compiled loops want them: padded to whole registers, each at the start of a line of memory.

It knows nothing of the loops. Nothing here imports numba.
"""

from __future__ import annotations

import numpy as np

LANES = 16  # floats that a loop takes at once
LINE = 64  # bytes: a row of lanes, and what memory delivers at once
SPAN = 4096  # rows moved at once


def padded(width: int) -> int:
    """The next multiple of the lanes."""
    return -(-width // LANES) * LANES


def aligned(rows: int, width: int) -> np.ndarray:
    """(rows, padded width) zeros, each row at the start of a line of memory."""
    width = padded(width)
    raw = np.zeros(rows * width + LANES, dtype=np.float32)
    start = (-raw.ctypes.data // 4) % LANES
    return raw[start : start + rows * width].reshape(rows, width)


def real_lanes() -> np.ndarray:
    """Flat (17, 16): line n has n ones and then zeros, to tell the lanes that are in use from the rest."""
    table = aligned(LANES + 1, LANES)
    for number in range(LANES + 1):
        table[number, :number] = 1
    return table.reshape(-1)


def closed_up(matrix: np.ndarray, width: int) -> np.ndarray:
    """(rows, width) in the same memory, without the padding; the matrix is not to be used any more."""
    rows, flat = len(matrix), matrix.reshape(-1)
    for start in range(0, rows if width < matrix.shape[1] else 0, SPAN):
        part = matrix[start : start + SPAN, :width].copy()
        flat[start * width : start * width + part.size] = part.reshape(-1)
    return flat[: rows * width].reshape(rows, width)
