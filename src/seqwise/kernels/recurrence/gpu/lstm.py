"""The LSTM over a whole sequence, forward and backward, in Triton. How programs exchange values is in `exchange.py`.

A program of the forward pass owns 16 units, so 64 rows of the recurrent matrix. In the backward pass the gradient of a
unit's output needs the gradients of all gates of all units, four times as many values. So 64 units belong to four
programs: each multiplies the values of one gate, they exchange the partial sums, and each goes on with 16 units.

Layout: slots (`rows.py`), scans (directions), units: gates (N, S, 4U) as i, f, g, o; hidden and cell (B + N + B, S, U)
with the starts; last states (B, S, U). It knows nothing of gradients of weights: those are products over all steps,
taken elsewhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, held, product, publish, sigmoid, summed, tanh
from seqwise.kernels.recurrence.gpu.rows import FREE, before, origin, placed, stepped
from seqwise.kernels.recurrence.gpu.tiles import begun, given, keep, one, publish_all, read


@triton.jit(do_not_specialize=FREE)
def lstm_forward(
    gates,
    weight,
    start_hidden,
    start_cell,
    hidden,
    cell,
    last_hidden,
    last_cell,
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
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """gates: the projected inputs, overwritten by the gates. hidden and cell take the start and what follows.

    Without SAVE only hidden and the last states are written.
    """
    block, scan, wide = tl.program_id(0), tl.program_id(2), tl.num_programs(2) * U  # wide: from a slot to the next
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, gates, hidden, cell = weight + scan * 4 * U * U, gates + scan * 4 * U, hidden + scan * U, cell + scan * U
    line = tl.arange(0, 4 * OWN)
    owner = block * OWN + line // 4
    rows, there = ((line % 4) * U + owner) * U, owner < U
    chunks = held(weight, rows, there, 1, U, KC, HELD)
    unit = block * OWN + tl.arange(0, OWN)
    some = (unit < U)[:, None]
    at, gate_at = row[None, :] * wide + unit[:, None], row[None, :] * (4 * wide) + unit[:, None]
    everybody = some & real[None, :]
    h = begun(start_hidden + scan * U, hidden, at, first, wide, everybody, DTYPE, BITS)
    c = one(start_cell + scan * U + at, everybody)
    if SAVE:
        tl.store(cell + first * wide + at, c.to(DTYPE), mask=everybody)
    states = first
    for step in range(longest):
        _, begin, active = stepped(begins, step, longest, length, real, batch, back, VARIABLE)
        now, mine = gates + begin * (4 * wide) + gate_at, some & active[None, :]
        x_i, x_f, x_g, x_o = read(now, mine, U, 4)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        total = product(
            chunks, weight, rows, there, hidden, places * wide, active, (states + top) * wide,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        a_i, a_f, a_g, a_o = four(total, OWN)
        i, f, g, o = sigmoid(a_i + x_i), sigmoid(a_f + x_f), tanh(a_g + x_g), sigmoid(a_o + x_o)
        c = tl.where(active[None, :], f * c + i * g, c)
        h = tl.where(active[None, :], o * tanh(c), h)
        states = batch + begin
        publish(hidden + states * wide + at, h, mine, DTYPE, BITS)
        if SAVE:
            keep(now, (i, f, g, o), mine, U, 4, DTYPE)
            tl.store(cell + states * wide + at, c.to(DTYPE), mask=mine)
    tl.store(last_hidden + scan * U + at, h.to(DTYPE), mask=everybody)
    tl.store(last_cell + scan * U + at, c.to(DTYPE), mask=everybody)


@triton.jit
def _slopes(gates, dh, dc, c_old, shown, of_output, active):
    """What the gradients of a step's output and cell are before the gates, and that of the cell before the step."""
    i, f, g, o = gates
    d = dh + of_output
    through = dc + d * o * (1 - shown * shown)
    of_i, of_f = through * g * i * (1 - i), through * c_old * f * (1 - f)
    of_g, of_o = through * i * (1 - g * g), d * shown * o * (1 - o)
    return (of_i, of_f, of_g, of_o), tl.where(active, through * f, dc)


@triton.jit(do_not_specialize=(*FREE, "by_step", "by_row", "by_scan"))
def lstm_backward(
    gates,
    weight,
    slopes,
    cell,
    of_outputs,
    of_last,
    of_last_cell,
    of_start,
    of_start_cell,
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
    M: tl.constexpr,
    OWN: tl.constexpr,
    KC: tl.constexpr,
    HELD: tl.constexpr,
    SIGNS: tl.constexpr,
    ROUNDS: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """slopes (N, S, 4U): the gradients of what goes into the gates. of_outputs: those of the outputs, (T, B, S, U) in
    memory of any order, `by_step` apart and so on; with lengths, (N, S, U), and a step is as far as a row.

    of_last, of_last_cell (B, S, U): gradients of the last state, or none. of_start, of_start_cell: those of the first.
    """
    share, block, scan = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2)
    wide = tl.num_programs(2) * U  # from a slot to the next
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, cell = weight + scan * 4 * U * U, cell + scan * U
    gates, slopes = gates + scan * 4 * U, slopes + scan * 4 * U
    owner = block * (4 * OWN) + tl.arange(0, 4 * OWN)
    rows, there = share * U * U + owner, owner < U
    chunks = held(weight, rows, there, U, U, KC, HELD)
    unit = block * (4 * OWN) + share * OWN + tl.arange(0, OWN)
    some = (unit < U)[:, None]
    at, gate_at = row[None, :] * wide + unit[:, None], row[None, :] * (4 * wide) + unit[:, None]
    everybody = some & real[None, :]
    dh, dc = given(of_last, scan * U + at, everybody, OWN, M), given(of_last_cell, scan * U + at, everybody, OWN, M)
    of_outputs += scan * by_scan + row.to(tl.int64)[None, :] * by_row + unit[:, None]
    sums = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * (tl.num_programs(0) // 4) + block
    time, begin, active = stepped(begins, longest - 1, longest, length, real, batch, back, VARIABLE)
    later, went = tl.zeros((), tl.int64), real
    for turn in range(longest + 1):  # one more, for the state before the first step
        step, mine = longest - 1 - turn, some & active[None, :]
        earlier, previous, others = stepped(begins, step - 1, longest, length, real, batch, back, VARIABLE)
        states = tl.where(step > 0, batch + previous, first)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        values = read(gates + begin * (4 * wide) + gate_at, mine, U, 4)
        c_old = one(cell + places[None, :] * wide + unit[:, None], mine)
        shown = tanh(one(cell + (batch + begin) * wide + at, mine))
        of_output = one(of_outputs + (begin if VARIABLE else time.to(tl.int64)) * by_step, mine)
        if turn > 0:
            total = product(
                chunks, weight, rows, there, slopes + later * (4 * wide), row * (4 * wide) + share * U, went,
                top * (4 * wide) + share * U, U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            dh = tl.where(went[None, :], summed(total, ring, sums, share, turn - 1, 4, OWN, ROUNDS), dh)
        if step >= 0:
            found, dc = _slopes(values, dh, dc, c_old, shown, of_output, active[None, :])
            publish_all(slopes + begin * (4 * wide) + gate_at, found, mine, U, 4, DTYPE, BITS)
        later, went = begin, active
        time, begin, active = earlier, previous, others
    tl.store(of_start + scan * U + at, dh, mask=everybody)
    tl.store(of_start_cell + scan * U + at, dc, mask=everybody)
