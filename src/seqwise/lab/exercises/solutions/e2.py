"""One step of a GRU, in both conventions of the update gate.

    r, z = σ(…)   n = tanh(W_n x + b_n + r ⊙ (U_n h + c_n))

PyTorch and Keras keep the state where z is near 1; the other convention replaces it there (E2). Matrices are stacked
in the order r, z, n; c_n is the second bias of the candidate.
"""

import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def solve(W, U, b, c_n, x, h):
    """Returns the new state where z keeps, and the new state where z replaces, each (units,)."""
    x_r, x_z, x_n = np.split(W @ x + b, 3)
    u_r, u_z, u_n = np.split(U @ h, 3)
    r = sigmoid(x_r + u_r)  # blank: the reset gate
    z = sigmoid(x_z + u_z)  # blank: the update gate
    n = np.tanh(x_n + r * (u_n + c_n))  # blank: the candidate
    keeps = z * h + (1 - z) * n  # blank: z near 1 keeps h
    replaces = (1 - z) * h + z * n  # blank: z near 1 replaces h
    return keeps, replaces
