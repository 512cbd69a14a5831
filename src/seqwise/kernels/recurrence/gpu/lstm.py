"""The LSTM over a whole sequence, forward and backward, in Triton. How programs exchange values is in `exchange.py`.

A program of the forward pass owns 16 units, so 64 rows of the recurrent matrix. In the backward pass the gradient of a
unit's output needs the gradients of all gates of all units, four times as many values. So 64 units belong to four
programs: each multiplies the values of one gate, they exchange the partial sums, and each goes on with 16 units.

Layout: time first, units last: gates (T, B, 4U) as i, f, g, o; hidden (T + 1, B, U) from the start state on; and a
leading dimension of scans (directions). With lengths, `order` lists the rows, longest first. It knows nothing of
gradients of weights: those are products over all steps, taken elsewhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, held, product, publish, sigmoid, summed, tanh
from seqwise.kernels.recurrence.gpu.rows import FREE, placed
from seqwise.kernels.recurrence.gpu.tiles import keep, one, publish_all, read, zeros


@triton.jit(do_not_specialize=FREE)
def lstm_forward(
    gates, weight, hidden, cell, last_hidden, last_cell, lengths, order, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    SAVE: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """gates: the projected inputs, overwritten by the gates; hidden[0], cell[0]: the start; everything else is output.

    Without SAVE only hidden and the last states are written.
    """
    block, scan = tl.program_id(0), tl.program_id(2).to(tl.int64)
    page = batch.to(tl.int64) * U  # one step of all rows
    gates += scan * steps * page * 4
    weight += scan * 4 * U * U
    hidden += scan * (steps + 1) * page
    cell += scan * (steps * SAVE + 1) * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)

    line = tl.arange(0, 4 * OWN)
    owner = block * OWN + line // 4
    rows, there = ((line % 4) * U + owner) * U, owner < U
    chunks = held(weight, rows, there, 1, U, KC, HELD)
    unit = block * OWN + tl.arange(0, OWN)
    mine = (unit < U)[:, None] & real[None, :]
    at, gate_at = row[None, :] * U + unit[:, None], row[None, :] * (4 * U) + unit[:, None]
    c = one(cell + at, mine)
    h = tl.load(hidden + at, mask=mine, other=0).to(DTYPE, bitcast=True).to(tl.float32)
    for t in range(longest):
        now, before = gates + t * page * 4 + gate_at, hidden + t * page
        x_i, x_f, x_g, x_o = read(now, mine, U, 4)
        total = product(
            chunks, weight, rows, there, before, row * U, real, top * U, 1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION
        )
        a_i, a_f, a_g, a_o = four(total, OWN)
        i, f, g, o = sigmoid(a_i + x_i), sigmoid(a_f + x_f), tanh(a_g + x_g), sigmoid(a_o + x_o)
        active = (t < length)[None, :]
        c = tl.where(active, f * c + i * g, c)
        new = o * tanh(c)
        h = tl.where(active, new, h)
        publish(before + page + at, tl.where(active, new, 0.0), mine, DTYPE, BITS)
        if SAVE:
            keep(now, (i, f, g, o), mine, U, 4, DTYPE)
            tl.store(cell + (t + 1) * page + at, c.to(DTYPE), mask=mine)
    for t in range(longest, steps):  # padding of the whole group
        publish(hidden + (t + 1) * page + at, tl.zeros_like(c), mine, DTYPE, BITS)
    tl.store(last_hidden + scan * page + at, h.to(DTYPE), mask=mine)
    tl.store(last_cell + scan * page + at, c.to(DTYPE), mask=mine)


@triton.jit
def _slopes(gates, dh, dc, c_old, shown, of_output, active):
    """What the gradients of a step's output and cell are before the gates, and that of the cell before the step."""
    i, f, g, o = gates
    d = tl.where(active, dh + of_output, 0.0)
    through = tl.where(active, dc, 0.0) + d * o * (1 - shown * shown)
    of_i, of_f = through * g * i * (1 - i), through * c_old * f * (1 - f)
    of_g, of_o = through * i * (1 - g * g), d * shown * o * (1 - o)
    return (of_i, of_f, of_g, of_o), tl.where(active, through * f, dc)


@triton.jit(do_not_specialize=(*FREE, "by_scan", "by_step", "by_row"))
def lstm_backward(
    gates, weight, slopes, cell, of_outputs, of_hidden, of_cell, lengths, order, ring,
    by_scan, by_step, by_row, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    ROUNDS: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """slopes (T, B, 4U): the gradients of what goes into the gates. of_outputs (T, B, U): those of the outputs, in
    memory of any order: `by_step` apart and so on.

    of_hidden, of_cell (B, U), float32: gradients of the last state, overwritten by those of the first.
    """
    share, block, scan = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2).to(tl.int64)
    page = batch.to(tl.int64) * U  # one step of all rows
    gates += scan * steps * page * 4
    slopes += scan * steps * page * 4
    weight += scan * 4 * U * U
    cell += scan * (steps + 1) * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)

    owner = block * (4 * OWN) + tl.arange(0, 4 * OWN)
    rows, there = share * U * U + owner, owner < U
    chunks = held(weight, rows, there, U, U, KC, HELD)
    unit = block * (4 * OWN) + share * OWN + tl.arange(0, OWN)
    mine = (unit < U)[:, None] & real[None, :]
    at, gate_at = row[None, :] * U + unit[:, None], row[None, :] * (4 * U) + unit[:, None]
    of_first, of_first_cell = of_hidden + scan * page + at, of_cell + scan * page + at
    of_last, dc = one(of_first, mine), one(of_first_cell, mine)
    for t in range(longest, steps):
        publish_all(slopes + t * page * 4 + gate_at, zeros(dc, 4), mine, U, 4, DTYPE, BITS)
    dh, of_outputs = of_last, of_outputs + scan * by_scan + row.to(tl.int64)[None, :] * by_row + unit[:, None]
    sums = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * (tl.num_programs(0) // 4) + block
    for back in range(longest + 1):  # one more, for the state before the first step
        t = longest - 1 - back
        here = (t * (t >= 0)) * page
        values, old = read(gates + here * 4 + gate_at, mine, U, 4), cell + here + at
        c_old, shown = one(old, mine), tanh(one(old + page, mine))
        of_output = one(of_outputs + (t * (t >= 0)) * by_step.to(tl.int64), mine)
        if back > 0:
            total = product(
                chunks, weight, rows, there, slopes + (t + 1) * page * 4, row * (4 * U) + share * U, real,
                top * (4 * U) + share * U, U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            dh = summed(total, ring, sums, share, back - 1, 4, OWN, ROUNDS)
            dh = tl.where((t + 1 < length)[None, :], dh, of_last)
        if t >= 0:
            found, dc = _slopes(values, dh, dc, c_old, shown, of_output, (t < length)[None, :])
            publish_all(slopes + here * 4 + gate_at, found, mine, U, 4, DTYPE, BITS)
    tl.store(of_first, dh, mask=mine)
    tl.store(of_first_cell, dc, mask=mine)
