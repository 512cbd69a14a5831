"""Negative sampling with n-grams (Bojanowski et al. 2017): a word is the mean of its own row and its n-grams' rows.

    h = 1/(number of words) Σ_word 1/(rows of the word) Σ row          one word in skip-gram, the neighbours in CBOW
    loss of a pair = −log σ(h·v) − Σ log σ(−h·v′)                      v: output row of the word, v′: of the negatives

Skip-gram predicts each neighbour from the centre word here, the other way round than `negative_sampling`, so that a
word is composed once per window. Each predicted word has its own negatives. Gradients are taken at the rows before the
window. Importing this module imports numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqwise.vectors.aligned_rows import LANES, remove_padding
from seqwise.vectors.jit import cached_njit, inline_njit
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.simd import add, broadcast, constant, fma, lane_sum, load, store
from seqwise.vectors.subwords import Subwords, hash_ngrams
from seqwise.vectors.word2vec.hidden_layer import (
    apply_steps,
    compute_scores,
    fill_zeros,
    logistic_steps,
    prefetch_row,
)
from seqwise.vectors.word2vec.objective import Objective, Workspace
from seqwise.vectors.word2vec.random_draws import draw_word, next_state
from seqwise.vectors.word2vec.sampling_tables import AliasTable, build_negative_table
from seqwise.vectors.word2vec.windows import read_sentence, read_window

CHUNK_WORDS = 512  # words composed at once when training is over: their rows are copied


class WordRows(NamedTuple):
    """The input rows of word w are rows[offsets[w] : offsets[w + 1]]: its own, then those of its n-grams."""

    offsets: np.ndarray  # (V + 1,) int64
    rows: np.ndarray  # int32; the rows of n-grams follow those of all words


class Tables(NamedTuple):
    """What the compiled loop needs besides the model."""

    alias_table: AliasTable
    word_rows: WordRows


def list_word_rows(words: list[str], min_n: int, max_n: int, buckets: int) -> WordRows:
    """Returns the input rows of every word."""
    lists = [
        np.concatenate([[number], hash_ngrams(word, min_n, max_n, buckets) + len(words)])
        for number, word in enumerate(words)
    ]
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in lists])])
    return WordRows(offsets, np.concatenate(lists).astype(np.int32))


@inline_njit
def list_targets(words, count, state, model, alias_table, workspace):
    """Lists the row of each word and of its negatives other than itself; returns (their number, random state)."""
    targets, labels, width = workspace.targets, workspace.labels, model.width
    num_targets = 0
    for i in range(count):
        targets[num_targets], labels[num_targets] = words[i] * width, 1
        num_targets += 1
        for _ in range(len(workspace.negatives)):
            state = next_state(state)
            word = draw_word(state, alias_table)
            if word == words[i]:
                continue
            targets[num_targets], labels[num_targets] = word * width, 0
            prefetch_row(model.outputs, word * width, width)
            num_targets += 1
    return num_targets, state


@inline_njit
def compose(words, count, model, word_rows, hidden):
    """Computes the mean of the words, each the mean of its rows, into `hidden`."""
    inputs, width = model.inputs, model.width
    fill_zeros(hidden, width)
    for i in range(count):
        start, stop = word_rows.offsets[words[i]], word_rows.offsets[words[i] + 1]
        weight = broadcast(np.float32(1) / np.float32(count * (stop - start)))
        for d in range(0, width, LANES):
            row_sum = constant(0.0)
            for position in range(start, stop):
                row_sum = add(row_sum, load(inputs, np.int64(word_rows.rows[position]) * width + d))
            store(hidden, d, fma(weight, row_sum, load(hidden, d)))


@inline_njit
def scatter_to_ngrams(words, count, model, word_rows, updates):
    """Adds the update of the hidden vector to its rows: to each its share, or without `share_gradient` all of it."""
    inputs, width, share_gradient = model.inputs, model.width, model.share_gradient
    for i in range(count):
        start, stop = word_rows.offsets[words[i]], word_rows.offsets[words[i] + 1]
        weight = broadcast(np.float32(1) / np.float32(count * (stop - start))) if share_gradient else constant(1.0)
        for position in range(start, stop):
            row = np.int64(word_rows.rows[position]) * width
            for d in range(0, width, LANES):
                store(inputs, row + d, fma(weight, load(updates, d), load(inputs, row + d)))


@cached_njit
def train_block(block, state, learning_rate, model, tables, workspace, tally):
    """Trains on a block of sentences; adds (loss, pairs) to `tally`."""
    word_rows, window, width, is_cbow = tables.word_rows, model.window, model.width, model.is_cbow
    sentence, neighbours, own = workspace.sentence, workspace.neighbours, workspace.own
    position, loss, pairs = 0, 0.0, 0
    while position < len(block):
        position, length, state = read_sentence(block, position, model.keep, state, sentence)
        for centre in range(length):
            count, state = read_window(sentence, length, centre, window, state, 1, neighbours)
            if count == 0:
                continue
            own[0] = sentence[centre]
            context, predicted = (neighbours, own) if is_cbow else (own, neighbours)
            num_context, num_predicted = (count, 1) if is_cbow else (1, count)
            num_targets, state = list_targets(predicted, num_predicted, state, model, tables.alias_table, workspace)
            compose(context, num_context, model, word_rows, workspace.hidden)
            upcoming = centre + 1 + (window if is_cbow else 0)
            if upcoming < length:
                word = sentence[upcoming]
                for index in range(word_rows.offsets[word], word_rows.offsets[word + 1]):
                    prefetch_row(model.inputs, np.int64(word_rows.rows[index]) * width, width)
            compute_scores(1, workspace.targets, 0, num_targets, model, workspace)
            loss += lane_sum(logistic_steps(0, num_targets, learning_rate, model, workspace, constant(0.0)))
            pairs += num_predicted
            fill_zeros(workspace.updates, width)
            apply_steps(1, workspace.targets, 0, num_targets, model, workspace)
            scatter_to_ngrams(context, num_context, model, word_rows, workspace.updates)
    tally[0] += loss
    tally[1] += pairs


class SubwordSampling(Objective):
    """Skip-gram or CBOW with negative sampling, words made of n-grams."""

    train_block = staticmethod(train_block)

    def __init__(self, words: list[str], counts: np.ndarray, settings: ResolvedVectorSettings):
        super().__init__(words, counts, settings, num_ngrams=settings.buckets)
        self.word_rows = list_word_rows(words, settings.min_n, settings.max_n, settings.buckets)
        self.tables = Tables(build_negative_table(counts), self.word_rows)

    def allocate_workspace(self) -> Workspace:
        max_targets = 2 * self.settings.window * (1 + self.settings.negative)
        return self._allocate_workspace(max_targets=max_targets, max_hidden=1)

    def vectors(self) -> np.ndarray:
        if self.outputs is not None:
            self.outputs = None
            self._word_vectors = self._compose_words()
            self._ngram_vectors = remove_padding(self.inputs[len(self.words) :], self.settings.dim)
        return self._word_vectors

    def _compose_words(self) -> np.ndarray:
        """Returns the mean of each word's rows, (V, D)."""
        dim, number = self.settings.dim, len(self.words)
        means = np.empty((number, dim), dtype=np.float32)
        for start in range(0, number, CHUNK_WORDS):
            offsets = self.word_rows.offsets[start : start + CHUNK_WORDS + 1]
            rows = self.inputs[self.word_rows.rows[offsets[0] : offsets[-1]], :dim]
            means[start : start + CHUNK_WORDS] = np.add.reduceat(rows, offsets[:-1] - offsets[0])
        means /= np.diff(self.word_rows.offsets)[:, None]
        return means

    def subwords(self) -> Subwords:
        self.vectors()
        return Subwords(self.settings.min_n, self.settings.max_n, self._ngram_vectors)
