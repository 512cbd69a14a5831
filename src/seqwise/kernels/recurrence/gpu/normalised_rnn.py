"""The plain recurrent network with layer normalisation over a whole sequence, forward and backward, in Triton.

The one without is in `rnn.py`; how programs agree on a mean is in `moments.py`. The sum of projected input and
recurrent product is normalised, then activated. A program owns 64 units in both passes, and a step has two exchanges:
values and moments forward, sums and gradients backward.

Layout: inputs (T, B, U); hidden (T + 1, B, U) from the start state on; gains and biases (U); statistics (T, B, 2), mean
and 1 / √(variance + ε); and a leading dimension of scans (directions). It knows nothing of gradients of weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import held, product, publish
from seqwise.kernels.recurrence.gpu.moments import moments, sums, through_norm
from seqwise.kernels.recurrence.gpu.rnn import activated, derivative
from seqwise.kernels.recurrence.gpu.rows import FREE, placed
from seqwise.kernels.recurrence.gpu.tiles import keep, keep_tally, note, noted, one


@triton.jit(do_not_specialize=FREE)
def normalised_rnn_forward(
    inputs, weight, gains, biases, hidden, statistics, last_hidden, lengths, order, words, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    P: tl.constexpr, ROUNDS: tl.constexpr, ACTIVATION: tl.constexpr, SAVE: tl.constexpr, VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """inputs: the projected ones, overwritten by what is normalised; hidden[0]: the start; words: a ring."""
    scan, page = tl.program_id(2).to(tl.int64), batch.to(tl.int64) * U
    group = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    weight, hidden = weight + scan * U * U, hidden + scan * (steps + 1) * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    there = unit < U
    chunks = held(weight, unit * U, there, 1, U, KC, HELD)
    gain, bias = one(gains + scan * U + unit, there)[:, None], one(biases + scan * U + unit, there)[:, None]
    mine, at = there[:, None] & real[None, :], row[None, :] * U + unit[:, None]
    h = tl.load(hidden + at, mask=mine, other=0).to(DTYPE, bitcast=True).to(tl.float32)
    for t in range(longest):
        now, before = inputs + (scan * steps + t) * page + at, hidden + t * page
        x = one(now, mine)
        total = product(
            chunks,
            weight,
            unit * U,
            there,
            before,
            row * U,
            real,
            top * U,
            1,
            U,
            KC,
            HELD,
            OWN,
            SIGNS,
            DTYPE,
            PRECISION,
        )
        a = x + total
        mean, inverse = moments(a, there[:, None], words, group, t, U, OWN, 1, P, ROUNDS)
        new = activated((a - mean[None, :]) * inverse[None, :] * gain + bias, ACTIVATION)
        active = (t < length)[None, :]
        h = tl.where(active, new, h)
        publish(before + page + at, tl.where(active, new, 0.0), mine, DTYPE, BITS)
        if SAVE:
            keep(now, (a,), mine, U, 1, DTYPE)
            note(statistics + ((scan * steps + t) * batch + row) * 2, mean, inverse, real)
    for t in range(longest, steps):  # padding of the whole group
        publish(hidden + (t + 1) * page + at, tl.zeros_like(h), mine, DTYPE, BITS)
    keep(last_hidden + scan * page + at, (h,), mine, U, 1, DTYPE)


@triton.jit(do_not_specialize=FREE)
def normalised_rnn_backward(
    inputs, weight, gains, slopes, hidden, statistics, of_outputs, of_hidden, tally, lengths, order, words,
    steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    P: tl.constexpr, ROUNDS: tl.constexpr, ACTIVATION: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr,
    BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """inputs (T, B, U): what is normalised; slopes (T, B, U): its gradients, which are those of the projected inputs.

    tally (G, 2U): the gradients of gain and bias, a sum for each group. of_hidden (B, U), float32: that of the last
    state, overwritten by that of the first.
    """
    scan, page = tl.program_id(2).to(tl.int64), batch.to(tl.int64) * U
    group, start = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1), scan * steps * page
    weight, slopes = weight + scan * U * U, slopes + start
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    there = unit < U
    chunks = held(weight, unit, there, U, U, KC, HELD)
    gain = one(gains + scan * U + unit, there)[:, None]
    mine, at = there[:, None] & real[None, :], row[None, :] * U + unit[:, None]
    of_last = tl.load(of_hidden + scan * page + at, mask=mine, other=0.0)
    dh, of_gain, of_bias = of_last, tl.zeros_like(of_last), tl.zeros_like(of_last)
    for t in range(longest, steps):
        publish(slopes + t * page + at, of_gain, mine, DTYPE, BITS)
    for back in range(longest + 1):  # one more, for the state before the first step
        t = longest - 1 - back
        here = t * (t >= 0)
        a = one(inputs + start + here * page + at, mine)
        mean, inverse = noted(statistics + ((scan * steps + here) * batch + row) * 2, real)
        h = one(hidden + start + (scan + here + 1) * page + at, mine)  # a scan has one state more than steps
        of_output = one(of_outputs + start + here * page + at, mine)
        if back > 0:
            total = product(
                chunks, weight, unit, there, slopes + (t + 1) * page, row * U, real, top * U,
                U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            dh = tl.where((t + 1 < length)[None, :], total, of_last)
        if t >= 0:
            value = (a - mean[None, :]) * inverse[None, :]
            s = tl.where((t < length)[None, :], (dh + of_output) * derivative(h, ACTIVATION), 0.0)
            e = s * gain
            mean_slope, mean_value = tl.split(sums(tl.join(e, e * value), words, group, back, P, ROUNDS) / U)
            publish(slopes + t * page + at, through_norm(e, value, mean_slope, mean_value, inverse), mine, DTYPE, BITS)
            of_gain, of_bias = of_gain + s * value, of_bias + s
    keep_tally(tally + unit[:, None], (of_gain, of_bias), there[:, None], batch, offset, M, U, 2)
    tl.store(of_hidden + scan * page + at, dh, mask=mine)
