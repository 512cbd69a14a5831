"""Draws inside the compiled loops: random numbers, and words by their weight from the tables of `chances`.

Importing this imports numba.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.compiled import inlined


@inlined
def advance(state):
    """The next state of xorshift64* (Marsaglia 2003, Vigna 2016)."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state


@inlined
def upper(state):
    """32 random bits of a state, the better half."""
    return np.uint32((state * np.uint64(2685821657736338717)) >> np.uint64(32))


@inlined
def below(bits, bound):
    """32 random bits → a number 0 … bound-1."""
    return np.int64((np.uint64(bits) * np.uint64(bound)) >> np.uint64(32))


@inlined
def drawn(state, threshold, other):
    """A word by its weight; takes one state."""
    bits = state * np.uint64(2685821657736338717)
    slot = below(np.uint32(bits >> np.uint64(32)), len(threshold))
    # The lower bits of the product are weaker, but they only break a tie between two words.
    return slot if np.uint32(bits >> np.uint64(8)) <= threshold[slot] else np.int64(other[slot])
