"""The derivative of one GRU step with respect to the old state, where the reset gate acts after the product.

    h' = z ⊙ h + (1 − z) ⊙ n,   n = tanh(x_n + r ⊙ u_n),   u = U h

h' depends on h directly, through the update gate, through the candidate's product, and through the reset gate.
Matrices are stacked in the order r, z, n; x is the part of the input, W x + b, already computed.
"""

import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def step(U, x, h):
    """Returns h' (units,) for x (3·units,)."""
    (x_r, x_z, x_n), (u_r, u_z, u_n) = np.split(x, 3), np.split(U @ h, 3)
    r, z = sigmoid(x_r + u_r), sigmoid(x_z + u_z)
    return z * h + (1 - z) * np.tanh(x_n + r * u_n)


def solve(U, x, h):
    """Returns ∂h'/∂h (units, units): entry (j, k) is the derivative of h'_j."""
    (x_r, x_z, x_n), (u_r, u_z, u_n) = np.split(x, 3), np.split(U @ h, 3)
    U_r, U_z, U_n = np.split(U, 3)
    r, z = sigmoid(x_r + u_r), sigmoid(x_z + u_z)
    n = np.tanh(x_n + r * u_n)
    direct = np.diag(z)  # blank: the direct path
    through_z = ((h - n) * z * (1 - z))[:, None] * U_z  # blank: the path through the update gate
    through_n = ((1 - z) * (1 - n**2) * r)[:, None] * U_n  # blank: the path through the candidate's product
    through_r = ((1 - z) * (1 - n**2) * u_n * r * (1 - r))[:, None] * U_r  # blank: the path through the reset gate
    return direct + through_z + through_n + through_r
