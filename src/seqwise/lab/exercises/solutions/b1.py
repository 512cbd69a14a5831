"""Backpropagation through time of a vanilla RNN.

    h_t = tanh(W x_t + U h_(t-1) + b),  h_0 = 0          J = Σ_t ½ ‖h_t − y_t‖²

All steps share W, U and b, so a gradient is the sum over the steps (B1). Going backwards, the gradient that arrives at
h_t has two parts: its own loss, and what comes back from step t + 1 through U.
"""

import numpy as np


def forward(W, U, b, x):
    """Returns the states h_1 … h_T (T, units) for x (T, inputs)."""
    states, h = [], np.zeros(len(b))
    for x_t in x:
        h = np.tanh(W @ x_t + U @ h + b)
        states.append(h)
    return np.array(states)


def loss(W, U, b, x, y):
    """Returns J."""
    return 0.5 * np.sum((forward(W, U, b, x) - y) ** 2)


def solve(W, U, b, x, y):
    """Returns dJ/dW (units, inputs), dJ/dU (units, units) and dJ/db (units,)."""
    h = forward(W, U, b, x)
    dW, dU, db = np.zeros_like(W), np.zeros_like(U), np.zeros_like(b)
    from_later = np.zeros_like(b)  # the part of dJ/dh_t that comes back from step t + 1
    for t in reversed(range(len(x))):
        previous = h[t - 1] if t > 0 else np.zeros_like(b)
        dh = (h[t] - y[t]) + from_later  # blank: the gradient that arrives at h_t
        da = dh * (1 - h[t] ** 2)  # blank: back through the tanh
        dW += np.outer(da, x[t])  # blank: this step's part of dJ/dW
        dU += np.outer(da, previous)  # blank: this step's part of dJ/dU
        db += da
        from_later = U.T @ da  # blank: what step t sends back to h_(t-1)
    return dW, dU, db
