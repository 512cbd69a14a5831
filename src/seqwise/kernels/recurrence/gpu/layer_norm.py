"""Triton functions for layer normalisation inside a recurrent kernel, where several programs own the units of a vector.

A norm is over all units of a sequence's vector, and each program owns only some of them. So each publishes the
statistics of its own values, a few numbers per sequence, and every program combines the statistics of all programs. All
read the same bits in the same order and get the same result.

Means and sums of squared deviations are combined exactly (Chan, Golub & LeVeque 1979), without the difference of two
large sums. The backward pass needs two plain sums for each norm: of the gradients, and of gradients times standardised
values. Standardised values are (x − mean) · rstd, before gain and bias; rstd is 1 / √(variance + ε), as PyTorch calls
it.

The numbers are exchanged in a ring buffer `ring` (rounds, D · groups, programs, M, numbers), whose lowest bits say in
which round a number was written, as in `sync.py`. A group is the programs that share the same sequences. Shapes: M
sequences, N numbers for each of them, R rows of values. NUM_PROGRAMS is the number of programs of a group, rounded up
to a power of two; `exchange` counts the exchanges from 0. This module knows nothing of cells.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.packed_rows import load_tiles
from seqwise.kernels.recurrence.gpu.sync import MAX_POLLS

EPSILON = tl.constexpr(1e-5)  # as in `layers.norm`
MAX_LOADED_NUMBERS = tl.constexpr(4096)  # by a program at once
MAX_THREADS = tl.constexpr(256)  # of a program


@triton.constexpr_function
def choose_programs_per_load(programs, sequences, numbers):
    """Returns the number of programs whose statistics are loaded at once.

    A tile that is polled has at least as many numbers as a program has threads (see `sync.py`).
    """
    size = sequences * numbers
    return max(min(programs, MAX_LOADED_NUMBERS.value // size), MAX_THREADS.value // size)


@triton.jit
def has_stale(bits, mask, parity):
    """Returns whether a number was written in another round."""
    return tl.max(tl.where(mask, bits ^ parity, 0) & 1, axis=None) > 0


@triton.jit
def publish_numbers(numbers, ring, exchange, NUM_PROGRAMS: tl.constexpr, config: tl.constexpr):
    """Publishes this program's numbers (M, N) to its group. Returns pointers to the group's numbers, and the parity of
    the round.

    All programs of a group publish, also one without units: none continues before it has the numbers of all, so none
    can be a whole ring ahead.
    """
    M: tl.constexpr = numbers.shape[0]
    N: tl.constexpr = numbers.shape[1]
    programs = tl.num_programs(0)
    group = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    groups = tl.num_programs(1) * tl.num_programs(2)
    pointers = ring + ((exchange % config.rounds) * groups + group) * programs * (M * N)
    parity = (exchange // config.rounds) & 1  # the ring starts with all bits set: no number looks written in round 0
    offsets = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(pointers + tl.program_id(0) * (M * N) + offsets, (numbers.to(tl.int32, bitcast=True) & -2) | parity)
    if NUM_PROGRAMS * M * N > MAX_LOADED_NUMBERS:  # await one number of each program first, as in `matmul_published`
        program = tl.arange(0, NUM_PROGRAMS)
        is_waiting, polls = programs > 0, 0
        while is_waiting & (polls < MAX_POLLS):
            polls += 1
            is_waiting = has_stale(
                tl.load(pointers + program * (M * N), mask=program < programs, other=0, volatile=True),
                program < programs,
                parity,
            )
    return pointers, parity


@triton.jit
def wait_for_numbers(pointers, parity, first_program, M: tl.constexpr, N: tl.constexpr, COUNT: tl.constexpr):
    """Returns the numbers of COUNT programs from `first_program` on, (COUNT, M, N), once all of them are written."""
    program = first_program + tl.arange(0, COUNT)[:, None, None]
    mask = program < tl.num_programs(0)
    number_pointers = pointers + program * (M * N) + tl.arange(0, M)[None, :, None] * N + tl.arange(0, N)[None, None, :]
    bits = tl.load(number_pointers, mask=mask, other=0, volatile=True)
    polls = 0
    while has_stale(bits, mask, parity) & (polls < MAX_POLLS):
        polls += 1
        bits = tl.load(number_pointers, mask=mask, other=0, volatile=True)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def compute_local_statistics(values, mask):
    """Returns mean and sum of squared deviations, (M,) each, of values (R, M) under a mask (R, 1); 0 if it is empty."""
    count = tl.maximum(tl.sum(mask.to(tl.float32), axis=None), 1.0)
    mean = tl.sum(tl.where(mask, values, 0.0), axis=0) / count
    deviations = tl.where(mask, values - mean[None, :], 0.0)
    return mean, tl.sum(deviations * deviations, axis=0)


@triton.jit
def merge_statistics(
    mean, squares, more_means, more_squares, first_program, PER_UNIT: tl.constexpr, config: tl.constexpr
):
    """Merges mean and squared deviations (M,) of the programs before `first_program` with means and squared deviations
    (COUNT, M) of the programs from there on. A program has PER_UNIT values for each unit; the last one has fewer units,
    and some may have none."""
    U: tl.constexpr = config.units
    OWN_UNITS: tl.constexpr = config.own_units
    units = tl.minimum(tl.maximum(U - (first_program + tl.arange(0, more_means.shape[0])) * OWN_UNITS, 0), OWN_UNITS)
    counts = (units * PER_UNIT).to(tl.float32)[:, None]
    count, added_count = tl.minimum(first_program * OWN_UNITS, U) * PER_UNIT * 1.0, tl.sum(counts, axis=None)
    added_mean = tl.sum(counts * more_means, axis=0) / tl.maximum(added_count, 1.0)
    deviations = more_means - added_mean[None, :]
    added_squares = tl.sum(more_squares + counts * deviations * deviations, axis=0)
    difference, added_share = added_mean - mean, added_count / (count + added_count)
    return mean + difference * added_share, squares + added_squares + difference * difference * count * added_share


@triton.jit
def compute_norm_statistics(
    values, mask, ring, exchange,
    PER_UNIT: tl.constexpr, NUM_PROGRAMS: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Returns mean and rstd, (M,) each, over the values (R, M) of all programs under their masks (R, 1)."""
    M: tl.constexpr = values.shape[1]
    COUNT: tl.constexpr = choose_programs_per_load(NUM_PROGRAMS, M, 2)
    mean, squares = compute_local_statistics(values, mask)
    pointers, parity = publish_numbers(tl.join(mean, squares), ring, exchange, NUM_PROGRAMS, config)
    mean, squares = tl.zeros((M,), tl.float32), tl.zeros((M,), tl.float32)
    for first_program in range(0, NUM_PROGRAMS, COUNT):
        more_means, more_squares = tl.split(wait_for_numbers(pointers, parity, first_program, M, 2, COUNT))
        mean, squares = merge_statistics(mean, squares, more_means, more_squares, first_program, PER_UNIT, config)
    return mean, tl.rsqrt(squares / (config.units * PER_UNIT) + EPSILON)


