"""A cache that builds a value once, also where several threads ask for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from typing import ParamSpec, TypeVar, cast

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
