"""The matrix products of one step of a recurrent kernel, in Triton.

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

K is the number of columns in a quarter. This module knows nothing of cells.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.packed_rows import locate_previous_states
from seqwise.kernels.recurrence.gpu.sync import matmul_published, reduce_partial_sums, split_gates


@triton.jit
def multiply_previous_states(
    chunks, weight, row_offsets, row_mask, hidden, step, begin, active, sequences, stride,
    config: tl.constexpr,
):  # fmt: skip
    """W h_{t−1} for the program's rows of W, (R, M). The states of the step before begin at row `begin` of `hidden`."""
    rows = locate_previous_states(step, begin, sequences, config)
    return matmul_published(
        chunks, weight, row_offsets, row_mask, hidden, rows * stride, active, (begin + sequences.first) * stride,
        1, config.units, config.own_units, config,
    )  # fmt: skip


@triton.jit
def multiply_by_gate(
    chunks, weight, row_offsets, row_mask, grad_gates, gate, active, sequences, stride, ring, turn,
    ROUNDS: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Wᵀ times the gradients of all gates, for the program's own units, (own_units, M).

    This program multiplies those of one gate; rows of `grad_gates` are `stride` apart. `turn` counts the calls from 0.
    """
    U: tl.constexpr = config.units
    partial = matmul_published(
        chunks, weight, row_offsets, row_mask, grad_gates, sequences.index * stride + gate * U, active,
        sequences.first * stride + gate * U, U, U, config.own_units, config,
    )  # fmt: skip
    group = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    block = group * (tl.num_programs(0) // 4) + tl.program_id(0) // 4
    return reduce_partial_sums(partial, ring, block, tl.program_id(0) % 4, turn, config.own_units, ROUNDS)


@triton.jit
def locate_quarters(sequences, row_stride, K: tl.constexpr, SPLIT: tl.constexpr, config: tl.constexpr):
    """Return where the program's rows of the transposed matrix (…, U) begin, which of them exist, where the values of
    its sequences begin in a step, `row_stride` apart, and how many steps each sequence has."""
    M: tl.constexpr = config.batch_tile
    line = tl.arange(0, 4 * config.own_units)
    num_steps = tl.where(sequences.exist, sequences.length, 0)
    if SPLIT:
        unit = tl.program_id(0) // 4 * (4 * config.own_units) + line
        first_column = tl.program_id(0) % 4 * K
        row_offsets, starts = first_column * config.units + unit, sequences.index * row_stride + first_column
    else:
        unit = tl.program_id(0) * config.own_units + line // 4
        row_offsets = line % 4 * (K * config.units) + unit
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
        row_quarter, value_quarter = (
            tl.arange(0, 4 * config.own_units)[:, None, None] % 4,
            tl.arange(0, 4)[None, :, None],
        )
        total = tl.sum(tl.where(row_quarter == value_quarter, total, 0.0), axis=1)
    return total


@triton.jit
def sum_quarters(parts, ring, turn, ROUNDS: tl.constexpr, SPLIT: tl.constexpr, config: tl.constexpr):
    """The sum over the quarters for the program's own units, (own_units, M). `turn` counts the calls from 0."""
    if SPLIT:
        group = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
        block = group * (tl.num_programs(0) // 4) + tl.program_id(0) // 4
        total = reduce_partial_sums(parts, ring, block, tl.program_id(0) % 4, turn, config.own_units, ROUNDS)
    else:
        first, second, third, fourth = split_gates(parts, config.own_units)
        total = first + second + (third + fourth)
    return total
