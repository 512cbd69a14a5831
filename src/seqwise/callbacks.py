"""The two callbacks that long work accepts: one for messages, one for progress."""

from __future__ import annotations

from collections.abc import Callable

LogFunction = Callable[[str], None]  # a message for the user
ProgressCallback = Callable[[int, int], None]  # how much is done, how much there is


def no_log(message: str) -> None:
    """Discards the message."""


def no_progress(done: int, total: int) -> None:
    """Discards the progress."""
