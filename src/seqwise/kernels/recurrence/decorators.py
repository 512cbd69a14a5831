"""`thread_safe_cache`: a cache that computes a value once, even if several threads request it at the same time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

_lock = RLock()  # one for all functions, since computing one value may need another


def thread_safe_cache(build: Callable[P, R]) -> Callable[P, R]:
    """Caches the results of the function. Exceptions are not cached: the next call tries again.

    `functools.cache` alone lets two threads compute the same value and drops one of the results: fatal if it is machine
    code whose address is in use.
    """
    cached = cache(build)

    @wraps(build)
    def build_locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with _lock:
            return cached(*args, **kwargs)  # type: ignore[arg-type]

    return cast("Callable[P, R]", cache(build_locked))  # a cached value needs no lock
