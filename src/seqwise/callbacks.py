"""The two callbacks of functions that take long: one for messages, one for progress."""

from __future__ import annotations

from collections.abc import Callable

LogFunction = Callable[[str], None]  # called with a message for the user
ProgressCallback = Callable[[int, int], None]  # called with the number of items done and their total


def no_log(message: str) -> None:
    """Discards the message."""


def no_progress(done: int, total: int) -> None:
    """Discards the progress."""


def report_part(progress: ProgressCallback, start: float, stop: float) -> ProgressCallback:
    """Returns the callback of one part of the work, from the share `start` of the whole to the share `stop`."""
    return lambda done, total: progress(round(1000 * (start + (stop - start) * done / max(1, total))), 1000)
