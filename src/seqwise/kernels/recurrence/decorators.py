"""Two decorators: a cache that builds a value once, and a check for backward passes without second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from typing import Any, ParamSpec, TypeVar, cast

import torch

from seqwise.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

_lock = RLock()  # one for all functions, since building one value may need another


def thread_safe_cache(build: Callable[P, R]) -> Callable[P, R]:
    """Cache the results of the function. Exceptions are not cached: the next call tries again.

    `functools.cache` alone lets two threads build the same value and drops one of them: fatal where it is machine code
    whose address is in use.
    """
    cached = cache(build)

    @wraps(build)
    def build_locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with _lock:
            return cached(*args, **kwargs)  # type: ignore[arg-type]

    return cast("Callable[P, R]", cache(build_locked))  # a cached value needs no lock


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
