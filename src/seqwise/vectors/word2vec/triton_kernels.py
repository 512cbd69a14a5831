"""Negative sampling on a GPU, in Triton: the windows of sixteen neighbouring words at a time.

One program takes `CENTRES` words in a row. Their windows overlap, so the rows of all their neighbours are loaded once;
so are the rows of the words themselves and of `TARGETS - CENTRES` negatives that all windows of the program share. A
matrix says which neighbour belongs to which window; a negative has the weight that makes its expected share the same as
with `negative` draws for each pair. Scores and gradients are then matrix products, and all rows are changed at once by
atomic additions. Programs run side by side without locks, as threads do on the CPU.

Shapes: R rows of neighbours, T targets (centres first, then negatives), D numbers of a row. The module knows tensors of
ids, not text.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _drawn(seed, place, threshold, other, words):
    """A word by its weight, from the alias table; `place` numbers the draw."""
    bits, coin, _, _ = tl.randint4x(seed, place)
    slot = ((bits.to(tl.uint32, bitcast=True).to(tl.uint64) * words) >> 32).to(tl.int32)
    stays = coin.to(tl.uint32, bitcast=True).to(tl.int64) <= tl.load(threshold + slot)
    return tl.where(stays, slot, tl.load(other + slot))


@triton.jit
def _windows(
    ids,
    sentences,
    threshold,
    other,
    start,
    last,
    count,
    words,
    seed,
    WINDOW: tl.constexpr,
    CENTRES: tl.constexpr,
    ROWS: tl.constexpr,
    TARGETS: tl.constexpr,
):
    """What the words from `start` on need: rows and targets (ids, and which are there), and who goes with whom.

    paired (R, T): is this row in the window of this centre? The reach of each window is drawn evenly.
    allowed (T, T): may this negative stand beside this centre? Not where it is the word itself.
    """
    r, t = tl.arange(0, ROWS), tl.arange(0, TARGETS)
    is_centre = t < CENTRES
    row_at, centre_at = start - WINDOW + r, start + t
    row_there = (row_at >= 0) & (row_at < count) & (r < CENTRES + 2 * WINDOW)
    centre_there = is_centre & (centre_at < last)
    row_id = tl.load(ids + row_at, mask=row_there, other=0).to(tl.int64)
    negative_id = _drawn(seed, start * TARGETS + t, threshold, other, words)
    target_id = tl.where(is_centre, tl.load(ids + centre_at, mask=centre_there, other=0), negative_id).to(tl.int64)

    row_sentence = tl.load(sentences + row_at, mask=row_there, other=-1)
    centre_sentence = tl.load(sentences + centre_at, mask=centre_there, other=-2)
    reach = WINDOW - (tl.rand(seed + 1, centre_at) * WINDOW).to(tl.int32)
    distance = tl.abs(row_at[:, None] - centre_at[None, :])
    beside = (distance > 0) & (distance <= reach[None, :]) & (row_sentence[:, None] == centre_sentence[None, :])
    paired = (beside & row_there[:, None] & centre_there[None, :]).to(tl.float32)
    differs = (target_id[:, None] != target_id[None, :]) & is_centre[:, None] & (t >= CENTRES)[None, :]
    return row_id, row_there, target_id, centre_there | (t >= CENTRES), paired, differs.to(tl.float32)


@triton.jit
def _slopes(scores, own, strange, rate):
    """rate · (label − σ(score)) for each pair by its weight, and the sum of their losses.

    own (·, T): weights of the words that are there. strange (·, T): weights of negatives.
    """
    small = tl.exp(-tl.abs(scores))
    sigmoid = tl.where(scores >= 0, 1.0, small) / (1.0 + small)
    log = tl.log(1.0 + small)
    loss = own * (tl.maximum(-scores, 0.0) + log) + strange * (tl.maximum(scores, 0.0) + log)
    return rate * (own * (1.0 - sigmoid) - strange * sigmoid), tl.sum(loss)


# Without this the kernel would be compiled anew for each kind of number, such as multiples of 16.
@triton.jit(do_not_specialize=["first", "last", "count", "words", "rate", "seed"])
def negative_sampling(
    ids,
    sentences,
    inputs,
    outputs,
    threshold,
    other,
    tally,
    first,
    last,
    count,
    words,
    width,
    rate,
    seed,
    WINDOW: tl.constexpr,
    NEGATIVE: tl.constexpr,
    CENTRES: tl.constexpr,
    ROWS: tl.constexpr,
    TARGETS: tl.constexpr,
    SHARE: tl.constexpr,
    PIECES: tl.constexpr,
    WIDTH: tl.constexpr,
    CBOW: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Train on the words first … last-1 of `count`, each program on SHARE · CENTRES of them in a row.

    ids, sentences (count,): the words, and the number of the sentence each stands in. inputs, outputs (words, width).
    tally (programs, 2): gains loss and pairs. Rows are taken in PIECES of WIDTH numbers, once for the scores and once
    for the changes: whole rows of some hundred numbers would not fit into a multiprocessor.
    """
    SCALE: tl.constexpr = NEGATIVE / (TARGETS - CENTRES)
    program, t = tl.program_id(0), tl.arange(0, TARGETS)
    loss_sum, pair_sum = 0.0, 0.0
    for block in range(SHARE):
        start = first + (program * SHARE + block) * CENTRES
        row_id, row_there, target_id, target_there, paired, allowed = _windows(
            ids, sentences, threshold, other, start, last, count, words, seed, WINDOW, CENTRES, ROWS, TARGETS
        )
        neighbours = tl.sum(paired, axis=0)  # (T,), zero for negatives
        part = tl.trans(paired / tl.maximum(neighbours, 1.0)[None, :])  # (T, R): how a mean is made of rows
        if CBOW:
            there = (neighbours > 0).to(tl.float32)[:, None]
            own = (t[:, None] == t[None, :]).to(tl.float32) * there
            strange = allowed * there * SCALE
            scores = tl.zeros((TARGETS, TARGETS), tl.float32)
        else:
            own = paired
            strange = tl.dot(paired, allowed) * SCALE  # (R, T); sums of ones are exact in any precision
            scores = tl.zeros((ROWS, TARGETS), tl.float32)
        for piece in range(PIECES):
            d = piece * WIDTH + tl.arange(0, WIDTH)
            x = tl.load(inputs + row_id[:, None] * width + d, mask=row_there[:, None] & (d < width), other=0.0)
            y = tl.load(outputs + target_id[:, None] * width + d, mask=target_there[:, None] & (d < width), other=0.0)
            if CBOW:
                x = tl.dot(part, x, input_precision=PRECISION)
            scores += tl.dot(x, tl.trans(y), input_precision=PRECISION)
        slope, loss = _slopes(scores, own, strange, rate)
        for piece in range(PIECES):
            d = piece * WIDTH + tl.arange(0, WIDTH)
            row_place, row_mask = inputs + row_id[:, None] * width + d, row_there[:, None] & (d < width)
            target_place, target_mask = outputs + target_id[:, None] * width + d, target_there[:, None] & (d < width)
            x = tl.load(row_place, mask=row_mask, other=0.0)
            y = tl.load(target_place, mask=target_mask, other=0.0)
            change = tl.dot(slope, y, input_precision=PRECISION)
            if CBOW:
                x = tl.dot(part, x, input_precision=PRECISION)
                change = tl.dot(tl.trans(part), change, input_precision=PRECISION)
            target_change = tl.dot(tl.trans(slope), x, input_precision=PRECISION)
            tl.atomic_add(row_place, change, mask=row_mask & (tl.sum(paired, axis=1) > 0)[:, None], sem="relaxed")
            tl.atomic_add(target_place, target_change, mask=target_mask, sem="relaxed")
        loss_sum += loss
        pair_sum += tl.sum(own)
    tl.store(tally + program * 2, tl.load(tally + program * 2) + loss_sum)
    tl.store(tally + program * 2 + 1, tl.load(tally + program * 2 + 1) + pair_sum)
