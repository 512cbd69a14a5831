"""Values that are made once in a process, by one thread at a time. It knows nothing of what they are.

`functools.cache` alone lets two threads make the same value, and forgets one of them: fatal where it is machine code
whose address somebody has kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

_making = RLock()  # one for all, since making one value may need another


def once(make: Callable[P, R]) -> Callable[P, R]:
    """The function, with its values kept. What it raises is not: it is tried again."""
    made = cache(make)

    @wraps(make)
    def one_by_one(*args: P.args, **kwargs: P.kwargs) -> R:
        with _making:
            return made(*args, **kwargs)  # type: ignore[arg-type]

    return cast("Callable[P, R]", cache(one_by_one))  # whoever finds a value waits for nobody
