"""Attention with a causal mask and padding.

Query t may attend to the keys 0 … t, and only to the first `length` keys, since the others are padding. A score that
is not allowed becomes −∞ before the softmax, so that its weight is exactly 0 and the others still sum to 1.
"""

import numpy as np


def solve(scores, length):
    """Returns the weights (T, T) for scores (T, T): row t are the weights of query t."""
    time = len(scores)
    query, key = np.arange(time)[:, None], np.arange(time)[None, :]
    allowed = (key <= query) & (key < length)  # blank: True where query t may attend to the key
    masked = np.where(allowed, scores, -np.inf)  # blank: scores that are not allowed count nothing in the softmax
    exponentials = np.exp(masked - masked.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)
