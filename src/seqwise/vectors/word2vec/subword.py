"""Negative sampling with n-grams (Bojanowski et al. 2017): a word is the mean of its own row and its n-grams' rows.

    h = 1/(number of words) Σ_word 1/(rows of the word) Σ row          one word in skip-gram, the neighbours in CBOW
    loss of a pair = −log σ(h·v) − Σ log σ(−h·v′)                       v: the word's output row, v′: those of negatives

Skip-gram predicts here each neighbour from the middle word, the other way round than `negative`, so that a word is put
together once per window. Each predicted word has negatives of its own. All gradients are taken at the rows as they were
before the window. Threads share the rows without locks. Importing this imports numba.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.compiled import compiled, inlined
from seqwise.vectors.rows import LANES, aligned, closed_up, padded, real_lanes
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.simd import add, constant, fetch, fma, load, spread, store, total
from seqwise.vectors.subwords import Subwords, bucket_ids
from seqwise.vectors.word2vec.chances import POWER, alias_table, keep_below
from seqwise.vectors.word2vec.draws import advance, drawn
from seqwise.vectors.word2vec.hidden import clear, descend, score
from seqwise.vectors.word2vec.negative import EVERYWHERE, GENSIM_WIDEST, slopes
from seqwise.vectors.word2vec.objective import LONGEST, Objective, new_inputs
from seqwise.vectors.word2vec.windows import read_sentence, read_window

SPAN = 512  # words put together at once when training is over: their rows are copied


def rows_of(words: list[str], least: int, most: int, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, rows): word w has rows[offsets[w] : offsets[w + 1]], its own and, behind all words, its n-grams'."""
    lists = [np.concatenate([[w], bucket_ids(word, least, most, buckets) + len(words)]) for w, word in enumerate(words)]
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in lists])])
    return offsets, np.concatenate(lists).astype(np.int32)


@inlined
def list_targets(words, number, negative, state, threshold, other, width, outputs, targets, labels):
    """Each word's row, then those of its negatives that are not the word; returns (how many, the random state)."""
    count = 0
    for i in range(number):
        targets[count], labels[count] = words[i] * width, 1
        count += 1
        for _ in range(negative):
            state = advance(state)
            word = drawn(state, threshold, other)
            if word == words[i]:
                continue
            targets[count], labels[count] = word * width, 0
            for d in range(0, width, LANES):
                fetch(outputs, word * width + d)
            count += 1
    return count, state


@inlined
def compose(inputs, offsets, rows, words, number, width, hidden):
    """The mean of the words, each the mean of its rows, into `hidden`."""
    clear(hidden, width)
    for i in range(number):
        begin, behind = offsets[words[i]], offsets[words[i] + 1]
        part = spread(np.float32(1) / np.float32(number * (behind - begin)))
        for d in range(0, width, LANES):
            whole = constant(0.0)
            for place in range(begin, behind):
                whole = add(whole, load(inputs, np.int64(rows[place]) * width + d))
            store(hidden, d, fma(part, whole, load(hidden, d)))


@inlined
def share_out(inputs, offsets, rows, words, number, width, share, changes):
    """Add the change of `hidden` to its rows: to each its part with `share` (the gradient), else all of it."""
    for i in range(number):
        begin, behind = offsets[words[i]], offsets[words[i] + 1]
        part = spread(np.float32(1) / np.float32(number * (behind - begin))) if share else constant(1.0)
        for place in range(begin, behind):
            row = np.int64(rows[place]) * width
            for d in range(0, width, LANES):
                store(inputs, row + d, fma(part, load(changes, d), load(inputs, row + d)))


@inlined
def fetch_rows(inputs, offsets, rows, word, width):
    """Ask memory for the rows of a word that comes soon."""
    for place in range(offsets[word], offsets[word + 1]):
        for d in range(0, width, LANES):
            fetch(inputs, np.int64(rows[place]) * width + d)


