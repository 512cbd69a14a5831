"""Synchronisation between the programs of a persistent recurrent kernel, and the matrix product of one step, in Triton.

A kernel runs the whole sequence. Each program owns some hidden units of some sequences and keeps its part of the
recurrent matrix on chip. A step needs the values of all units, so every program publishes its own values in global
memory and waits for those of the others. There is no barrier and no counter:

- **Published values** (`publish`, `wait_and_load`): the memory is initialised with the bit pattern `UNWRITTEN`, a NaN
  that no conversion produces. A reader polls until the pattern is gone. Every step has memory of its own, so nothing is
  overwritten that another program may still read.
- **Partial sums** (`reduce_partial_sums`): they share a ring buffer of a few rounds. The lowest bit of each number says
  in which round it was written.

A tile that is polled must have at least as many numbers as the program has threads. Otherwise several threads load the
same number, only one of them checks it, and another may use a value that it loaded too early.

All programs must be resident at the same time; `launch.py` ensures that. Every wait ends after `MAX_POLLS` attempts,
and values that are missing then stay NaN.

Shapes: R rows of the matrix per program, K columns in chunks of `k_tile`, M sequences. `config` is a `KernelConfig`.
This module knows nothing of cells.
"""

from __future__ import annotations

import triton
import triton.language as tl

UNWRITTEN = tl.constexpr(-1)  # all bits set
MAX_POLLS = tl.constexpr(1 << 24)  # some seconds


@triton.jit
def any_unwritten(bits):
    """Whether a value is still `UNWRITTEN`, which is the largest unsigned integer: one maximum over the tile
    decides."""
    if bits.dtype.primitive_bitwidth == 16:
        found = tl.max(bits.to(tl.uint16, bitcast=True).to(tl.int32), axis=None) == 0xFFFF
    else:
        found = tl.max((bits == UNWRITTEN).to(tl.int32), axis=None) > 0
    return found


@triton.jit
def wait_and_load(pointers, mask):
    """Return the bits at the pointers once all of them are written."""
    bits = tl.load(pointers, mask=mask, other=0, volatile=True)
    polls = 0
    while any_unwritten(bits) & (polls < MAX_POLLS):
        polls += 1
        bits = tl.load(pointers, mask=mask, other=0, volatile=True)
    return bits


@triton.jit
def publish(pointers, values, mask, config: tl.constexpr):
    """Store values for the other programs. Every NaN becomes the canonical one, which differs from `UNWRITTEN`."""
    values = values.to(config.dtype)
    values = tl.where(values == values, values, float("nan"))
    tl.store(pointers, values.to(config.bits, bitcast=True), mask=mask)


@triton.jit
def load_weight_chunks(matrix, row_offsets, row_mask, STRIDE: tl.constexpr, K: tl.constexpr, config: tl.constexpr):
    """Load the first chunks (R, k_tile) of the program's rows of the matrix. They stay on chip for the whole sequence.

    `row_offsets` (R,) is where each row begins; neighbouring columns are `STRIDE` apart.
    """
    CHUNKS: tl.constexpr = config.resident_chunks
    chunks = ()
    for n in tl.static_range(CHUNKS):
        k = n * config.k_tile + tl.arange(0, config.k_tile)[None, :]
        chunk = tl.load(matrix + row_offsets[:, None] + k * STRIDE, mask=row_mask[:, None] & (k < K), other=0.0)
        chunks += (chunk,)  # type: ignore[assignment]
    return chunks


