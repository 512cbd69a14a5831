"""One step of GloVe, compiled. It knows nothing of files, epochs or threads.

A word's four rows lie together, because a step needs them together: the vector w, the context vector w̃ and, for
AdaGrad, the squares of their gradients so far. A row is wider than the vector:

    w = (w₁ … w_D, bias, 1, 0 …)        w̃ = (w̃₁ … w̃_D, 1, bias, 0 …)

so one product of two rows is w·w̃ + b + b̃, and whole rows are a multiple of 16 floats, which suits the vector units.
Importing this module imports numba; do so when the work starts.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.compiled import compiled, inlined
from seqwise.vectors.simd import LANES, fetch

AHEAD = 4  # entries between fetching rows and using them; 2 to 8 measured alike


@inlined
def step(w, c, squares_w, squares_c, log_count, weight, rate, dim):
    """One AdaGrad step on f · (w·w̃ + b + b̃ − log X)²; returns that term as it was before."""
    product = np.float32(0)
    for k in range(len(w)):
        product += w[k] * c[k]
    error = product - log_count
    pull = weight * error
    for k in range(len(w)):
        slope_w, slope_c = pull * c[k], pull * w[k]
        squares_w[k] += slope_w * slope_w
        squares_c[k] += slope_c * slope_c
        w[k] -= rate * slope_w / np.sqrt(squares_w[k])
        c[k] -= rate * slope_c / np.sqrt(squares_c[k])
    w[dim + 1] = 1  # the ones that carry the other side's bias are no parameters
    c[dim] = 1
    return pull * error


@compiled(fastmath=True)
def descend(rows, first, second, log_counts, weights, rate, dim):
    """A step for (i, j) and one for (j, i) of each entry; returns the sum of the terms. `rows` is (V, 4, width)."""
    loss, last = 0.0, len(first) - 1
    flat, size = rows.reshape(-1), rows.shape[1] * rows.shape[2]
    for at in range(len(first)):
        later = min(at + AHEAD, last)
        for line in range(0, size, LANES):
            fetch(flat, np.int64(first[later]) * size + line)
            fetch(flat, np.int64(second[later]) * size + line)
        i, j = first[at], second[at]
        log_count, weight = log_counts[at], weights[at]
        loss += step(rows[i, 0], rows[j, 1], rows[i, 2], rows[j, 3], log_count, weight, rate, dim)
        if i != j:
            loss += step(rows[j, 0], rows[i, 1], rows[j, 2], rows[i, 3], log_count, weight, rate, dim)
    return loss
