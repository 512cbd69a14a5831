"""Ctrl-C and SIGTERM: they end a program at once, or during training after the current step."""

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
    """Call `handler` for both signals inside the block. Outside the main thread this does nothing."""
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
    """A handler that raises KeyboardInterrupt, so that open contexts clean up."""
    raise KeyboardInterrupt


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Only set a flag on a signal, which the yielded function returns. A second signal raises KeyboardInterrupt."""
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    with handle_signals(receive):
        yield lambda: bool(received)