@compiled
def train_block(
    block,
    state,
    rate,
    inputs,
    outputs,
    width,
    keep,
    threshold,
    other,
    grams,
    window,
    negative,
    scratch,
    tally,
    mean,
    share,
):
    """Train on a block of sentences: CBOW with `mean`, else skip-gram. `tally` gains (loss, pairs)."""
    offsets, rows = grams
    sentence, own, neighbours, targets, hidden, changes, scores, stride, labels, real = scratch
    widest = EVERYWHERE if share else GENSIM_WIDEST
    place, loss, pairs = 0, 0.0, 0
    while place < len(block):
        place, length, state = read_sentence(block, place, keep, state, sentence)
        for centre in range(length):
            count, state = read_window(sentence, length, centre, window, state, 1, neighbours)
            if count == 0:
                continue
            own[0] = sentence[centre]
            known, predicted = (neighbours, own) if mean else (own, neighbours)
            given, asked = (count, 1) if mean else (1, count)
            columns, state = list_targets(
                predicted, asked, negative, state, threshold, other, width, outputs, targets, labels
            )
            compose(inputs, offsets, rows, known, given, width, hidden)
            coming = centre + 1 + (window if mean else 0)
            if coming < length:
                fetch_rows(inputs, offsets, rows, sentence[coming], width)
            score(hidden, 1, outputs, targets, 0, columns, width, scores, stride)
            loss += total(slopes(scores, 0, columns, rate, labels, real, widest, constant(0.0)))
            pairs += asked
            clear(changes, width)
            descend(hidden, 1, outputs, targets, 0, columns, width, scores, stride, changes)
            share_out(inputs, offsets, rows, known, given, width, share, changes)
    tally[0] += loss
    tally[1] += pairs


class SubwordSampling(Objective):
    """Skip-gram or CBOW with negative sampling, words made of n-grams."""

    def __init__(self, words: list[str], counts: np.ndarray, settings: VectorSettings):
        super().__init__(words, counts, settings)
        self.offsets, self.rows = rows_of(words, settings.least, settings.most, settings.buckets)
        self.inputs = new_inputs(len(words) + settings.buckets, settings.dim, settings.seed)
        self.outputs: np.ndarray | None = aligned(len(words), settings.dim)
        self.keep = keep_below(counts, settings.subsample)
        self.threshold, self.other = alias_table(counts.astype(np.float64) ** POWER)

    def scratch(self) -> tuple:
        most, width = 2 * (self.settings.window or 0), self.inputs.shape[1]
        columns = most * (1 + self.settings.negative)
        stride = padded(columns) + LANES  # the tile of three may write behind the last target
        return (
            np.empty(LONGEST, dtype=np.int32),
            np.empty(1, dtype=np.int64),
            np.empty(most, dtype=np.int64),
            np.empty(columns, dtype=np.int64),
            aligned(1, width)[0],
            aligned(1, width)[0],
            aligned(1, 2 * stride)[0],  # rows are scored by twos
            stride,
            aligned(1, stride)[0],
            real_lanes(),
        )

    def train(self, block: np.ndarray, state: np.uint64, rate: float, scratch: tuple, tally: np.ndarray) -> None:
        assert self.outputs is not None, "the vectors were taken: training is over"
        settings, width = self.settings, self.inputs.shape[1]
        train_block(
            block, state, np.float32(rate), self.inputs.reshape(-1), self.outputs.reshape(-1), width, self.keep,
            self.threshold, self.other, (self.offsets, self.rows), settings.window, settings.negative, scratch, tally,
            settings.method == "cbow", settings.update == "gradient",
        )  # fmt: skip

    def vectors(self) -> np.ndarray:
        if self.outputs is not None:
            self.outputs, self._means = None, self._compose()
            grams = self.inputs[len(self.words) :]  # in place: at the end, memory is fullest
            self._grams = closed_up(grams, self.settings.dim)
        return self._means

    def _compose(self) -> np.ndarray:
        """(V, D): the mean of each word's rows."""
        dim, number = self.settings.dim, len(self.words)
        means = np.empty((number, dim), dtype=np.float32)
        for start in range(0, number, SPAN):
            offsets = self.offsets[start : start + SPAN + 1]
            rows = self.inputs[self.rows[offsets[0] : offsets[-1]], :dim]
            means[start : start + SPAN] = np.add.reduceat(rows, offsets[:-1] - offsets[0])
        means /= np.diff(self.offsets)[:, None]
        return means

    def subwords(self) -> Subwords:
        self.vectors()
        return Subwords(self.settings.least, self.settings.most, self._grams)
