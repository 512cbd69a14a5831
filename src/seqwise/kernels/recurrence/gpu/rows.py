"""Which rows of the batch a program of a recurrent kernel owns, in Triton. It knows no cells and no units."""

from __future__ import annotations

import triton
import triton.language as tl

FREE = ("steps", "batch", "offset")  # numbers that change from batch to batch: no reason to compile anew


@triton.jit
def placed(lengths, order, steps, batch, offset, M: tl.constexpr, VARIABLE: tl.constexpr):
    """Of the program's M rows: which are real, their places in the batch and lengths; the longest; one real row.

    A group beyond the end of the batch has no steps, so it waits for nobody.
    """
    start = offset + tl.program_id(1) * M
    place = start + tl.arange(0, M)
    real = place < batch
    row, length, longest, top = place, tl.full((M,), steps, tl.int32), steps * (start < batch), start
    if VARIABLE:
        row = tl.load(order + place, mask=real, other=0)
        length = tl.load(lengths + row, mask=real, other=0)
        longest = tl.max(length)
        top = tl.min(tl.where(real, row, batch - 1))
    return real, row, length, longest, top
