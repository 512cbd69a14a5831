"""Sentences and windows, for every objective alike. Importing this imports numba."""

from __future__ import annotations

import numpy as np

from seqwise.vectors.compiled import inlined
from seqwise.vectors.word2vec.draws import advance, below, upper


@inlined
def read_sentence(block, place, keep, state, sentence):
    """The next sentence of a block without the occurrences that subsampling drops.

    Returns (the place behind it, its length, the random state). A sentence that fills the buffer is cut.
    """
    length = 0
    while place < len(block) and length < len(sentence):
        word = block[place]
        place += 1
        if word < 0:
            break
        state = advance(state)
        if upper(state) <= keep[word]:
            sentence[length] = word
            length += 1
    return place, length, state


@inlined
def read_window(sentence, length, centre, window, state, width, rows):
    """The rows (word · width) of the words within 1 … `window` places of the centre, the reach drawn evenly.

    Returns (how many there are, the random state).
    """
    state = advance(state)
    reach = window - below(upper(state), window)
    count = 0
    for place in range(max(0, centre - reach), min(length, centre + reach + 1)):
        if place != centre:
            rows[count] = np.int64(sentence[place]) * width
            count += 1
    return count, state
