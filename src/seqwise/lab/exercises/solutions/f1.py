"""Scaled dot-product attention.

    A = softmax(Q Kᵀ / √d)          context = A V

Row t of A are the weights of query t over all keys; they are positive and sum to 1.
"""

import numpy as np


def solve(Q, K, V):
    """Returns the context (T, d_v) and the weights A (T, S) for Q (T, d), K (S, d) and V (S, d_v)."""
    scores = Q @ K.T / np.sqrt(Q.shape[1])  # blank: the scaled scores (T, S)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    A = exponentials / exponentials.sum(axis=1, keepdims=True)  # blank: each row sums to 1
    context = A @ V  # blank: the weighted mean of the values
    return context, A
