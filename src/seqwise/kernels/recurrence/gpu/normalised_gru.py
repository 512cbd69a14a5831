"""The GRU with layer normalisation over a whole sequence, forward and backward, in Triton.

The plain one is in `gru.py`; how programs agree on a mean is in `moments.py`. Of the recurrent product, reset and
update are normalised together and the candidate apart; the reset gate acts on what is normalised. Both norms are known
at the same time, so a step forward has two exchanges: hidden values and moments. The projected input comes with its own
norms applied. In the backward pass 64 units belong to four programs, three of which multiply the gradients of one gate
each.

Layout: gates (T, B, 3U) as r, z, n, as are gains and biases (3U); hidden (T + 1, B, U) from the start state on;
statistics (T, B, 4), mean and 1 / √(variance + ε) of both norms; and a leading dimension of scans (directions). It
knows nothing of gradients of weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, held, product, publish, sigmoid, summed, tanh
from seqwise.kernels.recurrence.gpu.moments import sums, through_norm, two_moments
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
def normalised_gru_forward(
    gates, weight, gains, biases, hidden, statistics, last_hidden, lengths, order, words, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    P: tl.constexpr, ROUNDS: tl.constexpr, REPLACES: tl.constexpr, SAVE: tl.constexpr, VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """gates: the projected inputs, overwritten by the gates; hidden[0]: the start; words: a ring."""
    block, scan, page = tl.program_id(0), tl.program_id(2).to(tl.int64), batch.to(tl.int64) * U
    group = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    weight, gains, biases = weight + scan * 3 * U * U, gains + scan * 3 * U, biases + scan * 3 * U
    hidden += scan * (steps + 1) * page
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)
    line = tl.arange(0, 4 * OWN)
    owner, gate = block * OWN + line // 4, line % 4
    places, there = gate * U + owner, (owner < U) & (gate < 3)
    chunks = held(weight, places * U, there, 1, U, KC, HELD)
    gain, bias = one(gains + places, there)[:, None], one(biases + places, there)[:, None]
    apart = (there & (gate == 2))[:, None]
    shared = (there & (gate < 2))[:, None]
    unit = block * OWN + tl.arange(0, OWN)[:, None]
    mine, at, gate_at = (unit < U) & real[None, :], row[None, :] * U + unit, row[None, :] * (3 * U) + unit
    h = tl.load(hidden + at, mask=mine, other=0).to(DTYPE, bitcast=True).to(tl.float32)
    for t in range(longest):
        now, before = gates + (scan * steps + t) * page * 3 + gate_at, hidden + t * page
        x_r, x_z, x_n = read(now, mine, U, 3)
        total = product(
            chunks, weight, places * U, there, before, row * U, real, top * U,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        mean, inverse, n_mean, n_inverse = two_moments(
            total, shared, apart, words, group, t, U, OWN, 2, 1, P, ROUNDS
        )  # fmt: skip
        centre, scale = (
            tl.where(apart, n_mean[None, :], mean[None, :]),
            tl.where(apart, n_inverse[None, :], inverse[None, :]),
        )
        u_r, u_z, u_n, _ = four((total - centre) * scale * gain + bias, OWN)
        r, z = sigmoid(x_r + u_r), sigmoid(x_z + u_z)
        n = tanh(x_n + r * u_n)
        stays = 1 - z if REPLACES else z
        new = stays * h + (1 - stays) * n
        active = (t < length)[None, :]
        h = tl.where(active, new, h)
        publish(before + page + at, tl.where(active, new, 0.0), mine, DTYPE, BITS)
        if SAVE:
            keep(now, (r, z, n), mine, U, 3, DTYPE)
            notes = statistics + ((scan * steps + t) * batch + row) * 4
            note(notes, mean, inverse, real)
            note(notes + 2, n_mean, n_inverse, real)
    for t in range(longest, steps):  # padding of the whole group
        publish(hidden + (t + 1) * page + at, tl.zeros_like(h), mine, DTYPE, BITS)
    keep(last_hidden + scan * page + at, (h,), mine, U, 1, DTYPE)


@triton.jit
def _step(
    d, h, gates, products, gains, bias, inverse, n_inverse, words, group, turn,
    U: tl.constexpr, P: tl.constexpr, ROUNDS: tl.constexpr, REPLACES: tl.constexpr,
):  # fmt: skip
    """The gradient of a step's output → of what enters the gates; of the norms' results; of the products; of h here.

    products come normalised; bias is that of the candidate's norm.
    """
    r, z, n = gates
    u_r, u_z, u_n = products
    gain_r, gain_z, gain_n = gains
    stays = 1 - z if REPLACES else z
    s_z = d * (n - h if REPLACES else h - n) * z * (1 - z)
    s_n = d * (1 - stays) * (1 - n * n)
    s_r = s_n * (u_n * gain_n + bias) * r * (1 - r)
    e_r, e_z, e_n = s_r * gain_r, s_z * gain_z, s_n * r * gain_n
    parts = tl.join(tl.join(e_r + e_z, e_r * u_r + e_z * u_z), tl.join(e_n, e_n * u_n))
    M: tl.constexpr = d.shape[1]
    whole = sums(tl.reshape(parts, (d.shape[0], M, 4)), words, group, turn, P, ROUNDS)
    together, apart = tl.split(tl.reshape(whole, (M, 2, 2)))
    mean, value = tl.split(together / (2 * U))
    n_mean, n_value = tl.split(apart / U)
    p_r = through_norm(e_r, u_r, mean, value, inverse)
    p_z = through_norm(e_z, u_z, mean, value, inverse)
    p_n = through_norm(e_n, u_n, n_mean, n_value, n_inverse)
    return (s_r, s_z, s_n), (s_r, s_z, s_n * r), (p_r, p_z, p_n), d * stays


@triton.jit(do_not_specialize=FREE)
def normalised_gru_backward(
    gates, weight, gains, biases, inputs, slopes, hidden, statistics, of_outputs, of_hidden, tally,
    lengths, order, ring, words, steps, batch, offset,
    U: tl.constexpr, M: tl.constexpr, OWN: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr, SIGNS: tl.constexpr,
    P: tl.constexpr, ROUNDS: tl.constexpr, REPLACES: tl.constexpr, VARIABLE: tl.constexpr, DTYPE: tl.constexpr,
    BITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """inputs (T, B, 3U): the recurrent products, overwritten by the gradients of the projected inputs.

    slopes (T, B, 3U): the gradients of the products. tally (G, 4U): those of all gains and of the candidate's bias, a
    sum for each group. of_hidden (B, U), float32: that of the last state, overwritten by that of the first.
    """
    share, block, scan = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2).to(tl.int64)
    group, page = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1), batch.to(tl.int64) * U
    weight, gains, start = weight + scan * 3 * U * U, gains + scan * 3 * U, scan * steps * page
    gates, inputs, slopes = gates + start * 3, inputs + start * 3, slopes + start * 3
    real, row, length, longest, top = placed(lengths, order, steps, batch, offset, M, VARIABLE)
    owner, gate = block * (4 * OWN) + tl.arange(0, 4 * OWN), share % 3
    rows, there = gate * U * U + owner, (owner < U) & (share < 3)  # the fourth adds zeros
    chunks = held(weight, rows, there, U, U, KC, HELD)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)[:, None]
    mine = (unit < U) & real[None, :]
    at, gate_at = row[None, :] * U + unit, row[None, :] * (3 * U) + unit
    of_last = tl.load(of_hidden + scan * page + at, mask=mine, other=0.0)
    pad(slopes, inputs, gate_at, mine, longest, steps, page, U, 3, DTYPE, BITS)
    own_gains = read(gains + unit, unit < U, U, 3)
    bias = one(biases + scan * 3 * U + 2 * U + unit, unit < U)
    dh, totals, of_bias, stayed = of_last, zeros(of_last, 3), tl.zeros_like(of_last), tl.zeros_like(of_last)
    for back in range(longest + 1):  # one more, for the state before the first step
        t = longest - 1 - back
        here = t * (t >= 0)
        now, notes = here * page * 3, statistics + ((scan * steps + here) * batch + row) * 4
        saved = read(gates + now + gate_at, mine, U, 3)
        u_r, u_z, u_n = read(inputs + now + gate_at, mine, U, 3)
        h = one(hidden + start + (scan + here) * page + at, mine)  # a scan has one state more than steps
        of_output = one(of_outputs + start + here * page + at, mine)
        mean, inverse = noted(notes, real)
        n_mean, n_inverse = noted(notes + 2, real)
        if back > 0:
            total = product(
                chunks, weight, rows, there, slopes + (t + 1) * page * 3, row * (3 * U) + gate * U, real,
                top * (3 * U) + gate * U, U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            whole = summed(total, ring, group * (tl.num_programs(0) // 4) + block, share, back - 1, 4, OWN, ROUNDS)
            dh = tl.where((t + 1 < length)[None, :], stayed + whole, of_last)
        if t >= 0:
            d = tl.where((t < length)[None, :], dh + of_output, 0.0)
            products = normalise((u_r, u_z), mean, inverse, 2) + normalise((u_n,), n_mean, n_inverse, 1)
            of_gates, of_norms, of_products, stayed = _step(
                d, h, saved, products, own_gains, bias, inverse, n_inverse, words, group, back, U, P, ROUNDS, REPLACES
            )
            publish_all(slopes + now + gate_at, of_products, mine, U, 3, DTYPE, BITS)
            keep(inputs + now + gate_at, of_gates, mine, U, 3, DTYPE)
            totals, of_bias = with_products(totals, of_norms, products, 3), of_bias + of_norms[2]
    totals += (of_bias,)
    keep_tally(tally + unit, totals, unit < U, batch, offset, M, U, 4)
    tl.store(of_hidden + scan * page + at, dh, mask=mine)
