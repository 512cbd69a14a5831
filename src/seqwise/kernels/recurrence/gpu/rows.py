"""Rows and steps of a recurrent kernel, in Triton: which a program owns, and where in memory each is.

Rows are in the order of their lengths, the longest first. Everything that belongs to a step of a row has a slot: first
come the first steps of all rows, then the second steps of those that have one, and so on; there is no padding. A scan
reads its rows from their first step to the last or, turned, from the last to the first. States have room for the start
besides: `batch` slots before all others, and as many after them for a scan that is turned.

It knows no cells and no units.
"""

from __future__ import annotations

import triton
import triton.language as tl

FREE = ("steps", "batch", "slots", "reverse", "offset")  # they change from batch to batch: no reason to compile anew


@triton.jit
def placed(lengths, steps, batch, offset, M: tl.constexpr, VARIABLE: tl.constexpr):
    """Of the program's M rows: the first of them, all, which are real, their lengths, and the longest.

    A group beyond the end of the batch has no steps, so it waits for nobody.
    """
    first = offset + tl.program_id(1) * M
    row = first + tl.arange(0, M)
    real = row < batch
    length, longest = tl.full((M,), steps, tl.int32), steps * (first < batch)
    if VARIABLE:
        length = tl.load(lengths + row, mask=real, other=0)
        longest = tl.max(length)
    return first, row, real, length, longest


@triton.jit
def origin(batch, slots, reverse):
    """Does this program's scan read from the end (a bit of `reverse` for each)? 0 or 1. And the slot of the first start
    among the states."""
    back = (reverse >> tl.program_id(2)) & 1
    return back, (batch + slots).to(tl.int64) * back


@triton.jit
def stepped(begins, step, longest, length, real, batch, back, VARIABLE: tl.constexpr):
    """Of the step of that number, as the scan reads them: its time, the slot at which its rows begin, and the rows (M,)
    that have it.

    Before the first step there is one that no row has.
    """
    time = tl.where(back != 0, longest - 1 - step, step)
    active = real & (step >= 0)
    if VARIABLE:
        begin = tl.load(begins + tl.minimum(tl.maximum(time, 0), longest)).to(tl.int64)
        active = active & (time < length)
    else:
        begin = time.to(tl.int64) * batch
    return time, begin, active


@triton.jit
def before(step, states, first, longest, length, row, back, VARIABLE: tl.constexpr):
    """Among the states, the slots (M,) of those before a step. `states` is where those after the step before begin.

    In a scan that is turned, a shorter row begins later than others, with its start.
    """
    places = states + row
    if VARIABLE:
        places = tl.where((back != 0) & (longest - step == length), first + row, places)
    return places
