"""The GRU with layer normalisation over a whole sequence, forward and backward, in Triton.

The plain one is in `gru.py`; how programs agree on a mean is in `moments.py`. Of the recurrent product, reset and
update are normalised together and the candidate apart; the reset gate acts on what is normalised. Both norms are known
at the same time, so a step forward has two exchanges: hidden values and moments. The projected input comes with its own
norms applied. In the backward pass 64 units belong to four programs, three of which multiply the gradients of one gate
each.

Layout: slots (`rows.py`), scans (directions), units: gates (N, S, 3U) as r, z, n, as are gains and biases (S, 3U);
hidden (B + N + B, S, U) with the starts; last states (B, S, U); statistics (N, S, 4), mean and 1 / √(variance + ε) of
both norms. It knows nothing of gradients of weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, held, product, publish, sigmoid, summed, tanh
from seqwise.kernels.recurrence.gpu.moments import sums, through_norm, two_moments
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
def normalised_gru_forward(
    gates,
    weight,
    gains,
    biases,
    start_hidden,
    hidden,
    statistics,
    last_hidden,
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
    REPLACES: tl.constexpr,
    SAVE: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """gates: the projected inputs, overwritten by the gates.

    hidden takes the start and what follows; words is a ring. Without SAVE only hidden and the last state are
    written.
    """
    block, scan, wide = tl.program_id(0), tl.program_id(2), tl.num_programs(2) * U  # wide: from a slot to the next
    group = scan * tl.num_programs(1) + tl.program_id(1)
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, gains, biases = weight + scan * 3 * U * U, gains + scan * 3 * U, biases + scan * 3 * U
    gates, hidden = gates + scan * 3 * U, hidden + scan * U
    line = tl.arange(0, 4 * OWN)
    owner, gate = block * OWN + line // 4, line % 4
    rows, there = gate * U + owner, (owner < U) & (gate < 3)
    chunks = held(weight, rows * U, there, 1, U, KC, HELD)
    gain, bias = one(gains + rows, there)[:, None], one(biases + rows, there)[:, None]
    apart, shared = (there & (gate == 2))[:, None], (there & (gate < 2))[:, None]
    unit = block * OWN + tl.arange(0, OWN)[:, None]
    some, everybody = unit < U, (unit < U) & real[None, :]
    at, gate_at = row[None, :] * wide + unit, row[None, :] * (3 * wide) + unit
    h = begun(start_hidden + scan * U, hidden, at, first, wide, everybody, DTYPE, BITS)
    states = first
    for step in range(longest):
        _, begin, active = stepped(begins, step, longest, length, real, batch, back, VARIABLE)
        now, mine = gates + begin * (3 * wide) + gate_at, some & active[None, :]
        x_r, x_z, x_n = read(now, mine, U, 3)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        total = product(
            chunks, weight, rows * U, there, hidden, places * wide, active, (states + top) * wide,
            1, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
        )  # fmt: skip
        mean, inverse, n_mean, n_inverse = two_moments(
            total, shared, apart, words, group, step, U, OWN, 2, 1, P, ROUNDS
        )  # fmt: skip
        centre = tl.where(apart, n_mean[None, :], mean[None, :])
        scale = tl.where(apart, n_inverse[None, :], inverse[None, :])
        u_r, u_z, u_n, _ = four((total - centre) * scale * gain + bias, OWN)
        r, z = sigmoid(x_r + u_r), sigmoid(x_z + u_z)
        n = tanh(x_n + r * u_n)
        stays = 1 - z if REPLACES else z
        h = tl.where(active[None, :], stays * h + (1 - stays) * n, h)
        states = batch + begin
        publish(hidden + states * wide + at, h, mine, DTYPE, BITS)
        if SAVE:
            keep(now, (r, z, n), mine, U, 3, DTYPE)
            note(statistics, begin + row, (mean, inverse, n_mean, n_inverse), active, 4)
    keep(last_hidden + scan * U + at, (h,), everybody, U, 1, DTYPE)


@triton.jit
def _step(
    d,
    h,
    gates,
    products,
    gains,
    bias,
    inverse,
    n_inverse,
    words,
    group,
    turn,
    U: tl.constexpr,
    P: tl.constexpr,
    ROUNDS: tl.constexpr,
    REPLACES: tl.constexpr,
):
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


@triton.jit(do_not_specialize=(*FREE, "by_step", "by_row", "by_scan"))
def normalised_gru_backward(
    gates,
    weight,
    gains,
    biases,
    inputs,
    slopes,
    hidden,
    statistics,
    of_outputs,
    of_last,
    of_start,
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
    REPLACES: tl.constexpr,
    VARIABLE: tl.constexpr,
    DTYPE: tl.constexpr,
    BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """inputs (N, S, 3U): the recurrent products, overwritten by the gradients of the projected inputs. slopes (N, S,
    3U): the gradients of the products. tally (S, G, 4U): those of all gains and of the candidate's bias, a sum for each
    group. of_outputs: those of the outputs, as in the plain LSTM. of_last (B, S, U): that of the last state, or
    none. of_start: that of the first.
    """
    share, block, scan = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2)
    group, wide = scan * tl.num_programs(1) + tl.program_id(1), tl.num_programs(2) * U  # wide: from a slot to the next
    top, row, real, length, longest = placed(lengths, steps, batch, offset, M, VARIABLE)
    back, first = origin(batch, slots, reverse)
    weight, gains, hidden = weight + scan * 3 * U * U, gains + scan * 3 * U, hidden + scan * U
    gates, inputs, slopes = gates + scan * 3 * U, inputs + scan * 3 * U, slopes + scan * 3 * U
    owner, gate = block * (4 * OWN) + tl.arange(0, 4 * OWN), share % 3
    rows, there = gate * U * U + owner, (owner < U) & (share < 3)  # the fourth adds zeros
    chunks = held(weight, rows, there, U, U, KC, HELD)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)[:, None]
    some, everybody = unit < U, (unit < U) & real[None, :]
    at, gate_at = scan * U + row[None, :] * wide + unit, row[None, :] * (3 * wide) + unit
    of_outputs += scan * by_scan + row.to(tl.int64)[None, :] * by_row + unit
    own_gains, bias = read(gains + unit, some, U, 3), one(biases + scan * 3 * U + 2 * U + unit, some)
    dh = given(of_last, at, everybody, OWN, M)
    totals, of_bias, stayed = zeros(dh, 3), tl.zeros_like(dh), tl.zeros_like(dh)
    time, begin, active = stepped(begins, longest - 1, longest, length, real, batch, back, VARIABLE)
    later, went = tl.zeros((), tl.int64), real
    for turn in range(longest + 1):  # one more, for the state before the first step
        step, mine, now = longest - 1 - turn, some & active[None, :], begin * (3 * wide)
        earlier, previous, others = stepped(begins, step - 1, longest, length, real, batch, back, VARIABLE)
        states = tl.where(step > 0, batch + previous, first)
        places = before(step, states, first, longest, length, row, back, VARIABLE)
        saved, u = read(gates + now + gate_at, mine, U, 3), read(inputs + now + gate_at, mine, U, 3)
        h = one(hidden + places[None, :] * wide + unit, mine)
        of_output = one(of_outputs + (begin if VARIABLE else time.to(tl.int64)) * by_step, mine)
        mean, inverse, n_mean, n_inverse = noted(statistics, begin + row, active, 4)
        if turn > 0:
            total = product(
                chunks, weight, rows, there, slopes + later * (3 * wide), row * (3 * wide) + gate * U, went,
                top * (3 * wide) + gate * U, U, U, KC, HELD, OWN, SIGNS, DTYPE, PRECISION,
            )  # fmt: skip
            whole = summed(total, ring, group * (tl.num_programs(0) // 4) + block, share, turn - 1, 4, OWN, ROUNDS)
            dh = tl.where(went[None, :], stayed + whole, dh)
        if step >= 0:
            d = tl.where(active[None, :], dh + of_output, 0.0)
            products = normalise(u[:2], mean, inverse, 2) + normalise(u[2:], n_mean, n_inverse, 1)
            of_gates, of_norms, of_products, stayed = _step(
                d, h, saved, products, own_gains, bias, inverse, n_inverse, words, group, turn, U, P, ROUNDS, REPLACES
            )
            publish_all(slopes + now + gate_at, of_products, mine, U, 3, DTYPE, BITS)
            keep(inputs + now + gate_at, of_gates, mine, U, 3, DTYPE)
            totals, of_bias = with_products(totals, of_norms, products, 3), of_bias + of_norms[2]
        later, went = begin, active
        time, begin, active = earlier, previous, others
    totals += (of_bias,)
    keep_tally(tally + unit, totals, some, batch, offset, M, U, 4)
    tl.store(of_start + at, dh, mask=everybody)
