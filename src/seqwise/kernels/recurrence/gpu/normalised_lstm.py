"""The LSTM with layer normalisation over a whole sequence, forward and backward, in Triton.

The plain one is in `lstm.py`, which also says how units are divided; how programs agree on a mean is in `moments.py`.
The recurrent product is normalised over all four gates, and the cell before it is shown. So a step forward has three
exchanges: hidden values, and twice the moments. The projected input comes with its own norm applied.

Layout: as in the plain LSTM; gains and biases (5U), those of the product (4U) before those of the cell; statistics
(T, B, 4), mean and 1 / √(variance + ε) of the product and of the cell. It knows nothing of gradients of weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, held, product, publish, sigmoid, summed, tanh
from seqwise.kernels.recurrence.gpu.moments import moments, sums, through_norm
from seqwise.kernels.recurrence.gpu.rows import FREE, placed
from seqwise.kernels.recurrence.gpu.tiles import (
    keep,
    keep_tally,
    normalise,
    note,
    noted,
    one,
    pad,
    publish_all,
    read,
    with_products,
    zeros,
)


@triton.jit(do_not_specialize=FREE)
def normalised_lstm_forward(
    gates, weight, gains, biases, hidden, cell, statistics, last_hidden, last_cell, lengths, order, words,
    steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    P: tl.constexpr, ROUNDS: tl.constexpr, SAVE: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr,
    BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """gates: the projected inputs, overwritten by the gates; hidden[0], cell[0]: the start; words: a ring."""
    block, scan, page = tl.program_id(0), tl.program_id(2).to(tl.int64), batch.to(tl.int64) * U
    group = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    weight, gains, biases = weight + scan * 4 * U * U, gains + scan * 5 * U, biases + scan * 5 * U
    hidden, cell = hidden + scan * (steps + 1) * page, cell + scan * (steps * SAVE + 1) * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)
    line = tl.arange(0, 4 * OWN)
    owner = block * OWN + line // 4
    places, there = (line % 4) * U + owner, owner < U
    chunks = held(weight, places * U, there, 1, U, KC, HELD)
    gain, bias = one(gains + places, there)[:, None], one(biases + places, there)[:, None]
    unit = block * OWN + tl.arange(0, OWN)[:, None]
    some = unit < U
    cell_gain, cell_bias = one(gains + 4 * U + unit, some), one(biases + 4 * U + unit, some)
    mine, at, gate_at = some & real[None, :], row[None, :] * U + unit, row[None, :] * (4 * U) + unit
    c = one(cell + at, mine)
    h = tl.load(hidden + at, mask=mine, other=0).to(DTYPE, bitcast=True).to(tl.float32)
    for t in range(longest):
        now, before = gates + (scan * steps + t) * page * 4 + gate_at, hidden + t * page
        x_i, x_f, x_g, x_o = read(now, mine, U, 4)
        total = product(
            chunks, weight, places * U, there, before, row * U, real, top * U,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        mean, inverse = moments(total, there[:, None], words, group, 2 * t, U, OWN, 4, P, ROUNDS)
        a_i, a_f, a_g, a_o = four((total - mean[None, :]) * inverse[None, :] * gain + bias, OWN)
        i, f, g, o = sigmoid(a_i + x_i), sigmoid(a_f + x_f), tanh(a_g + x_g), sigmoid(a_o + x_o)
        active = (t < length)[None, :]
        c = tl.where(active, f * c + i * g, c)
        cell_mean, cell_inverse = moments(c, some, words, group, 2 * t + 1, U, OWN, 1, P, ROUNDS)
        new = o * tanh((c - cell_mean[None, :]) * cell_inverse[None, :] * cell_gain + cell_bias)
        h = tl.where(active, new, h)
        publish(before + page + at, tl.where(active, new, 0.0), mine, DTYPE, BITS)
        if SAVE:
            keep(now, (i, f, g, o), mine, U, 4, DTYPE)
            keep(cell + (t + 1) * page + at, (c,), mine, U, 1, DTYPE)
            notes = statistics + ((scan * steps + t) * batch + row) * 4
            note(notes, mean, inverse, real)
            note(notes + 2, cell_mean, cell_inverse, real)
    for t in range(longest, steps):  # padding of the whole group
        publish(hidden + (t + 1) * page + at, tl.zeros_like(c), mine, DTYPE, BITS)
    keep(last_hidden + scan * page + at, (h,), mine, U, 1, DTYPE)
    keep(last_cell + scan * page + at, (c,), mine, U, 1, DTYPE)


@triton.jit
def _agreed(
    e, c, before, factor, weighted, out, out_weighted, inverse, words, group, turn,
    U: tl.constexpr, P: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """The four means of the backward pass, (M,) each, in one exchange: two for the cell's norm, two for the product's.

    e is the slope of the normalised cell c. What reaches the cell is `before` less inverse · (mean of e + c · mean of
    e·c). A unit's slopes of the normalised products are linear in that: it times `factor`, and with their values as
    weights it times `weighted`, besides those of the output gate. So the second pair of means follows from the first
    and from sums that need not wait for it.
    """
    M: tl.constexpr = e.shape[1]
    known = tl.join(tl.join(e, e * c), tl.join(before * factor + out, before * weighted + out_weighted))
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
    d, dc, gates, c_old, values, gains, cell_gain, cell_bias, inverse, cell_inverse, words, group, turn,
    U: tl.constexpr, P: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Gradients of a step's output and cell → of the results of the norms, of the products, and of the old cell.

    values: the products and the cell, normalised. What goes into a gate has the slope of its part of the norm.
    """
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
    before = dc + cell_inverse[None, :] * e
    cell_mean, cell_value, mean, value = _agreed(
        e, c, before, factor, weighted, e_o, e_o * u_o, cell_inverse, words, group, turn, U, P, ROUNDS
    )
    through = dc + through_norm(e, c, cell_mean, cell_value, cell_inverse)
    s_i, s_f, s_g = through * k_i, through * k_f, through * k_g
    p_i = through_norm(s_i * gain_i, u_i, mean, value, inverse)
    p_f = through_norm(s_f * gain_f, u_f, mean, value, inverse)
    p_g = through_norm(s_g * gain_g, u_g, mean, value, inverse)
    p_o = through_norm(e_o, u_o, mean, value, inverse)
    return (s_i, s_f, s_g, s_o, of_norm), (p_i, p_f, p_g, p_o), through * f


