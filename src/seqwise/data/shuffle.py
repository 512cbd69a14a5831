"""Deterministic shuffling: permutations and offsets that are pure functions of (seed, epoch).

Nothing is stored, so a permutation of a billion windows costs no memory, any element of it can be computed alone, and
no version of a random number library can change it.
"""

from __future__ import annotations

import numpy as np

_ROUNDS = 6
_MASK = (1 << 64) - 1


def hash_integers(*numbers: int) -> int:
    """Returns 64 pseudo-random bits for some integers (the finaliser of SplitMix64, once per integer)."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = (state ^ number) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def mix_bits(values: np.ndarray) -> np.ndarray:
    """Returns 64 pseudo-random bits for each of an array of uint64 (the finaliser of SplitMix64)."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)


def permute_indices(indices: np.ndarray, count: int, *key: int) -> np.ndarray:
    """Returns the images of some indices under the permutation of 0 … count-1 that belongs to the key.

    A Feistel network permutes the numbers of 2 · `half_bits` bits; a result outside 0 … count-1 is permuted again until
    it is inside (cycle walking; Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
    """
    half_bits = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    keys = [np.uint64(hash_integers(*key, round_index)) for round_index in range(_ROUNDS)]
    values = _feistel(indices.astype(np.uint64), half_bits, keys)
    outside = np.flatnonzero(values >= count)
    while len(outside):
        values[outside] = _feistel(values[outside], half_bits, keys)
        outside = outside[values[outside] >= count]
    return values.astype(np.int64)


def permutation(count: int, *key: int) -> np.ndarray:
    """Returns 0 … count-1 in the shuffled order that belongs to the key: the inverse of `permute_indices`."""
    order = np.empty(count, dtype=np.int64)
    order[permute_indices(np.arange(count), count, *key)] = np.arange(count)
    return order


def _feistel(values: np.ndarray, half_bits: int, keys: list[np.uint64]) -> np.ndarray:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        mixed = (right ^ key) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0x94D049BB133111EB)
        left, right = right, left ^ (mixed >> np.uint64(29) & mask)
    return left << shift | right
