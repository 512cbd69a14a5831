"""Hidden vectors of one window against rows of outputs: what the objectives have in common.

Skip-gram has one hidden vector per neighbour, a copy of its row; CBOW has one, the mean of the neighbours' rows. The
loops here take scores and slopes as they come: which outputs are meant, and what a slope is, the objectives know.
Importing this imports numba.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.compiled import inlined
from seqwise.vectors.rows import LANES
from seqwise.vectors.simd import add, constant, fma, load, multiply, spread, store, total


@inlined
def gather(inputs, rows, count, width, mean, hidden):
    """The rows of a window, or with `mean` their mean, into `hidden`; returns how many vectors these are."""
    part = spread(np.float32(1) / np.float32(count))
    for d in range(0, width, LANES):
        whole = constant(0.0)
        for i in range(count):
            x = load(inputs, rows[i] + d)
            whole = add(whole, x)
            if not mean:
                store(hidden, i * width + d, x)
        if mean:
            store(hidden, d, multiply(whole, part))
    return 1 if mean else count


@inlined
def scatter(inputs, rows, count, width, mean, share, changes):
    """Add the changes of the hidden vectors to the rows they came from.

    Of a mean's change, each row gets its part with `share` (the gradient), else all of it (as word2vec and gensim do).
    """
    weight = spread(np.float32(1) / np.float32(count)) if mean and share else constant(1.0)
    for i in range(count):
        place = 0 if mean else i * width
        for d in range(0, width, LANES):
            store(inputs, rows[i] + d, fma(weight, load(changes, place + d), load(inputs, rows[i] + d)))


@inlined
def clear(values, stop):
    for d in range(0, stop, LANES):
        store(values, d, constant(0.0))


@inlined
def score_two(vectors, a, b, outputs, targets, start, stop, width, scores, place, stride):
    """Products of the vectors at a and b with the rows of targets start … stop, three at a time to use every loaded row
    more than once; scores[place + j] and scores[place + stride + j]."""
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
        one, two = place + j, place + stride + j
        scores[one], scores[one + 1], scores[one + 2] = total(ap), total(aq), total(ar)
        scores[two], scores[two + 1], scores[two + 2] = total(bp), total(bq), total(br)


@inlined
def score(hidden, count, outputs, targets, start, stop, width, scores, stride):
    """scores[i, j] = hidden vector i · row of target j, for targets start … stop."""
    for i in range(0, count, 2):
        a, b = i * width, min(i + 1, count - 1) * width
        score_two(hidden, a, b, outputs, targets, start, stop, width, scores, i * stride, stride)


@inlined
def descend(hidden, count, outputs, targets, start, stop, width, slopes, stride, changes):
    """changes[i] += Σ_j slope[i, j] · outputs[j], then outputs[j] += Σ_i slope[i, j] · hidden[i].

    A target may occur twice among them: its row is read as it was before it is changed.
    """
    for d in range(0, width, LANES):
        for i in range(0, count, 2):
            a, b = i * stride, min(i + 1, count - 1) * stride
            x, y = constant(0.0), constant(0.0)
            for j in range(start, stop):
                v = load(outputs, targets[j] + d)
                x, y = fma(spread(slopes[a + j]), v, x), fma(spread(slopes[b + j]), v, y)
            store(changes, i * width + d, add(x, load(changes, i * width + d)))
            if i + 1 < count:
                store(changes, (i + 1) * width + d, add(y, load(changes, (i + 1) * width + d)))
        for j in range(start, stop, 3):
            p, q, r = constant(0.0), constant(0.0), constant(0.0)
            for i in range(count):
                x, place = load(hidden, i * width + d), i * stride + j
                p = fma(spread(slopes[place]), x, p)
                q = fma(spread(slopes[place + 1]), x, q)
                r = fma(spread(slopes[place + 2]), x, r)
            store(outputs, targets[j] + d, add(p, load(outputs, targets[j] + d)))
            if j + 1 < stop:
                store(outputs, targets[j + 1] + d, add(q, load(outputs, targets[j + 1] + d)))
            if j + 2 < stop:
                store(outputs, targets[j + 2] + d, add(r, load(outputs, targets[j + 2] + d)))
