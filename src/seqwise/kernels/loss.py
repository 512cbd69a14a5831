"""`linear_cross_entropy`: a linear layer and its cross-entropy, fused.

The scores or logits (N, V) are by far the largest tensor of a language model, and cross-entropy passes over them again
and again. Here they exist for some rows (a chunk) at a time. With p = softmax(W x + b) and y the one-hot target,

    loss = −log p_target        ∂loss/∂x = (p − y) W        ∂loss/∂W = (p − y)ᵀ x        ∂loss/∂b = p − y

so the gradients are computed while the chunk exists, and the backward pass only multiplies them by the gradient of the
loss. The products are the three that any implementation needs. Where the rows have different gradients, or the backward
pass runs a second time, the scores are computed once more. A caller that knows of different gradients sets
`defer_gradients`: the forward pass then computes losses only, which saves two products.

Precision: scores and their gradients p − y are rounded to the type of the products; softmax, losses and the sums over
rows are in float32 (float64 for such weights). 16-bit gradients are rounded at the end; multiplying by the gradient of
the loss rounds some of them a second time, but with Triton not the gradients of the vectors.

Three backends: "cpu"; "triton", one program per row on a GPU (`loss_triton`); and "plain", the operations of the CPU on
other devices, and where Triton's kernel cannot be launched. This module knows nothing of layers, masks or means.
"""

from __future__ import annotations

import math
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.kernels.recurrence.availability import get_triton_reason
from seqwise.kernels.second_derivatives import differentiate

# By backend: number of scores from which the fused function is used, and maximum number in a chunk. On CPUs a chunk has
# 32 MB, as the C library returns larger blocks to the system at once, and filling 41 MB of newly mapped memory took
# 17 ms on one core, nearly three times as long as their softmax. With Triton it has 200 MB in 16 bits. The plain
# operations save memory on a GPU, not time, so they are used only where memory matters.
MIN_SCORES = {"cpu": 1 << 18, "triton": 1 << 24, "plain": 1 << 27}
MAX_SCORES = {"cpu": 1 << 23, "triton": 96 << 20, "plain": 1 << 28}
# Minimum rows of a chunk, but no more than the width D: with fewer, reading and writing the sums (V, D) takes longer
# than the product that is added to them. D rows have no more scores than the weight has entries.
MIN_ROWS = {"cpu": 1, "triton": 768, "plain": 1}
ALIGNMENT = 8  # rows of scores begin at multiples of it, for Triton's kernel and products on a GPU
MIN_CHUNKS = 11  # enough to save most of the memory; every further one adds to the sums (V, D) once more
ROW_MULTIPLE = 64  # products on a GPU are faster if the number of rows is a multiple of it

MIN_CAPABILITY = (8, 0)  # of the first GPUs with bfloat16

_failed_devices: set[torch.device] = set()  # where Triton's kernel could not be launched

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of vectors, weight and bias


class LossInputs(NamedTuple):
    """What the loss is computed from."""

    vectors: Tensor  # (N, D)
    weight: Tensor  # (V, D)
    bias: Tensor  # (V,)
    targets: Tensor  # (N,)
    dtype: torch.dtype  # of the products
    backend: str  # "cpu", "triton" or "plain"
    needs_grad: tuple[bool, bool, bool]  # of vectors, weight and bias


def linear_cross_entropy(
    vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, defer_gradients: bool = False
) -> Tensor:
    """Returns −log softmax(vectors Wᵀ + b)[target] in nats, (N,), for vectors (N, D), weight (V, D), bias (V,) and
    targets (N,).

    Equal to `cross_entropy(linear(vectors, weight, bias), targets, reduction="none")` to rounding. Under autocast the
    products are in its dtype, unless weights are float64; the softmax, the sums over rows and the losses stay in
    float32, or float64. `defer_gradients` computes them in the backward pass, for losses that are weighted
    differently afterwards; it changes no result.
    """
    device, dtype = vectors.device.type, weight.dtype
    if _is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    backend = _choose_backend(vectors.device, dtype)
    with _disable_autocast(device):
        if len(targets) * len(weight) < MIN_SCORES[backend]:
            return _compute_unfused(vectors, weight, bias, targets, dtype)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (vectors, weight, bias)):
            return _LinearCrossEntropy.apply(vectors, weight, bias, targets, dtype, backend, defer_gradients)
        return _compute(LossInputs(vectors, weight, bias, targets, dtype, backend, (False, False, False)))[0]


