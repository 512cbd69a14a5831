"""Negative sampling (Mikolov et al. 2013b, section 2.2) for skip-gram and CBOW, compiled.

    loss of a pair = −log σ(u·v) − Σ log σ(−u·v′)      u: input row, v: output row of the word, v′: of the negatives

Skip-gram predicts the centre word of a window from each neighbour; `reference.py` has the same in plain NumPy. The
negatives are drawn once per window, not once per neighbour (Ji et al. 2016, "Parallelizing word2vec in shared and
distributed memory"), so that scores and gradients are small matrix products: rows loaded once are used for all pairs of
the window. All gradients are taken at the rows before the window. CBOW predicts the centre word from the mean of its
neighbours. Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.aligned_rows import LANES
from seqwise.vectors.jit import cached_njit, inline_njit
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.simd import add, broadcast, constant, fma, lane_sum, load, multiply, store
from seqwise.vectors.word2vec.hidden_layer import logistic_steps, prefetch_row, score_two
from seqwise.vectors.word2vec.objective import Objective, Workspace
from seqwise.vectors.word2vec.random_draws import draw_word, next_state
from seqwise.vectors.word2vec.sampling_tables import build_negative_table
from seqwise.vectors.word2vec.windows import read_sentence, read_window


@inline_njit
def draw_negatives(state, alias_table, width, outputs, negatives):
    """Draws the negatives of the next window and prefetches their rows; returns the random state."""
    for number in range(len(negatives)):
        state = next_state(state)
        negatives[number] = draw_word(state, alias_table) * width
        prefetch_row(outputs, negatives[number], width)
    return state


@inline_njit
def list_targets(word_row, negatives, targets):
    """Lists the row of the word, then the negatives other than the word itself; returns their number."""
    targets[0] = word_row
    count = 1
    for number in range(len(negatives)):
        if negatives[number] != word_row:
            targets[count] = negatives[number]
            count += 1
    return count


@inline_njit
def prepare_window(length, centre, state, model, alias_table, workspace):
    """Lists the targets and neighbours of a window, and draws or prefetches what the next windows need.

    Returns (number of targets, number of neighbours, random state).
    """
    sentence, negatives, width = workspace.sentence, workspace.negatives, model.width
    num_targets = list_targets(np.int64(sentence[centre]) * width, negatives, workspace.targets)
    state = draw_negatives(state, alias_table, width, model.outputs, negatives)
    count, state = read_window(sentence, length, centre, model.window, state, width, workspace.neighbours)
    if count > 0 and centre + model.window + 1 < length:
        upcoming = np.int64(sentence[centre + model.window + 1]) * width
        prefetch_row(model.inputs, upcoming, width)
        prefetch_row(model.outputs, upcoming, width)
    return num_targets, count, state


@inline_njit
def update_skipgram(count, num_targets, learning_rate, model, workspace):
    """Takes one gradient step on all pairs of a window; returns their loss.

    inputs[i] += Σ_j step[i, j] · outputs[j], and outputs[j] += Σ_i step[i, j] · inputs[i] as they were before.
    """
    inputs, outputs, width = model.inputs, model.outputs, model.width
    rows, targets = workspace.neighbours, workspace.targets
    scores, stride, updates = workspace.scores, workspace.stride, workspace.updates
    for i in range(0, count, 2):
        a, b = rows[i], rows[min(i + 1, count - 1)]
        score_two(inputs, a, b, outputs, targets, 0, num_targets, width, scores, i * stride, stride)
    losses = constant(0.0)
    for i in range(count):
        losses = logistic_steps(i * stride, num_targets, learning_rate, model, workspace, losses)
    loss = lane_sum(losses)
    for d in range(0, width, LANES):
        for j in range(0, num_targets, 3):
            p, q, r = constant(0.0), constant(0.0), constant(0.0)
            for i in range(count):
                x, position = load(inputs, rows[i] + d), i * stride + j
                p = fma(broadcast(scores[position]), x, p)
                q = fma(broadcast(scores[position + 1]), x, q)
                r = fma(broadcast(scores[position + 2]), x, r)
            store(updates, j * LANES, p)
            store(updates, (j + 1) * LANES, q)
            store(updates, (j + 2) * LANES, r)
        for i in range(count):
            x, position = load(inputs, rows[i] + d), i * stride
            for j in range(num_targets):
                x = fma(broadcast(scores[position + j]), load(outputs, targets[j] + d), x)
            store(inputs, rows[i] + d, x)
        for j in range(num_targets):
            store(outputs, targets[j] + d, add(load(outputs, targets[j] + d), load(updates, j * LANES)))
    return loss


@inline_njit
def update_cbow(count, num_targets, learning_rate, model, workspace):
    """Takes one gradient step on the pair of the neighbours' mean and the centre word; returns its loss.

    With `model.share_gradient` each of n neighbours gets 1/n of the gradient of the mean, otherwise all of it.
    """
    inputs, outputs, width = model.inputs, model.outputs, model.width
    rows, targets = workspace.neighbours, workspace.targets
    scores, mean = workspace.scores, workspace.hidden
    weight = broadcast(np.float32(1) / np.float32(count))
    for d in range(0, width, LANES):
        x = load(inputs, rows[0] + d)
        for i in range(1, count):
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
        scores[j], scores[j + 1], scores[j + 2] = lane_sum(xp), lane_sum(xq), lane_sum(xr)
    loss = lane_sum(logistic_steps(0, num_targets, learning_rate, model, workspace, constant(0.0)))
    if not model.share_gradient:
        weight = constant(1.0)
    for d in range(0, width, LANES):
        x, update = load(mean, d), constant(0.0)
        for j in range(num_targets):
            v, step = load(outputs, targets[j] + d), broadcast(scores[j])
            update = fma(step, v, update)
            store(outputs, targets[j] + d, fma(step, x, v))
        update = multiply(update, weight)
        for i in range(count):
            store(inputs, rows[i] + d, add(load(inputs, rows[i] + d), update))
    return loss


@cached_njit
def train_skipgram(block, state, learning_rate, model, alias_table, workspace, tally):
    """Trains on a block of sentences; adds (loss, pairs) to `tally`."""
    position, loss, pairs = 0, 0.0, 0
    state = draw_negatives(state, alias_table, model.width, model.outputs, workspace.negatives)
    while position < len(block):
        position, length, state = read_sentence(block, position, model.keep, state, workspace.sentence)
        for centre in range(length):
            num_targets, count, state = prepare_window(length, centre, state, model, alias_table, workspace)
            if count > 0:
                loss += update_skipgram(count, num_targets, learning_rate, model, workspace)
                pairs += count
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
        position, length, state = read_sentence(block, position, model.keep, state, workspace.sentence)
        for centre in range(length):
            num_targets, count, state = prepare_window(length, centre, state, model, alias_table, workspace)
            if count > 0:
                loss += update_cbow(count, num_targets, learning_rate, model, workspace)
                pairs += 1
    tally[0] += loss
    tally[1] += pairs


class NegativeSampling(Objective):
    """Skip-gram or CBOW with negative sampling."""

    def __init__(self, words: list[str], counts: np.ndarray, settings: ResolvedVectorSettings):
        super().__init__(words, counts, settings)
        self.train_block = train_cbow if settings.method == "cbow" else train_skipgram
        self.tables = build_negative_table(counts)

    def allocate_workspace(self) -> Workspace:
        workspace = self._allocate_workspace(
            max_targets=self.settings.negative + 1, max_hidden=2 * self.settings.window
        )
        workspace.labels[0] = 1  # the word itself is the first target, followed by the negatives
        return workspace
