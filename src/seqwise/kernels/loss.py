"""Projection and cross-entropy in one: vectors, output matrix and targets → one loss per row.

The scores (N, V) are by far the largest tensor of a language model, and cross-entropy passes over them again and again.
Here they exist for some rows at a time. With p = softmax(W x + b) and y the target as a one-hot row,

    loss = −log p_target        ∂loss/∂x = (p − y) W        ∂loss/∂W = (p − y)ᵀ x        ∂loss/∂b = p − y

so the gradients are taken while the rows are there, and the backward pass only multiplies them by its factor. The
products are the three that any implementation needs. Where the backward pass gives each row a factor of its own, or
comes a second time, the scores are computed once more.

What is exact: scores and p − y are rounded to the type of the products; softmax, losses and the sums over rows are in
float32 (float64 for such weights). Gradients of 16 bits are rounded at the end, some once more by the factor of the
backward pass; those of vectors with Triton only once.

Three ways lead there: "cpu"; "cuda", where Triton takes each row in one program (`loss_triton`); and "plain", the
operations of the CPU on other devices, and where Triton's programs cannot be launched. It knows nothing of layers,
masks or means.
"""

from __future__ import annotations

import math
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqwise.kernels.recurrence.availability import triton_obstacle

# Scores below which the separate functions are as fast, and scores that exist at a time. On CPUs those are 32 MB: the C
# library returns larger blocks to the system at once, and filling 41 MB mapped in anew took 17 ms on one core,
# nearly three times as long as their softmax. With Triton they are 200 MB in 16 bits. The plain operations save memory
# on a GPU, not time, so they begin where memory counts.
FEW = {"cpu": 1 << 18, "cuda": 1 << 24, "plain": 1 << 27}
MOST = {"cpu": 1 << 23, "cuda": 96 << 20, "plain": 1 << 28}
# Rows that exist at a time whatever the vocabulary, if the matrix is as wide: with fewer, reading and writing the sums
# (V, D) takes longer than the product that is added to them. Scores of D rows are no larger than the matrix.
ROWS = {"cpu": 1, "cuda": 768, "plain": 1}
EIGHT = 8  # words that Triton's programs and products on a GPU take together
FEWEST = 11  # pieces that save most of the memory; every further one adds to the sums (V, D) once more
TILE = 64  # products on a GPU like rows in multiples of it

CAPABILITY = (8, 0)  # of the first GPUs with bfloat16

_refused: set[torch.device] = set()  # where Triton's programs could not be launched

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of vectors, weight and bias


