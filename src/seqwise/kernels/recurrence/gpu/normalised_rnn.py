"""The plain recurrent network with layer normalisation over a whole sequence, forward and backward, in Triton.

The one without is in `rnn.py`; how programs agree on a mean is in `moments.py`. The sum of projected input and
recurrent product is normalised, then activated. A program owns 64 units in both passes, and a step has two exchanges:
values and moments forward, sums and gradients backward.

Layout: slots (`rows.py`), scans (directions), units: inputs (N, S, U); hidden (B + N + B, S, U) with the starts; last
states (B, S, U); gains and biases (S, U); statistics (N, S, 2), mean and 1 / √(variance + ε). It knows nothing of
gradients of weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import held, product, publish
from seqwise.kernels.recurrence.gpu.moments import moments, sums, through_norm
from seqwise.kernels.recurrence.gpu.rnn import activated, derivative
from seqwise.kernels.recurrence.gpu.rows import FREE, before, origin, placed, stepped
from seqwise.kernels.recurrence.gpu.tiles import begun, given, keep, keep_tally, note, noted, one


@triton.jit(do_not_specialize=FREE)
def normalised_rnn_forward(
    inputs,
    weight,
    gains,
    biases,
    start_hidden,
    hidden,
    statistics,
    last_hidden,
    lengths,
    begins,
    words,
    steps,
    batch,
    slots,
    reverse,
    offset,
    U: tl.constexpr,
    M: tl.constexpr,
    OWN: tl.constexpr,
    KC: tl.constexpr,
    HELD: tl.constexpr,
    SIGNS: tl.constexpr,
    P: tl.constexpr,
    ROUNDS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SAVE: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """inputs: the projected ones, overwritten by what is normalised.

    hidden takes the start and what follows; words is a ring. Without SAVE only hidden and the last state are
    written.
    """
    scan, wide = tl.program_id(2), tl.num_programs(2) * U  # wide: from a slot to the next
    group = scan * tl.num_programs(1) + tl.program_id(1)
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, inputs, hidden = weight + scan * U * U, inputs + scan * U, hidden + scan * U
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    rows, there = unit * U, unit < U
    chunks = held(weight, rows, there, 1, U, KC, HELD)
    gain, bias = one(gains + scan * U + unit, there)[:, None], one(biases + scan * U + unit, there)[:, None]
    some, everybody = there[:, None], there[:, None] & real[None, :]
    at = row[None, :] * wide + unit[:, None]
    h = begun(start_hidden + scan * U, hidden, at, first, wide, everybody, DTYPE, BITS)
    states = first
    for step in range(longest):
        _, begin, active = stepped(begins, step, longest, length, real, batch, back, VARIABLE)
        now, mine = inputs + begin * wide + at, some & active[None, :]
        x = one(now, mine)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        total = product(
            chunks, weight, rows, there, hidden, places * wide, active, (states + top) * wide,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        a = x + total
        mean, inverse = moments(a, some, words, group, step, U, OWN, 1, P, ROUNDS)
        new = activated((a - mean[None, :]) * inverse[None, :] * gain + bias, ACTIVATION)
        states = batch + begin
        publish(hidden + states * wide + at, new, mine, DTYPE, BITS)
        h = tl.where(active[None, :], new, h)
        if SAVE:
            keep(now, (a,), mine, U, 1, DTYPE)
            note(statistics, begin + row, (mean, inverse), active, 2)
    keep(last_hidden + scan * U + at, (h,), everybody, U, 1, DTYPE)


@triton.jit(do_not_specialize=(*FREE, "by_step", "by_row", "by_scan"))
def normalised_rnn_backward(
    inputs,
    weight,
    gains,
    slopes,
    hidden,
    statistics,
    of_outputs,
    of_last,
    of_start,
    tally,
    lengths,
    begins,
    words,
    by_step,
    by_row,
    by_scan,
    steps,
    batch,
    slots,
    reverse,
    offset,
    U: tl.constexpr,
    M: tl.constexpr,
    OWN: tl.constexpr,
    KC: tl.constexpr,
    HELD: tl.constexpr,
    SIGNS: tl.constexpr,
    P: tl.constexpr,
    ROUNDS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """inputs (N, S, U): what is normalised; slopes (N, S, U): its gradients, which are those of the projected inputs.

    tally (S, G, 2U): the gradients of gain and bias, a sum for each group. of_outputs: those of the outputs, as in the
    LSTM. of_last (B, S, U): that of the last state, or none. of_start: that of the first.
    """
    scan, wide = tl.program_id(2), tl.num_programs(2) * U  # wide: from a slot to the next
    group = scan * tl.num_programs(1) + tl.program_id(1)
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, _ = origin(batch, slots, reverse)
    weight, inputs, slopes, hidden = weight + scan * U * U, inputs + scan * U, slopes + scan * U, hidden + scan * U
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    there = unit < U
    chunks = held(weight, unit, there, U, U, KC, HELD)
    gain = one(gains + scan * U + unit, there)[:, None]
    some, everybody = there[:, None], there[:, None] & real[None, :]
    at = row[None, :] * wide + unit[:, None]
    dh = given(of_last, scan * U + at, everybody, OWN, M)
    of_gain, of_bias = tl.zeros_like(dh), tl.zeros_like(dh)
    of_outputs += scan * by_scan + row.to(tl.int64)[None, :] * by_row + unit[:, None]
    time, begin, active = stepped(begins, longest - 1, longest, length, real, batch, back, VARIABLE)
    later, went = tl.zeros((), tl.int64), real
    for turn in range(longest + 1):  # one more, for the state before the first step
        step, mine = longest - 1 - turn, some & active[None, :]
        earlier, previous, others = stepped(begins, step - 1, longest, length, real, batch, back, VARIABLE)
        a, h = one(inputs + begin * wide + at, mine), one(hidden + (batch + begin) * wide + at, mine)
        of_output = one(of_outputs + (begin if VARIABLE else time.to(tl.int64)) * by_step, mine)
        mean, inverse = noted(statistics, begin + row, active, 2)
        if turn > 0:
            total = product(
                chunks, weight, unit, there, slopes + later * wide, row * wide, went, top * wide,
                U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            dh = tl.where(went[None, :], total, dh)
        if step >= 0:
            value = (a - mean[None, :]) * inverse[None, :]
            s = tl.where(active[None, :], (dh + of_output) * derivative(h, ACTIVATION), 0.0)
            e = s * gain
            mean_slope, mean_value = tl.split(sums(tl.join(e, e * value), words, group, turn, P, ROUNDS) / U)
            found = through_norm(e, value, mean_slope, mean_value, inverse)
            publish(slopes + begin * wide + at, found, mine, DTYPE, BITS)
            of_gain, of_bias = of_gain + s * value, of_bias + s
        later, went = begin, active
        time, begin, active = earlier, previous, others
    keep_tally(tally + unit[:, None], (of_gain, of_bias), some, batch, offset, M, U, 2)
    tl.store(of_start + scan * U + at, dh, mask=everybody)
