"""What holds for the gradients of all our scans. It knows nothing of cells."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from seqwise.errors import UsageError


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass that is not differentiable itself, and says so before anybody gets a wrong second derivative.

    PyTorch's own `once_differentiable` protests only where the incoming gradients need one, so that a penalty on a
    gradient would pass in silence. Gradients are recorded here exactly where somebody asked for a graph of them.
    """

    @wraps(backward)
    def checked(ctx: Any, *slopes: Any) -> Any:
        if torch.is_grad_enabled():
            raise UsageError(
                "the gradient of a compiled recurrent scan has no gradient of its own (create_graph=True).",
                repair="Set SEQWISE_KERNELS=off: PyTorch's scans and the open ones have second derivatives.",
            )
        return backward(ctx, *slopes)

    return checked
