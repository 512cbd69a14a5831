"""Synchronisation between the programs of a persistent recurrent kernel, and its matrix products, in Triton.

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

Forward, each program multiplies its rows of the recurrent matrix by the hidden state before the step. Backward, a
unit's gradient needs the gradients of all gates of all units, three or four times as many values, so the work is
divided differently:

- **By gates** (`multiply_by_gate`): 64 units belong to four programs. Each multiplies the gradients of one gate for all
  of them, they exchange partial sums, and each continues with 16 units.
- **By quarters of the columns** (`multiply_quarters`), for the plain GRU. Split, it works like the division by gates,
  with a quarter of all columns for each program. That reads least. Otherwise each program multiplies everything for its
  own 16 units, and no sums are exchanged, which is faster while there is little to read. A matrix instruction takes 64
  rows: they are the 16 units for each quarter of the columns, times the values of each quarter; of the result, only
  each quarter with itself is used.

Shapes: R rows of the matrix per program, K columns (of a quarter, where there are quarters) in chunks of `k_tile`, M
sequences. `config` is a `KernelConfig`. This module knows nothing of cells.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.packed_rows import load_float, locate_previous_states

UNWRITTEN = tl.constexpr(-1)  # all bits set
MAX_POLLS = tl.constexpr(1 << 24)  # some seconds


@triton.jit
def any_unwritten(bits):
    """Whether a value is still `UNWRITTEN`, which is the largest unsigned integer: one maximum over the tile
    decides."""
    if bits.dtype.primitive_bitwidth == 16:
        has_unwritten = tl.max(bits.to(tl.uint16, bitcast=True).to(tl.int32), axis=None) == 0xFFFF
    else:
        has_unwritten = tl.max((bits == UNWRITTEN).to(tl.int32), axis=None) > 0
    return has_unwritten


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
def publish_gates(pointers, values, mask, STRIDE: tl.constexpr, GATES: tl.constexpr, config: tl.constexpr):
    """Store tiles that the other programs wait for."""
    for gate in tl.static_range(GATES):
        publish(pointers + gate * STRIDE, values[gate], mask, config)


@triton.jit
def publish_initial_state(initial_state, states, offsets, initial_offset, mask, config: tl.constexpr):
    """Load the program's part of the initial state and publish it: the others wait for it as for that of any step."""
    h = load_float(initial_state + offsets, mask)
    publish(states + initial_offset + offsets, h, mask, config)
    return h


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
            next_bits = bits
            next_k = (n + 1) * config.k_tile + k
            if n + 1 < CHUNKS:
                next_bits = tl.load(pointers + next_k, mask=mask[:, None] & (next_k < K), other=0, volatile=True)
            this_k = n * config.k_tile + k
            polls = 0
            while any_unwritten(bits) & (polls < MAX_POLLS):
                polls += 1
                bits = tl.load(pointers + this_k, mask=mask[:, None] & (this_k < K), other=0, volatile=True)
            values = bits.to(config.dtype, bitcast=True)
            total = tl.dot(chunks[n], tl.trans(values), total, input_precision=config.precision)
            bits = next_bits
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
def reduce_partial_sums(partial, ring, exchange, config: tl.constexpr):
    """Partial sums (4·own_units, M) of four programs → the sum over them for this program's units, (own_units, M).

    `ring` holds `rounds` rounds for all blocks of four programs, and `exchange` counts the calls from 0. A program
    cannot be a whole ring ahead: each round needs what all others computed from the round before.
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
    chunks, weight, row_offsets, row_mask, hidden, step, first_row, active, sequences, stride,
    config: tl.constexpr,
):  # fmt: skip
    """W h_{t−1} for the program's rows of W, (R, M). The states of the step before start at `first_row` of `hidden`."""
    rows = locate_previous_states(step, first_row, sequences, config)
    return matmul_published(
        chunks, weight, row_offsets, row_mask, hidden, rows * stride, active, (first_row + sequences.first) * stride,
        1, config.units, config.own_units, config,
    )  # fmt: skip


@triton.jit
def multiply_by_gate(
    chunks, weight, row_offsets, row_mask, grad_gates, gate, active, sequences, stride, ring, exchange,
    config: tl.constexpr,
):  # fmt: skip
    """Wᵀ times the gradients of all gates, for the program's own units, (own_units, M).

    This program multiplies those of one gate. Rows of `grad_gates` are `stride` apart; `exchange` counts the calls from
    0.
    """
    U: tl.constexpr = config.units
    partial = matmul_published(
        chunks, weight, row_offsets, row_mask, grad_gates, sequences.index * stride + gate * U, active,
        sequences.first * stride + gate * U, U, U, config.own_units, config,
    )  # fmt: skip
    return reduce_partial_sums(partial, ring, exchange, config)


@triton.jit
def locate_quarters(sequences, row_stride, K: tl.constexpr, SPLIT: tl.constexpr, config: tl.constexpr):
    """Return where the program's rows of the transposed matrix (…, U) begin, which of them exist, where the values of
    its sequences begin in a step, `row_stride` apart, and how many steps each sequence has."""
    M: tl.constexpr = config.batch_tile
    local_row = tl.arange(0, 4 * config.own_units)
    num_steps = tl.where(sequences.in_batch, sequences.length, 0)
    if SPLIT:
        unit = tl.program_id(0) // 4 * (4 * config.own_units) + local_row
        first_column = tl.program_id(0) % 4 * K
        row_offsets, starts = first_column * config.units + unit, sequences.index * row_stride + first_column
    else:
        unit = tl.program_id(0) * config.own_units + local_row // 4
        row_offsets = local_row % 4 * (K * config.units) + unit
        starts = tl.reshape(sequences.index[None, :] * row_stride + tl.arange(0, 4)[:, None] * K, (4 * M,))
        starts = tl.multiple_of(starts, K & -K)  # `row_stride` is a multiple of K; else every value is loaded alone
        num_steps = tl.reshape(tl.broadcast_to(num_steps[None, :], (4, M)), (4 * M,))
    return row_offsets, unit < config.units, starts, num_steps


@triton.jit
def multiply_quarters(
    chunks, matrix, row_offsets, row_mask, source, starts, mask, probes,
    K: tl.constexpr, SPLIT: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """The parts of the product, (4·own_units, M): four quarters of the program's units, or one quarter of four times as
    many units. `probes` are the places that are awaited first, one for each program."""
    total = matmul_published(
        chunks, matrix, row_offsets, row_mask, source, starts, mask, probes, config.units, K, 0, config
    )
    if not SPLIT:
        total = tl.reshape(total, (4 * config.own_units, 4, config.batch_tile))
        row_quarter = tl.arange(0, 4 * config.own_units)[:, None, None] % 4
        value_quarter = tl.arange(0, 4)[None, :, None]
        total = tl.sum(tl.where(row_quarter == value_quarter, total, 0.0), axis=1)
    return total


@triton.jit
def sum_quarters(parts, ring, exchange, SPLIT: tl.constexpr, config: tl.constexpr):
    """The sum over the quarters for the program's own units, (own_units, M). `exchange` counts the calls from 0."""
    if SPLIT:
        total = reduce_partial_sums(parts, ring, exchange, config)
    else:
        first, second, third, fourth = split_gates(parts, config.own_units)
        total = first + second + (third + fourth)
    return total
