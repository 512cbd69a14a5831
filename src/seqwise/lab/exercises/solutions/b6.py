"""The gradient of the softmax cross-entropy of a sequence.

    p_t = softmax(z_t)          J = −Σ_t log p_t[y_t]

The loss of a sequence is the sum of its steps' losses (B6), so row t of dJ/dz depends on step t alone.
"""

import numpy as np


def loss(z, y):
    """Returns J for scores z (T, V) and classes y (T,)."""
    shifted = z - z.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -sum(log_p[t, int(y[t])] for t in range(len(z)))


def solve(z, y):
    """Returns dJ/dz (T, V)."""
    exponentials = np.exp(z - z.max(axis=1, keepdims=True))
    p = exponentials / exponentials.sum(axis=1, keepdims=True)  # blank: the softmax of each row
    target = np.eye(z.shape[1])[y.astype(int)]  # one-hot rows (T, V)
    return p - target  # blank: the gradient
