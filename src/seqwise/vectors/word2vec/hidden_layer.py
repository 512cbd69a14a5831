"""The hidden layer of word2vec inside compiled loops: hidden vectors of a window, their scores, and gradient steps.

Skip-gram has one hidden vector per neighbour, a copy of its input row; CBOW has one, the mean of the neighbours' rows.
A target is an output row; which rows are targets and what their labels are, the objectives decide. All rows are
addressed by their start in a flat array. Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.aligned_rows import LANES
from seqwise.vectors.jit import inline_njit
from seqwise.vectors.simd import (
    absolute,
    add,
    broadcast,
    constant,
    exponential,
    fma,
    lane_sum,
    load,
    log1p,
    maximum,
    multiply,
    prefetch,
    select_negative,
    sigmoid,
    store,
    subtract,
)


@inline_njit
def prefetch_row(matrix, row, width):
    """Starts to load a row into the cache."""
    for d in range(0, width, LANES):
        prefetch(matrix, row + d)


@inline_njit
def fill_zeros(values, stop):
    """Sets values[:stop] to zero."""
    for d in range(0, stop, LANES):
        store(values, d, constant(0.0))


@inline_njit
def gather_hidden(count, model, workspace):
    """Copies the input rows of a window, or for CBOW their mean, to `hidden`; returns the number of hidden vectors."""
    inputs, width, is_cbow = model.inputs, model.width, model.is_cbow
    rows, hidden = workspace.neighbours, workspace.hidden
    weight = broadcast(np.float32(1) / np.float32(count))
    for d in range(0, width, LANES):
        row_sum = constant(0.0)
        for i in range(count):
            x = load(inputs, rows[i] + d)
            row_sum = add(row_sum, x)
            if not is_cbow:
                store(hidden, i * width + d, x)
        if is_cbow:
            store(hidden, d, multiply(row_sum, weight))
    return 1 if is_cbow else count


@inline_njit
def scatter_updates(count, model, workspace):
    """Adds the updates of the hidden vectors to the input rows.

    For CBOW each of n rows gets 1/n of the update with `share_gradient` (the gradient of the mean), otherwise all of it
    (as in word2vec and gensim).
    """
    inputs, width, is_cbow = model.inputs, model.width, model.is_cbow
    rows, updates = workspace.neighbours, workspace.updates
    weight = broadcast(np.float32(1) / np.float32(count)) if is_cbow and model.share_gradient else constant(1.0)
    for i in range(count):
        start = 0 if is_cbow else i * width
        for d in range(0, width, LANES):
            store(inputs, rows[i] + d, fma(weight, load(updates, start + d), load(inputs, rows[i] + d)))


@inline_njit
def score_two(vectors, a, b, outputs, targets, start, stop, width, scores, position, stride):
    """Computes the scores of the vectors at a and b for targets start … stop-1.

    They go to scores[position + j] and scores[position + stride + j]. Three targets at a time, so that every row that
    is loaded is used more than once; up to two scores after the last one are overwritten.
    """
    for j in range(start, stop, 3):
        p, q, r = targets[j], targets[min(j + 1, stop - 1)], targets[min(j + 2, stop - 1)]
        zero = constant(0.0)
        ap, aq, ar, bp, bq, br = zero, zero, zero, zero, zero, zero
        for d in range(0, width, LANES):
            x, y = load(vectors, a + d), load(vectors, b + d)
            v = load(outputs, p + d)
            ap, bp = fma(x, v, ap), fma(y, v, bp)
            v = load(outputs, q + d)
            aq, bq = fma(x, v, aq), fma(y, v, bq)
            v = load(outputs, r + d)
            ar, br = fma(x, v, ar), fma(y, v, br)
        one, two = position + j, position + stride + j
        scores[one], scores[one + 1], scores[one + 2] = lane_sum(ap), lane_sum(aq), lane_sum(ar)
        scores[two], scores[two + 1], scores[two + 2] = lane_sum(bp), lane_sum(bq), lane_sum(br)


@inline_njit
def compute_scores(count, targets, start, stop, model, workspace):
    """Computes scores[i, j] = hidden vector i · output row of target j, for targets start … stop-1."""
    hidden, outputs, width = workspace.hidden, model.outputs, model.width
    scores, stride = workspace.scores, workspace.stride
    for i in range(0, count, 2):
        a, b = i * width, min(i + 1, count - 1) * width
        score_two(hidden, a, b, outputs, targets, start, stop, width, scores, i * stride, stride)


@inline_njit
def logistic_steps(start, num_targets, learning_rate, model, workspace, loss):
    """Replaces the scores of one hidden vector by learning_rate · (label − σ(score)); returns `loss` plus its losses.

    Its scores begin at `start`. Scores beyond ±max_score give a step of zero.
    """
    scores, labels, lane_masks = workspace.scores, workspace.labels, workspace.lane_masks
    for j in range(0, num_targets, LANES):
        x = load(scores, start + j)
        exp = exponential(subtract(constant(0.0), absolute(x)))
        label = load(labels, j)
        mask = load(lane_masks, min(LANES, num_targets - j) * LANES)
        # −log σ(x) where the label is 1, −log σ(−x) where it is 0: max(∓x, 0) + log(1 + e^−|x|)
        signed = multiply(x, fma(label, constant(-2.0), constant(1.0)))
        log = fma(x, constant(0.0), log1p(exp))  # keeps nan and inf, which the maximum would hide
        loss = fma(mask, add(maximum(signed, constant(0.0)), log), loss)
        mask = select_negative(subtract(absolute(x), broadcast(model.max_score)), mask, constant(0.0))
        error = subtract(label, sigmoid(x, exp))
        store(scores, start + j, multiply(multiply(error, mask), broadcast(learning_rate)))
    return loss


@inline_njit
def apply_steps(count, targets, start, stop, model, workspace):
    """Computes updates[i] += Σ_j steps[i, j] · outputs[j], then outputs[j] += Σ_i steps[i, j] · hidden[i].

    A target may occur twice: the updates are computed from its row before it changes.
    """
    hidden, updates, outputs, width = workspace.hidden, workspace.updates, model.outputs, model.width
    steps, stride = workspace.scores, workspace.stride
    for d in range(0, width, LANES):
        for i in range(0, count, 2):
            a, b = i * stride, min(i + 1, count - 1) * stride
            x, y = constant(0.0), constant(0.0)
            for j in range(start, stop):
                v = load(outputs, targets[j] + d)
                x, y = fma(broadcast(steps[a + j]), v, x), fma(broadcast(steps[b + j]), v, y)
            store(updates, i * width + d, add(x, load(updates, i * width + d)))
            if i + 1 < count:
                store(updates, (i + 1) * width + d, add(y, load(updates, (i + 1) * width + d)))
        for j in range(start, stop, 3):
            p, q, r = constant(0.0), constant(0.0), constant(0.0)
            for i in range(count):
                x, position = load(hidden, i * width + d), i * stride + j
                p = fma(broadcast(steps[position]), x, p)
                q = fma(broadcast(steps[position + 1]), x, q)
                r = fma(broadcast(steps[position + 2]), x, r)
            store(outputs, targets[j] + d, add(p, load(outputs, targets[j] + d)))
            if j + 1 < stop:
                store(outputs, targets[j + 1] + d, add(q, load(outputs, targets[j + 1] + d)))
            if j + 2 < stop:
                store(outputs, targets[j + 2] + d, add(r, load(outputs, targets[j + 2] + d)))
