"""One step of an LSTM.

    i, f, o = σ(…)   g = tanh(…)          each of W_• x + U_• h + b_•
    c' = f ⊙ c + i ⊙ g                    h' = o ⊙ tanh(c')

The matrices of the four parts are stacked in the order i, f, g, o, as in PyTorch: W (4·units, inputs),
U (4·units, units), b (4·units,).
"""

import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def solve(W, U, b, x, h, c):
    """Returns the new state h' and the new cell c', each (units,)."""
    a_i, a_f, a_g, a_o = np.split(W @ x + U @ h + b, 4)
    i = sigmoid(a_i)  # blank: the input gate
    f = sigmoid(a_f)  # blank: the forget gate
    g = np.tanh(a_g)  # blank: the candidate
    o = sigmoid(a_o)  # blank: the output gate
    c = f * c + i * g  # blank: the new cell
    h = o * np.tanh(c)  # blank: the new state
    return h, c
