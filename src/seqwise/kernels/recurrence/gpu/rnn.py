"""The plain recurrent network over a whole sequence, forward and backward, in Triton.

How programs exchange values is in `exchange.py`. With one matrix, a program owns 64 units in both passes, so a step has
one exchange. The derivative of every activation follows from its value: the outputs are all that the backward pass
needs.

Layout: time first, units last: inputs (T, B, U); hidden (T + 1, B, U) from the start state on; and a leading dimension
of scans (directions). With lengths, `order` lists the rows, longest first. It knows nothing of gradients of weights:
those are products over all steps, taken elsewhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import held, product, publish, sigmoid, tanh
from seqwise.kernels.recurrence.gpu.rows import FREE, placed
from seqwise.kernels.recurrence.gpu.tiles import one


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
    inputs, weight, hidden, last_hidden, lengths, order, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    ACTIVATION: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """inputs: the projected ones; hidden[0]: the start; everything else is output."""
    scan = tl.program_id(2).to(tl.int64)
    page = batch.to(tl.int64) * U  # one step of all rows
    inputs += scan * steps * page
    weight += scan * U * U
    hidden += scan * (steps + 1) * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)

    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    rows, there = unit * U, unit < U
    chunks = held(weight, rows, there, 1, U, KC, HELD)
    mine = there[:, None] & real[None, :]
    at = row[None, :] * U + unit[:, None]
    h = tl.load(hidden + at, mask=mine, other=0).to(DTYPE, bitcast=True).to(tl.float32)
    for t in range(longest):
        x = tl.load(inputs + t * page + at, mask=mine, other=0.0)
        before = hidden + t * page
        total = product(
            chunks, weight, rows, there, before, row * U, real, top * U, 1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION
        )
        new = activated(x + total, ACTIVATION)
        active = (t < length)[None, :]
        publish(before + page + at, tl.where(active, new, 0.0), mine, DTYPE, BITS)
        h = tl.where(active, new, h)
    for t in range(longest, steps):  # padding of the whole group
        publish(hidden + (t + 1) * page + at, tl.zeros_like(h), mine, DTYPE, BITS)
    tl.store(last_hidden + scan * page + at, h.to(DTYPE), mask=mine)


@triton.jit(do_not_specialize=FREE)
def rnn_backward(
    weight, hidden, slopes, of_outputs, of_hidden, lengths, order, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    ACTIVATION: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """slopes (T, B, U): the gradients of the inputs. of_outputs (T, B, U): those of the outputs.

    of_hidden (B, U), float32: the gradient of the last state, overwritten by that of the first.
    """
    scan = tl.program_id(2).to(tl.int64)
    page = batch.to(tl.int64) * U  # one step of all rows
    slopes += scan * steps * page
    weight += scan * U * U
    hidden += scan * (steps + 1) * page
    of_outputs += scan * steps * page
    of_hidden += scan * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)

    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    there = unit < U
    chunks = held(weight, unit, there, U, U, KC, HELD)
    mine = there[:, None] & real[None, :]
    at = row[None, :] * U + unit[:, None]
    of_last = tl.load(of_hidden + at, mask=mine, other=0.0)
    for t in range(longest, steps):
        publish(slopes + t * page + at, tl.zeros_like(of_last), mine, DTYPE, BITS)
    dh = of_last
    for back in range(longest + 1):  # one more, for the state before the first step
        t = longest - 1 - back
        here = (t * (t >= 0)) * page
        h, of_output = one(hidden + here + page + at, mine), one(of_outputs + here + at, mine)
        if back > 0:
            total = product(
                chunks, weight, unit, there, slopes + (t + 1) * page, row * U, real, top * U,
                U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            dh = tl.where((t + 1 < length)[None, :], total, of_last)
        if t >= 0:
            d = tl.where((t < length)[None, :], (dh + of_output) * derivative(h, ACTIVATION), 0.0)
            publish(slopes + here + at, d, mine, DTYPE, BITS)
    tl.store(of_hidden + at, dh, mask=mine)
