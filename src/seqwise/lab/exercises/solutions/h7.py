"""The gradient of skip-gram with negative sampling for one pair of words.

    J = −log σ(u_o · v) − Σ_k log σ(−u_k · v)

v is the vector of the centre word, u_o that of a word of its context, u_k those of words drawn at random. The cost
depends on the number of negatives, not on the size of the vocabulary (H7).
"""

import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def loss(v, u_o, u_k):
    """Returns J for v (D,), u_o (D,) and u_k (negatives, D)."""
    return -np.log(sigmoid(u_o @ v)) - np.sum(np.log(sigmoid(-u_k @ v)))


def solve(v, u_o, u_k):
    """Returns dJ/dv (D,), dJ/du_o (D,) and dJ/du_k (negatives, D)."""
    error_o = sigmoid(u_o @ v) - 1  # blank: predicted minus wanted, for the word of the context
    error_k = sigmoid(u_k @ v)  # blank: predicted minus wanted, for each negative (negatives,)
    dv = error_o * u_o + error_k @ u_k  # blank: both parts of the gradient of v
    du_o = error_o * v  # blank: the gradient of u_o
    du_k = np.outer(error_k, v)  # blank: the gradient of each u_k
    return dv, du_o, du_k