def _compute_unfused(vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the losses (N,) by PyTorch's own functions, with all scores in memory at once."""
    scores = F.linear(vectors.to(dtype), weight.to(dtype), bias.to(dtype))
    logs = F.log_softmax(scores, 1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return F.nll_loss(logs, targets, reduction="none")


def describe_backend(device: torch.device) -> str:
    """Returns the name of the backend for large losses on the device, with the reason if it is "plain"."""
    if device.type == "cpu":
        return "cpu"
    reason = _get_unavailable_reason(device)
    return f"plain ({reason})" if reason else "triton"


def _is_autocast_enabled(device: str) -> bool:
    """Returns whether autocast is enabled. Some devices have none, such as meta."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _disable_autocast(device: str) -> AbstractContextManager[Any]:
    return torch.autocast(device, enabled=False) if _is_autocast_enabled(device) else nullcontext()


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        dtype: torch.dtype,
        backend: str,
        defer_gradients: bool,
    ) -> Tensor:
        ctx.save_for_backward(vectors, weight, bias, targets)
        ctx.settings = dtype, backend, ctx.needs_input_grad[:3]
        inputs = LossInputs(vectors, weight, bias, targets, *ctx.settings)
        if defer_gradients:
            losses, _ = _compute(inputs._replace(needs_grad=(False, False, False)))
            ctx.gradients = None  # computed in the backward pass, with the gradients of the losses
        else:
            losses, ctx.gradients = _compute(inputs)
        return losses

    @staticmethod
    def backward(ctx: Any, grad_losses: Tensor) -> tuple[Tensor | None, ...]:
        vectors, weight, bias, targets = ctx.saved_tensors
        if torch.is_grad_enabled():  # inside a backward pass: create_graph=True
            with _disable_autocast(vectors.device.type):
                compute = partial(_compute_unfused, targets=targets, dtype=ctx.settings[0])
                grads = differentiate(lambda *inputs: [compute(*inputs)], (vectors, weight, bias), [grad_losses])
            return *grads, None, None, None, None
        gradients, ctx.gradients = ctx.gradients, None  # scaled in place below, so they serve one backward pass only
        # The gradient of a sum over the losses is one number, expanded: the stride says so without reading the values.
        is_uniform = len(targets) == 1 or (len(targets) > 1 and grad_losses.stride() == (0,))
        inputs = LossInputs(vectors, weight, bias, targets, *ctx.settings)
        if gradients is None or not (is_uniform or inputs.needs_grad == (True, False, False)):
            with _disable_autocast(vectors.device.type):
                _, gradients = _compute(inputs, grad_losses)
            rounded_grads = (None if grad is None else grad.to(like.dtype) for grad, like in zip(gradients, inputs[:3]))
            return *rounded_grads, None, None, None, None
        unscaled_grads, gradients, scaled_grads = list(gradients), None, []
        for like, factor in ((vectors, grad_losses[:, None]), (weight, grad_losses[0]), (bias, grad_losses[0])):
            # Removed from the list, so that each gradient is freed before the next is rounded.
            scaled_grads.append(_scale_gradient(unscaled_grads.pop(0), factor, like))
        return *scaled_grads, None, None, None, None


def _compute(inputs: LossInputs, grad_losses: Tensor | None = None) -> tuple[Tensor, Gradients]:
    """Returns the losses and the gradients of their sum, weighted by `grad_losses`, chunk by chunk.

    If Triton's kernel cannot be launched, everything is computed again by the plain operations, since scores may be
    partly overwritten.
    """
    device = inputs.vectors.device
    if inputs.backend != "triton":
        return _compute_in_chunks(inputs, grad_losses)
    if device in _failed_devices:
        return _compute_in_chunks(inputs._replace(backend="plain"), grad_losses)
    try:
        return _compute_in_chunks(inputs, grad_losses)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of the compiler or the driver; wrong arguments fail below, too
        failure = error
    results = _compute_in_chunks(inputs._replace(backend="plain"), grad_losses)
    _failed_devices.add(device)
    reason = (str(failure).strip() or "no reason given").splitlines()[-1]
    warnings.warn(
        f"the fused loss cannot run on {device}; using PyTorch's instead. ({type(failure).__name__}: {reason})",
        stacklevel=2,
    )
    return results


def _compute_in_chunks(inputs: LossInputs, grad_losses: Tensor | None) -> tuple[Tensor, Gradients]:
    vectors, weight, bias, targets, dtype, backend, needs_grad = inputs
    sum_dtype, vocabulary_size = torch.promote_types(dtype, torch.float32), len(weight)
    # Products with 33,278 rows took twice as long as with 33,280. The rows of the padding are zero and get no gradient.
    num_padding = -vocabulary_size % ALIGNMENT if backend == "triton" else 0
    padded_weight, padded_bias = (_cast_and_pad(tensor, num_padding, dtype) for tensor in (weight, bias))
    chunks = _split_rows(len(vectors), vectors.shape[1], vocabulary_size, backend)
    losses = vectors.new_empty(len(targets), dtype=sum_dtype)
    grad_vectors = grad_weight = grad_bias = None
    if needs_grad[0]:
        grad_vectors = vectors.new_empty(vectors.shape, dtype=sum_dtype if backend == "triton" else None)
    if needs_grad[1]:  # the product of a single chunk is rounded at once
        grad_weight = torch.empty_like(padded_weight, dtype=sum_dtype if len(chunks) > 1 else weight.dtype)
    if needs_grad[2]:
        grad_bias = torch.zeros_like(padded_bias, dtype=sum_dtype)
    buffer = torch.empty(chunks[0].stop, len(padded_weight), dtype=dtype, device=vectors.device)
    for rows in chunks:
        x = vectors[rows].to(dtype)
        scores = torch.addmm(padded_bias, x, padded_weight.t(), out=buffer[: len(x)])
        row_grads = None if grad_losses is None else grad_losses[rows]
        losses[rows] = _compute_losses_and_grads(
            scores[:, :vocabulary_size], targets[rows], row_grads, backend, any(needs_grad)
        )
        grad_scores = scores  # overwritten by p − y
        if grad_bias is not None:
            grad_bias += grad_scores.sum(0, dtype=sum_dtype)
        if grad_vectors is not None:
            _add_product(grad_vectors[rows], grad_scores, padded_weight, overwrite=True)
        if grad_weight is not None:
            _add_product(grad_weight, grad_scores.t(), x, overwrite=rows.start == 0)
    if num_padding:
        grads = grad_weight, grad_bias
        grad_weight, grad_bias = (None if grad is None else grad[:vocabulary_size] for grad in grads)
    return losses, (grad_vectors, grad_weight, grad_bias)


def _cast_and_pad(tensor: Tensor, num_padding: int, dtype: torch.dtype) -> Tensor:
    """Returns the tensor in another type, with `num_padding` zeros, or rows of zeros, at the end."""
    if not num_padding:
        return tensor.to(dtype)
    padded = tensor.new_empty(len(tensor) + num_padding, *tensor.shape[1:], dtype=dtype)
    padded[: len(tensor)] = tensor
    padded[len(tensor) :] = 0
    return padded


def _compute_losses_and_grads(
    scores: Tensor, targets: Tensor, grad_losses: Tensor | None, backend: str, write_grad: bool
) -> Tensor:
    """Returns the losses (n,). With `write_grad` the scores (n, V) are overwritten by (p − y) · grad_losses."""
    if backend == "triton":
        from seqwise.kernels.loss_triton import compute_row_losses  # Triton may be missing elsewhere

        return compute_row_losses(scores, targets, grad_losses, write_grad)
    losses = _compute_plain_losses_and_grads(scores, targets)
    if grad_losses is not None:
        scores *= grad_losses[:, None]
    return losses


def _compute_plain_losses_and_grads(scores: Tensor, targets: Tensor) -> Tensor:
    """Returns the losses; the scores are overwritten by p − y."""
    indices, sum_dtype = targets[:, None], torch.promote_types(scores.dtype, torch.float32)
    if scores.dtype == sum_dtype:
        max_scores, target_scores = scores.amax(1), scores.gather(1, indices).squeeze(1)
        torch.softmax(scores, 1, out=scores)
        # From the largest probability, 1 / Σ exp(score − max): the target's probability may be too small for a float.
        losses = max_scores - scores.amax(1).log() - target_scores
    else:
        log_probabilities = torch.log_softmax(scores, 1, dtype=sum_dtype)
        losses = -log_probabilities.gather(1, indices).squeeze(1)
        torch.exp(log_probabilities, out=scores)
    # p − 1 from the loss: in 16 bits the rounding of p would hide the small gradient of a likely target.
    scores.scatter_(1, indices, torch.expm1(-losses)[:, None].to(scores.dtype))
    return losses


def _add_product(total: Tensor, left: Tensor, right: Tensor, overwrite: bool) -> None:
    """Computes total += left @ right; with `overwrite` total = left @ right."""
    if total.dtype == left.dtype:
        total.addmm_(left, right, beta=0 if overwrite else 1)
    elif total.dtype == torch.float32 and _can_add_in_float32(left.device, left.dtype):
        torch.addmm(total, left, right, out_dtype=torch.float32, beta=0 if overwrite else 1, out=total)
    elif overwrite:
        total.copy_(left @ right)
    else:
        total += left @ right  # a 16-bit sum would lose the later chunks


@cache
def _can_add_in_float32(device: torch.device, dtype: torch.dtype) -> bool:
    """Returns whether PyTorch can add a 16-bit product to a float32 matrix in one call, by trying it: it depends on the
    release."""
    if device.type != "cuda":
        return False
    total, ones = torch.ones(16, 16, device=device), torch.ones(16, 16, dtype=dtype, device=device)
    try:
        torch.addmm(total, ones, ones, out_dtype=torch.float32, out=total)
    except (RuntimeError, TypeError):
        return False
    return bool((total == 17).all())


def _choose_backend(device: torch.device, dtype: torch.dtype) -> str:
    if device.type == "cpu":
        return "cpu"
    # torch.compile can trace the plain operations, but not a product that is added to a matrix of another type.
    if dtype == torch.float64 or torch.compiler.is_compiling() or device in _failed_devices:
        return "plain"
    return "plain" if _get_unavailable_reason(device) else "triton"


@cache
def _get_unavailable_reason(device: torch.device) -> str | None:
    """Returns why Triton's kernel is not used on the device, in words, or None if it is."""
    if device.type != "cuda":
        return f"there are no kernels for {device.type}"
    if torch.version.hip:
        return "an AMD GPU; the kernels were tested on NVIDIA's only"
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < MIN_CAPABILITY:
        return f"compute capability {major}.{minor} has no bfloat16"
    return get_triton_reason()


def _split_rows(num_rows: int, width: int, vocabulary_size: int, backend: str) -> list[slice]:
    """Returns chunks of equal size with about `MAX_SCORES` scores at most; with Triton up to twice that, but then at
    least `MIN_CHUNKS` chunks."""
    max_scores: float = MAX_SCORES[backend]
    if backend == "triton":
        max_scores = min(2 * max_scores, max(max_scores, num_rows * vocabulary_size / MIN_CHUNKS))
    num_chunks = math.ceil(num_rows * vocabulary_size / max_scores)
    size = max(1, math.ceil(num_rows / max(1, num_chunks)), min(MIN_ROWS[backend], width))
    if backend == "triton" and size > ROW_MULTIPLE:
        size = math.ceil(size / ROW_MULTIPLE) * ROW_MULTIPLE
    return [slice(start, min(num_rows, start + size)) for start in range(0, max(1, num_rows), size)]


def _scale_gradient(gradient: Tensor | None, factor: Tensor, like: Tensor) -> Tensor | None:
    """Returns the gradient times the factor, rounded once."""
    if gradient is None or gradient.dtype == like.dtype:
        return None if gradient is None else gradient.mul_(factor)
    return torch.mul(gradient, factor, out=torch.empty_like(gradient, dtype=like.dtype))
