"""The plain recurrent network over a whole sequence, forward and backward, in Triton.

How programs exchange values is in `exchange.py`. With one matrix, a program owns 64 units in both passes, so a step has
one exchange. The derivative of every activation follows from its value: the outputs are all that the backward pass
needs.

Layout: slots (`rows.py`), scans (directions), units: inputs (N, S, U); hidden (B + N + B, S, U) with the starts; last
states (B, S, U). It knows nothing of gradients of weights: those are products over all steps, taken elsewhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import held, product, publish, sigmoid, tanh
from seqwise.kernels.recurrence.gpu.rows import FREE, before, origin, placed, stepped
from seqwise.kernels.recurrence.gpu.tiles import begun, given, one


@triton.jit
def activated(a, ACTIVATION: tl.constexpr):
    if ACTIVATION == "tanh":
        a = tanh(a)
    elif ACTIVATION == "relu":
        a = tl.where(a < 0, 0.0, a)  # a NaN stays one
    elif ACTIVATION == "sigmoid":
        a = sigmoid(a)
    return a


@triton.jit
def derivative(h, ACTIVATION: tl.constexpr):
    """Of the activation, from its value."""
    if ACTIVATION == "tanh":
        slope = 1 - h * h
    elif ACTIVATION == "relu":
        slope = (h > 0).to(tl.float32)
    elif ACTIVATION == "sigmoid":
        slope = h * (1 - h)
    else:
        slope = tl.full(h.shape, 1.0, tl.float32)
    return slope


@triton.jit(do_not_specialize=FREE)
def rnn_forward(
    inputs,
    weight,
    start_hidden,
    hidden,
    last_hidden,
    lengths,
    begins,
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
    ACTIVATION: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """inputs: the projected ones. hidden takes the start and what follows."""
    scan, wide = tl.program_id(2), tl.num_programs(2) * U  # wide: from a slot to the next
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, inputs, hidden = weight + scan * U * U, inputs + scan * U, hidden + scan * U
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    rows, there = unit * U, unit < U
    chunks = held(weight, rows, there, 1, U, KC, HELD)
    at = row[None, :] * wide + unit[:, None]
    everybody, states = there[:, None] & real[None, :], first
    h = begun(start_hidden + scan * U, hidden, at, first, wide, everybody, DTYPE, BITS)
    for step in range(longest):
        _, begin, active = stepped(begins, step, longest, length, real, batch, back, VARIABLE)
        mine = there[:, None] & active[None, :]
        x = one(inputs + begin * wide + at, mine)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        total = product(
            chunks, weight, rows, there, hidden, places * wide, active, (states + top) * wide,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        new, states = activated(x + total, ACTIVATION), batch + begin
        publish(hidden + states * wide + at, new, mine, DTYPE, BITS)
        h = tl.where(active[None, :], new, h)
    tl.store(last_hidden + scan * U + at, h.to(DTYPE), mask=everybody)


@triton.jit(do_not_specialize=(*FREE, "by_step", "by_row", "by_scan"))
def rnn_backward(
    weight,
    hidden,
    slopes,
    of_outputs,
    of_last,
    of_start,
    lengths,
    begins,
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
    ACTIVATION: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """slopes (N, S, U): the gradients of the inputs. of_outputs: those of the outputs, as in the LSTM.

    of_last (B, S, U): the gradient of the last state, or none. of_start: that of the first.
    """
    scan, wide = tl.program_id(2), tl.num_programs(2) * U  # wide: from a slot to the next
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, _ = origin(batch, slots, reverse)
    weight, slopes, hidden = weight + scan * U * U, slopes + scan * U, hidden + scan * U
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    there = unit < U
    chunks = held(weight, unit, there, U, U, KC, HELD)
    at = row[None, :] * wide + unit[:, None]
    everybody = there[:, None] & real[None, :]
    dh = given(of_last, scan * U + at, everybody, OWN, M)
    of_outputs += scan * by_scan + row.to(tl.int64)[None, :] * by_row + unit[:, None]
    later, went = tl.zeros((), tl.int64), real
    for turn in range(longest + 1):  # one more, for the state before the first step
        step = longest - 1 - turn
        time, begin, active = stepped(begins, step, longest, length, real, batch, back, VARIABLE)
        mine = there[:, None] & active[None, :]
        h = one(hidden + (batch + begin) * wide + at, mine)
        of_output = one(of_outputs + (begin if VARIABLE else time.to(tl.int64)) * by_step, mine)
        if turn > 0:
            total = product(
                chunks, weight, unit, there, slopes + later * wide, row * wide, went, top * wide,
                U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            dh = tl.where(went[None, :], total, dh)
        if step >= 0:
            publish(slopes + begin * wide + at, (dh + of_output) * derivative(h, ACTIVATION), mine, DTYPE, BITS)
        later, went = begin, active
    tl.store(of_start + scan * U + at, dh, mask=everybody)
