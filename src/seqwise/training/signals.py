"""Ctrl-C and SIGTERM: at once where nothing is at stake, after the step at hand while training."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def handle_signals(handler: Handler) -> Iterator[None]:
    """Inside the block `handler` is called for both signals. Only the main thread can decide that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def interrupt_at_once(number: int, frame: FrameType | None) -> None:
    """A handler: whatever is open closes and removes what is unfinished on its way out."""
    raise KeyboardInterrupt


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Inside the block a signal only raises a flag, which the yielded function reads. A second one ends at once."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    with handle_signals(ask):
        yield lambda: bool(asked)
