"""Triton functions that synchronise the programs of a persistent recurrent kernel and compute its matrix products.

A kernel runs the whole sequence. Each program owns some hidden units of some sequences and keeps its part of the
recurrent weight on chip. A step needs the values of all units, so every program publishes its own values in global
memory and waits for the values of the others. There is no barrier and no counter:

- **Published values** (`publish`, `wait_and_load`): the memory is initialised with the bit pattern `UNWRITTEN`, a NaN
  that no conversion produces. A reader polls until the pattern is gone. Every step has memory of its own, so nothing is
  overwritten that another program may still read.
- **Partial sums** (`reduce_partial_sums`): they share a ring buffer of a few rounds. The lowest bit of each number says
  in which round it was written.

A tile that is polled must have at least as many numbers as the program has threads. Otherwise several threads load the
same number, only one of them checks it, and another may use a value that it loaded too early.

All programs must be resident at the same time; `launch.py` ensures that. Every wait ends after `MAX_POLLS` attempts,
and values that are missing then stay NaN.

Forward, each program multiplies its rows of the recurrent weight by the hidden state before the step. Backward, a
unit's gradient needs the gradients of all gates of all units, three or four times as many values, so the work is
divided differently:

- **By gates** (`multiply_by_gate`): 64 units belong to four programs. Each multiplies the gradients of one gate for all
  64 units, they exchange partial sums, and each continues with 16 units.
- **By quarters of the columns** (`multiply_quarters`), for the plain GRU. With SPLIT it works like the division by
  gates, with a quarter of all columns for each program, and reads the fewest values. Without, each program multiplies
  all columns for its own 16 units, and no sums are exchanged, which is faster if there is little to read. A matrix
  instruction takes 64 rows: they are the 16 units for each quarter of the columns, multiplied by the values of each
  quarter. Of the result, only the products of a quarter with its own values are used.

Shapes: R rows of the weight per program, K columns (of a quarter, where there are quarters) in chunks of `k_tile`, M
sequences. `config` is a `KernelConfig`. This module knows nothing of cells.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.packed_rows import load_float, locate_previous_states

UNWRITTEN = tl.constexpr(-1)  # all bits set
MAX_POLLS = tl.constexpr(1 << 24)  # some seconds


@triton.jit
def has_unwritten(bits):
    """Returns whether a value is still `UNWRITTEN`, the largest unsigned integer: one maximum over the tile decides."""
    if bits.dtype.primitive_bitwidth == 16:
        is_found = tl.max(bits.to(tl.uint16, bitcast=True).to(tl.int32), axis=None) == 0xFFFF
    else:
        is_found = tl.max((bits == UNWRITTEN).to(tl.int32), axis=None) > 0
    return is_found


@triton.jit
def wait_and_load(pointers, mask):
    """Returns the bits at the pointers once all of them are written."""
    bits = tl.load(pointers, mask=mask, other=0, volatile=True)
    polls = 0
    while has_unwritten(bits) & (polls < MAX_POLLS):
        polls += 1
        bits = tl.load(pointers, mask=mask, other=0, volatile=True)
    return bits


@triton.jit
def publish(pointers, values, mask, config: tl.constexpr):
    """Stores values for the other programs. Every NaN becomes the canonical NaN, which differs from `UNWRITTEN`."""
    values = values.to(config.dtype)
    values = tl.where(values == values, values, float("nan"))
    tl.store(pointers, values.to(config.bits, bitcast=True), mask=mask)


@triton.jit
def publish_tiles(pointers, tiles, mask, STRIDE: tl.constexpr, NUM_TILES: tl.constexpr, config: tl.constexpr):
    """Publishes tiles, each `STRIDE` numbers after the one before."""
    for n in tl.static_range(NUM_TILES):
        publish(pointers + n * STRIDE, tiles[n], mask, config)


@triton.jit
def publish_initial_state(initial_state, states, offsets, initial_offset, mask, config: tl.constexpr):
    """Loads the program's part of the initial state, publishes it for the first step of the others, and returns it."""
    h = load_float(initial_state + offsets, mask)
    publish(states + initial_offset + offsets, h, mask, config)
    return h


@triton.jit
def load_weight_chunks(
    weight_hidden, row_offsets, row_mask, STRIDE: tl.constexpr, K: tl.constexpr, config: tl.constexpr
):
    """Loads the first chunks (R, k_tile) of the program's rows of the weight. They stay on chip for the whole sequence.

    `row_offsets` (R,) is where each row begins; neighbouring columns are `STRIDE` numbers apart.
    """
    CHUNKS: tl.constexpr = config.resident_chunks
    chunks = ()
    for n in tl.static_range(CHUNKS):
        k = n * config.k_tile + tl.arange(0, config.k_tile)[None, :]
        chunk = tl.load(weight_hidden + row_offsets[:, None] + k * STRIDE, mask=row_mask[:, None] & (k < K), other=0.0)
        chunks += (chunk,)  # type: ignore[assignment]
    return chunks


