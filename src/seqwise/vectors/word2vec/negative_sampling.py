"""Negative sampling (Mikolov et al. 2013b, section 2.2) for skip-gram and CBOW, compiled.

    loss of a pair = −log σ(u·v) − Σ log σ(−u·v′)      u: input row, v: output row of the word, v′: of the negatives

Skip-gram predicts the centre word of a window from each neighbour; `reference.py` has the same in plain NumPy. The
negatives are drawn once per window, not once per neighbour (Ji et al. 2016, "Parallelizing word2vec in shared and
distributed memory"), so that scores and gradients are small matrix products: rows loaded once are used for all pairs of
the window. All gradients are taken at the rows before the window. CBOW predicts the centre word from the mean of its
neighbours.

With n-grams (Bojanowski et al. 2017) a word is the mean of its own row and its n-grams' rows:

    h = 1/(number of words) Σ_word 1/(rows of the word) Σ row          one word in skip-gram, the neighbours in CBOW
    loss of a pair = −log σ(h·v) − Σ log σ(−h·v′)

There, skip-gram predicts each neighbour from the centre word, so that a word is composed once per window, and each
predicted word has its own negatives. Importing this module imports numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqwise.vectors.jit import (
    LANES,
    add,
    broadcast,
    cached_njit,
    constant,
    fma,
    inline_njit,
    load,
    multiply,
    remove_padding,
    store,
    sum_lanes,
)
from seqwise.vectors.keyed import Subwords, hash_ngrams
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.word2vec.objective import (
    Objective,
    advance_state,
    apply_steps,
    compute_logistic_steps,
    compute_scores,
    draw_word,
    fill_zeros,
    prefetch_row,
    read_sentence,
    read_window,
    score_two_vectors,
)
from seqwise.vectors.word2vec.sampling_tables import build_negative_table

CHUNK_WORDS = 512  # words composed at once when training is over: their rows are copied


@inline_njit
def draw_negatives(state, alias_table, width, outputs, negatives):
    """Draws the negatives of the next window and prefetches their rows; returns the random state."""
    for index in range(len(negatives)):
        state = advance_state(state)
        negatives[index] = draw_word(state, alias_table) * width
        prefetch_row(outputs, negatives[index], width)
    return state


@inline_njit
def prepare_window(length, centre, state, model, alias_table, workspace):
    """Lists the targets and neighbours of a window, draws the negatives of the next window, and prefetches rows.

    Returns (number of targets, number of neighbours, random state).
    """
    sentence, negatives, targets, width = workspace.sentence, workspace.negatives, workspace.targets, model.width
    targets[0] = centre_row = np.int64(sentence[centre]) * width
    num_targets = 1
    for index in range(len(negatives)):
        if negatives[index] != centre_row:  # a negative may be the word itself
            targets[num_targets] = negatives[index]
            num_targets += 1
    state = draw_negatives(state, alias_table, width, model.outputs, negatives)
    num_neighbours, state = read_window(sentence, length, centre, model.window, state, width, workspace.neighbours)
    if num_neighbours > 0 and centre + model.window + 1 < length:
        upcoming = np.int64(sentence[centre + model.window + 1]) * width
        prefetch_row(model.inputs, upcoming, width)
        prefetch_row(model.outputs, upcoming, width)
    return num_targets, num_neighbours, state


@inline_njit
def update_skipgram(num_neighbours, num_targets, learning_rate, model, workspace):
    """Takes one gradient step on all pairs of a window; returns their loss.

    inputs[i] += Σ_j step[i, j] · outputs[j], and outputs[j] += Σ_i step[i, j] · inputs[i] as they were before.
    """
    inputs, outputs, width = model.inputs, model.outputs, model.width
    rows, targets = workspace.neighbours, workspace.targets
    scores, stride, updates = workspace.scores, workspace.stride, workspace.updates
    for i in range(0, num_neighbours, 2):
        a, b = rows[i], rows[min(i + 1, num_neighbours - 1)]
        score_two_vectors(inputs, a, b, outputs, targets, 0, num_targets, width, scores, i * stride, stride)
    losses = constant(0.0)
    for i in range(num_neighbours):
        losses = compute_logistic_steps(i * stride, num_targets, learning_rate, model, workspace, losses)
    loss = sum_lanes(losses)
    for d in range(0, width, LANES):
        for j in range(0, num_targets, 3):
            p, q, r = constant(0.0), constant(0.0), constant(0.0)
            for i in range(num_neighbours):
                x, position = load(inputs, rows[i] + d), i * stride + j
                p = fma(broadcast(scores[position]), x, p)
                q = fma(broadcast(scores[position + 1]), x, q)
                r = fma(broadcast(scores[position + 2]), x, r)
            store(updates, j * LANES, p)
            store(updates, (j + 1) * LANES, q)
            store(updates, (j + 2) * LANES, r)
        for i in range(num_neighbours):
            x, position = load(inputs, rows[i] + d), i * stride
            for j in range(num_targets):
                x = fma(broadcast(scores[position + j]), load(outputs, targets[j] + d), x)
            store(inputs, rows[i] + d, x)
        for j in range(num_targets):
            store(outputs, targets[j] + d, add(load(outputs, targets[j] + d), load(updates, j * LANES)))
    return loss


@inline_njit
def update_cbow(num_neighbours, num_targets, learning_rate, model, workspace):
    """Takes one gradient step on the pair of the neighbours' mean and the centre word; returns its loss.

    With `model.share_gradient` each of n neighbours gets 1/n of the gradient of the mean, otherwise all of it.
    """
    inputs, outputs, width = model.inputs, model.outputs, model.width
    rows, targets = workspace.neighbours, workspace.targets
    scores, mean = workspace.scores, workspace.hidden
    weight = broadcast(np.float32(1) / np.float32(num_neighbours))
    for d in range(0, width, LANES):
        x = load(inputs, rows[0] + d)
        for i in range(1, num_neighbours):
            x = add(x, load(inputs, rows[i] + d))
        store(mean, d, multiply(x, weight))
    for j in range(0, num_targets, 3):
        p, q, r = targets[j], targets[min(j + 1, num_targets - 1)], targets[min(j + 2, num_targets - 1)]
        xp, xq, xr = constant(0.0), constant(0.0), constant(0.0)
        for d in range(0, width, LANES):
            x = load(mean, d)
            xp = fma(x, load(outputs, p + d), xp)
            xq = fma(x, load(outputs, q + d), xq)
            xr = fma(x, load(outputs, r + d), xr)
        scores[j], scores[j + 1], scores[j + 2] = sum_lanes(xp), sum_lanes(xq), sum_lanes(xr)
    loss = sum_lanes(compute_logistic_steps(0, num_targets, learning_rate, model, workspace, constant(0.0)))
    if not model.share_gradient:
        weight = constant(1.0)
    for d in range(0, width, LANES):
        x, update = load(mean, d), constant(0.0)
        for j in range(num_targets):
            v, step = load(outputs, targets[j] + d), broadcast(scores[j])
            update = fma(step, v, update)
            store(outputs, targets[j] + d, fma(step, x, v))
        update = multiply(update, weight)
        for i in range(num_neighbours):
            store(inputs, rows[i] + d, add(load(inputs, rows[i] + d), update))
    return loss


@cached_njit
def train_skipgram(block, state, learning_rate, model, alias_table, workspace, tally):
    """Trains on a block of sentences; adds (loss, pairs) to `tally`."""
    position, loss, pairs = 0, 0.0, 0
    state = draw_negatives(state, alias_table, model.width, model.outputs, workspace.negatives)
    while position < len(block):
        position, length, state = read_sentence(block, position, model.keep_threshold, state, workspace.sentence)
        for centre in range(length):
            num_targets, num_neighbours, state = prepare_window(length, centre, state, model, alias_table, workspace)
            if num_neighbours > 0:
                loss += update_skipgram(num_neighbours, num_targets, learning_rate, model, workspace)
                pairs += num_neighbours
    tally[0] += loss
    tally[1] += pairs


@cached_njit
def train_cbow(block, state, learning_rate, model, alias_table, workspace, tally):
    """Trains on a block of sentences; adds (loss, pairs) to `tally`.

    A function of its own: with both updates in one function, LLVM keeps fewer values in registers.
    """
    position, loss, pairs = 0, 0.0, 0
    state = draw_negatives(state, alias_table, model.width, model.outputs, workspace.negatives)
    while position < len(block):
        position, length, state = read_sentence(block, position, model.keep_threshold, state, workspace.sentence)
        for centre in range(length):
            num_targets, num_neighbours, state = prepare_window(length, centre, state, model, alias_table, workspace)
            if num_neighbours > 0:
                loss += update_cbow(num_neighbours, num_targets, learning_rate, model, workspace)
                pairs += 1
    tally[0] += loss
    tally[1] += pairs


class NegativeSampling(Objective):
    """Skip-gram or CBOW with negative sampling."""

    def __init__(self, words: list[str], counts: np.ndarray, settings: ResolvedVectorSettings):
        super().__init__(words, counts, settings)
        self.train_block = train_cbow if settings.method == "cbow" else train_skipgram
        self.tables = build_negative_table(counts)
        self.max_targets = settings.negative + 1


class WordRows(NamedTuple):
    """The input rows of word w are rows[offsets[w] : offsets[w + 1]]: its own, then the rows of its n-grams."""

    offsets: np.ndarray  # (V + 1,) int64
    rows: np.ndarray  # int32; the rows of n-grams come after the rows of all words


def list_word_rows(words: list[str], min_n: int, max_n: int, buckets: int) -> WordRows:
    """Returns the input rows of every word."""
    lists = [
        np.concatenate([[index], hash_ngrams(word, min_n, max_n, buckets) + len(words)])
        for index, word in enumerate(words)
    ]
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in lists])])
    return WordRows(offsets, np.concatenate(lists).astype(np.int32))


@inline_njit
def draw_targets(words, num_words, state, model, alias_table, workspace):
    """Draws negatives for each word; lists its row and the rows of its negatives other than itself, with their labels.

    Returns (number of rows, random state).
    """
    targets, labels, width = workspace.targets, workspace.labels, model.width
    num_targets = 0
    for i in range(num_words):
        targets[num_targets], labels[num_targets] = words[i] * width, 1
        num_targets += 1
        for _ in range(len(workspace.negatives)):
            state = advance_state(state)
            word = draw_word(state, alias_table)
            if word == words[i]:
                continue
            targets[num_targets], labels[num_targets] = word * width, 0
            prefetch_row(model.outputs, word * width, width)
            num_targets += 1
    return num_targets, state


@inline_njit
def compose_hidden(words, num_words, model, word_rows, hidden):
    """Computes the mean of the words, each the mean of its rows, into `hidden`."""
    inputs, width = model.inputs, model.width
    fill_zeros(hidden, width)
    for i in range(num_words):
        start, stop = word_rows.offsets[words[i]], word_rows.offsets[words[i] + 1]
        weight = broadcast(np.float32(1) / np.float32(num_words * (stop - start)))
        for d in range(0, width, LANES):
            row_sum = constant(0.0)
            for position in range(start, stop):
                row_sum = add(row_sum, load(inputs, np.int64(word_rows.rows[position]) * width + d))
            store(hidden, d, fma(weight, row_sum, load(hidden, d)))


@inline_njit
def scatter_to_ngrams(words, num_words, model, word_rows, updates):
    """Adds the update of the hidden vector to the rows of which it is composed.

    Each gets its share or, without `share_gradient`, all of it.
    """
    inputs, width, share_gradient = model.inputs, model.width, model.share_gradient
    for i in range(num_words):
        start, stop = word_rows.offsets[words[i]], word_rows.offsets[words[i] + 1]
        weight = broadcast(np.float32(1) / np.float32(num_words * (stop - start))) if share_gradient else constant(1.0)
        for position in range(start, stop):
            row = np.int64(word_rows.rows[position]) * width
            for d in range(0, width, LANES):
                store(inputs, row + d, fma(weight, load(updates, d), load(inputs, row + d)))


@cached_njit
def train_subwords(block, state, learning_rate, model, tables, workspace, tally):
    """Trains on a block of sentences; adds (loss, pairs) to `tally`."""
    alias_table, word_rows = tables
    window, width, is_cbow = model.window, model.width, model.is_cbow
    sentence, neighbours, centre_word = workspace.sentence, workspace.neighbours, workspace.centre_word
    position, loss, pairs = 0, 0.0, 0
    while position < len(block):
        position, length, state = read_sentence(block, position, model.keep_threshold, state, sentence)
        for centre in range(length):
            num_neighbours, state = read_window(sentence, length, centre, window, state, 1, neighbours)
            if num_neighbours == 0:
                continue
            centre_word[0] = sentence[centre]
            context, predicted = (neighbours, centre_word) if is_cbow else (centre_word, neighbours)
            num_context, num_predicted = (num_neighbours, 1) if is_cbow else (1, num_neighbours)
            num_targets, state = draw_targets(predicted, num_predicted, state, model, alias_table, workspace)
            compose_hidden(context, num_context, model, word_rows, workspace.hidden)
            upcoming = centre + 1 + (window if is_cbow else 0)
            if upcoming < length:
                word = sentence[upcoming]
                for index in range(word_rows.offsets[word], word_rows.offsets[word + 1]):
                    prefetch_row(model.inputs, np.int64(word_rows.rows[index]) * width, width)
            compute_scores(1, workspace.targets, 0, num_targets, model, workspace)
            loss += sum_lanes(compute_logistic_steps(0, num_targets, learning_rate, model, workspace, constant(0.0)))
            pairs += num_predicted
            fill_zeros(workspace.updates, width)
            apply_steps(1, workspace.targets, 0, num_targets, model, workspace)
            scatter_to_ngrams(context, num_context, model, word_rows, workspace.updates)
    tally[0] += loss
    tally[1] += pairs


class SubwordSampling(Objective):
    """Skip-gram or CBOW with negative sampling, words made of n-grams."""

    train_block = staticmethod(train_subwords)

    def __init__(self, words: list[str], counts: np.ndarray, settings: ResolvedVectorSettings):
        super().__init__(words, counts, settings, num_ngrams=settings.buckets)
        self.word_rows = list_word_rows(words, settings.min_n, settings.max_n, settings.buckets)
        self.tables = (build_negative_table(counts), self.word_rows)
        self.max_targets = 2 * settings.window * (1 + settings.negative)
        self.max_hidden = 1

    def export_vectors(self) -> np.ndarray:
        if self.outputs is not None:
            self.outputs = None
            self._word_vectors = self._compose_words()
            self._ngram_vectors = remove_padding(self.inputs[len(self.words) :], self.settings.dim)
        return self._word_vectors

    def _compose_words(self) -> np.ndarray:
        """Returns the mean of each word's rows, (V, D)."""
        dim, num_words = self.settings.dim, len(self.words)
        means = np.empty((num_words, dim), dtype=np.float32)
        for start in range(0, num_words, CHUNK_WORDS):
            offsets = self.word_rows.offsets[start : start + CHUNK_WORDS + 1]
            rows = self.inputs[self.word_rows.rows[offsets[0] : offsets[-1]], :dim]
            means[start : start + CHUNK_WORDS] = np.add.reduceat(rows, offsets[:-1] - offsets[0])
        means /= np.diff(self.word_rows.offsets)[:, None]
        return means

    def export_subwords(self) -> Subwords:
        self.export_vectors()
        return Subwords(self.settings.min_n, self.settings.max_n, self._ngram_vectors)