@triton.jit(do_not_specialize=FREE)
def normalised_lstm_backward(
    gates, weight, gains, biases, inputs, slopes, cell, statistics, of_outputs, of_hidden, of_cell, tally,
    lengths, order, ring, words, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    P: tl.constexpr, ROUNDS: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr, BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """inputs (T, B, 4U): the recurrent products, overwritten by the gradients of the projected inputs.

    slopes (T, B, 4U): the gradients of the products. tally (G, 6U): those of all gains and of the cell's bias, a sum
    for each group. of_hidden, of_cell (B, U), float32: those of the last state, overwritten by those of the first.
    """
    share, block, scan = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2).to(tl.int64)
    group, page = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1), batch.to(tl.int64) * U
    weight, gains, start = weight + scan * 4 * U * U, gains + scan * 5 * U, scan * steps * page
    gates, inputs, slopes = gates + start * 4, inputs + start * 4, slopes + start * 4
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)
    owner = block * (4 * OWN) + tl.arange(0, 4 * OWN)
    rows, there = share * U * U + owner, owner < U
    chunks = held(weight, rows, there, U, U, KC, HELD)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)[:, None]
    some, mine = unit < U, (unit < U) & real[None, :]
    at, gate_at = row[None, :] * U + unit, row[None, :] * (4 * U) + unit
    of_last = tl.load(of_hidden + scan * page + at, mask=mine, other=0.0)
    dh, dc = of_last, tl.load(of_cell + scan * page + at, mask=mine, other=0.0)
    pad(slopes, inputs, gate_at, mine, longest, steps, page, U, 4, DTYPE, BITS)
    gate_gains, cell_gain = read(gains + unit, some, U, 4), one(gains + 4 * U + unit, some)
    cell_bias = one(biases + scan * 5 * U + 4 * U + unit, some)
    totals, of_bias = zeros(dh, 5), tl.zeros_like(dh)
    for back in range(longest + 1):  # one more, for the state before the first step
        t = longest - 1 - back
        here = t * (t >= 0)
        now, notes = here * page * 4, statistics + ((scan * steps + here) * batch + row) * 4
        saved, products = read(gates + now + gate_at, mine, U, 4), read(inputs + now + gate_at, mine, U, 4)
        old = cell + start + (scan + here) * page + at  # a scan has one cell more than steps
        c_old, c, of_output = one(old, mine), one(old + page, mine), one(of_outputs + start + here * page + at, mine)
        mean, inverse = noted(notes, real)
        cell_mean, cell_inverse = noted(notes + 2, real)
        if back > 0:
            total = product(
                chunks, weight, rows, there, slopes + (t + 1) * page * 4, row * (4 * U) + share * U, real,
                top * (4 * U) + share * U, U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            dh = summed(total, ring, group * (tl.num_programs(0) // 4) + block, share, back - 1, 4, OWN, ROUNDS)
            dh = tl.where((t + 1 < length)[None, :], dh, of_last)
        if t >= 0:
            active = (t < length)[None, :]
            values = normalise(products, mean, inverse, 4) + normalise((c,), cell_mean, cell_inverse, 1)
            of_norms, of_products, of_old = _step(
                tl.where(active, dh + of_output, 0.0), tl.where(active, dc, 0.0), saved, c_old, values, gate_gains,
                cell_gain, cell_bias, inverse, cell_inverse, words, group, back, U, P, ROUNDS,
            )  # fmt: skip
            publish_all(slopes + now + gate_at, of_products, mine, U, 4, DTYPE, BITS)
            keep(inputs + now + gate_at, of_norms, mine, U, 4, DTYPE)
            totals, of_bias = with_products(totals, of_norms, values, 5), of_bias + of_norms[4]
            dc = tl.where(active, of_old, dc)
    totals += (of_bias,)
    keep_tally(tally + unit, totals, some, batch, offset, M, U, 6)
    tl.store(of_hidden + scan * page + at, dh, mask=mine)
    tl.store(of_cell + scan * page + at, dc, mask=mine)
