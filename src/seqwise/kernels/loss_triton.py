"""A Triton kernel that computes the loss of each row of scores and overwrites the scores by p − y.

One program takes one row, which it reads twice: once for the sum of exponentials, once to overwrite each score by its
gradient. With m the largest score of the row, r = Σ_{k ≠ target} exp(s_k − m) and z = r + exp(s_target − m),

    loss = log z + m − s_target        p_k = exp(s_k − m) / z        p_target − 1 = −r / z

The sum r excludes the target, so that neither a loss near zero nor p − 1 is the difference of two nearly equal numbers:
while the row is read, −inf replaces the target's score. All of this is in float32; only stored values are rounded to
the type of the scores. A row without a finite score, with +inf or with NaN gives NaN, as in PyTorch.

This module knows nothing of vectors and matrices. Importing it imports triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwise.kernels.loss import ALIGNMENT

# On an H200, rows × vocabulary in bfloat16: 3,328 × 50,304 take 250 µs in blocks of 4,096 and 262 in blocks of 2,048,
# and a copy 168; 8,192 × 10,000 take 140 and 121.
LOAD_BYTES = 16  # bytes of neighbouring scores that a thread loads at once; they share a maximum and a sum
COLUMNS_PER_THREAD = 8
BLOCK_SIZES = (4096, 2048)  # columns of a block
MAX_WASTE = 1.1  # columns read, divided by the columns that exist
NUM_STAGES = tl.constexpr(3)  # blocks that are loaded ahead
# The initial maximum is the lowest finite float32, so that only −inf is below it: −inf minus −inf would be NaN.
LOWEST = tl.constexpr(-3.4028234663852886e38)
NEAR_ZERO = tl.constexpr(1e-3)  # below which log(1 + r) is computed from three terms of its series


@triton.jit(do_not_specialize=["vocabulary_size", "aligned_stride"])
def _row_kernel(
    scores, targets, target_scores, grad_losses, losses, vocabulary_size, aligned_stride,
    HAS_GRAD_LOSSES: tl.constexpr, WRITE_GRAD: tl.constexpr, HAS_PADDING: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Computes the loss of one row of scores (n, V), and overwrites the scores by their gradient if WRITE_GRAD is set.

    target_scores (n, 1): the scores of the targets. grad_losses (n,): a factor for each row, or None. Rows are
    8 · aligned_stride apart; with HAS_PADDING they are longer than the vocabulary. A block of BLOCK columns is divided
    into groups of GROUP, which one thread loads at once.
    """
    row = tl.program_id(0).to(tl.int64)
    stride = aligned_stride * 8  # so the compiler knows the alignment and loads 16-bit scores 16 bytes at a time
    row_start = scores + row * stride
    target, target_score = tl.load(targets + row), tl.load(target_scores + row).to(tl.float32)
    columns_in_block = tl.arange(0, BLOCK // GROUP)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    tl.store(row_start + target, float("-inf"))
    tl.debug_barrier()  # visible to all threads

    # Each group of columns has its own maximum and sum; they are combined at the end.
    running_max = tl.zeros((BLOCK // GROUP,), tl.float32) + tl.maximum(target_score, LOWEST)
    running_sum = tl.zeros((BLOCK // GROUP,), tl.float32)
    for block in tl.range(0, BLOCKS, num_stages=NUM_STAGES):
        column = block * BLOCK + columns_in_block
        score = tl.load(row_start + column, mask=column < stride, other=float("-inf")).to(tl.float32)
        if HAS_PADDING:
            score = tl.where(column < vocabulary_size, score, float("-inf"))
        new_max = tl.maximum(running_max, tl.max(score, 1))
        running_sum = running_sum * tl.exp(running_max - new_max) + tl.sum(tl.exp(score - new_max[:, None]), 1)
        running_max = new_max
    maximum = tl.max(running_max, 0)
    others = tl.sum(running_sum * tl.exp(running_max - maximum), 0)
    total = others + tl.exp(target_score - maximum)
    series = others * (1.0 - others * (0.5 - others / 3.0))
    loss = tl.where((target_score == maximum) & (others < NEAR_ZERO), series, tl.log(total) + (maximum - target_score))
    tl.store(losses + row, loss)

    if WRITE_GRAD:
        scale = 1.0 / total
        if HAS_GRAD_LOSSES:
            scale *= tl.load(grad_losses + row)
        for block in tl.range(0, BLOCKS, num_stages=NUM_STAGES):  # from the end, which is still in the cache
            column = (BLOCKS - 1 - block) * BLOCK + columns_in_block
            mask = column < stride
            score = tl.load(row_start + column, mask=mask, other=0.0).to(tl.float32)
            grad_score = tl.exp(score - maximum) * scale
            if HAS_PADDING:
                grad_score = tl.where(column < vocabulary_size, grad_score, 0.0)
            tl.store(row_start + column, grad_score.to(scores.dtype.element_ty), mask=mask)
        target_score = -others * scale
    tl.debug_barrier()  # after the stores above
    tl.store(row_start + target, target_score.to(scores.dtype.element_ty))


def _choose_block_size(vocabulary_size: int) -> int:
    """Returns the largest block size that does not read too many columns beyond the vocabulary."""
    max_columns = MAX_WASTE * vocabulary_size
    economical = [size for size in BLOCK_SIZES if triton.cdiv(vocabulary_size, size) * size <= max_columns]
    return (economical or [min(BLOCK_SIZES[-1], max(128, triton.next_power_of_2(vocabulary_size)))])[0]


def compute_row_losses(
    scores: Tensor, targets: Tensor, grad_losses: Tensor | None = None, write_grad: bool = True
) -> Tensor:
    """Returns the losses (n,) of scores (n, V); with `write_grad` the scores become (p − y) · grad_losses.

    Rows begin at multiples of `ALIGNMENT`. The padding between them becomes zero.
    """
    rows, vocabulary_size = scores.shape
    losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
    if rows == 0:
        return losses
    if scores.stride(1) != 1 or scores.stride(0) % ALIGNMENT or scores.stride(0) - vocabulary_size >= ALIGNMENT:
        raise ValueError(
            f"expected rows at multiples of {ALIGNMENT}, received strides {scores.stride()} for {vocabulary_size} words"
        )
    # `gather` rejects a target outside the vocabulary; the kernel itself would read past the row.
    target_scores = scores.gather(1, targets[:, None])
    block = _choose_block_size(vocabulary_size)
    with torch.cuda.device_of(scores):
        _row_kernel[(rows,)](
            scores,
            targets.contiguous(),
            target_scores,
            None if grad_losses is None else grad_losses.float().contiguous(),
            losses,
            vocabulary_size,
            scores.stride(0) // ALIGNMENT,
            HAS_GRAD_LOSSES=grad_losses is not None,
            WRITE_GRAD=write_grad,
            HAS_PADDING=vocabulary_size % ALIGNMENT != 0,
            BLOCKS=triton.cdiv(vocabulary_size, block),
            BLOCK=block,
            GROUP=LOAD_BYTES // scores.itemsize,
            enable_fp_fusion=True,
            num_warps=max(1, block // COLUMNS_PER_THREAD // 32),
        )
    return losses
