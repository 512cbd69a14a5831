"""What chance decides in word2vec, as tables made beforehand: which words are kept, which are drawn as negatives.

The loops draw from them (`draws`). Each block of text has a random state of its own, a function of seed, epoch and the
block's number, so that what is drawn does not depend on how many threads there are. Nothing here imports numba.
"""

from __future__ import annotations

import numpy as np

POWER = 0.75  # negatives are drawn by count to this power (Mikolov et al. 2013b, section 2.2)
WHOLE = 2**32 - 1


def keep_below(counts: np.ndarray, subsample: float) -> np.ndarray:
    """Per word the 32-bit number up to which a draw keeps an occurrence; frequent words are kept less often.

    The share kept is √(t/f) + t/f for a word of frequency f, at most 1, as the word2vec program has it (the paper has
    the first term alone). With subsample 0 every word is kept.
    """
    if not subsample:
        return np.full(len(counts), WHOLE, dtype=np.uint32)
    ratio = subsample * counts.sum() / counts
    return (np.minimum(1.0, np.sqrt(ratio) + ratio) * WHOLE).astype(np.uint32)


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two small arrays from which a word is drawn by its weight in constant time (Walker 1977, Vose 1991).

    Each of V equal slots belongs to one word up to a threshold and to another beyond it.
    """
    share = weights * (len(weights) / weights.sum())
    other = np.arange(len(share), dtype=np.int32)
    # Two piles of slots in arrays: lists of numbers would take ten times the memory of the result.
    rich = np.flatnonzero(share >= 1).astype(np.int32)
    poor, poors, riches = np.empty_like(other), len(share) - len(rich), len(rich)
    poor[:poors] = np.flatnonzero(share < 1)
    while poors and riches:
        slot, giver = poor[poors - 1], rich[riches - 1]
        other[slot] = giver
        share[giver] -= 1 - share[slot]
        if share[giver] < 1:
            poor[poors - 1] = giver
            riches -= 1
        else:
            poors -= 1
    share[poor[:poors]] = share[rich[:riches]] = 1  # what is left was 1 but for rounding
    return (np.minimum(share, 1) * WHOLE).astype(np.uint32), other


def block_state(seed: int, epoch: int, block: int) -> np.uint64:
    """The random state that a block begins with; never zero."""
    return np.random.SeedSequence([seed, epoch, block]).generate_state(1, np.uint64)[0] | np.uint64(1)
