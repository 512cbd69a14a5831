"""Backpropagation through time of an LSTM: the gradient of the candidate's matrices, dJ/dW_g and dJ/dU_g.

    c_t = f_t ⊙ c_(t-1) + i_t ⊙ g_t,   h_t = o_t ⊙ tanh(c_t)          J = Σ_t ½ ‖h_t − y_t‖²

Backwards through time two gradients arrive at step t: at h_t, from its own loss and from the four parts of step t + 1,
which all read h_t; and at c_t, from h_t and, by the forget gate, from c_(t+1). Matrices are stacked in the order
i, f, g, o.
"""

import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def forward(W, U, b, x):
    """Returns the gates, cells and states of all steps: i, f, g, o, c, h, each (T, units)."""
    units = len(b) // 4
    h, c, steps = np.zeros(units), np.zeros(units), []
    for x_t in x:
        a_i, a_f, a_g, a_o = np.split(W @ x_t + U @ h + b, 4)
        i, f, g, o = sigmoid(a_i), sigmoid(a_f), np.tanh(a_g), sigmoid(a_o)
        c = f * c + i * g
        h = o * np.tanh(c)
        steps.append((i, f, g, o, c, h))
    return (np.array(values) for values in zip(*steps))


def loss(W, U, b, x, y):
    """Returns J."""
    *_, h = forward(W, U, b, x)
    return 0.5 * np.sum((h - y) ** 2)


def solve(W, U, b, x, y):
    """Returns dJ/dW_g (units, inputs) and dJ/dU_g (units, units)."""
    i, f, g, o, c, h = forward(W, U, b, x)
    units = h.shape[1]
    dW_g, dU_g = np.zeros((units, x.shape[1])), np.zeros((units, units))
    dh_later, dc_later = np.zeros(units), np.zeros(units)  # what comes back from step t + 1
    for t in reversed(range(len(x))):
        c_before = c[t - 1] if t > 0 else np.zeros(units)
        h_before = h[t - 1] if t > 0 else np.zeros(units)
        dh = (h[t] - y[t]) + dh_later  # blank: the gradient that arrives at h_t
        dc = dh * o[t] * (1 - np.tanh(c[t]) ** 2) + dc_later  # blank: the gradient that arrives at c_t
        da_i = dc * g[t] * i[t] * (1 - i[t])  # blank: back through the input gate
        da_f = dc * c_before * f[t] * (1 - f[t])  # blank: back through the forget gate
        da_g = dc * i[t] * (1 - g[t] ** 2)  # blank: back through the candidate
        da_o = dh * np.tanh(c[t]) * o[t] * (1 - o[t])  # blank: back through the output gate
        dW_g += np.outer(da_g, x[t])
        dU_g += np.outer(da_g, h_before)
        dh_later = U.T @ np.concatenate([da_i, da_f, da_g, da_o])  # blank: what step t sends back to h_(t-1)
        dc_later = dc * f[t]  # blank: what step t sends back to c_(t-1)
    return dW_g, dU_g
