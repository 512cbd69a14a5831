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
from seqwise.kernels.recurrence.gpu.rows import FREE, before, origin, placed, stepped
from seqwise.kernels.recurrence.gpu.tiles import begun, given, keep, one, publish_all, read


@triton.jit(do_not_specialize=FREE)
def early_gru_forward(
    gates,
    weight,
    start_hidden,
    hidden,
    shown,
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
    SAVE: tl.constexpr,
    REPLACES: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """gates: the projected inputs, overwritten by the gates. hidden takes the start and what follows.

    shown (N, S, U): r·h, the part of the state that the candidate sees. Without SAVE the gates are not written.
    """
    block, scan, wide = tl.program_id(0), tl.program_id(2), tl.num_programs(2) * U  # wide: from a slot to the next
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, gates, hidden, shown = weight + scan * 3 * U * U, gates + scan * 3 * U, hidden + scan * U, shown + scan * U
    line = tl.arange(0, 4 * OWN)
    owner = block * OWN + line // 4
    rows, there = ((line % 4) * U + owner) * U, (owner < U) & (line % 4 < 3)
    chunks = held(weight, rows, there, 1, U, KC, HELD)
    unit = block * OWN + tl.arange(0, OWN)
    some = (unit < U)[:, None]
    at, gate_at = row[None, :] * wide + unit[:, None], row[None, :] * (3 * wide) + unit[:, None]
    everybody = some & real[None, :]
    h = begun(start_hidden + scan * U, hidden, at, first, wide, everybody, DTYPE, BITS)
    states = first
    for step in range(longest):
        _, begin, active = stepped(begins, step, longest, length, real, batch, back, VARIABLE)
        now, mine = gates + begin * (3 * wide) + gate_at, some & active[None, :]
        part = shown + begin * wide
        x_r, x_z, x_n = read(now, mine, U, 3)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        total = product(
            chunks, weight, rows, there, hidden, places * wide, active, (states + top) * wide,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        u_r, u_z, _, _ = four(total, OWN)
        r = sigmoid(x_r + u_r)
        publish(part + at, r * h, mine, DTYPE, BITS)
        z = sigmoid(x_z + u_z)
        if SAVE:
            keep(now, (r, z), mine, U, 2, DTYPE)
        total = product(
            chunks, weight, rows, there, part, row * wide, active, top * wide,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        _, _, u_n, _ = four(total, OWN)
        n = tanh(x_n + u_n)
        share = 1 - z if REPLACES else z
        h = tl.where(active[None, :], share * h + (1 - share) * n, h)
        states = batch + begin
        publish(hidden + states * wide + at, h, mine, DTYPE, BITS)
        if SAVE:
            tl.store(now + 2 * U, n.to(DTYPE), mask=mine)
    tl.store(last_hidden + scan * U + at, h.to(DTYPE), mask=everybody)


@triton.jit(do_not_specialize=(*FREE, "by_step", "by_row", "by_scan"))
def early_gru_backward(
    gates,
    weight,
    hidden,
    slopes,
    of_outputs,
    of_last,
    of_start,
    lengths,
    begins,
    ring,
    by_step,
    by_row,
    by_scan,
    steps,
    batch,
    slots,
    reverse,
    offset,
    U: tl.constexpr,
    V: tl.constexpr,
    M: tl.constexpr,
    OWN: tl.constexpr,
    KC: tl.constexpr,
    HELD: tl.constexpr,
    SIGNS: tl.constexpr,
    SPLIT: tl.constexpr,
    ROUNDS: tl.constexpr,
    REPLACES: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """slopes (N, S, 3V): the gradients of the gates' inputs. of_outputs: those of the outputs, as in `gru.py`.

    of_last (B, S, U): that of the last state, or none. of_start: that of the first. V is U rounded up to a
    multiple of 32, also in the rows of weight, so that quarters are whole; what is too much holds zeros.
    """
    K: tl.constexpr = V // 4
    scan, wide, deep = tl.program_id(2), tl.num_programs(2) * U, tl.num_programs(2) * (3 * V)  # from slot to slot
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, gates, slopes = weight + scan * 3 * V * U, gates + scan * 3 * U, slopes + scan * 3 * V
    rows, there, starts, lasting = quartered(row, real, length, deep, U, K, M, OWN, SPLIT)
    of_r = held(weight, rows, there, U, K, KC, HELD)
    of_z = held(weight + V * U, rows, there, U, K, KC, HELD)
    of_n = held(weight + 2 * V * U, rows, there, U, K, KC, HELD)
    signs = top * deep + tl.minimum(tl.arange(0, SIGNS) * OWN, U - 1)
    unit = (tl.program_id(0) * OWN + tl.arange(0, OWN))[:, None]
    some, gate_at, slope_at = unit < U, row[None, :] * (3 * wide) + unit, row[None, :] * deep + unit
    at, everybody = scan * U + row[None, :] * wide + unit, some & real[None, :]
    dh, kept = given(of_last, at, everybody, OWN, M), tl.zeros((OWN, M), tl.float32)
    hidden += scan * U + unit
    of_outputs += scan * by_scan + row.to(tl.int64)[None, :] * by_row + unit
    time, begin, active = stepped(begins, longest - 1, longest, length, real, batch, back, VARIABLE)
    for turn in range(longest + 1):  # one more, for the state before the first step
        step, mine = longest - 1 - turn, some & active[None, :]
        # Not what was `begin` before: the compiler would keep every address of the last product for the next.
        gone, later, went = stepped(begins, step + 1, longest, length, real, batch, back, VARIABLE)
        earlier, previous, others = stepped(begins, step - 1, longest, length, real, batch, back, VARIABLE)
        states = tl.where(step > 0, batch + previous, first)
        places = before(step, states, first, longest, length, row, back, VARIABLE)[None, :] * wide
        values, h = read(gates + begin * (3 * wide) + gate_at, mine, U, 3), one(hidden + places, mine)
        of_output = one(of_outputs + (begin if VARIABLE else time.to(tl.int64)) * by_step, mine)
        if turn > 0:
            parts = multiplied(
                of_z, weight + V * U, rows, there, slopes + later * deep + V, starts, gone < lasting, signs,
                U, K, KC, HELD, SIGNS, OWN, M, SPLIT, DTYPE, PRECISION,
            ) + multiplied(
                of_r, weight, rows, there, slopes + later * deep, starts, gone < lasting, signs,
                U, K, KC, HELD, SIGNS, OWN, M, SPLIT, DTYPE, PRECISION,
            )  # fmt: skip
            dh = tl.where(went[None, :], kept + joined(parts, ring, 2 * turn - 1, OWN, ROUNDS, SPLIT), dh)
        if step >= 0:
            slope_z, slope_n, kept = through_blend(values, h, dh + of_output, REPLACES)
            now = slopes + begin * deep + slope_at
            publish_all(now + V, (slope_z, slope_n), mine, V, 2, DTYPE, BITS)
            parts = multiplied(
                of_n, weight + 2 * V * U, rows, there, slopes + begin * deep + 2 * V, starts, time < lasting, signs,
                U, K, KC, HELD, SIGNS, OWN, M, SPLIT, DTYPE, PRECISION,
            )  # fmt: skip
            through = joined(parts, ring, 2 * turn, OWN, ROUNDS, SPLIT) * values[0]  # of h, by way of r·h
            publish(now, through * h * (1 - values[0]), mine, DTYPE, BITS)
            kept += through
        time, begin, active = earlier, previous, others
    tl.store(of_start + at, dh, mask=everybody)
