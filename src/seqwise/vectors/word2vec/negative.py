"""The loops of negative sampling (Mikolov et al. 2013b, section 2.2), for skip-gram and CBOW.

    loss of a pair = −log σ(u·v) − Σ log σ(−u·v′)      u: input row, v: the word's output row, v′: those of negatives

Skip-gram predicts the middle word of a window from each of its neighbours. The negatives are drawn once per window, not
once per neighbour (Ji et al. 2016, "Parallelizing word2vec in shared and distributed memory"), so that scores and
gradients are small matrix products: rows loaded once are used for all pairs of the window. Both gradients are taken at
the rows as they were before the window. CBOW predicts the middle word from the mean of its neighbours.

Threads share the rows without locks. The rows are kept in `sampling`. Importing this imports numba.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.compiled import compiled, inlined
from seqwise.vectors.simd import (
    LANES,
    add,
    constant,
    exponential,
    fetch,
    fma,
    load,
    log_one_plus,
    magnitude,
    multiply,
    select_negative,
    sigmoid,
    spread,
    store,
    subtract,
    total,
)
from seqwise.vectors.simd import larger as maximum
from seqwise.vectors.word2vec.draws import advance, drawn
from seqwise.vectors.word2vec.hidden import score_two
from seqwise.vectors.word2vec.windows import read_sentence, read_window

f32 = np.float32
EVERYWHERE = f32(1e30)
GENSIM_WIDEST = f32(6)


@inlined
def draw_negatives(state, threshold, other, width, outputs, drawn_rows):
    """Fill `drawn_rows` with rows of negatives for the next window, and ask memory for them already."""
    for number in range(len(drawn_rows)):
        state = advance(state)
        row = drawn(state, threshold, other) * width
        drawn_rows[number] = row
        for d in range(0, width, LANES):
            fetch(outputs, row + d)
    return state


@inlined
def fetch_coming(sentence, length, place, width, inputs, outputs):
    """Ask memory for the rows of the word that the next window reaches."""
    if place < length:
        row = np.int64(sentence[place]) * width
        for d in range(0, width, LANES):
            fetch(inputs, row + d)
            fetch(outputs, row + d)


@inlined
def list_targets(word, drawn_rows, targets):
    """The word's own row, then the negatives that are not the word itself; returns how many."""
    targets[0] = word
    count = 1
    for number in range(len(drawn_rows)):
        if drawn_rows[number] != word:
            targets[count] = drawn_rows[number]
            count += 1
    return count


@inlined
def slopes(scores, row, columns, rate, labels, real, widest, loss):
    """Scores of one input row → rate · (label − σ(score)), in place; returns the loss lanes with its losses added.

    `labels` is 1 for the first column; `real` has a line of zeros and ones for each number of columns in use. Beyond
    ±widest the slope is taken to be zero.
    """
    for column in range(0, columns, LANES):
        x = load(scores, row + column)
        small = exponential(subtract(constant(0.0), magnitude(x)))
        label = load(labels, column)
        valid = load(real, min(LANES, columns - column) * LANES)
        # −log σ(x) for the word, −log σ(−x) for negatives: max(∓x, 0) + log(1 + e^−|x|)
        towards = multiply(x, fma(label, constant(-2.0), constant(1.0)))
        log = fma(x, constant(0.0), log_one_plus(small))  # nan and inf stay visible: maxima would hide them
        loss = fma(valid, add(maximum(towards, constant(0.0)), log), loss)
        valid = select_negative(subtract(magnitude(x), spread(widest)), valid, constant(0.0))
        error = subtract(label, sigmoid(x, small))
        store(scores, row + column, multiply(multiply(error, valid), spread(rate)))
    return loss


@inlined
def score_pairs(inputs, outputs, rows, targets, count, columns, width, scores, stride):
    """scores[i, j] = input row i · output row j."""
    for i in range(0, count, 2):
        a, b = rows[i], rows[min(i + 1, count - 1)]
        score_two(inputs, a, b, outputs, targets, 0, columns, width, scores, i * stride, stride)


