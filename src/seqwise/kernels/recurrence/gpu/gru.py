"""The GRU over a whole sequence, reset after the product, forward and backward, in Triton.

How programs exchange values is in `exchange.py`; the reset before the product is in `early_gru.py`. A program of the
forward pass owns 16 units, so 48 rows of the recurrent matrix, and 16 empty ones. The backward pass multiplies the
gradients of all gates by quarters (`quarters.py`).

Layout: slots (`rows.py`), scans (directions), units: gates (N, S, 3U) as r, z, n; hidden (B + N + B, S, U) with the
starts; last states (B, S, U). It knows nothing of gradients of weights: those are products over all steps, taken
elsewhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, held, product, publish, sigmoid, tanh
from seqwise.kernels.recurrence.gpu.quarters import joined, multiplied, quartered
from seqwise.kernels.recurrence.gpu.rows import FREE, before, origin, placed, stepped
from seqwise.kernels.recurrence.gpu.tiles import begun, given, keep, one, publish_all, read


@triton.jit(do_not_specialize=FREE)
def gru_forward(
    gates,
    weight,
    bias,
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
    SAVE: tl.constexpr,
    REPLACES: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """gates: the projected inputs, overwritten by the gates. hidden takes the start and what follows.

    Without SAVE only hidden and the last state are written.
    """
    block, scan, wide = tl.program_id(0), tl.program_id(2), tl.num_programs(2) * U  # wide: from a slot to the next
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, gates, hidden = weight + scan * 3 * U * U, gates + scan * 3 * U, hidden + scan * U
    line = tl.arange(0, 4 * OWN)
    owner = block * OWN + line // 4
    rows, there = ((line % 4) * U + owner) * U, (owner < U) & (line % 4 < 3)
    chunks = held(weight, rows, there, 1, U, KC, HELD)
    unit = block * OWN + tl.arange(0, OWN)
    some = (unit < U)[:, None]
    at, gate_at = row[None, :] * wide + unit[:, None], row[None, :] * (3 * wide) + unit[:, None]
    b = tl.load(bias + scan * U + unit, mask=unit < U, other=0.0).to(tl.float32)[:, None]
    everybody = some & real[None, :]
    h = begun(start_hidden + scan * U, hidden, at, first, wide, everybody, DTYPE, BITS)
    states = first
    for step in range(longest):
        _, begin, active = stepped(begins, step, longest, length, real, batch, back, VARIABLE)
        now, mine = gates + begin * (3 * wide) + gate_at, some & active[None, :]
        x_r, x_z, x_n = read(now, mine, U, 3)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        total = product(
            chunks, weight, rows, there, hidden, places * wide, active, (states + top) * wide,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        u_r, u_z, u_n, _ = four(total, OWN)
        r, z = sigmoid(x_r + u_r), sigmoid(x_z + u_z)
        n = tanh(x_n + r * (u_n + b))
        share = 1 - z if REPLACES else z
        h = tl.where(active[None, :], share * h + (1 - share) * n, h)
        states = batch + begin
        publish(hidden + states * wide + at, h, mine, DTYPE, BITS)
        if SAVE:
            keep(now, (r, z, n), mine, U, 3, DTYPE)
    tl.store(last_hidden + scan * U + at, h.to(DTYPE), mask=everybody)


@triton.jit(do_not_specialize=(*FREE, "by_step", "by_row", "by_scan"))
def gru_backward(
    gates,
    weight,
    hidden,
    candidate,
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
    """slopes (N, S, 3V): the gradients of the inputs of r and z, and of what r multiplies: those of U h, together.

    candidate (N, S, U): what r multiplies, overwritten by the gradient of the input of n. of_outputs: those of the
    outputs, (T, B, S, U) in memory of any order, `by_step` apart and so on; with lengths, (N, S, U), and a step is as
    far as a row. of_last (B, S, U): that of the last state, or none. of_start: that of the first. V is U rounded
    up to a multiple of 32, also in the rows of weight, so that quarters are whole; what is too much holds zeros.
    """
    K: tl.constexpr = 3 * V // 4
    scan, wide, deep = tl.program_id(2), tl.num_programs(2) * U, tl.num_programs(2) * (3 * V)  # from slot to slot
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, gates, slopes = weight + scan * 3 * V * U, gates + scan * 3 * U, slopes + scan * 3 * V
    hidden, candidate = hidden + scan * U, candidate + scan * U
    rows, there, starts, lasting = quartered(row, real, length, deep, U, K, M, OWN, SPLIT)
    chunks = held(weight, rows, there, U, K, KC, HELD)
    signs = top * deep + 2 * V + tl.minimum(tl.arange(0, SIGNS) * OWN, U - 1)  # what each program publishes last
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)
    some = (unit < U)[:, None]
    at, gate_at = row[None, :] * wide + unit[:, None], row[None, :] * (3 * wide) + unit[:, None]
    slope_at = row[None, :] * deep + unit[:, None]
    everybody = some & real[None, :]
    dh, kept = given(of_last, scan * U + at, everybody, OWN, M), tl.zeros((OWN, M), tl.float32)
    of_outputs += scan * by_scan + row.to(tl.int64)[None, :] * by_row + unit[:, None]
    time, begin, active = stepped(begins, longest - 1, longest, length, real, batch, back, VARIABLE)
    gone, later, went = longest, tl.zeros((), tl.int64), real
    for turn in range(longest + 1):  # one more, for the state before the first step
        step, mine = longest - 1 - turn, some & active[None, :]
        earlier, previous, others = stepped(begins, step - 1, longest, length, real, batch, back, VARIABLE)
        states = tl.where(step > 0, batch + previous, first)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        values = read(gates + begin * (3 * wide) + gate_at, mine, U, 3)
        h, u = one(hidden + places[None, :] * wide + unit[:, None], mine), one(candidate + begin * wide + at, mine)
        of_output = one(of_outputs + (begin if VARIABLE else time.to(tl.int64)) * by_step, mine)
        if turn > 0:
            parts = multiplied(
                chunks, weight, rows, there, slopes + later * deep, starts, gone < lasting, signs,
                U, K, KC, HELD, SIGNS, OWN, M, SPLIT, DTYPE, PRECISION,
            )  # fmt: skip
            dh = tl.where(went[None, :], kept + joined(parts, ring, turn - 1, OWN, ROUNDS, SPLIT), dh)
        if step >= 0:
            of_z, of_n, kept = through_blend(values, h, dh + of_output, REPLACES)
            found = of_n * u * values[0] * (1 - values[0]), of_z, of_n * values[0]
            publish_all(slopes + begin * deep + slope_at, found, mine, V, 3, DTYPE, BITS)
            tl.store(candidate + begin * wide + at, of_n.to(DTYPE), mask=mine)
        gone, later, went = time, begin, active
        time, begin, active = earlier, previous, others
    tl.store(of_start + scan * U + at, dh, mask=everybody)


@triton.jit
def through_blend(gates, h, d, REPLACES: tl.constexpr):
    """The gradient d of the new state → those of the inputs of z and n, and the part that goes straight to h."""
    _, z, n = gates
    share = 1 - z if REPLACES else z
    of_z = d * (n - h if REPLACES else h - n) * z * (1 - z)
    return of_z, d * (1 - share) * (1 - n * n), d * share
