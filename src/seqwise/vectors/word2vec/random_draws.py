"""Random numbers inside the compiled loops, and words drawn by weight. Importing this module imports numba."""

from __future__ import annotations

import numpy as np

from seqwise.vectors.jit import inline_njit

MULTIPLIER = 2685821657736338717  # of xorshift64*


@inline_njit
def next_state(state):
    """Returns the next state of xorshift64* (Marsaglia 2003, Vigna 2016)."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state


@inline_njit
def random_bits(state):
    """Returns 32 random bits of a state: the upper half of the product, which has the better quality."""
    return np.uint32((state * np.uint64(MULTIPLIER)) >> np.uint64(32))


@inline_njit
def random_below(bits, bound):
    """Maps 32 random bits to an integer in 0 … bound-1."""
    return np.int64((np.uint64(bits) * np.uint64(bound)) >> np.uint64(32))


@inline_njit
def draw_word(state, alias_table):
    """Returns a word drawn by its weight; uses one state."""
    bits = state * np.uint64(MULTIPLIER)
    slot = random_below(np.uint32(bits >> np.uint64(32)), len(alias_table.threshold))
    # The lower bits of the product are of lower quality, but they only choose between the two words of a slot.
    keep_slot = np.uint32(bits >> np.uint64(8)) <= alias_table.threshold[slot]
    return slot if keep_slot else np.int64(alias_table.alias[slot])
