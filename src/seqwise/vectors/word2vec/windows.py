"""Sentences and context windows, the same for every objective. Importing this module imports numba."""

from __future__ import annotations

import numpy as np

from seqwise.vectors.jit import inline_njit
from seqwise.vectors.word2vec.random_draws import next_state, random_below, random_bits


@inline_njit
def read_sentence(block, position, keep, state, sentence):
    """Copies the next sentence of a block into `sentence`, without the occurrences that subsampling drops.

    Returns (position after the sentence, its length, random state). A sentence that fills the buffer is cut.
    """
    length = 0
    while position < len(block) and length < len(sentence):
        word = block[position]
        position += 1
        if word < 0:
            break
        state = next_state(state)
        if random_bits(state) <= keep[word]:
            sentence[length] = word
            length += 1
    return position, length, state


@inline_njit
def read_window(sentence, length, centre, window, state, width, neighbours):
    """Lists the words within 1 … `window` positions of the centre, each times `width`; the reach is drawn uniformly.

    Returns (number of neighbours, random state).
    """
    state = next_state(state)
    reach = window - random_below(random_bits(state), window)
    count = 0
    for position in range(max(0, centre - reach), min(length, centre + reach + 1)):
        if position != centre:
            neighbours[count] = np.int64(sentence[position]) * width
            count += 1
    return count, state
