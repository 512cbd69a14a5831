"""AdaGrad steps on the loss of GloVe, compiled. This module knows nothing of files, epochs or threads.

The four rows of a word are adjacent in memory, because a step needs them together: the vector w, the context vector w̃
and, for AdaGrad, the sums of their squared gradients. A row is wider than the vector:

    w = (w₁ … w_D, bias, 1, 0 …)        w̃ = (w̃₁ … w̃_D, 1, bias, 0 …)

so that one product of two rows is w·w̃ + b + b̃; its width is a multiple of 16 floats, for SIMD instructions. Importing
this module imports numba.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.aligned_rows import LANES
from seqwise.vectors.jit import cached_njit, inline_njit
from seqwise.vectors.simd import prefetch

PREFETCH_DISTANCE = 4  # pairs between prefetching rows and using them; 2 to 8 measured alike


@inline_njit
def update_pair(w, c, squares_w, squares_c, log_count, weight, learning_rate, dim):
    """Takes one AdaGrad step on f · (w·w̃ + b + b̃ − log X)²; returns this term before the step."""
    product = np.float32(0)
    for k in range(len(w)):
        product += w[k] * c[k]
    error = product - log_count
    weighted_error = weight * error
    for k in range(len(w)):
        grad_w, grad_c = weighted_error * c[k], weighted_error * w[k]
        squares_w[k] += grad_w * grad_w
        squares_c[k] += grad_c * grad_c
        w[k] -= learning_rate * grad_w / np.sqrt(squares_w[k])
        c[k] -= learning_rate * grad_c / np.sqrt(squares_c[k])
    w[dim + 1] = 1  # the ones next to the biases are constants, not parameters
    c[dim] = 1
    return weighted_error * error


@cached_njit(fastmath=True)
def update_pairs(rows, first, second, log_counts, weights, learning_rate, dim):
    """Takes a step for (i, j) and one for (j, i) of each pair; returns the sum of their terms. rows: (V, 4, width)."""
    loss, last = 0.0, len(first) - 1
    flat, size = rows.reshape(-1), rows.shape[1] * rows.shape[2]
    for index in range(len(first)):
        upcoming = min(index + PREFETCH_DISTANCE, last)
        for offset in range(0, size, LANES):
            prefetch(flat, np.int64(first[upcoming]) * size + offset)
            prefetch(flat, np.int64(second[upcoming]) * size + offset)
        i, j = first[index], second[index]
        log_count, weight = log_counts[index], weights[index]
        loss += update_pair(rows[i, 0], rows[j, 1], rows[i, 2], rows[j, 3], log_count, weight, learning_rate, dim)
        if i != j:
            loss += update_pair(rows[j, 0], rows[i, 1], rows[j, 2], rows[i, 3], log_count, weight, learning_rate, dim)
    return loss
