"""Rows of a matrix near to a vector. It knows nothing of words.

Rows are divided by their lengths where they are used: a copy of all rows at length 1 would double the memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

# Added to the divisor of 3CosMul. Levy and Goldberg (2014) take 1e-3; gensim, whose answers ours should equal, 1e-6.
EPSILON = 1e-6
CHECKED = 1 << 22  # numbers looked at together


def lengths(matrix: np.ndarray) -> np.ndarray:
    """The Euclidean length of every row; 1 for a row of zeros, whose cosine to anything is then 0.

    In double precision, block by block: in single the square of 1e25 is infinite and that of 1e-25 is 0.
    """
    found = np.empty(len(matrix))
    for rows in row_blocks(*matrix.shape):
        block = matrix[rows].astype(np.float64)
        found[rows] = np.sqrt(np.einsum("ij,ij->i", block, block))
    found[found == 0] = 1
    return found


def length(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def unit(vector: np.ndarray) -> np.ndarray:
    """The vector at length 1; zeros stay zeros."""
    return (vector / (length(vector) or 1.0)).astype(np.float32)


def shifted(cosine: np.ndarray) -> np.ndarray:
    """Cosines moved from [-1, 1] to [0, 1]: 3CosMul multiplies and divides, which needs one sign."""
    return (1 + cosine) / 2


def top(scores: np.ndarray, n: int, without: Collection[int] = ()) -> np.ndarray:
    """The numbers of the n largest scores, largest first; of equal ones the earlier row, which is the more frequent."""
    taken = min(n + len(without), len(scores))
    if taken < len(scores):
        border = np.partition(scores, len(scores) - taken)[len(scores) - taken]
        candidates = np.flatnonzero(scores >= border)
    else:
        candidates = np.arange(len(scores))
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    return order[~np.isin(order, list(without))][:n]


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Slices of rows with about CHECKED numbers each."""
    step = max(1, CHECKED // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def first_unusable(matrix: np.ndarray) -> int | None:
    """The first row with a number that is infinite or none."""
    for rows in row_blocks(*matrix.shape):
        good = np.isfinite(matrix[rows]).all(axis=1)
        if not good.all():
            return rows.start + int(np.argmin(good))
    return None
