"""Keeping a GPU busy: it starts on the next gradients before the host waits for the result of the last update.

Kernels are launched asynchronously. If the host read the loss of each update first, the GPU would be idle from then
until the host has launched the next batch. So, after `optimizer.step()` is launched, the loop calls `start_next`, and
only then waits. An exception in the next batch is raised when that batch is asked for: the finished step before it can
still be reported and saved. This module knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class LookAhead(Generic[T]):
    """An iterator that can compute its next item early. Without calls of `start_next` it is the plain iterator."""

    def __init__(self, items: Iterator[T]):
        self._items = items
        self._pending: T | Exception | None = None  # the item, or what went wrong, which includes StopIteration

    def start_next(self) -> None:
        """Compute the next item now."""
        try:
            self._pending = next(self._items)
        except Exception as error:
            self._pending = error

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        pending, self._pending = self._pending, None
        if isinstance(pending, Exception):
            raise pending
        return next(self._items) if pending is None else pending
