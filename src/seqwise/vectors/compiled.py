"""How every loop of this package is compiled: by numba, once per machine. Importing this imports numba.

What is compiled is kept in a folder of the cache that is named after all sources of this package: numba by itself does
not notice when a piece from another module changes. Without such a folder each process compiles anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import config as numba_config
from numba import njit

from seqwise.environment import cache_folder
from seqwise.vectors.machine_code import sources


def compiled(function: Callable | None = None, fastmath: bool = False) -> Any:
    """Machine code that lets other threads run meanwhile, as a decorator with or without brackets.

    With `fastmath` sums may be reordered and nan and inf are taken not to occur; without, the usual rules hold.
    """
    if function is None:
        return lambda function: compiled(function, fastmath)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    config: Any = numba_config
    usual = config.CACHE_DIR  # other programs in this process keep theirs
    try:
        config.CACHE_DIR = str(cache_folder() / "numba" / sources()[:16])
        return njit(cache=True, **options)(function)
    except (RuntimeError, OSError):  # the folder cannot be written
        return njit(**options)(function)
    finally:
        config.CACHE_DIR = usual


def inlined(function: Callable) -> Any:
    """A piece of other compiled loops, which takes on their rules."""
    return njit(inline="always", error_model="numpy")(function)
