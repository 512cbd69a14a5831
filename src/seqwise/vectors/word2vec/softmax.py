"""The full softmax: the loss that negative sampling and the tree avoid, for vocabularies small enough to afford it.

    loss of a pair = −log softmax(U h)_word = log Σ_w e^(U_w·h) − U_word·h    h: input row or their mean; U: outputs

Every pair costs as much as there are words. The neighbours of a window are scored together, against one tile of outputs
after the other, so that a tile is read from memory once per window and pass. Gradients are taken at the rows as they
were before the window. Threads share the rows without locks. Importing this imports numba.
"""

from __future__ import annotations

import math

import numpy as np

from seqwise.vectors.compiled import compiled, inlined
from seqwise.vectors.rows import LANES, aligned, padded
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.simd import (
    add,
    constant,
    exponential,
    larger,
    load,
    multiply,
    spread,
    store,
    subtract,
    total,
)
from seqwise.vectors.word2vec.chances import keep_below
from seqwise.vectors.word2vec.hidden import clear, descend, gather, scatter, score
from seqwise.vectors.word2vec.objective import LONGEST, Objective, new_inputs
from seqwise.vectors.word2vec.windows import read_sentence, read_window

WORK = 3_000_000  # items times words of a block
TILE = 48  # rows of outputs: 21 kB at 100 dimensions, within the first cache
NOTHING = -1e30  # the score of a place that is no word


@inlined
def normalise(scores, begin, stop, vocabulary, word, rate, line):
    """Scores of one hidden vector → rate · (1[word] − softmax), in place; returns −log softmax_word.

    The largest score is taken off first, so that no exponential is above 1.
    """
    for place in range(begin + vocabulary, stop):
        scores[place] = NOTHING
    top = load(scores, begin)
    for place in range(begin + LANES, stop, LANES):
        top = larger(top, load(scores, place))
    store(line, 0, top)
    highest = line[0]
    for lane in range(1, LANES):
        highest = max(highest, line[lane])
    distance = highest - scores[begin + word]
    whole = constant(0.0)
    for place in range(begin, stop, LANES):
        part = exponential(subtract(load(scores, place), spread(highest)))
        store(scores, place, part)
        whole = add(whole, part)
    normaliser = total(whole)
    weight = spread(-rate / normaliser)
    for place in range(begin, stop, LANES):
        store(scores, place, multiply(load(scores, place), weight))
    scores[begin + word] += rate
    return math.log(normaliser) + distance


@compiled
def train_block(block, state, rate, inputs, outputs, width, keep, targets, window, scratch, tally, mean, share):
    """Train on a block of sentences: CBOW with `mean`, else skip-gram. `tally` gains (loss, pairs)."""
    sentence, rows, hidden, changes, scores, stride, line = scratch
    place, loss, pairs, vocabulary = 0, 0.0, 0, len(targets)
    stop = (vocabulary + LANES - 1) // LANES * LANES
    while place < len(block):
        place, length, state = read_sentence(block, place, keep, state, sentence)
        for centre in range(length):
            count, state = read_window(sentence, length, centre, window, state, width, rows)
            if count == 0:
                continue
            used = gather(inputs, rows, count, width, mean, hidden)
            for start in range(0, vocabulary, TILE):
                behind = min(start + TILE, vocabulary)
                score(hidden, used, outputs, targets, start, behind, width, scores, stride)
            for i in range(used):
                begin = i * stride
                loss += normalise(scores, begin, begin + stop, vocabulary, np.int64(sentence[centre]), rate, line)
            pairs += used
            clear(changes, used * width)
            for start in range(0, vocabulary, TILE):
                behind = min(start + TILE, vocabulary)
                descend(hidden, used, outputs, targets, start, behind, width, scores, stride, changes)
            scatter(inputs, rows, count, width, mean, share, changes)
    tally[0] += loss
    tally[1] += pairs


class FullSoftmax(Objective):
    """Skip-gram or CBOW with a softmax over the whole vocabulary."""

    def __init__(self, words: list[str], counts: np.ndarray, settings: VectorSettings):
        super().__init__(words, counts, settings)
        self.block = max(50, min(self.block, WORK // len(counts)))  # some tenths of a second
        self.inputs = new_inputs(len(counts), settings.dim, settings.seed)
        self.outputs: np.ndarray | None = aligned(len(counts), settings.dim)
        self.keep = keep_below(counts, settings.subsample)
        self.targets = np.arange(len(counts), dtype=np.int64) * self.inputs.shape[1]

    def scratch(self) -> tuple:
        most, width = 2 * (self.settings.window or 0), self.inputs.shape[1]
        stride = padded(len(self.counts)) + LANES  # the tile of three may write behind the last word
        return (
            np.empty(LONGEST, dtype=np.int32),
            np.empty(most, dtype=np.int64),
            aligned(1, most * width)[0],
            aligned(1, most * width)[0],
            aligned(1, (most + 1) * stride)[0],  # rows are scored by twos
            stride,
            aligned(1, LANES)[0],
        )

    def train(self, block: np.ndarray, state: np.uint64, rate: float, scratch: tuple, tally: np.ndarray) -> None:
        assert self.outputs is not None, "the vectors were taken: training is over"
        settings, width = self.settings, self.inputs.shape[1]
        train_block(
            block, state, np.float32(rate), self.inputs.reshape(-1), self.outputs.reshape(-1), width, self.keep,
            self.targets, settings.window, scratch, tally, settings.method == "cbow", settings.update == "gradient",
        )  # fmt: skip