@triton.jit
def matmul_published(
    chunks, matrix, row_offsets, row_mask, source, starts, mask, first_probe,
    STRIDE: tl.constexpr, K: tl.constexpr, PROBE_STRIDE: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Multiply the program's rows of the matrix by the vectors that all programs published: (R, M) in float32.

    The K values of each vector begin at `source + starts` (M,). Before whole tiles are read, one value of each program
    is awaited, `PROBE_STRIDE` apart from `source + first_probe` on: programs that poll whole tiles slow each other
    down. The first chunks of the matrix are on chip (`chunks`); the others are loaded from the L2 cache in every step.
    """
    CHUNKS: tl.constexpr = config.resident_chunks
    probe = tl.arange(0, config.num_probes) * PROBE_STRIDE
    wait_and_load(source + first_probe + probe, probe < K)
    pointers = source + starts[:, None]
    k = tl.arange(0, config.k_tile)[None, :]
    total = tl.zeros((row_offsets.shape[0], starts.shape[0]), tl.float32)
    if CHUNKS > 0:
        bits = tl.load(pointers + k, mask=mask[:, None] & (k < K), other=0, volatile=True)
        for n in tl.static_range(CHUNKS):
            following = bits
            next_k = (n + 1) * config.k_tile + k
            if n + 1 < CHUNKS:
                following = tl.load(pointers + next_k, mask=mask[:, None] & (next_k < K), other=0, volatile=True)
            this_k = n * config.k_tile + k
            polls = 0
            while any_unwritten(bits) & (polls < MAX_POLLS):
                polls += 1
                bits = tl.load(pointers + this_k, mask=mask[:, None] & (this_k < K), other=0, volatile=True)
            values = bits.to(config.dtype, bitcast=True)
            total = tl.dot(chunks[n], tl.trans(values), total, input_precision=config.precision)
            bits = following
    for start in range(CHUNKS * config.k_tile, K, config.k_tile):
        this_k = start + k
        chunk = tl.load(
            matrix + row_offsets[:, None] + this_k * STRIDE, mask=row_mask[:, None] & (this_k < K), other=0.0
        )
        values = wait_and_load(pointers + this_k, mask[:, None] & (this_k < K)).to(config.dtype, bitcast=True)
        total = tl.dot(chunk, tl.trans(values), total, input_precision=config.precision)
    return total


@triton.jit
def split_gates(values, UNITS: tl.constexpr):
    """(4·UNITS, M) with four rows per unit → four tiles (UNITS, M)."""
    values = tl.permute(tl.reshape(values, (UNITS, 2, 2, values.shape[1])), (0, 3, 1, 2))
    even, odd = tl.split(values)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def reduce_partial_sums(partial, ring, block, share, turn, UNITS: tl.constexpr, ROUNDS: tl.constexpr):
    """Partial sums (4·UNITS, M) of four programs → the sum over them for this program's UNITS units, (UNITS, M).

    `share` (0 to 3) is this program's place among the four of the block. `ring` holds `ROUNDS` rounds for all blocks,
    and `turn` counts the calls from 0. A program cannot be a whole ring ahead: each round needs what all others
    computed from the round before.
    """
    M: tl.constexpr = partial.shape[1]
    R: tl.constexpr = 4 * UNITS
    column = tl.arange(0, M)[None, :]
    round_size = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2) * R * M
    pointers = ring + (turn % ROUNDS) * round_size + block * (4 * R * M)
    parity = (turn // ROUNDS) & 1  # the ring is initialised with all bits set: no number looks written in round 0
    bits = (partial.to(tl.int32, bitcast=True) & -2) | parity
    # Units are contiguous, as in everything else that a program reads: no rearranging between threads.
    tl.store(pointers + share * (R * M) + tl.arange(0, R)[:, None] + column * R, bits)
    own = (share * UNITS + tl.arange(0, UNITS))[:, None] + column * R
    total = tl.zeros((UNITS, M), tl.float32)
    is_stale = 1
    polls = 0
    while (is_stale > 0) & (polls < MAX_POLLS):
        polls += 1
        total = tl.zeros((UNITS, M), tl.float32)
        mismatch = tl.zeros((UNITS, M), tl.int32)
        for j in tl.static_range(4):
            part = tl.load(pointers + j * (R * M) + own, volatile=True)
            mismatch = mismatch | (part ^ parity)
            total += part.to(tl.float32, bitcast=True)
        is_stale = tl.max(mismatch & 1, axis=None)
    return total


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    """(1 − e) / (1 + e) with e = exp(−2|x|), and the sign of x: exp(2x) would overflow."""
    e = tl.exp(-2.0 * tl.abs(x))
    return tl.where(x < 0, e - 1.0, 1.0 - e) / (1.0 + e)
