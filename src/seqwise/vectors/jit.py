"""The decorators that compile the loops of this package with numba. Importing this module imports numba.

Compiled code is cached on disk, in a folder named after a digest of all sources of the package: numba checks only the
file in which a function is defined and does not notice a change in a function that it inlines from another module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import config as numba_config
from numba import njit

from seqwise.environment import cache_folder


@cache
def hash_sources() -> str:
    """Returns a digest of the source files of `seqwise.vectors`."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.blake2b(b"\0".join(file.read_bytes() for file in files), digest_size=8).hexdigest()


def cached_njit(function: Callable | None = None, fastmath: bool = False) -> Any:
    """Compiles a function that releases the GIL; a decorator with or without arguments.

    With `fastmath` the compiler may reorder sums and assumes that no value is nan or inf. If the cache folder cannot be
    written, every process compiles again.
    """
    if function is None:
        return lambda function: cached_njit(function, fastmath)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    # The loops allocate nothing, so they need no reference counts, which numba otherwise updates for every array that
    # an inlined function receives or that is taken out of a tuple: this made CBOW up to 25 % slower.
    options["_nrt"] = False
    config: Any = numba_config
    previous_folder = config.CACHE_DIR  # other users of numba in this process keep theirs
    try:
        config.CACHE_DIR = str(cache_folder() / "numba" / hash_sources())
        return njit(cache=True, **options)(function)
    except (RuntimeError, OSError):  # the folder cannot be written
        return njit(**options)(function)
    finally:
        config.CACHE_DIR = previous_folder


def inline_njit(function: Callable) -> Any:
    """Marks a function that numba inlines into the compiled functions that call it."""
    return njit(inline="always", error_model="numpy")(function)
