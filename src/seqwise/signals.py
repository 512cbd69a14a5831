"""Handlers of signals: interrupts end training between two steps, and a suspended process suspends its workers.

A KeyboardInterrupt can be raised anywhere, also while a lock is held, which then cannot be released. Code that has
something to save defers the signal.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from seqwise.clock import exclude_stops, has_just_continued
from seqwise.errors import SeqwiseError


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Calls `handler` for SIGINT and SIGTERM inside the block, in which the clock of training excludes stops.

    Outside the main thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    previous_handlers = {signal_number: signal.signal(signal_number, handler) for signal_number in signals}
    try:
        with exclude_stops():
            yield
    finally:
        for signal_number, previous_handler in previous_handlers.items():
            # A handler that was not installed from Python is None: it cannot be restored.
            signal.signal(signal_number, previous_handler or signal.SIG_DFL)


@contextmanager
def suspend_with(send: Callable[[int], object], stop_signal: int = signal.SIGSTOP) -> Iterator[None]:
    """Suspends other processes with this one: `send` sends them a signal. Outside the main thread this does nothing.

    Ctrl-Z in a terminal stops only the processes of its foreground group, so not those in sessions of their own. For
    these the system discards SIGTSTP, unless they handle it, as in this block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def suspend(signal_number: int, frame: FrameType | None) -> None:
        if has_just_continued():
            return  # both signals came during a long operation: SIGCONT, which is handled first, was the later one
        send(stop_signal)
        os.kill(os.getpid(), signal.SIGSTOP)  # returns when the shell continues this process: `fg`, `bg`
        send(signal.SIGCONT)

    previous_handler = signal.signal(signal.SIGTSTP, suspend)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, previous_handler or signal.SIG_DFL)


def raise_interrupt(signal_number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, so that open contexts clean up. It is a handler for `handle_signals`."""
    raise KeyboardInterrupt


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether a signal was received. A second signal raises KeyboardInterrupt."""
    signals: list[int] = []

    def receive(signal_number: int, frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(signal_number)

    with handle_signals(receive):
        yield lambda: bool(signals)


def is_due_to_interrupt(error: BaseException | None) -> bool:
    """Returns whether an error is a KeyboardInterrupt, or one that it caused between taking a lock and releasing it.

    Errors of Seqwise, such as a failed save after Ctrl-C, are never due to it, nor is an exit with a status.
    """
    while error is not None and not isinstance(error, SeqwiseError | SystemExit | KeyboardInterrupt):
        error = error.__context__
    return isinstance(error, KeyboardInterrupt)
