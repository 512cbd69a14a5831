"""Chance as arithmetic: a shuffle and an offset that are pure functions of (seed, epoch).

Nothing is stored, so a permutation of a billion windows costs no memory, any place of it can be looked up at once, and
no version of a random number library can change it.
"""

from __future__ import annotations

import numpy as np

_ROUNDS = 6
_MASK = (1 << 64) - 1


def hash_integers(*numbers: int) -> int:
    """64 well-stirred bits from some numbers (the finaliser of SplitMix64, once per number)."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = (state ^ number) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def permute_indices(places: np.ndarray, count: int, *key: int) -> np.ndarray:
    """Where the given places of 0 … count-1 go in the permutation that belongs to the key.

    A Feistel network permutes the numbers of 2b bits; a result outside 0 … count-1 is sent through again until it is
    inside (cycle walking; Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
    """
    half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    keys = [np.uint64(hash_integers(*key, turn)) for turn in range(_ROUNDS)]
    values = places.astype(np.uint64)
    values = _feistel(values, half, keys)
    outside = np.flatnonzero(values >= count)
    while len(outside):
        values[outside] = _feistel(values[outside], half, keys)
        outside = outside[values[outside] >= count]
    return values.astype(np.int64)


def _feistel(values: np.ndarray, half: int, keys: list[np.uint64]) -> np.ndarray:
    bits, low = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> bits, values & low
    for key in keys:
        stirred = (right ^ key) * np.uint64(0xBF58476D1CE4E5B9)
        stirred = (stirred ^ stirred >> np.uint64(32)) * np.uint64(0x94D049BB133111EB)
        left, right = right, left ^ (stirred >> np.uint64(29) & low)
    return left << bits | right
