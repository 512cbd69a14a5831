"""The losses of rows of scores, and p − y in their place, in Triton. Importing this imports triton.

One program takes one row, which it reads twice: once for the sum of exponentials, once to overwrite each score by its
gradient. With m the largest score of the row, r = Σ_{k ≠ target} exp(s_k − m) and z = r + exp(s_target − m),

    loss = log z + m − s_target        p_k = exp(s_k − m) / z        p_target − 1 = −r / z

The others are summed apart from the target, so that neither a loss near zero nor p − 1 is the difference of two nearly
equal numbers: while the row is read, −inf stands in the target's place. All of this is in float32; only what is stored
is rounded to the type of the scores. A row without a finite score, with +inf or with NaN gives NaN, as it does
elsewhere.

It knows nothing of vectors and matrices.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwise.kernels.loss import EIGHT

# On an H200, rows × words in bfloat16: 3,328 × 50,304 take 250 µs in blocks of 4,096 and 262 in blocks of 2,048, and a
# copy 168; 8,192 × 10,000 take 140 and 121.
LOADED = 16  # bytes of neighbouring scores that a thread loads at once; they share a maximum and a sum
PER_THREAD = 8  # columns at a time
SIZES = (4096, 2048)  # columns at a time: a block
WASTE = 1.1  # columns that are looked at, per column there is
AHEAD = tl.constexpr(3)  # blocks under way at a time
# A maximum to begin with: the lowest finite float32, so below no score but −inf; −inf minus −inf would be NaN.
LOWEST = tl.constexpr(-3.4028234663852886e38)
NEAR_ZERO = tl.constexpr(1e-3)  # below which log(1 + r) is taken from three terms of its series


@triton.jit(do_not_specialize=["words", "eighths"])
def _rows(
    scores,
    targets,
    of_target,
    factors,
    losses,
    words,
    eighths,
    FACTORS: tl.constexpr,
    ERROR: tl.constexpr,
    GAPS: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    stride = eighths * 8  # a multiple of eight in the compiler's eyes too: 16-bit scores are loaded 16 bytes at a time
    start = scores + row * stride
    target, own = tl.load(targets + row), tl.load(of_target + row).to(tl.float32)
    lane = tl.arange(0, BLOCK // GROUP)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    tl.store(start + target, float("-inf"))
    tl.debug_barrier()  # all threads see it

    # Each group of columns has a maximum and a sum of its own; they meet at the end.
    most = tl.zeros((BLOCK // GROUP,), tl.float32) + tl.maximum(own, LOWEST)
    rest = tl.zeros((BLOCK // GROUP,), tl.float32)
    for block in tl.range(0, BLOCKS, num_stages=AHEAD):
        column = block * BLOCK + lane
        score = tl.load(start + column, mask=column < stride, other=float("-inf")).to(tl.float32)
        if GAPS:
            score = tl.where(column < words, score, float("-inf"))
        larger = tl.maximum(most, tl.max(score, 1))
        rest = rest * tl.exp(most - larger) + tl.sum(tl.exp(score - larger[:, None]), 1)
        most = larger
    top = tl.max(most, 0)
    others = tl.sum(rest * tl.exp(most - top), 0)
    total = others + tl.exp(own - top)
    series = others * (1.0 - others * (0.5 - others / 3.0))
    loss = tl.where((own == top) & (others < NEAR_ZERO), series, tl.log(total) + (top - own))
    tl.store(losses + row, loss)

    if ERROR:
        scale = 1.0 / total
        if FACTORS:
            scale *= tl.load(factors + row)
        for block in tl.range(0, BLOCKS, num_stages=AHEAD):  # from the end, which is still in the cache
            column = (BLOCKS - 1 - block) * BLOCK + lane
            there = column < stride
            score = tl.load(start + column, mask=there, other=0.0).to(tl.float32)
            error = tl.exp(score - top) * scale
            if GAPS:
                error = tl.where(column < words, error, 0.0)
            tl.store(start + column, error.to(scores.dtype.element_ty), mask=there)
        own = -others * scale
    tl.debug_barrier()  # after whatever was stored there
    tl.store(start + target, own.to(scores.dtype.element_ty))


def _block(words: int) -> int:
    thrifty = [size for size in SIZES if triton.cdiv(words, size) * size <= WASTE * words]
    return (thrifty or [min(SIZES[-1], max(128, triton.next_power_of_2(words)))])[0]


def row_losses(scores: Tensor, targets: Tensor, factors: Tensor | None = None, error: bool = True) -> Tensor:
    """Losses (n,) of scores (n, V); with `error` the scores become (p − y) · factor.

    Rows begin at multiples of `EIGHT`. What lies between them becomes zero.
    """
    rows, words = scores.shape
    losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
    if rows == 0:
        return losses
    if scores.stride(1) != 1 or scores.stride(0) % EIGHT or scores.stride(0) - words >= EIGHT:
        raise ValueError(f"expected rows at multiples of {EIGHT}, received strides {scores.stride()} for {words} words")
    # Refuses a target outside the vocabulary, as an index anywhere else; the program itself would read past the row.
    of_target = scores.gather(1, targets[:, None])
    block = _block(words)
    with torch.cuda.device_of(scores):
        _rows[(rows,)](
            scores, targets.contiguous(), of_target, None if factors is None else factors.float().contiguous(), losses,
            words, scores.stride(0) // EIGHT, FACTORS=factors is not None, ERROR=error, GAPS=words % EIGHT != 0,
            BLOCKS=triton.cdiv(words, block), BLOCK=block, GROUP=LOADED // scores.itemsize, enable_fp_fusion=True,
            num_warps=max(1, block // PER_THREAD // 32),
        )  # fmt: skip
    return losses
