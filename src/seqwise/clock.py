"""The clock of training, which stands still while the process is stopped: by Ctrl-Z, SIGSTOP or a batch system.

While a computer sleeps, the system's monotonic clock stands still too, but not while a process is stopped. A thread
records the time at short intervals, and SIGCONT says that a long interval was a stop. Without SIGCONT it was only a
function that kept Python's interpreter lock.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

THREAD_NAME = "training clock"
TICK_SECONDS = 0.25
MIN_STOP_SECONDS = 0.75  # a shorter interval may be due to a busy machine
SAME_MOMENT_SECONDS = 0.1  # between the handlers of two signals that Python calls one after the other
MAX_DELAY_SECONDS = 60.0  # from the end of a stop until Python calls the handler of SIGCONT: one operation of the model


class _StopWatch:
    """Adds up for how long this process was stopped."""

    def __init__(self) -> None:
        self.stopped_seconds = 0.0
        self.last_continuation = -math.inf  # when SIGCONT was handled
        self._last_tick = 0.0
        self._longest_gap, self._gap_end = 0.0, 0.0  # between two ticks
        self._num_users = 0
        self._lock = threading.RLock()  # a second SIGCONT may interrupt its own handler
        self._end = threading.Event()

    @contextmanager
    def run(self) -> Iterator[None]:
        """Ticks inside the block; blocks may be nested."""
        self._num_users += 1
        if self._num_users == 1:
            self._last_tick, self._longest_gap, self._end = time.perf_counter(), 0.0, threading.Event()
            threading.Thread(target=self._tick, args=(self._end,), name=THREAD_NAME, daemon=True).start()
        try:
            yield
        finally:
            self._num_users -= 1
            if self._num_users == 0:
                self._end.set()

    def _tick(self, end: threading.Event) -> None:
        while not end.wait(TICK_SECONDS):
            with self._lock:
                now = time.perf_counter()
                gap, self._last_tick = now - self._last_tick, now
                if gap > self._longest_gap or now - self._gap_end > MAX_DELAY_SECONDS:
                    self._longest_gap, self._gap_end = gap, now

    def record_continuation(self, signal_number: int, frame: FrameType | None) -> None:
        """Handles SIGCONT: the stop was the interval since the last tick, or one that has just ended."""
        with self._lock:
            self.last_continuation = now = time.perf_counter()
            gap = now - self._last_tick
            if now - self._gap_end < MAX_DELAY_SECONDS:
                gap = max(gap, self._longest_gap)
            self._last_tick, self._longest_gap = now, 0.0
            if gap >= MIN_STOP_SECONDS:
                self.stopped_seconds += gap - TICK_SECONDS  # before the stop began; so the clock never goes back


_stop_watch = _StopWatch()


def read_clock() -> float:
    """Returns the seconds of a clock that stands still while this process is stopped; only differences mean anything.

    Stops are noticed inside `exclude_stops`.
    """
    return time.perf_counter() - _stop_watch.stopped_seconds


def has_just_continued() -> bool:
    """Returns whether SIGCONT was handled a moment ago, inside `exclude_stops`."""
    return time.perf_counter() - _stop_watch.last_continuation < SAME_MOMENT_SECONDS


@contextmanager
def exclude_stops() -> Iterator[None]:
    """Makes `read_clock` stand still while this process is stopped. Outside the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(signal.SIGCONT, _stop_watch.record_continuation)
    try:
        with _stop_watch.run():
            yield
    finally:
        signal.signal(signal.SIGCONT, previous_handler or signal.SIG_DFL)
