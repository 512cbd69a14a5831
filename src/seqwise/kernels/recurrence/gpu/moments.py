"""Layer normalisation inside a recurrent kernel, in Triton: how the units of a row come to one mean and one variance.

A norm is over all units of a row, and each program owns only some of them. So each tells the others what its own
numbers come to, a few numbers for each of its rows, and every program adds up what it hears. All read the same bits in
the same order and come to the same result.

Means and squares of deviations are put together exactly (Chan, Golub & LeVeque 1979), without the difference of two
large sums. The backward pass needs two plain sums for each norm: of the slopes, and of slopes times normalised values.

Shapes: P programs of a group, M rows of the batch, N numbers for each of them; `words` is the ring in which they are
told. It knows no cell.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import PATIENCE

EPSILON = tl.constexpr(1e-5)  # that of the layer
SMALL = tl.constexpr(4096)  # numbers that a program hears at once, at most
THREADS = tl.constexpr(256)  # of a program, at most


@triton.constexpr_function
def part(programs, rows, numbers):
    """Programs that are heard at once. A tile that is awaited has at least as many numbers as a program has threads:

    with fewer, several threads load the same number, only one of them looks whether it has come, and any of them may
    be the one whose number is taken.
    """
    return max(min(programs, SMALL.value // (rows * numbers)), THREADS.value // (rows * numbers))


@triton.jit
def late(bits, there, mark):
    """Is there a number of another round?"""
    return tl.max(tl.where(there, bits ^ mark, 0) & 1, axis=None) > 0


@triton.jit
def tell(numbers, words, group, turn, P: tl.constexpr, ROUNDS: tl.constexpr):
    """Tell the group this program's numbers (M, N). Where all of them lie, and the mark of this round.

    `turn` counts from 0, and the lowest bit of a number says in which round it was written. All programs of a group
    tell, also one without units: nobody goes on before it has heard everybody, so nobody can be a whole ring ahead.
    """
    M: tl.constexpr = numbers.shape[0]
    N: tl.constexpr = numbers.shape[1]
    programs = tl.num_programs(0)
    place = words + ((turn % ROUNDS) * (tl.num_programs(1) * tl.num_programs(2)) + group) * programs * (M * N)
    mark = (turn // ROUNDS) & 1  # the ring begins with all bits set, which is the mark of no first round
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(place + tl.program_id(0) * (M * N) + at, (numbers.to(tl.int32, bitcast=True) & -2) | mark)
    if P * M * N > SMALL:  # one number of each program is awaited first, as for the values of a step
        who = tl.arange(0, P)
        waits, looks = programs > 0, 0
        while waits & (looks < PATIENCE):
            looks += 1
            waits = late(
                tl.load(place + who * (M * N), mask=who < programs, other=0, volatile=True), who < programs, mark
            )
    return place, mark


@triton.jit
def heard(place, mark, start, M: tl.constexpr, N: tl.constexpr, PART: tl.constexpr):
    """The numbers of the programs from `start` on, (PART, M, N), once they are all there."""
    who = start + tl.arange(0, PART)[:, None, None]
    there = who < tl.num_programs(0)
    places = place + who * (M * N) + tl.arange(0, M)[None, :, None] * N + tl.arange(0, N)[None, None, :]
    bits = tl.load(places, mask=there, other=0, volatile=True)
    looks = 0
    while late(bits, there, mark) & (looks < PATIENCE):
        looks += 1
        bits = tl.load(places, mask=there, other=0, volatile=True)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def spread(values, mask):
    """Mean and squares of deviations, (M,) each, of the values (R, M) under the mask (R, 1); zeros for none."""
    count = tl.maximum(tl.sum(mask.to(tl.float32), axis=None), 1.0)
    mean = tl.sum(tl.where(mask, values, 0.0), axis=0) / count
    deviations = tl.where(mask, values - mean[None, :], 0.0)
    return mean, tl.sum(deviations * deviations, axis=0)


@triton.jit
def put_together(mean, squares, means, more, start, U: tl.constexpr, OWN: tl.constexpr, EACH: tl.constexpr):
    """Mean and squares of the programs before `start`, (M,), and those of some that follow, (PART, M) → of all these.

    A program has EACH numbers for each of its up to OWN units; the last has fewer units, and some may have none.
    """
    units = tl.minimum(tl.maximum(U - (start + tl.arange(0, means.shape[0])) * OWN, 0), OWN)
    counts = (units * EACH).to(tl.float32)[:, None]
    count, added = tl.minimum(start * OWN, U) * EACH * 1.0, tl.sum(counts, axis=None)
    their_mean = tl.sum(counts * means, axis=0) / tl.maximum(added, 1.0)
    deviations = means - their_mean[None, :]
    their_squares = tl.sum(more + counts * deviations * deviations, axis=0)
    apart, share = their_mean - mean, added / (count + added)
    return mean + apart * share, squares + their_squares + apart * apart * count * share


@triton.jit
def moments(
    values,
    mask,
    words,
    group,
    turn,
    U: tl.constexpr,
    OWN: tl.constexpr,
    EACH: tl.constexpr,
    P: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """Mean and 1 / √(variance + ε), (M,) each, of the values (R, M) of all programs under their masks (R, 1)."""
    M: tl.constexpr = values.shape[1]
    PART: tl.constexpr = part(P, M, 2)
    mean, squares = spread(values, mask)
    place, mark = tell(tl.join(mean, squares), words, group, turn, P, ROUNDS)
    mean, squares = tl.zeros((M,), tl.float32), tl.zeros((M,), tl.float32)
    for start in range(0, P, PART):
        means, more = tl.split(heard(place, mark, start, M, 2, PART))
        mean, squares = put_together(mean, squares, means, more, start, U, OWN, EACH)
    return mean, tl.rsqrt(squares / (U * EACH) + EPSILON)


@triton.jit
def two_moments(
    values,
    mask,
    other,
    words,
    group,
    turn,
    U: tl.constexpr,
    OWN: tl.constexpr,
    EACH: tl.constexpr,
    MORE: tl.constexpr,
    P: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """The same of two norms in one exchange: of the values under `mask`, EACH to a unit, and of those under `other`."""
    M: tl.constexpr = values.shape[1]
    PART: tl.constexpr = part(P, M, 4)
    mean, squares = spread(values, mask)
    mean_, squares_ = spread(values, other)
    numbers = tl.reshape(tl.join(tl.join(mean, squares), tl.join(mean_, squares_)), (M, 4))
    place, mark = tell(numbers, words, group, turn, P, ROUNDS)
    mean, squares = tl.zeros((M,), tl.float32), tl.zeros((M,), tl.float32)
    mean_, squares_ = mean, squares
    for start in range(0, P, PART):
        first, second = tl.split(tl.reshape(heard(place, mark, start, M, 4, PART), (PART, M, 2, 2)))
        means, more = tl.split(first)
        means_, more_ = tl.split(second)
        mean, squares = put_together(mean, squares, means, more, start, U, OWN, EACH)
        mean_, squares_ = put_together(mean_, squares_, means_, more_, start, U, OWN, MORE)
    inverse, inverse_ = tl.rsqrt(squares / (U * EACH) + EPSILON), tl.rsqrt(squares_ / (U * MORE) + EPSILON)
    return mean, inverse, mean_, inverse_


@triton.jit
def sums(parts, words, group, turn, P: tl.constexpr, ROUNDS: tl.constexpr):
    """Parts (R, M, N) of N numbers for each row → their sums over all units, (M, N)."""
    M: tl.constexpr = parts.shape[1]
    N: tl.constexpr = parts.shape[2]
    PART: tl.constexpr = part(P, M, N)
    place, mark = tell(tl.sum(parts, axis=0), words, group, turn, P, ROUNDS)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, P, PART):
        total += tl.sum(heard(place, mark, start, M, N, PART), axis=0)
    return total


@triton.jit
def through_norm(slope, value, mean_slope, mean_product, inverse):
    """The gradient of what is normalised: that of the normalised value, less what would move mean and variance."""
    return inverse[None, :] * (slope - mean_slope[None, :] - value * mean_product[None, :])