@inlined
def descend(inputs, outputs, rows, targets, count, columns, width, scores, stride, changes):
    """inputs[i] += Σ_j slope[i, j] · outputs[j], and outputs[j] += Σ_i slope[i, j] · inputs[i] as they were."""
    for d in range(0, width, LANES):
        for j in range(0, columns, 3):
            p, q, r = constant(0.0), constant(0.0), constant(0.0)
            for i in range(count):
                x, place = load(inputs, rows[i] + d), i * stride + j
                p = fma(spread(scores[place]), x, p)
                q = fma(spread(scores[place + 1]), x, q)
                r = fma(spread(scores[place + 2]), x, r)
            store(changes, j * LANES, p)
            store(changes, (j + 1) * LANES, q)
            store(changes, (j + 2) * LANES, r)
        for i in range(count):
            x, place = load(inputs, rows[i] + d), i * stride
            for j in range(columns):
                x = fma(spread(scores[place + j]), load(outputs, targets[j] + d), x)
            store(inputs, rows[i] + d, x)
        for j in range(columns):
            store(outputs, targets[j] + d, add(load(outputs, targets[j] + d), load(changes, j * LANES)))


@compiled
def skipgram(block, state, rate, inputs, outputs, width, keep, threshold, other, window, scratch, tally):
    """Train on a block of sentences. `tally` gains the loss and the number of pairs."""
    sentence, rows, targets, ahead, scores, stride, changes, labels, real = scratch
    place, loss, pairs = 0, 0.0, 0
    state = draw_negatives(state, threshold, other, width, outputs, ahead)
    while place < len(block):
        place, length, state = read_sentence(block, place, keep, state, sentence)
        for centre in range(length):
            columns = list_targets(np.int64(sentence[centre]) * width, ahead, targets)
            state = draw_negatives(state, threshold, other, width, outputs, ahead)
            count, state = read_window(sentence, length, centre, window, state, width, rows)
            if count == 0:
                continue
            fetch_coming(sentence, length, centre + window + 1, width, inputs, outputs)
            score_pairs(inputs, outputs, rows, targets, count, columns, width, scores, stride)
            lanes = constant(0.0)
            for i in range(count):
                lanes = slopes(scores, i * stride, columns, rate, labels, real, EVERYWHERE, lanes)
            loss += total(lanes)
            pairs += count
            descend(inputs, outputs, rows, targets, count, columns, width, scores, stride, changes)
    tally[0] += loss
    tally[1] += pairs


@compiled
def cbow(block, state, rate, inputs, outputs, width, keep, threshold, other, window, scratch, tally, share):
    """Train on a block of sentences.

    With `share` a neighbour gets its part of the gradient, 1/count of it, since it is that much of the mean. Without,
    every neighbour gets all of it, and scores beyond ±6 teach nothing: gensim's way.
    """
    sentence, rows, targets, ahead, scores, _, mean, labels, real = scratch
    widest = EVERYWHERE if share else GENSIM_WIDEST
    place, loss, pairs = 0, 0.0, 0
    state = draw_negatives(state, threshold, other, width, outputs, ahead)
    while place < len(block):
        place, length, state = read_sentence(block, place, keep, state, sentence)
        for centre in range(length):
            columns = list_targets(np.int64(sentence[centre]) * width, ahead, targets)
            state = draw_negatives(state, threshold, other, width, outputs, ahead)
            count, state = read_window(sentence, length, centre, window, state, width, rows)
            if count == 0:
                continue
            fetch_coming(sentence, length, centre + window + 1, width, inputs, outputs)
            part = spread(f32(1) / f32(count))
            for d in range(0, width, LANES):
                x = load(inputs, rows[0] + d)
                for i in range(1, count):
                    x = add(x, load(inputs, rows[i] + d))
                store(mean, d, multiply(x, part))
            for j in range(0, columns, 3):
                p, q, r = targets[j], targets[min(j + 1, columns - 1)], targets[min(j + 2, columns - 1)]
                xp, xq, xr = constant(0.0), constant(0.0), constant(0.0)
                for d in range(0, width, LANES):
                    x = load(mean, d)
                    xp = fma(x, load(outputs, p + d), xp)
                    xq = fma(x, load(outputs, q + d), xq)
                    xr = fma(x, load(outputs, r + d), xr)
                scores[j], scores[j + 1], scores[j + 2] = total(xp), total(xq), total(xr)
            loss += total(slopes(scores, 0, columns, rate, labels, real, widest, constant(0.0)))
            pairs += 1
            weight = part if share else constant(1.0)
            for d in range(0, width, LANES):
                x, change = load(mean, d), constant(0.0)
                for j in range(columns):
                    v, slope = load(outputs, targets[j] + d), spread(scores[j])
                    change = fma(slope, v, change)
                    store(outputs, targets[j] + d, fma(slope, x, v))
                change = multiply(change, weight)
                for i in range(count):
                    store(inputs, rows[i] + d, add(load(inputs, rows[i] + d), change))
    tally[0] += loss
    tally[1] += pairs
