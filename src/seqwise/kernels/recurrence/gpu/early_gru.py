"""The GRU over a whole sequence, reset before the product, forward and backward, in Triton.

A step has two products, one after the other, so values are exchanged twice: h and r·h forwards, the gradients of n and
of r backwards. That of z is multiplied while the others' r is on its way. Layout and rules are those of `gru.py`. It
knows nothing of gradients of weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, held, product, publish, sigmoid, tanh
from seqwise.kernels.recurrence.gpu.gru import through_blend
from seqwise.kernels.recurrence.gpu.quarters import joined, multiplied, quartered
from seqwise.kernels.recurrence.gpu.rows import FREE, placed
from seqwise.kernels.recurrence.gpu.tiles import keep, one, publish_all, read, zeros


@triton.jit(do_not_specialize=FREE)
def early_gru_forward(
    gates, weight, hidden, shown, last_hidden, lengths, order, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    SAVE: tl.constexpr, REPLACES: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr, BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """gates: the projected inputs, overwritten by the gates; hidden[0]: the start; everything else is output.

    shown (T, B, U): r·h, the part of the state that the candidate sees. Without SAVE the gates are not written.
    """
    block, scan = tl.program_id(0), tl.program_id(2).to(tl.int64)
    page = batch.to(tl.int64) * U  # one step of all rows
    gates += scan * steps * page * 3
    weight += scan * 3 * U * U
    hidden += scan * (steps + 1) * page
    shown += scan * steps * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)

    line = tl.arange(0, 4 * OWN)
    owner = block * OWN + line // 4
    rows, there = ((line % 4) * U + owner) * U, (owner < U) & (line % 4 < 3)
    chunks = held(weight, rows, there, 1, U, KC, HELD)
    unit = block * OWN + tl.arange(0, OWN)
    mine = (unit < U)[:, None] & real[None, :]
    at, gate_at = row[None, :] * U + unit[:, None], row[None, :] * (3 * U) + unit[:, None]
    h = tl.load(hidden + at, mask=mine, other=0).to(DTYPE, bitcast=True).to(tl.float32)
    for t in range(longest):
        now, before, part = gates + t * page * 3 + gate_at, hidden + t * page, shown + t * page
        x_r, x_z, x_n = read(now, mine, U, 3)
        active = (t < length)[None, :]
        total = product(
            chunks, weight, rows, there, before, row * U, real, top * U, 1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION
        )
        u_r, u_z, _, _ = four(total, OWN)
        r = sigmoid(x_r + u_r)
        publish(part + at, tl.where(active, r * h, 0.0), mine, DTYPE, BITS)
        z = sigmoid(x_z + u_z)
        if SAVE:
            keep(now, (r, z), mine, U, 2, DTYPE)
        total = product(
            chunks, weight, rows, there, part, row * U, real, top * U, 1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION
        )
        _, _, u_n, _ = four(total, OWN)
        n = tanh(x_n + u_n)
        share = 1 - z if REPLACES else z
        new = share * h + (1 - share) * n
        h = tl.where(active, new, h)
        publish(before + page + at, tl.where(active, new, 0.0), mine, DTYPE, BITS)
        if SAVE:
            tl.store(now + 2 * U, n.to(DTYPE), mask=mine)
    for t in range(longest, steps):  # padding of the whole group
        publish(hidden + (t + 1) * page + at, tl.zeros_like(h), mine, DTYPE, BITS)
    tl.store(last_hidden + scan * page + at, h.to(DTYPE), mask=mine)


@triton.jit(do_not_specialize=FREE)
def early_gru_backward(
    gates, weight, hidden, slopes, of_outputs, of_hidden, lengths, order, ring, steps, batch, offset,
    U: tl.constexpr, V: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr,
    SIGNS: tl.constexpr, SPLIT: tl.constexpr, ROUNDS: tl.constexpr, REPLACES: tl.constexpr, VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """slopes (T, B, 3V): the gradients of the gates' inputs. of_outputs (T, B, U): those of the outputs.

    of_hidden (B, U), float32: the gradient of the last state, overwritten by that of the first. V is U rounded up to a
    multiple of four, also in the rows of weight, so that quarters are whole; what is too much holds zeros.
    """
    scan = tl.program_id(2).to(tl.int64)
    page, sheet = batch.to(tl.int64) * U, batch.to(tl.int64) * (3 * V)  # one step of all rows
    gates, of_outputs = gates + scan * steps * page * 3, of_outputs + scan * steps * page
    slopes, weight = slopes + scan * steps * sheet, weight + scan * 3 * V * U
    hidden += scan * (steps + 1) * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)
    K: tl.constexpr = V // 4
    rows, there, starts, reals = quartered(row, real, 3 * V, U, K, M, OWN, SPLIT)
    of_r = held(weight, rows, there, U, K, KC, HELD)
    of_z = held(weight + V * U, rows, there, U, K, KC, HELD)
    of_n = held(weight + 2 * V * U, rows, there, U, K, KC, HELD)
    signs = top * (3 * V) + tl.minimum(tl.arange(0, SIGNS) * OWN, U - 1)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    mine = (unit < U)[:, None] & real[None, :]
    at, gate_at = row[None, :] * U + unit[:, None], row[None, :] * (3 * U) + unit[:, None]
    mine_at = slopes + (row[None, :] * (3 * V) + unit[:, None])
    of_first = of_hidden + scan * page + at
    of_last = one(of_first, mine)
    for t in range(longest, steps):
        publish_all(mine_at + t * sheet, zeros(of_last, 3), mine, V, 3, DTYPE, BITS)
    dh, kept = of_last, tl.zeros_like(of_last)
    for back in range(longest + 1):  # one more, for the state before the first step
        t = longest - 1 - back
        here = (t * (t >= 0)) * page
        values, h = read(gates + here * 3 + gate_at, mine, U, 3), one(hidden + here + at, mine)
        of_output = one(of_outputs + here + at, mine)
        if back > 0:
            parts = multiplied(
                of_z, weight + V * U, rows, there, slopes + (t + 1) * sheet + V, starts, reals, signs,
                U, K, KC, HELD, SIGNS, OWN, M, SPLIT, DTYPE, PRECISION,
            ) + multiplied(
                of_r, weight, rows, there, slopes + (t + 1) * sheet, starts, reals, signs,
                U, K, KC, HELD, SIGNS, OWN, M, SPLIT, DTYPE, PRECISION,
            )  # fmt: skip
            dh = kept + joined(parts, ring, 2 * back - 1, OWN, ROUNDS, SPLIT)
            dh = tl.where((t + 1 < length)[None, :], dh, of_last)
        if t >= 0:
            d = tl.where((t < length)[None, :], dh + of_output, 0.0)
            slope_z, slope_n, kept = through_blend(values, h, d, REPLACES)
            now = mine_at + t * sheet
            publish_all(now + V, (slope_z, slope_n), mine, V, 2, DTYPE, BITS)
            parts = multiplied(
                of_n, weight + 2 * V * U, rows, there, slopes + t * sheet + 2 * V, starts, reals, signs,
                U, K, KC, HELD, SIGNS, OWN, M, SPLIT, DTYPE, PRECISION,
            )  # fmt: skip
            of_shown, r = joined(parts, ring, 2 * back, OWN, ROUNDS, SPLIT), values[0]
            publish(now, of_shown * h * r * (1 - r), mine, DTYPE, BITS)
            kept += of_shown * r
    tl.store(of_first, dh, mask=mine)
