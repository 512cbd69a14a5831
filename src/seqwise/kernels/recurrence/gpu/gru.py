"""The GRU over a whole sequence, reset after the product, forward and backward, in Triton.

How programs exchange values is in `exchange.py`; the reset before the product is in `early_gru.py`. A program of the
forward pass owns 16 units, so 48 rows of the recurrent matrix, and 16 empty ones. The backward pass multiplies the
gradients of all gates by quarters (`quarters.py`).

Layout: time first, units last: gates (T, B, 3U) as r, z, n; hidden (T + 1, B, U) from the start state on; and a leading
dimension of scans (directions). With lengths, `order` lists the rows, longest first. It knows nothing of gradients of
weights: those are products over all steps, taken elsewhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, held, product, publish, sigmoid, tanh
from seqwise.kernels.recurrence.gpu.quarters import joined, multiplied, quartered
from seqwise.kernels.recurrence.gpu.rows import FREE, placed
from seqwise.kernels.recurrence.gpu.tiles import keep, one, publish_all, read, zeros


@triton.jit(do_not_specialize=FREE)
def gru_forward(
    gates, weight, bias, hidden, last_hidden, lengths, order, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    SAVE: tl.constexpr, REPLACES: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr, BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """gates: the projected inputs, overwritten by the gates; hidden[0]: the start; everything else is output.

    Without SAVE only hidden and the last state are written.
    """
    block, scan = tl.program_id(0), tl.program_id(2).to(tl.int64)
    page = batch.to(tl.int64) * U  # one step of all rows
    gates += scan * steps * page * 3
    weight += scan * 3 * U * U
    hidden += scan * (steps + 1) * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)

    line = tl.arange(0, 4 * OWN)
    owner = block * OWN + line // 4
    rows, there = ((line % 4) * U + owner) * U, (owner < U) & (line % 4 < 3)
    chunks = held(weight, rows, there, 1, U, KC, HELD)
    unit = block * OWN + tl.arange(0, OWN)
    mine = (unit < U)[:, None] & real[None, :]
    at, gate_at = row[None, :] * U + unit[:, None], row[None, :] * (3 * U) + unit[:, None]
    b = tl.load(bias + scan * U + unit, mask=unit < U, other=0.0).to(tl.float32)[:, None]
    h = tl.load(hidden + at, mask=mine, other=0).to(DTYPE, bitcast=True).to(tl.float32)
    for t in range(longest):
        now, before = gates + t * page * 3 + gate_at, hidden + t * page
        x_r, x_z, x_n = read(now, mine, U, 3)
        total = product(
            chunks, weight, rows, there, before, row * U, real, top * U, 1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION
        )
        u_r, u_z, u_n, _ = four(total, OWN)
        r, z = sigmoid(x_r + u_r), sigmoid(x_z + u_z)
        n = tanh(x_n + r * (u_n + b))
        share = 1 - z if REPLACES else z
        new = share * h + (1 - share) * n
        active = (t < length)[None, :]
        h = tl.where(active, new, h)
        publish(before + page + at, tl.where(active, new, 0.0), mine, DTYPE, BITS)
        if SAVE:
            keep(now, (r, z, n), mine, U, 3, DTYPE)
    for t in range(longest, steps):  # padding of the whole group
        publish(hidden + (t + 1) * page + at, tl.zeros_like(h), mine, DTYPE, BITS)
    tl.store(last_hidden + scan * page + at, h.to(DTYPE), mask=mine)


@triton.jit(do_not_specialize=FREE)
def gru_backward(
    gates, weight, hidden, candidate, slopes, of_outputs, of_hidden, lengths, order, ring, steps, batch, offset,
    U: tl.constexpr, V: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr,
    SIGNS: tl.constexpr, SPLIT: tl.constexpr, ROUNDS: tl.constexpr, REPLACES: tl.constexpr, VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """slopes (T, B, 3V): the gradients of the inputs of r and z, and of what r multiplies: those of U h, together.

    candidate (T, B, U): what r multiplies, overwritten by the gradient of the input of n. of_outputs (T, B, U): that of
    the outputs; of_hidden (B, U), float32: that of the last state, overwritten by that of the first. V is U rounded up
    to a multiple of four, also in the rows of weight, so that quarters are whole; what is too much holds zeros.
    """
    K: tl.constexpr = 3 * V // 4
    scan = tl.program_id(2).to(tl.int64)
    page, sheet = batch.to(tl.int64) * U, batch.to(tl.int64) * (3 * V)  # one step of all rows
    gates += scan * steps * page * 3
    slopes += scan * steps * sheet
    weight += scan * 3 * V * U
    hidden += scan * (steps + 1) * page
    candidate += scan * steps * page
    of_outputs += scan * steps * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)

    rows, there, starts, reals = quartered(row, real, 3 * V, U, K, M, OWN, SPLIT)
    chunks = held(weight, rows, there, U, K, KC, HELD)
    signs = top * (3 * V) + 2 * V + tl.minimum(tl.arange(0, SIGNS) * OWN, U - 1)  # what each program publishes last
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    mine = (unit < U)[:, None] & real[None, :]
    at, gate_at = row[None, :] * U + unit[:, None], row[None, :] * (3 * U) + unit[:, None]
    mine_at = slopes + (row[None, :] * (3 * V) + unit[:, None])
    of_first = of_hidden + scan * page + at
    of_last = one(of_first, mine)
    kept = tl.zeros_like(of_last)
    for t in range(longest, steps):
        publish_all(mine_at + t * sheet, zeros(kept, 3), mine, V, 3, DTYPE, BITS)
        tl.store(candidate + t * page + at, kept.to(DTYPE), mask=mine)
    dh = of_last
    for back in range(longest + 1):  # one more, for the state before the first step
        t = longest - 1 - back
        here = (t * (t >= 0)) * page
        values, h = read(gates + here * 3 + gate_at, mine, U, 3), one(hidden + here + at, mine)
        u, of_output = one(candidate + here + at, mine), one(of_outputs + here + at, mine)
        if back > 0:
            parts = multiplied(
                chunks, weight, rows, there, slopes + (t + 1) * sheet, starts, reals, signs,
                U, K, KC, HELD, SIGNS, OWN, M, SPLIT, DTYPE, PRECISION,
            )  # fmt: skip
            dh = kept + joined(parts, ring, back - 1, OWN, ROUNDS, SPLIT)
            dh = tl.where((t + 1 < length)[None, :], dh, of_last)
        if t >= 0:
            d = tl.where((t < length)[None, :], dh + of_output, 0.0)
            of_z, of_n, kept = through_blend(values, h, d, REPLACES)
            r = values[0]
            publish_all(mine_at + t * sheet, (of_n * u * r * (1 - r), of_z, of_n * r), mine, V, 3, DTYPE, BITS)
            tl.store(candidate + here + at, of_n.to(DTYPE), mask=mine)
    tl.store(of_first, dh, mask=mine)


@triton.jit
def through_blend(gates, h, d, REPLACES: tl.constexpr):
    """The gradient d of the new state → those of the inputs of z and n, and the part that goes straight to h."""
    _, z, n = gates
    share = 1 - z if REPLACES else z
    of_z = d * (n - h if REPLACES else h - n) * z * (1 - z)
    return of_z, d * (1 - share) * (1 - n * n), d * share
