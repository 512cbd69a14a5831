"""Measures how long this process waits for processor cores that other processes use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

THREADS_FOLDER = Path("/proc/self/task")  # of Linux: one folder per thread


@contextmanager
def measure_waiting() -> Iterator[Callable[[], float | None]]:
    """Yields a function that returns for which share of their time the threads of this process waited for a core.

    Their time, since the start of the block, is that of executing and that of being ready to execute; sleeping does
    not count. The function returns None where the scheduler of the system counts no waiting times.
    """
    before = _read_thread_times()

    def compute_share() -> float | None:
        executed, waited = 0, 0
        for thread, times in _read_thread_times().items():
            executed_before, waited_before = before.get(thread, (0, 0))
            executed, waited = executed + times[0] - executed_before, waited + times[1] - waited_before
        return waited / (executed + waited) if executed else None

    yield compute_share


def _read_thread_times() -> dict[str, tuple[int, int]]:
    """Returns nanoseconds of executing and of waiting by thread (`schedstat` in Linux's scheduler statistics)."""
    times = {}
    with suppress(OSError):
        for folder in THREADS_FOLDER.iterdir():
            with suppress(OSError, ValueError):  # a thread may end meanwhile
                executed, waited, _ = map(int, (folder / "schedstat").read_text().split())
                times[folder.name] = executed, waited
    return times
