"""Nearest-neighbour search among the rows of a matrix. It knows nothing of words.

Scores are divided by the norms of the rows: a normalised copy of the matrix would double the memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

# Added to the divisor of 3CosMul. Levy and Goldberg (2014) take 1e-3; gensim, whose answers ours should equal, 1e-6.
EPSILON = 1e-6
BLOCK_NUMBERS = 1 << 22  # numbers converted or checked at once


def row_norms(matrix: np.ndarray) -> np.ndarray:
    """Returns the Euclidean norm of every row; 1 for a row of zeros, whose cosine to anything is then 0.

    In double precision, block by block: in single the square of 1e25 is infinite and that of 1e-25 is 0.
    """
    norms = np.empty(len(matrix))
    for rows in iterate_row_blocks(*matrix.shape):
        block = matrix[rows].astype(np.float64)
        norms[rows] = np.sqrt(np.einsum("ij,ij->i", block, block))
    norms[norms == 0] = 1
    return norms


def vector_norm(vector: np.ndarray) -> float:
    """Returns the Euclidean norm."""
    return float(np.linalg.norm(vector.astype(np.float64)))


def normalize(vector: np.ndarray) -> np.ndarray:
    """Returns the vector divided by its norm; zeros stay zeros."""
    return (vector / (vector_norm(vector) or 1.0)).astype(np.float32)


def shift_cosines(cosine: np.ndarray) -> np.ndarray:
    """Maps cosines from [-1, 1] to [0, 1]: 3CosMul multiplies and divides, which needs one sign."""
    return (1 + cosine) / 2


def find_top_rows(scores: np.ndarray, n: int, exclude: Collection[int] = ()) -> np.ndarray:
    """Returns the indices of the n largest scores, largest first; among equal scores the earlier row comes first."""
    count = min(n + len(exclude), len(scores))
    if count < len(scores):
        threshold = np.partition(scores, len(scores) - count)[len(scores) - count]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    return order[~np.isin(order, list(exclude))][:n]


def iterate_row_blocks(rows: int, width: int, block_numbers: int = BLOCK_NUMBERS) -> Iterator[slice]:
    """Yields slices of rows with about `block_numbers` numbers each."""
    step = max(1, block_numbers // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def find_nonfinite_row(matrix: np.ndarray) -> int | None:
    """Returns the index of the first row with an infinite number or nan."""
    for rows in iterate_row_blocks(*matrix.shape):
        is_finite = np.isfinite(matrix[rows]).all(axis=1)
        if not is_finite.all():
            return rows.start + int(np.argmin(is_finite))
    return None