@triton.jit
def compute_two_norm_statistics(
    values, mask_a, mask_b, ring, exchange,
    PER_UNIT_A: tl.constexpr, PER_UNIT_B: tl.constexpr, NUM_PROGRAMS: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Returns the statistics of two norms, under `mask_a` and under `mask_b`, in one exchange."""
    U: tl.constexpr = config.units
    M: tl.constexpr = values.shape[1]
    COUNT: tl.constexpr = choose_programs_per_load(NUM_PROGRAMS, M, 4)
    mean_a, squares_a = compute_local_statistics(values, mask_a)
    mean_b, squares_b = compute_local_statistics(values, mask_b)
    numbers = tl.reshape(tl.join(tl.join(mean_a, squares_a), tl.join(mean_b, squares_b)), (M, 4))
    pointers, parity = publish_numbers(numbers, ring, exchange, NUM_PROGRAMS, config)
    mean_a, squares_a = tl.zeros((M,), tl.float32), tl.zeros((M,), tl.float32)
    mean_b, squares_b = mean_a, squares_a
    for first_program in range(0, NUM_PROGRAMS, COUNT):
        more = wait_for_numbers(pointers, parity, first_program, M, 4, COUNT)
        more_a, more_b = tl.split(tl.reshape(more, (COUNT, M, 2, 2)))
        means_a, more_squares_a = tl.split(more_a)
        means_b, more_squares_b = tl.split(more_b)
        mean_a, squares_a = merge_statistics(
            mean_a, squares_a, means_a, more_squares_a, first_program, PER_UNIT_A, config
        )
        mean_b, squares_b = merge_statistics(
            mean_b, squares_b, means_b, more_squares_b, first_program, PER_UNIT_B, config
        )
    rstd_a = tl.rsqrt(squares_a / (U * PER_UNIT_A) + EPSILON)
    rstd_b = tl.rsqrt(squares_b / (U * PER_UNIT_B) + EPSILON)
    return mean_a, rstd_a, mean_b, rstd_b


@triton.jit
def sum_over_units(values, ring, exchange, NUM_PROGRAMS: tl.constexpr, config: tl.constexpr):
    """Returns the sums of values (R, M, N), N per unit and sequence, over the units of all programs: (M, N)."""
    M: tl.constexpr = values.shape[1]
    N: tl.constexpr = values.shape[2]
    COUNT: tl.constexpr = choose_programs_per_load(NUM_PROGRAMS, M, N)
    pointers, parity = publish_numbers(tl.sum(values, axis=0), ring, exchange, NUM_PROGRAMS, config)
    total = tl.zeros((M, N), tl.float32)
    for first_program in range(0, NUM_PROGRAMS, COUNT):
        total += tl.sum(wait_for_numbers(pointers, parity, first_program, M, N, COUNT), axis=0)
    return total


@triton.jit
def standardize_tiles(tiles, mean, rstd, NUM_TILES: tl.constexpr):
    """Returns (x − mean) · rstd for the values x of each tile."""
    standardized = ()
    for n in tl.static_range(NUM_TILES):
        standardized += ((tiles[n] - mean[None, :]) * rstd[None, :],)  # type: ignore[assignment]
    return standardized


@triton.jit
def differentiate_norm(grad, standardized, mean_grad, mean_product, rstd):
    """Returns the gradient of a norm's input: rstd · (grad − mean(grad) − standardized · mean(grad · standardized)).

    grad: the gradient of the standardised values. mean_grad, mean_product: the two means.
    """
    return rstd[None, :] * (grad - mean_grad[None, :] - standardized * mean_product[None, :])


@triton.jit
def store_statistics(statistics, rows, values, mask, COUNT: tl.constexpr):
    """Stores COUNT statistics (M,) of a step, in (packed rows, D, COUNT), for the backward pass.

    Only the first program of a group does.
    """
    is_writer = mask & (tl.program_id(0) == 0)
    pointers = statistics + (rows * tl.num_programs(2) + tl.program_id(2)) * COUNT
    for n in tl.static_range(COUNT):
        tl.store(pointers + n, values[n], mask=is_writer)


@triton.jit
def load_statistics(statistics, rows, mask, COUNT: tl.constexpr):
    """Loads what `store_statistics` stored."""
    return load_tiles(statistics + (rows * tl.num_programs(2) + tl.program_id(2)) * COUNT, mask, 1, COUNT)


@triton.jit
def store_norm_grads(pointers, grads, mask, batch_size, first_sequence, COUNT: tl.constexpr, config: tl.constexpr):
    """Stores the sums of the gradients (own_units, M) of gains and biases over a group's sequences, in
    (D, groups, COUNT, U)."""
    M: tl.constexpr = config.batch_tile
    groups, group = (batch_size + M - 1) // M, first_sequence // M + tl.program_id(1)
    mask = mask & (group < groups)
    for n in tl.static_range(COUNT):
        destination = pointers + ((tl.program_id(2) * groups + group) * COUNT + n) * config.units
        tl.store(destination, tl.sum(grads[n], axis=1)[:, None], mask=mask)
