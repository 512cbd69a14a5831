"""A product by quarters of its columns, in Triton. In a backward pass there are several gates' gradients to multiply.

Split, 64 units belong to four programs: each multiplies a quarter of the columns for all of them, they exchange partial
sums, and each goes on with 16 units. That reads least. Otherwise each program multiplies everything for its own 16
units, and no sums are exchanged, which is faster while there is little to read. A matrix instruction takes 64 rows:
they are the 16 units for each quarter of the columns, times the values of each quarter; of the result, only each
quarter with itself is wanted.

It knows no cell. K is the number of columns in a quarter.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import four, product, summed


@triton.jit
def quartered(
    row,
    real,
    length,
    width,
    U: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,
    OWN: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Where the program's rows of the transposed matrix (…, U) begin and whether they are there. Where in a step those
    of the values begin, `width` apart, and how many steps each has: it has those whose time is less."""
    line = tl.arange(0, 4 * OWN)
    lasting = tl.where(real, length, 0)
    if SPLIT:
        owner = tl.program_id(0) // 4 * (4 * OWN) + line
        skipped = tl.program_id(0) % 4 * K
        rows, starts = skipped * U + owner, row * width + skipped
    else:
        owner = tl.program_id(0) * OWN + line // 4
        rows = line % 4 * (K * U) + owner
        starts = tl.reshape(row[None, :] * width + tl.arange(0, 4)[:, None] * K, (4 * M,))
        starts = tl.multiple_of(starts, K & -K)  # `width` is a multiple of K; without it every value is loaded alone
        lasting = tl.reshape(tl.broadcast_to(lasting[None, :], (4, M)), (4 * M,))
    return rows, owner < U, starts, lasting


@triton.jit
def multiplied(
    chunks,
    matrix,
    rows,
    there,
    source,
    starts,
    reals,
    signs,
    U: tl.constexpr,
    K: tl.constexpr,
    KC: tl.constexpr,
    HELD: tl.constexpr,
    SIGNS: tl.constexpr,
    OWN: tl.constexpr,
    M: tl.constexpr,
    SPLIT: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The parts of the product, (4·OWN, M): quarters of the program's units, or one quarter of four times as many.

    `signs` (SIGNS,) are the places looked at first, one for each program.
    """
    total = product(
        chunks, matrix, rows, there, source, starts, reals, signs, U, K, KC, HELD, 0, SIGNS, DTYPE, PRECISION
    )
    if not SPLIT:
        total = tl.reshape(total, (4 * OWN, 4, M))
        ours, theirs = tl.arange(0, 4 * OWN)[:, None, None] % 4, tl.arange(0, 4)[None, :, None]
        total = tl.sum(tl.where(ours == theirs, total, 0.0), axis=1)
    return total


@triton.jit
def joined(parts, ring, turn, OWN: tl.constexpr, ROUNDS: tl.constexpr, SPLIT: tl.constexpr):
    """The sum over the quarters for the program's own units, (OWN, M). `turn` counts the sums from 0."""
    if SPLIT:
        group = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
        block = group * (tl.num_programs(0) // 4) + tl.program_id(0) // 4
        whole = summed(parts, ring, block, tl.program_id(0) % 4, turn, 4, OWN, ROUNDS)
    else:
        first, second, third, fourth = four(parts, OWN)
        whole = first + second + (third + fourth)
    return whole
