"""What happens where memory does not suffice: an error that says for what, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from seqwise.errors import MemoryLimitError


@contextmanager
def within_memory(problem: str) -> Iterator[None]:
    """Say what does not fit, and what would help."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        raise MemoryLimitError(
            f"{problem}.",
            repair="Begin again with a smaller --data.window, --network.width or --text.vocabulary.",
        ) from error


def _out_of_memory(error: BaseException) -> bool:
    """CUDA has its own exception; the CPU allocator raises a plain RuntimeError."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
