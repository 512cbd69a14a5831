"""Sinusoidal position encodings (Vaswani et al. 2017, section 3.5).

P[t, 2i] = sin(t / 10000^(2i/D))          P[t, 2i+1] = cos(t / 10000^(2i/D))
"""

import numpy as np


def solve(length, width):
    """Returns the encodings P (length, width); width is even."""
    position = np.arange(length)[:, None]
    pair = np.arange(width // 2)[None, :]
    angle = position / 10000 ** (2 * pair / width)  # blank: the angle of each pair (length, width / 2)
    P = np.zeros((length, width))
    P[:, 0::2] = np.sin(angle)  # blank: the even columns
    P[:, 1::2] = np.cos(angle)  # blank: the odd columns
    return P