def linear_cross_entropy(vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """−log softmax(vectors Wᵀ + b)[target] in nats, (N,), of vectors (N, D), weight (V, D), bias (V,), targets (N,).

    Equal to `cross_entropy(linear(vectors, weight, bias), targets, reduction="none")` to rounding. Under autocast the
    products are in its dtype, unless weights are float64; the softmax, the sums over rows and the losses stay in
    float32, or float64.
    """
    device, dtype = vectors.device.type, weight.dtype
    if _casts(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    way = _way(vectors.device, dtype)
    with _no_casts(device):
        if len(targets) * len(weight) < FEW[way]:
            return _separately(vectors.to(dtype), weight.to(dtype), bias.to(dtype), targets)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (vectors, weight, bias)):
            return _LinearCrossEntropy.apply(vectors, weight, bias, targets, dtype, way)
        return _sweep(vectors, weight, bias, targets, dtype, way, (False, False, False))[0]


def described_way(device: torch.device) -> str:
    """How large losses are computed there, in words; and why, where it is not by Triton's programs on a GPU."""
    reason = _obstacle(device) if device.type == "cuda" else None
    return "cpu" if device.type == "cpu" else f"plain ({reason})" if reason else "triton"


def _casts(device: str) -> bool:
    """Is autocast on? Some devices have none, such as that of tensors without memory."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _no_casts(device: str) -> AbstractContextManager[Any]:
    return torch.autocast(device, enabled=False) if _casts(device) else nullcontext()


def _separately(vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    scores = F.linear(vectors, weight, bias)
    logs = F.log_softmax(scores, 1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return F.nll_loss(logs, targets, reduction="none")


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype, way: str
    ) -> Tensor:
        ctx.save_for_backward(vectors, weight, bias, targets)
        ctx.dtype, ctx.way, ctx.needed = dtype, way, ctx.needs_input_grad[:3]
        losses, ctx.ready = _sweep(vectors, weight, bias, targets, dtype, way, ctx.needed)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factors: Tensor) -> tuple[Tensor | None, ...]:
        vectors, weight, bias, targets = ctx.saved_tensors
        ready, ctx.ready = ctx.ready, None  # scaled in place below, so good for one backward pass
        # A sum over the losses hands back one number, expanded: its stride tells without a look at the values.
        one = len(targets) == 1 or (len(targets) > 1 and factors.stride() == (0,))
        if ready is None or not (one or ctx.needed == (True, False, False)):
            with _no_casts(vectors.device.type):
                ready = _sweep(vectors, weight, bias, targets, ctx.dtype, ctx.way, ctx.needed, factors)[1]
            return *map(_cast, ready, (vectors.dtype, weight.dtype, bias.dtype)), None, None, None
        parts, ready, scaled = list(ready), None, []
        for like, factor in ((vectors, factors[:, None]), (weight, factors[0]), (bias, factors[0])):
            scaled.append(_scaled(parts.pop(0), factor, like))  # one by one: each is gone before the next is rounded
        return *scaled, None, None, None


def _sweep(
    vectors: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    dtype: torch.dtype,
    way: str,
    needed: tuple[bool, bool, bool],
    factors: Tensor | None = None,
) -> tuple[Tensor, Gradients]:
    """Losses and the gradients of their sum, each loss times its factor, some rows at a time.

    Where Triton's programs cannot be launched, all of it is done again the plain way: scores may be half overwritten.
    """
    if way != "cuda" or vectors.device in _refused:
        way = "plain" if way == "cuda" else way
        return _swept(vectors, weight, bias, targets, dtype, way, needed, factors)
    try:
        return _swept(vectors, weight, bias, targets, dtype, way, needed, factors)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of the compiler or the driver: there is another way to the same result
        failure = error
    found = _swept(vectors, weight, bias, targets, dtype, "plain", needed, factors)  # fails too where arguments are bad
    _refused.add(vectors.device)
    reason = (str(failure).strip() or "no reason given").splitlines()[-1]
    warnings.warn(
        f"the fused loss does not run on {vectors.device}; going on without it. ({type(failure).__name__}: {reason})",
        stacklevel=2,
    )
    return found


def _swept(
    vectors: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    dtype: torch.dtype,
    way: str,
    needed: tuple[bool, bool, bool],
    factors: Tensor | None,
) -> tuple[Tensor, Gradients]:
    exact = torch.promote_types(dtype, torch.float32)
    matrix, offset, words = *_projection(weight, bias, dtype, way), len(weight)
    pieces = _pieces(len(vectors), vectors.shape[1], words, way)
    losses = vectors.new_empty(len(targets), dtype=exact)
    of_vectors = vectors.new_empty(vectors.shape, dtype=exact if way == "cuda" else None) if needed[0] else None
    # A single product can be rounded at once.
    of_weight = torch.empty_like(matrix, dtype=exact if len(pieces) > 1 else weight.dtype) if needed[1] else None
    of_bias = torch.zeros_like(offset, dtype=exact) if needed[2] else None
    room = torch.empty(pieces[0].stop, len(matrix), dtype=dtype, device=vectors.device)
    for rows in pieces:
        x = vectors[rows].to(dtype)
        error = torch.addmm(offset, x, matrix.t(), out=room[: len(x)])
        losses[rows] = _losses_and_error(
            error[:, :words], targets[rows], None if factors is None else factors[rows], way, any(needed)
        )
        if of_bias is not None:
            of_bias += error.sum(0, dtype=exact)
        if of_vectors is not None:
            _add_product(of_vectors[rows], error, matrix, first=True)
        if of_weight is not None:
            _add_product(of_weight, error.t(), x, first=rows.start == 0)
    if len(matrix) > words:
        of_weight, of_bias = (None if part is None else part[:words] for part in (of_weight, of_bias))
    return losses, (of_vectors, of_weight, of_bias)


def _projection(weight: Tensor, bias: Tensor, dtype: torch.dtype, way: str) -> tuple[Tensor, Tensor]:
    """Matrix and offset in the type of the products.

    On a GPU with whole groups of `EIGHT` words: the products of 33,278 took twice as long as those of 33,280. Rows that
    are too many are zeros, and get no gradient.
    """
    missing = -len(weight) % EIGHT
    if way != "cuda" or not missing:
        return weight.to(dtype), bias.to(dtype)
    return _extended(weight, missing, dtype), _extended(bias, missing, dtype)


def _extended(tensor: Tensor, missing: int, dtype: torch.dtype) -> Tensor:
    """A copy with so many zeros, or rows of them, at the end."""
    made = tensor.new_empty(len(tensor) + missing, *tensor.shape[1:], dtype=dtype)
    made[: len(tensor)], made[len(tensor) :] = tensor, 0
    return made


def _losses_and_error(scores: Tensor, targets: Tensor, factors: Tensor | None, way: str, error: bool) -> Tensor:
    """Losses (n,); (p − y) · factor in the memory of the scores (n, V) where it is wanted."""
    if way == "cuda":
        from seqwise.kernels.loss_triton import row_losses  # Triton need not be there

        return row_losses(scores, targets, factors, error)
    losses = _plain_losses_and_error(scores, targets)
    if factors is not None:
        scores *= factors[:, None]
    return losses


def _plain_losses_and_error(scores: Tensor, targets: Tensor) -> Tensor:
    places, exact = targets[:, None], torch.promote_types(scores.dtype, torch.float32)
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
    return losses


def _add_product(total: Tensor, left: Tensor, right: Tensor, first: bool) -> None:
    """total += left @ right; the first product overwrites what is there."""
    if total.dtype == left.dtype:
        total.addmm_(left, right, beta=0 if first else 1)
    elif total.dtype == torch.float32 and _adds_in_float32(left.device, left.dtype):
        torch.addmm(total, left, right, out_dtype=torch.float32, beta=0 if first else 1, out=total)
    elif first:
        total.copy_(left @ right)
    else:
        total += left @ right  # a 16-bit sum would lose the later chunks


@cache
def _adds_in_float32(device: torch.device, dtype: torch.dtype) -> bool:
    """Is a 16-bit product added to a float32 matrix in one go there? Found out by trying: it depends on the release."""
    if device.type != "cuda":
        return False
    total, ones = torch.ones(16, 16, device=device), torch.ones(16, 16, dtype=dtype, device=device)
    try:
        torch.addmm(total, ones, ones, out_dtype=torch.float32, out=total)
    except (RuntimeError, TypeError):
        return False
    return bool((total == 17).all())


def _way(device: torch.device, dtype: torch.dtype) -> str:
    if device.type == "cpu":
        return "cpu"
    # torch.compile takes the plain operations apart, but not a product that is added in another type.
    if dtype == torch.float64 or torch.compiler.is_compiling() or device in _refused:
        return "plain"
    return "plain" if _obstacle(device) else "cuda"


@cache
def _obstacle(device: torch.device) -> str | None:
    """Why Triton's programs are not used there, in words; None where they are."""
    if device.type != "cuda":
        return f"there are none for {device.type}"
    if torch.version.hip:
        return "an AMD GPU; they were tried on NVIDIA's only"
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < CAPABILITY:
        return f"compute capability {major}.{minor} has no bfloat16"
    return triton_obstacle()


def _pieces(rows: int, width: int, vocabulary: int, way: str) -> list[slice]:
    """Pieces of equal size with about `MOST` scores at most; on a GPU up to twice that, but `FEWEST` pieces then."""
    most: float = MOST[way]
    if way == "cuda":
        most = min(2 * most, max(most, rows * vocabulary / FEWEST))
    pieces = math.ceil(rows * vocabulary / most)
    size = max(1, math.ceil(rows / max(1, pieces)), min(ROWS[way], width))
    if way == "cuda" and size > TILE:
        size = math.ceil(size / TILE) * TILE
    return [slice(start, min(rows, start + size)) for start in range(0, max(1, rows), size)]


def _scaled(gradient: Tensor | None, factor: Tensor, like: Tensor) -> Tensor | None:
    """The gradient times its factor, rounded once."""
    if gradient is None or gradient.dtype == like.dtype:
        return None if gradient is None else gradient.mul_(factor)
    return torch.mul(gradient, factor, out=torch.empty_like(gradient, dtype=like.dtype))


def _cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.to(dtype)
