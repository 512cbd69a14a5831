"""Tables for random choices: which occurrences subsampling keeps, and which words are drawn as negatives.

The compiled loops and the GPU kernel draw from these tables. Each block of text has its own random state, a function of
seed, epoch and the index of the block, so that the draws do not depend on the number of threads. Nothing here imports
numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NEGATIVE_POWER = 0.75  # negatives are drawn by count to this power (Mikolov et al. 2013b, section 2.2)
UINT32_MAX = 2**32 - 1


class AliasTable(NamedTuple):
    """Slot i yields word i if a random 32-bit number is at most `threshold[i]`, otherwise word `alias[i]`."""

    threshold: np.ndarray  # (V,) uint32
    alias: np.ndarray  # (V,) int32


def compute_keep_thresholds(counts: np.ndarray, subsample: float) -> np.ndarray:
    """Returns for each word the 32-bit random number up to which subsampling keeps an occurrence.

    A word of frequency f is kept with probability √(t/f) + t/f, at most 1, as in the word2vec program (the paper has
    the first term alone): frequent words are kept less often. With subsample t = 0 every word is kept.
    """
    if not subsample:
        return np.full(len(counts), UINT32_MAX, dtype=np.uint32)
    ratio = subsample * counts.sum() / counts
    return (np.minimum(1.0, np.sqrt(ratio) + ratio) * UINT32_MAX).astype(np.uint32)


def build_negative_table(counts: np.ndarray) -> AliasTable:
    """Returns the table from which negatives are drawn."""
    return build_alias_table(counts.astype(np.float64) ** NEGATIVE_POWER)


def build_alias_table(weights: np.ndarray) -> AliasTable:
    """Returns a table that draws an index by its weight in constant time (Walker 1977, Vose 1991)."""
    share = weights * (len(weights) / weights.sum())
    alias = np.arange(len(share), dtype=np.int32)
    # Two stacks of slots, in arrays: Python lists would take ten times the memory of the result.
    large = np.flatnonzero(share >= 1).astype(np.int32)
    small = np.empty_like(alias)
    num_large, num_small = len(large), len(share) - len(large)
    small[:num_small] = np.flatnonzero(share < 1)
    while num_small and num_large:
        slot, donor = small[num_small - 1], large[num_large - 1]
        alias[slot] = donor
        share[donor] -= 1 - share[slot]
        if share[donor] < 1:
            small[num_small - 1] = donor
            num_large -= 1
        else:
            num_small -= 1
    share[small[:num_small]] = share[large[:num_large]] = 1  # these differ from 1 by rounding only
    return AliasTable((np.minimum(share, 1) * UINT32_MAX).astype(np.uint32), alias)


def seed_block(seed: int, epoch: int, block_index: int) -> np.uint64:
    """Returns the random state with which a block starts; never zero."""
    return np.random.SeedSequence([seed, epoch, block_index]).generate_state(1, np.uint64)[0] | np.uint64(1)