@triton.jit
def matmul_published(
    chunks, weight_hidden, row_offsets, row_mask, published, vector_offsets, mask, probe_offset,
    STRIDE: tl.constexpr, K: tl.constexpr, PROBE_STRIDE: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Multiplies the program's rows of the weight by the vectors that all programs published: (R, M) in float32.

    The K values of each vector begin at `published + vector_offsets` (M,). Before whole tiles are read, one value of
    each program is awaited, its probe, from `published + probe_offset` on and `PROBE_STRIDE` apart: programs that poll
    whole tiles slow each other down. The first chunks of the weight are on chip (`chunks`); the others are loaded from
    the L2 cache in every step.
    """
    CHUNKS: tl.constexpr = config.resident_chunks
    probe = tl.arange(0, config.num_probes) * PROBE_STRIDE
    wait_and_load(published + probe_offset + probe, probe < K)
    pointers = published + vector_offsets[:, None]
    k = tl.arange(0, config.k_tile)[None, :]
    total = tl.zeros((row_offsets.shape[0], vector_offsets.shape[0]), tl.float32)
    if CHUNKS > 0:
        bits = tl.load(pointers + k, mask=mask[:, None] & (k < K), other=0, volatile=True)
        for n in tl.static_range(CHUNKS):
            next_bits = bits
            next_k = (n + 1) * config.k_tile + k
            if n + 1 < CHUNKS:
                next_bits = tl.load(pointers + next_k, mask=mask[:, None] & (next_k < K), other=0, volatile=True)
            this_k = n * config.k_tile + k
            polls = 0
            while has_unwritten(bits) & (polls < MAX_POLLS):
                polls += 1
                bits = tl.load(pointers + this_k, mask=mask[:, None] & (this_k < K), other=0, volatile=True)
            values = bits.to(config.dtype, bitcast=True)
            total = tl.dot(chunks[n], tl.trans(values), total, input_precision=config.precision)
            bits = next_bits
    for first_k in range(CHUNKS * config.k_tile, K, config.k_tile):
        this_k = first_k + k
        chunk = tl.load(
            weight_hidden + row_offsets[:, None] + this_k * STRIDE, mask=row_mask[:, None] & (this_k < K), other=0.0
        )
        values = wait_and_load(pointers + this_k, mask[:, None] & (this_k < K)).to(config.dtype, bitcast=True)
        total = tl.dot(chunk, tl.trans(values), total, input_precision=config.precision)
    return total


@triton.jit
def split_gates(values, UNITS: tl.constexpr):
    """Splits (4·UNITS, M) with four rows per unit into four tiles (UNITS, M)."""
    values = tl.permute(tl.reshape(values, (UNITS, 2, 2, values.shape[1])), (0, 3, 1, 2))
    even, odd = tl.split(values)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def reduce_partial_sums(partial, ring, exchange, config: tl.constexpr):
    """Adds up the partial sums (4·own_units, M) of four programs; returns the sums of its own units, (own_units, M).

    `ring` has room for `config.rounds` rounds of all blocks of four programs, and `exchange` counts the calls from 0. A
    program cannot be a whole ring ahead: each round needs what all others computed from the round before.
    """
    group = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    block = group * (tl.num_programs(0) // 4) + tl.program_id(0) // 4
    member = tl.program_id(0) % 4  # which of the four programs of the block this is
    M: tl.constexpr = partial.shape[1]
    UNITS: tl.constexpr = config.own_units
    R: tl.constexpr = 4 * UNITS
    column = tl.arange(0, M)[None, :]
    round_size = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2) * R * M
    pointers = ring + (exchange % config.rounds) * round_size + block * (4 * R * M)
    parity = (exchange // config.rounds) & 1  # the ring starts with all bits set: no number looks written in round 0
    bits = (partial.to(tl.int32, bitcast=True) & -2) | parity
    # Units are contiguous, as in everything else that a program reads: no rearranging between threads.
    tl.store(pointers + member * (R * M) + tl.arange(0, R)[:, None] + column * R, bits)
    own_offsets = (member * UNITS + tl.arange(0, UNITS))[:, None] + column * R
    total = tl.zeros((UNITS, M), tl.float32)
    is_stale = 1
    polls = 0
    while (is_stale > 0) & (polls < MAX_POLLS):
        polls += 1
        total = tl.zeros((UNITS, M), tl.float32)
        mismatch = tl.zeros((UNITS, M), tl.int32)
        for j in tl.static_range(4):
            part = tl.load(pointers + j * (R * M) + own_offsets, volatile=True)
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


@triton.jit
def multiply_previous_states(
    chunks, weight_hidden, row_offsets, row_mask, hidden, step, state_row, active, sequences, stride,
    config: tl.constexpr,
):  # fmt: skip
    """Returns W h_{t−1} for the program's rows of W, (R, M). The previous step's states begin at `state_row` of
    `hidden`."""
    rows = locate_previous_states(step, state_row, sequences, config)
    return matmul_published(
        chunks, weight_hidden, row_offsets, row_mask, hidden, rows * stride, active,
        (state_row + sequences.first) * stride, 1, config.units, config.own_units, config,
    )  # fmt: skip


@triton.jit
def multiply_by_gate(
    chunks, weight_hidden, row_offsets, row_mask, grad_gates, gate, active, sequences, stride, ring, exchange,
    config: tl.constexpr,
):  # fmt: skip
    """Returns Wᵀ times the gradients of all gates, for the program's own units, (own_units, M).

    This program multiplies the gradients of one gate. Rows of `grad_gates` are `stride` numbers apart; `exchange`
    counts the calls from 0.
    """
    U: tl.constexpr = config.units
    partial = matmul_published(
        chunks, weight_hidden, row_offsets, row_mask, grad_gates, sequences.index * stride + gate * U, active,
        sequences.first * stride + gate * U, U, U, config.own_units, config,
    )  # fmt: skip
    return reduce_partial_sums(partial, ring, exchange, config)


@triton.jit
def locate_quarters(sequences, row_stride, K: tl.constexpr, SPLIT: tl.constexpr, config: tl.constexpr):
    """Returns where the program's rows of the transposed weight (…, U) begin, which of them exist, where the values of
    its sequences begin in a step, `row_stride` numbers apart, and the number of steps of each sequence."""
    M: tl.constexpr = config.batch_tile
    local_row = tl.arange(0, 4 * config.own_units)
    num_steps = tl.where(sequences.in_batch, sequences.length, 0)
    if SPLIT:
        unit = tl.program_id(0) // 4 * (4 * config.own_units) + local_row
        first_column = tl.program_id(0) % 4 * K
        row_offsets, vector_offsets = first_column * config.units + unit, sequences.index * row_stride + first_column
    else:
        unit = tl.program_id(0) * config.own_units + local_row // 4
        row_offsets = local_row % 4 * (K * config.units) + unit
        vector_offsets = tl.reshape(sequences.index[None, :] * row_stride + tl.arange(0, 4)[:, None] * K, (4 * M,))
        # `row_stride` is a multiple of K. Without this hint every value would be loaded alone.
        vector_offsets = tl.multiple_of(vector_offsets, K & -K)
        num_steps = tl.reshape(tl.broadcast_to(num_steps[None, :], (4, M)), (4 * M,))
    return row_offsets, unit < config.units, vector_offsets, num_steps


@triton.jit
def multiply_quarters(
    chunks, weight_hidden, row_offsets, row_mask, published, vector_offsets, mask, probe_offsets,
    K: tl.constexpr, SPLIT: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Returns partial sums of the product, (4·own_units, M): four quarters of the columns for the program's units or,
    with SPLIT, one quarter for four times as many units. `probe_offsets` has the probe of each program."""
    total = matmul_published(
        chunks, weight_hidden, row_offsets, row_mask, published, vector_offsets, mask, probe_offsets,
        config.units, K, 0, config,
    )  # fmt: skip
    if not SPLIT:
        total = tl.reshape(total, (4 * config.own_units, 4, config.batch_tile))
        row_quarter = tl.arange(0, 4 * config.own_units)[:, None, None] % 4
        value_quarter = tl.arange(0, 4)[None, :, None]
        total = tl.sum(tl.where(row_quarter == value_quarter, total, 0.0), axis=1)
    return total


@triton.jit
def sum_quarters(partial, ring, exchange, SPLIT: tl.constexpr, config: tl.constexpr):
    """Returns the sum over the quarters for the program's own units, (own_units, M). `exchange` counts the calls."""
    if SPLIT:
        total = reduce_partial_sums(partial, ring, exchange, config)
    else:
        first, second, third, fourth = split_gates(partial, config.own_units)
        total = first + second + (third + fourth)
    return total
