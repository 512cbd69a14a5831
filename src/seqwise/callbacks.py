"""The two callbacks of functions that take long: one for messages, one for progress."""

from __future__ import annotations

from collections.abc import Callable

LogFunction = Callable[[str], None]  # called with a message for the user
ProgressCallback = Callable[[int, int], None]  # called with the number of items done and their total


def no_log(message: str) -> None:
    """Discards the message."""


def no_progress(done: int, total: int) -> None:
    """Discards the progress."""
