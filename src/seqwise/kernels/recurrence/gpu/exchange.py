"""What the programs of a recurrent kernel share, in Triton: how a step's values reach the others, and the product.

A kernel runs the whole sequence. Each program owns some units of some rows and keeps its part of the recurrent matrix
on chip. A step needs the values of all units, so each program publishes its own and waits for the others'. There is no
barrier and no counter: memory that nobody has written yet holds the pattern `EMPTY`, a NaN that no conversion produces,
and a program reads until none is left. Every step has memory of its own, so nothing is overwritten that somebody may
still read. A partial sum has no memory of its own: the lowest bit of each number says in which round it was written.

A tile that is awaited must have at least as many numbers as a program has threads. With fewer, threads share a number,
each loads it for itself, and what one of them has seen says nothing about what another has loaded.

All programs must run at the same time; who launches them takes care of that. Each wait ends after `PATIENCE` looks in
any case, and what is missing then stays NaN.

Shapes: R rows of the matrix held by a program, K columns in chunks of KC, M rows of the batch. It knows no cell.
"""

from __future__ import annotations

import triton
import triton.language as tl

EMPTY = tl.constexpr(-1)  # all bits set
PATIENCE = tl.constexpr(1 << 24)  # some seconds


@triton.jit
def missing(bits):
    """Is there a value that nobody has written yet? `EMPTY` is the largest number without a sign: one maximum tells."""
    if bits.dtype.primitive_bitwidth == 16:
        found = tl.max(bits.to(tl.uint16, bitcast=True).to(tl.int32), axis=None) == 0xFFFF
    else:
        found = tl.max((bits == EMPTY).to(tl.int32), axis=None) > 0
    return found


@triton.jit
def written(pointers, mask):
    """The bits at these places, once all of them have been written."""
    bits = tl.load(pointers, mask=mask, other=0, volatile=True)
    looks = 0
    while missing(bits) & (looks < PATIENCE):
        looks += 1
        bits = tl.load(pointers, mask=mask, other=0, volatile=True)
    return bits


@triton.jit
def publish(pointers, values, mask, DTYPE: tl.constexpr, BITS: tl.constexpr):
    """Write values for the others to see; a NaN as the usual one, which is not `EMPTY`."""
    values = values.to(DTYPE)
    values = tl.where(values == values, values, float("nan"))
    tl.store(pointers, values.to(BITS, bitcast=True), mask=mask)


@triton.jit
def held(matrix, rows, there, STRIDE: tl.constexpr, K: tl.constexpr, KC: tl.constexpr, HELD: tl.constexpr):
    """The first chunks of a program's part of the matrix, (R, KC) each. `rows` are the places of its rows' beginnings.

    They are loaded once and stay on chip for the whole sequence.
    """
    chunks = ()
    for n in tl.static_range(HELD):
        k = n * KC + tl.arange(0, KC)[None, :]
        chunk = tl.load(matrix + rows[:, None] + k * STRIDE, mask=there[:, None] & (k < K), other=0.0)
        chunks += (chunk,)  # type: ignore[assignment]
    return chunks


@triton.jit
def product(
    chunks,
    matrix,
    rows,
    there,
    source,
    starts,
    real,
    first,
    STRIDE: tl.constexpr,
    K: tl.constexpr,
    KC: tl.constexpr,
    HELD: tl.constexpr,
    OWN: tl.constexpr,
    SIGNS: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The program's part of the matrix times what all programs published: (R, M), in float32.

    `source + starts` (M,) is where the K values of each row begin, `first` the row that is looked at first. Before
    everything is read, one value of each program is awaited: programs that read whole tiles while they wait are in each
    other's way. `chunks` are on chip, the others come from the cache of the GPU in every step.
    """
    sign = tl.arange(0, SIGNS) * OWN
    written(source + first + sign, sign < K)
    places = source + starts[:, None]
    k = tl.arange(0, KC)[None, :]
    total = tl.zeros((rows.shape[0], starts.shape[0]), tl.float32)
    if HELD > 0:
        bits = tl.load(places + k, mask=real[:, None] & (k < K), other=0, volatile=True)
        for n in tl.static_range(HELD):
            following = bits
            ahead = (n + 1) * KC + k
            if n + 1 < HELD:
                following = tl.load(places + ahead, mask=real[:, None] & (ahead < K), other=0, volatile=True)
            now = n * KC + k
            looks = 0
            while missing(bits) & (looks < PATIENCE):
                looks += 1
                bits = tl.load(places + now, mask=real[:, None] & (now < K), other=0, volatile=True)
            values = bits.to(DTYPE, bitcast=True)
            total = tl.dot(chunks[n], tl.trans(values), total, input_precision=PRECISION)
            bits = following
    for start in range(HELD * KC, K, KC):
        now = start + k
        chunk = tl.load(matrix + rows[:, None] + now * STRIDE, mask=there[:, None] & (now < K), other=0.0)
        values = written(places + now, real[:, None] & (now < K)).to(DTYPE, bitcast=True)
        total = tl.dot(chunk, tl.trans(values), total, input_precision=PRECISION)
    return total


@triton.jit
def four(values, OWN: tl.constexpr):
    """(4·U, M), four rows to a unit → four times (U, M)."""
    values = tl.permute(tl.reshape(values, (OWN, 2, 2, values.shape[1])), (0, 3, 1, 2))
    even, odd = tl.split(values)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def summed(
    total,
    ring,
    block,
    share,
    turn,
    SHARES: tl.constexpr,
    OWN: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """Partial sums (SHARES·OWN, M) of `SHARES` programs → the sum over them of this program's OWN units, (OWN, M).

    `ring` holds `ROUNDS` rounds of what the blocks of all programs exchange; `turn` counts from 0. A program cannot be
    a whole ring ahead: each round needs what all others made of the last one.
    """
    M: tl.constexpr = total.shape[1]
    R: tl.constexpr = SHARES * OWN
    column = tl.arange(0, M)[None, :]
    size = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2) * R * M
    place = ring + (turn % ROUNDS) * size + block * (SHARES * R * M)
    mark = (turn // ROUNDS) & 1  # the ring begins with all bits set, which is the mark of no first round
    bits = (total.to(tl.int32, bitcast=True) & -2) | mark
    # Units lie side by side, as in everything else that a program reads: no rearranging between threads.
    tl.store(place + share * (R * M) + tl.arange(0, R)[:, None] + column * R, bits)
    mine = (share * OWN + tl.arange(0, OWN))[:, None] + column * R
    whole = tl.zeros((OWN, M), tl.float32)
    late = 1
    looks = 0
    while (late > 0) & (looks < PATIENCE):
        looks += 1
        whole = tl.zeros((OWN, M), tl.float32)
        other = tl.zeros((OWN, M), tl.int32)
        for j in tl.static_range(SHARES):
            part = tl.load(place + j * (R * M) + mine, volatile=True)
            other = other | (part ^ mark)
            whole += part.to(tl.float32, bitcast=True)
        late = tl.max(other & 1, axis=None)
    return whole


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    """Without the overflow of exp(2x): (1 − e) / (1 + e) with e = exp(−2|x|), given its sign."""
    e = tl.exp(-2.0 * tl.abs(x))
    return tl.where(x < 0, e - 1.0, 1.0 - e) / (1.0 + e)
