"""Clipping a gradient by its norm and by value.

By norm: a gradient longer than the threshold is scaled down to it; a shorter one stays as it is. By value: each entry
is limited to ± the threshold. Only the first keeps the direction (C6).
"""

import numpy as np


def solve(gradient, threshold):
    """Returns the gradient (n,) clipped by norm, and clipped by value."""
    norm = np.sqrt(np.sum(gradient**2))
    by_norm = gradient * min(1.0, threshold / norm)  # blank: scaled to the threshold if it is longer
    by_value = np.clip(gradient, -threshold, threshold)  # blank: each entry limited
    return by_norm, by_value
