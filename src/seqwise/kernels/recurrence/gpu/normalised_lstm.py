"""The LSTM with layer normalisation over a whole sequence, forward and backward, in Triton.

The plain one is in `lstm.py`, which also says how units are divided; how programs agree on a mean is in `moments.py`.
The recurrent product is normalised over all four gates, and the cell before it is shown. So a step forward has three
exchanges: hidden values, and twice the moments. The projected input comes with its own norm applied.

Layout: as in the plain LSTM; gains and biases (S, 5U), those of the product (4U) before those of the cell; statistics
(N, S, 4), mean and 1 / √(variance + ε) of the product and of the cell. It knows nothing of gradients of weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, held, product, publish, sigmoid, summed, tanh
from seqwise.kernels.recurrence.gpu.moments import moments, sums, through_norm
from seqwise.kernels.recurrence.gpu.rows import FREE, before, origin, placed, stepped
from seqwise.kernels.recurrence.gpu.tiles import (
    begun,
    given,
    keep,
    keep_tally,
    normalise,
    note,
    noted,
    one,
    publish_all,
    read,
    with_products,
    zeros,
)


@triton.jit(do_not_specialize=FREE)
def normalised_lstm_forward(
    gates,
    weight,
    gains,
    biases,
    start_hidden,
    start_cell,
    hidden,
    cell,
    statistics,
    last_hidden,
    last_cell,
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
    SAVE: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """gates: the projected inputs, overwritten by the gates.

    hidden and cell take the start and what follows; words is a ring. Without SAVE only hidden and the last states
    are written.
    """
    block, scan, wide = tl.program_id(0), tl.program_id(2), tl.num_programs(2) * U  # wide: from a slot to the next
    group = scan * tl.num_programs(1) + tl.program_id(1)
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, gains, biases = weight + scan * 4 * U * U, gains + scan * 5 * U, biases + scan * 5 * U
    gates, hidden, cell = gates + scan * 4 * U, hidden + scan * U, cell + scan * U
    line = tl.arange(0, 4 * OWN)
    owner = block * OWN + line // 4
    rows, there = (line % 4) * U + owner, owner < U
    chunks = held(weight, rows * U, there, 1, U, KC, HELD)
    gain, bias = one(gains + rows, there)[:, None], one(biases + rows, there)[:, None]
    unit = block * OWN + tl.arange(0, OWN)[:, None]
    some, everybody = unit < U, (unit < U) & real[None, :]
    cell_gain, cell_bias = one(gains + 4 * U + unit, some), one(biases + 4 * U + unit, some)
    at, gate_at = row[None, :] * wide + unit, row[None, :] * (4 * wide) + unit
    h = begun(start_hidden + scan * U, hidden, at, first, wide, everybody, DTYPE, BITS)
    c, states = one(start_cell + scan * U + at, everybody), first
    if SAVE:
        keep(cell + first * wide + at, (c,), everybody, U, 1, DTYPE)
    for step in range(longest):
        _, begin, active = stepped(begins, step, longest, length, real, batch, back, VARIABLE)
        now, mine = gates + begin * (4 * wide) + gate_at, some & active[None, :]
        x_i, x_f, x_g, x_o = read(now, mine, U, 4)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        total = product(
            chunks, weight, rows * U, there, hidden, places * wide, active, (states + top) * wide,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        mean, inverse = moments(total, there[:, None], words, group, 2 * step, U, OWN, 4, P, ROUNDS)
        a_i, a_f, a_g, a_o = four((total - mean[None, :]) * inverse[None, :] * gain + bias, OWN)
        i, f, g, o = sigmoid(a_i + x_i), sigmoid(a_f + x_f), tanh(a_g + x_g), sigmoid(a_o + x_o)
        c = tl.where(active[None, :], f * c + i * g, c)
        cell_mean, cell_inverse = moments(c, some, words, group, 2 * step + 1, U, OWN, 1, P, ROUNDS)
        shown = tanh((c - cell_mean[None, :]) * cell_inverse[None, :] * cell_gain + cell_bias)
        h = tl.where(active[None, :], o * shown, h)
        states = batch + begin
        publish(hidden + states * wide + at, h, mine, DTYPE, BITS)
        if SAVE:
            keep(now, (i, f, g, o), mine, U, 4, DTYPE)
            keep(cell + states * wide + at, (c,), mine, U, 1, DTYPE)
            note(statistics, begin + row, (mean, inverse, cell_mean, cell_inverse), active, 4)
    keep(last_hidden + scan * U + at, (h,), everybody, U, 1, DTYPE)
    keep(last_cell + scan * U + at, (c,), everybody, U, 1, DTYPE)


@triton.jit
def _agreed(
    e,
    c,
    whole,
    factor,
    weighted,
    out,
    out_weighted,
    inverse,
    words,
    group,
    turn,
    U: tl.constexpr,
    P: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """The four means of the backward pass, (M,) each, in one exchange: two for the cell's norm, two for the product's.

    e is the slope of the normalised cell c. What reaches the cell is `whole` less inverse · (mean of e + c · mean of
    e·c). A unit's slopes of the normalised products are linear in that: it times `factor`, and with their values as
    weights it times `weighted`, besides those of the output gate. So the second pair of means follows from the first
    and from sums that need not wait for it.
    """
    M: tl.constexpr = e.shape[1]
    known = tl.join(tl.join(e, e * c), tl.join(whole * factor + out, whole * weighted + out_weighted))
    rates = tl.join(tl.join(factor, weighted), tl.join(c * factor, c * weighted))
    parts = tl.reshape(tl.join(known, rates), (e.shape[0], M, 8))
    known, rates = tl.split(tl.reshape(sums(parts, words, group, turn, P, ROUNDS), (M, 2, 2, 2)))
    of_cell, of_products = tl.split(known)
    by_mean, by_value = tl.split(rates)
    mean, mean_value = tl.split(of_cell / U)
    moved = inverse[:, None] * (by_mean * mean[:, None] + by_value * mean_value[:, None])
    products_mean, products_value = tl.split((of_products - moved) / (4 * U))
    return mean, mean_value, products_mean, products_value


@triton.jit
def _step(
    dh,
    dc,
    active,
    gates,
    c_old,
    values,
    gains,
    cell_gain,
    cell_bias,
    inverse,
    cell_inverse,
    words,
    group,
    turn,
    U: tl.constexpr,
    P: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """Gradients of a step's output and cell → of the results of the norms, of the products, and of the old cell.

    values: the products and the cell, normalised. What goes into a gate has the slope of its part of the norm. Rows
    that do not have the step (not `active`) add nothing and keep the gradient of their cell.
    """
    d, of_cell = tl.where(active, dh, 0.0), tl.where(active, dc, 0.0)
    i, f, g, o = gates
    u_i, u_f, u_g, u_o, c = values
    gain_i, gain_f, gain_g, gain_o = gains
    shown = tanh(c * cell_gain + cell_bias)
    of_norm = d * o * (1 - shown * shown)
    e = of_norm * cell_gain
    k_i, k_f, k_g = g * i * (1 - i), c_old * f * (1 - f), i * (1 - g * g)  # what a slope of the cell becomes there
    s_o = d * shown * o * (1 - o)
    e_o = s_o * gain_o
    factor = k_i * gain_i + k_f * gain_f + k_g * gain_g
    weighted = k_i * gain_i * u_i + k_f * gain_f * u_f + k_g * gain_g * u_g
    whole = of_cell + cell_inverse[None, :] * e
    cell_mean, cell_value, mean, value = _agreed(
        e, c, whole, factor, weighted, e_o, e_o * u_o, cell_inverse, words, group, turn, U, P, ROUNDS
    )
    through = of_cell + through_norm(e, c, cell_mean, cell_value, cell_inverse)
    s_i, s_f, s_g = through * k_i, through * k_f, through * k_g
    p_i = through_norm(s_i * gain_i, u_i, mean, value, inverse)
    p_f = through_norm(s_f * gain_f, u_f, mean, value, inverse)
    p_g = through_norm(s_g * gain_g, u_g, mean, value, inverse)
    p_o = through_norm(e_o, u_o, mean, value, inverse)
    return (s_i, s_f, s_g, s_o, of_norm), (p_i, p_f, p_g, p_o), tl.where(active, through * f, dc)


@triton.jit(do_not_specialize=(*FREE, "by_step", "by_row", "by_scan"))
def normalised_lstm_backward(
    gates,
    weight,
    gains,
    biases,
    inputs,
    slopes,
    cell,
    statistics,
    of_outputs,
    of_last,
    of_last_cell,
    of_start,
    of_start_cell,
    tally,
    lengths,
    begins,
    ring,
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
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """inputs (N, S, 4U): the recurrent products, overwritten by the gradients of the projected inputs. slopes (N, S,
    4U): the gradients of the products. tally (S, G, 6U): those of all gains and of the cell's bias, a sum for each
    group. of_outputs: those of the outputs, as in the plain LSTM. of_last, of_last_cell (B, S, U): those of the last
    state, or none. of_start, of_start_cell: those of the first.
    """
    share, block, scan = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2)
    group, wide = scan * tl.num_programs(1) + tl.program_id(1), tl.num_programs(2) * U  # wide: from a slot to the next
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, gains, cell = weight + scan * 4 * U * U, gains + scan * 5 * U, cell + scan * U
    gates, inputs, slopes = gates + scan * 4 * U, inputs + scan * 4 * U, slopes + scan * 4 * U
    owner = block * (4 * OWN) + tl.arange(0, 4 * OWN)
    rows, there = share * U * U + owner, owner < U
    chunks = held(weight, rows, there, U, U, KC, HELD)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)[:, None]
    some, everybody = unit < U, (unit < U) & real[None, :]
    at, gate_at = row[None, :] * wide + unit, row[None, :] * (4 * wide) + unit
    dh, dc = given(of_last, scan * U + at, everybody, OWN, M), given(of_last_cell, scan * U + at, everybody, OWN, M)
    of_outputs += scan * by_scan + row.to(tl.int64)[None, :] * by_row + unit
    gate_gains, cell_gain = read(gains + unit, some, U, 4), one(gains + 4 * U + unit, some)
    cell_bias = one(biases + scan * 5 * U + 4 * U + unit, some)
    totals, of_bias = zeros(dh, 5), tl.zeros_like(dh)
    time, begin, active = stepped(begins, longest - 1, longest, length, real, batch, back, VARIABLE)
    later, went = tl.zeros((), tl.int64), real
    for turn in range(longest + 1):  # one more, for the state before the first step
        step, mine, now = longest - 1 - turn, some & active[None, :], begin * (4 * wide)
        earlier, previous, others = stepped(begins, step - 1, longest, length, real, batch, back, VARIABLE)
        places = before(step, tl.where(step > 0, batch + previous, first), first, longest, length, row, back, VARIABLE)
        saved, products = read(gates + now + gate_at, mine, U, 4), read(inputs + now + gate_at, mine, U, 4)
        c_old, c = one(cell + places[None, :] * wide + unit, mine), one(cell + (batch + begin) * wide + at, mine)
        of_output = one(of_outputs + (begin if VARIABLE else time.to(tl.int64)) * by_step, mine)
        mean, inverse, cell_mean, cell_inverse = noted(statistics, begin + row, active, 4)
        if turn > 0:
            total = product(
                chunks, weight, rows, there, slopes + later * (4 * wide), row * (4 * wide) + share * U, went,
                top * (4 * wide) + share * U, U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            whole = summed(total, ring, group * (tl.num_programs(0) // 4) + block, share, turn - 1, 4, OWN, ROUNDS)
            dh = tl.where(went[None, :], whole, dh)
        if step >= 0:
            values = normalise(products, mean, inverse, 4) + normalise((c,), cell_mean, cell_inverse, 1)
            of_norms, of_products, dc = _step(
                dh + of_output, dc, active[None, :], saved, c_old, values, gate_gains, cell_gain, cell_bias,
                inverse, cell_inverse, words, group, turn, U, P, ROUNDS,
            )  # fmt: skip
            publish_all(slopes + now + gate_at, of_products, mine, U, 4, DTYPE, BITS)
            keep(inputs + now + gate_at, of_norms, mine, U, 4, DTYPE)
            totals, of_bias = with_products(totals, of_norms, values, 5), of_bias + of_norms[4]
        later, went, time, begin, active = begin, active, earlier, previous, others
    totals += (of_bias,)
    keep_tally(tally + unit, totals, some, batch, offset, M, U, 6)
    tl.store(of_start + scan * U + at, dh, mask=everybody)
    tl.store(of_start_cell + scan * U + at, dc, mask=everybody)
