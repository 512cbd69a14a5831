"""How every loop of this package is compiled: by numba, once per machine. Importing this imports numba.

numba keeps what it compiled beside the source, or in the user's cache folder where that cannot be written. Where
neither can, the loops are compiled anew by each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable | None = None, fastmath: bool = False) -> Any:
    """Machine code that lets other threads run meanwhile, as a decorator with or without brackets.

    With `fastmath` sums may be reordered and nan and inf are taken not to occur; without, the usual rules hold.
    """
    if function is None:
        return lambda function: compiled(function, fastmath)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache
        return njit(**options)(function)


def inlined(function: Callable) -> Any:
    """A piece of other compiled loops, which takes on their rules."""
    return njit(inline="always", error_model="numpy")(function)
