"""The derivative of one LSTM step with respect to the old cell and the old state.

    c' = f ⊙ c + i ⊙ g,   with i, f = σ(…), g = tanh(…) of W_• x + U_• h + b_•

On the direct path ∂c'/∂c = diag(f) (D5). But the gates read h, so c' also depends on h: through f, through i and
through g. Matrices are stacked in the order i, f, g, o.
"""

import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def compute_cell(W, U, b, x, h, c):
    """Returns c' (units,)."""
    a_i, a_f, a_g, _ = np.split(W @ x + U @ h + b, 4)
    return sigmoid(a_f) * c + sigmoid(a_i) * np.tanh(a_g)


def solve(W, U, b, x, h, c):
    """Returns ∂c'/∂c and ∂c'/∂h, each (units, units): entry (j, k) is the derivative of c'_j."""
    a_i, a_f, a_g, _ = np.split(W @ x + U @ h + b, 4)
    U_i, U_f, U_g, _ = np.split(U, 4)
    i, f, g = sigmoid(a_i), sigmoid(a_f), np.tanh(a_g)
    dc_dc = np.diag(f)  # blank: the direct path
    through_f = (c * f * (1 - f))[:, None] * U_f  # blank: the path through the forget gate
    through_i = (g * i * (1 - i))[:, None] * U_i  # blank: the path through the input gate
    through_g = (i * (1 - g**2))[:, None] * U_g  # blank: the path through the candidate
    return dc_dc, through_f + through_i + through_g
