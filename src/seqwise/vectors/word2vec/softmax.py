"""The full softmax: exact, for vocabularies small enough to afford it.

    loss of a pair = −log softmax(U h)_word = log Σ_w e^(U_w·h) − U_word·h    h: hidden vector, U: output rows

Every pair costs as much as there are words. The hidden vectors of a window are scored together, against one tile of
output rows after the other, so that a tile is read from memory once per window and pass. Gradients are taken at the
rows before the window. Importing this module imports numba.
"""

from __future__ import annotations

import math

import numpy as np

from seqwise.vectors.aligned_rows import LANES
from seqwise.vectors.jit import cached_njit, inline_njit
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.simd import (
    add,
    broadcast,
    constant,
    exponential,
    lane_max,
    lane_sum,
    load,
    maximum,
    multiply,
    store,
    subtract,
)
from seqwise.vectors.word2vec.hidden_layer import (
    apply_steps,
    compute_scores,
    fill_zeros,
    gather_hidden,
    scatter_updates,
)
from seqwise.vectors.word2vec.objective import Objective
from seqwise.vectors.word2vec.windows import read_sentence, read_window

BLOCK_WORK = 3_000_000  # words of a block times words of the vocabulary: some tenths of a second
TILE = 48  # output rows: 21 kB at 100 dimensions, within the first-level cache
MASKED_SCORE = -1e30  # of the unused lanes after the last word


@inline_njit
def softmax_steps(scores, start, stop, vocabulary_size, word, learning_rate):
    """Replaces the scores of one hidden vector by learning_rate · (1[word] − softmax); returns −log softmax_word.

    The largest score is subtracted first, so that no exponential is above 1.
    """
    for position in range(start + vocabulary_size, stop):
        scores[position] = MASKED_SCORE
    highest_lanes = load(scores, start)
    for position in range(start + LANES, stop, LANES):
        highest_lanes = maximum(highest_lanes, load(scores, position))
    highest = lane_max(highest_lanes)
    distance = highest - scores[start + word]
    sum_lanes = constant(0.0)
    for position in range(start, stop, LANES):
        exp = exponential(subtract(load(scores, position), broadcast(highest)))
        store(scores, position, exp)
        sum_lanes = add(sum_lanes, exp)
    normaliser = lane_sum(sum_lanes)
    weight = broadcast(-learning_rate / normaliser)
    for position in range(start, stop, LANES):
        store(scores, position, multiply(load(scores, position), weight))
    scores[start + word] += learning_rate
    return math.log(normaliser) + distance


@cached_njit
def train_block(block, state, learning_rate, model, tables, workspace, tally):
    """Trains on a block of sentences; adds (loss, pairs) to `tally`."""
    (targets,) = tables
    sentence, scores, stride, width = workspace.sentence, workspace.scores, workspace.stride, model.width
    position, loss, pairs, vocabulary_size = 0, 0.0, 0, len(targets)
    padded_size = (vocabulary_size + LANES - 1) // LANES * LANES
    while position < len(block):
        position, length, state = read_sentence(block, position, model.keep, state, sentence)
        for centre in range(length):
            count, state = read_window(sentence, length, centre, model.window, state, width, workspace.neighbours)
            if count == 0:
                continue
            num_hidden = gather_hidden(count, model, workspace)
            for start in range(0, vocabulary_size, TILE):
                compute_scores(num_hidden, targets, start, min(start + TILE, vocabulary_size), model, workspace)
            for i in range(num_hidden):
                start, word = i * stride, np.int64(sentence[centre])
                loss += softmax_steps(scores, start, start + padded_size, vocabulary_size, word, learning_rate)
            pairs += num_hidden
            fill_zeros(workspace.updates, num_hidden * width)
            for start in range(0, vocabulary_size, TILE):
                apply_steps(num_hidden, targets, start, min(start + TILE, vocabulary_size), model, workspace)
            scatter_updates(count, model, workspace)
    tally[0] += loss
    tally[1] += pairs


class FullSoftmax(Objective):
    """Skip-gram or CBOW with a softmax over the whole vocabulary."""

    train_block = staticmethod(train_block)

    def __init__(self, words: list[str], counts: np.ndarray, settings: ResolvedVectorSettings):
        super().__init__(words, counts, settings)
        self.block_size = max(50, min(self.block_size, BLOCK_WORK // len(counts)))
        self.tables = (np.arange(len(counts), dtype=np.int64) * self.inputs.shape[1],)
