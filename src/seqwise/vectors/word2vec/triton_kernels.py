"""Negative sampling on a GPU, in Triton: the windows of sixteen consecutive words at a time.

A program takes `CENTRES` consecutive words. Their windows overlap, so the rows of all neighbours are loaded once; so
are the rows of the centre words themselves and of `TARGETS - CENTRES` negatives that all windows of the program share.
A mask says which neighbour belongs to which window; negatives are weighted so that their expected gradient is the same
as with `NEGATIVE` draws for each pair. Scores and gradients are then matrix products, and all rows are updated by
atomic additions. Programs run in parallel without locks, like threads on the CPU.

Shapes: R rows of neighbours, T targets (centre words first, then negatives). The module knows tensors of ids, not text.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _draw_word(seed, offset, threshold, alias, words):
    """Returns a word drawn by its weight from the alias table; `offset` numbers the draw."""
    bits, coin, _, _ = tl.randint4x(seed, offset)
    slot = ((bits.to(tl.uint32, bitcast=True).to(tl.uint64) * words) >> 32).to(tl.int32)
    keep_slot = coin.to(tl.uint32, bitcast=True).to(tl.int64) <= tl.load(threshold + slot)
    return tl.where(keep_slot, slot, tl.load(alias + slot))


@triton.jit
def _read_windows(
    ids,
    sentences,
    threshold,
    alias,
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
    """Returns ids and masks of the rows and targets of the windows from `start` on, and two masks between them.

    positive (R, T): whether this row is in the window of this centre. The reach of each window is drawn uniformly.
    negative (T, T): whether this target is a negative for this centre, which the word itself is not.
    """
    r, t = tl.arange(0, ROWS), tl.arange(0, TARGETS)
    is_centre = t < CENTRES
    row_position, centre_position = start - WINDOW + r, start + t
    row_mask = (row_position >= 0) & (row_position < count) & (r < CENTRES + 2 * WINDOW)
    centre_mask = is_centre & (centre_position < last)
    row_id = tl.load(ids + row_position, mask=row_mask, other=0).to(tl.int64)
    negative_id = _draw_word(seed, start * TARGETS + t, threshold, alias, words)
    target_id = tl.where(is_centre, tl.load(ids + centre_position, mask=centre_mask, other=0), negative_id).to(tl.int64)

    row_sentence = tl.load(sentences + row_position, mask=row_mask, other=-1)
    centre_sentence = tl.load(sentences + centre_position, mask=centre_mask, other=-2)
    reach = WINDOW - (tl.rand(seed + 1, centre_position) * WINDOW).to(tl.int32)
    distance = tl.abs(row_position[:, None] - centre_position[None, :])
    in_window = (distance > 0) & (distance <= reach[None, :]) & (row_sentence[:, None] == centre_sentence[None, :])
    positive = (in_window & row_mask[:, None] & centre_mask[None, :]).to(tl.float32)
    negative = (target_id[:, None] != target_id[None, :]) & is_centre[:, None] & (t >= CENTRES)[None, :]
    return row_id, row_mask, target_id, centre_mask | (t >= CENTRES), positive, negative.to(tl.float32)


@triton.jit
def _compute_steps(scores, positive, negative, learning_rate):
    """Returns learning_rate · (label − σ(score)) of each pair times its weight, and the sum of the losses.

    positive (·, T): weights of the pairs with label 1. negative (·, T): weights of the pairs with label 0.
    """
    exp = tl.exp(-tl.abs(scores))
    sigmoid = tl.where(scores >= 0, 1.0, exp) / (1.0 + exp)
    log = tl.log(1.0 + exp)
    loss = positive * (tl.maximum(-scores, 0.0) + log) + negative * (tl.maximum(scores, 0.0) + log)
    return learning_rate * (positive * (1.0 - sigmoid) - negative * sigmoid), tl.sum(loss)


# Otherwise Triton would compile the kernel again for special values, such as multiples of 16.
@triton.jit(do_not_specialize=["first", "last", "count", "words", "learning_rate", "seed"])
def negative_sampling(
    ids,
    sentences,
    inputs,
    outputs,
    threshold,
    alias,
    tally,
    first,
    last,
    count,
    words,
    width,
    learning_rate,
    seed,
    WINDOW: tl.constexpr,
    NEGATIVE: tl.constexpr,
    CENTRES: tl.constexpr,
    ROWS: tl.constexpr,
    TARGETS: tl.constexpr,
    STEPS: tl.constexpr,
    CHUNKS: tl.constexpr,
    WIDTH: tl.constexpr,
    CBOW: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Trains on the words first … last-1 of `count`, each program on STEPS · CENTRES consecutive ones.

    ids, sentences (count,): the words, and the number of the sentence of each. inputs, outputs (words, width).
    tally (programs, 2): loss and pairs are added. Rows are loaded in CHUNKS of WIDTH numbers, once for the scores and
    once for the updates: whole rows of some hundred numbers would not fit into a multiprocessor.
    """
    WEIGHT: tl.constexpr = NEGATIVE / (TARGETS - CENTRES)
    program, t = tl.program_id(0), tl.arange(0, TARGETS)
    loss_sum, pair_sum = 0.0, 0.0
    for step_number in range(STEPS):
        start = first + (program * STEPS + step_number) * CENTRES
        row_id, row_mask, target_id, target_mask, in_window, is_negative = _read_windows(
            ids, sentences, threshold, alias, start, last, count, words, seed, WINDOW, CENTRES, ROWS, TARGETS
        )
        neighbours = tl.sum(in_window, axis=0)  # (T,), zero for negatives
        averaging = tl.trans(in_window / tl.maximum(neighbours, 1.0)[None, :])  # (T, R): rows → mean of each window
        if CBOW:
            has_neighbours = (neighbours > 0).to(tl.float32)[:, None]
            positive = (t[:, None] == t[None, :]).to(tl.float32) * has_neighbours
            negative = is_negative * has_neighbours * WEIGHT
            scores = tl.zeros((TARGETS, TARGETS), tl.float32)
        else:
            positive = in_window
            negative = tl.dot(in_window, is_negative) * WEIGHT  # (R, T); sums of ones are exact in any precision
            scores = tl.zeros((ROWS, TARGETS), tl.float32)
        for chunk in range(CHUNKS):
            d = chunk * WIDTH + tl.arange(0, WIDTH)
            x = tl.load(inputs + row_id[:, None] * width + d, mask=row_mask[:, None] & (d < width), other=0.0)
            y = tl.load(outputs + target_id[:, None] * width + d, mask=target_mask[:, None] & (d < width), other=0.0)
            if CBOW:
                x = tl.dot(averaging, x, input_precision=PRECISION)
            scores += tl.dot(x, tl.trans(y), input_precision=PRECISION)
        steps, loss = _compute_steps(scores, positive, negative, learning_rate)
        for chunk in range(CHUNKS):
            d = chunk * WIDTH + tl.arange(0, WIDTH)
            row_pointers, row_valid = inputs + row_id[:, None] * width + d, row_mask[:, None] & (d < width)
            target_pointers = outputs + target_id[:, None] * width + d
            target_valid = target_mask[:, None] & (d < width)
            x = tl.load(row_pointers, mask=row_valid, other=0.0)
            y = tl.load(target_pointers, mask=target_valid, other=0.0)
            row_update = tl.dot(steps, y, input_precision=PRECISION)
            if CBOW:
                x = tl.dot(averaging, x, input_precision=PRECISION)
                row_update = tl.dot(tl.trans(averaging), row_update, input_precision=PRECISION)
            target_update = tl.dot(tl.trans(steps), x, input_precision=PRECISION)
            used = row_valid & (tl.sum(in_window, axis=1) > 0)[:, None]
            tl.atomic_add(row_pointers, row_update, mask=used, sem="relaxed")
            tl.atomic_add(target_pointers, target_update, mask=target_valid, sem="relaxed")
        loss_sum += loss
        pair_sum += tl.sum(positive)
    tl.store(tally + program * 2, tl.load(tally + program * 2) + loss_sum)
    tl.store(tally + program * 2 + 1, tl.load(tally + program * 2 + 1) + pair_sum)
