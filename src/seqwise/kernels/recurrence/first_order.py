"""A check for backward passes without second derivatives. It knows nothing of cells."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from seqwise.errors import UsageError


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward pass that is not differentiable itself, so that asking for a second derivative is an error.

    PyTorch's own `once_differentiable` raises only where the incoming gradients need one, so that a penalty on a
    gradient would silently be wrong. Inside a backward pass, gradients are enabled exactly with create_graph=True.
    """

    @wraps(backward)
    def checked(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise UsageError(
                "the gradient of a compiled recurrent scan has no gradient of its own (create_graph=True).",
                repair="Set SEQWISE_KERNELS=off: PyTorch's scans and the reference implementation have second "
                "derivatives.",
            )
        return backward(ctx, *grads)

    return checked
