"""Projection and cross-entropy in one: vectors, output matrix and targets → one loss per row.

The scores (N, V) are by far the largest tensor of a language model, and cross-entropy passes over them again and again.
Here they exist for some rows at a time. With p = softmax(W x + b) and y the target as a one-hot row,

    loss = −log p_target        ∂loss/∂x = (p − y) W        ∂loss/∂W = (p − y)ᵀ x        ∂loss/∂b = p − y

so the gradients are taken while the rows are there, and the backward pass only multiplies them by its factor. The
products are the three that any implementation needs. Where the backward pass gives each row a factor of its own, or
comes a second time, the scores are computed once more.

It knows nothing of layers, masks or means.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

# Scores below which the separate functions are as fast, and scores that exist at a time. On CPUs those are 32 MB: the C
# library returns larger blocks to the system at once, and filling 41 MB mapped in anew took 17 ms on one core,
# nearly three times as long as their softmax. On GPUs memory is saved, not time (H200, bfloat16, 32,768 rows, D 768,
# V 50,304: 27 ms and 3.0 GB; apart 24 ms and 15.8 GB), so it begins where memory counts.
FEW, MOST = {"cpu": 1 << 18, "cuda": 1 << 27}, {"cpu": 1 << 23, "cuda": 1 << 28}

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of vectors, weight and bias


def linear_cross_entropy(vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """−log softmax(vectors Wᵀ + b)[target] in nats, (N,), of vectors (N, D), weight (V, D), bias (V,), targets (N,).

    Equal to `cross_entropy(linear(vectors, weight, bias), targets, reduction="none")` to rounding. Under autocast the
    products are in its dtype; the softmax, the sums over rows and the losses stay in float32.
    """
    device = vectors.device.type
    if len(targets) * len(weight) < FEW.get(device, FEW["cuda"]):
        return F.cross_entropy(F.linear(vectors, weight, bias), targets, reduction="none")
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    with torch.autocast(device, enabled=False):
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (vectors, weight, bias)):
            return _LinearCrossEntropy.apply(vectors, weight, bias, targets, dtype)
        return _sweep(vectors, weight, bias, targets, dtype, (False, False, False))[0]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(vectors, weight, bias, targets)
        ctx.dtype, ctx.needed = dtype, ctx.needs_input_grad[:3]
        losses, ctx.ready = _sweep(vectors, weight, bias, targets, dtype, ctx.needed)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factors: Tensor) -> tuple[Tensor | None, ...]:
        vectors, weight, bias, targets = ctx.saved_tensors
        ready, ctx.ready = ctx.ready, None  # scaled in place below, so good for one backward pass
        # A sum over the losses hands back one number, expanded: its stride tells without a look at the values.
        one = len(targets) == 1 or (len(targets) > 1 and factors.stride() == (0,))
        if ready is None or not (one or ctx.needed == (True, False, False)):
            with torch.autocast(vectors.device.type, enabled=False):
                ready = _sweep(vectors, weight, bias, targets, ctx.dtype, ctx.needed, factors)[1]
        else:
            of_vectors, of_weight, of_bias = ready
            if of_vectors is not None:
                of_vectors.mul_(factors[:, None])
            for gradient in (of_weight, of_bias):
                if gradient is not None:
                    gradient.mul_(factors[0])
        return *ready, None, None


def _sweep(
    vectors: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    dtype: torch.dtype,
    needed: tuple[bool, bool, bool],
    factors: Tensor | None = None,
) -> tuple[Tensor, Gradients]:
    """Losses and the gradients of their sum, each loss times its factor, some rows at a time."""
    exact = torch.promote_types(dtype, torch.float32)
    matrix, offset = weight.to(dtype), bias.to(dtype)
    losses = vectors.new_empty(len(targets), dtype=exact)
    of_vectors = torch.empty_like(vectors, memory_format=torch.contiguous_format) if needed[0] else None
    of_weight = torch.empty_like(weight, dtype=exact) if needed[1] else None
    of_bias = torch.zeros_like(bias, dtype=exact) if needed[2] else None
    for rows in _chunks(len(targets), len(weight), vectors.device.type):
        x = vectors[rows].to(dtype)
        losses[rows], error = _losses_and_error(torch.addmm(offset, x, matrix.t()), targets[rows], exact)
        if factors is not None:
            error *= factors[rows, None]
        if of_bias is not None:
            of_bias += error.sum(0, dtype=exact)
        if of_vectors is not None:
            of_vectors[rows] = error @ matrix
        if of_weight is not None:
            _add_product(of_weight, error.t(), x, first=rows.start == 0)
    gradients = (of_vectors, _cast(of_weight, weight.dtype), _cast(of_bias, bias.dtype))
    return losses, gradients


def _losses_and_error(scores: Tensor, targets: Tensor, exact: torch.dtype) -> tuple[Tensor, Tensor]:
    """Losses (n,), and p − y in the memory of the scores (n, V)."""
    places = targets[:, None]
    if scores.dtype == exact:
        largest, target = scores.amax(1), scores.gather(1, places).squeeze(1)
        torch.softmax(scores, 1, out=scores)
        # From the largest probability, 1 / Σ exp(score − largest): that of the target may be too small for a float.
        losses = largest - scores.amax(1).log() - target
    else:
        logs = torch.log_softmax(scores, 1, dtype=exact)
        losses = -logs.gather(1, places).squeeze(1)
        torch.exp(logs, out=scores)
    # p − 1 without the rounding of p, which in 16 bits would swallow what is left to learn of a likely target.
    scores.scatter_(1, places, torch.expm1(-losses)[:, None].to(scores.dtype))
    return losses, scores


def _add_product(total: Tensor, left: Tensor, right: Tensor, first: bool) -> None:
    """total += left @ right; the first product overwrites what is there."""
    if total.dtype == left.dtype:
        total.addmm_(left, right, beta=0 if first else 1)
    elif first:
        total.copy_(left @ right)
    else:
        total += left @ right  # a 16-bit sum would lose the later chunks


def _chunks(rows: int, vocabulary: int, device: str) -> list[slice]:
    """Pieces of equal size with at most `MOST` scores."""
    pieces = math.ceil(rows * vocabulary / MOST.get(device, MOST["cuda"]))
    size = max(1, math.ceil(rows / max(1, pieces)))
    return [slice(start, start + size) for start in range(0, max(1, rows), size)]


def _cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.to(dtype)
