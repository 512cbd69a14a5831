"""Detects training processes that no longer respond, through memory that they share with their launcher.

Each process has a row of counters: its calls of communication functions, the ticks of a thread, and its processor time.
It no longer responds if, for a while,

- its thread has not ticked: it was stopped by a signal, or is blocked in code that holds Python's interpreter lock; or
- it has neither entered a communication call, for which the others wait, nor computed: a deadlock. Validating,
  compiling and saving, for which the others wait too, take processor time. This is checked from the second update on:
  before, a process may wait for a slow disk, or for a compiler that is another process.

A process that computes for ever is not detected here, but by the time-out of torch.distributed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import time
from typing import NamedTuple

from seqwise.errors import UsageError

SECONDS_VARIABLE, DEFAULT_SECONDS = "SEQWISE_HANG_SECONDS", 300.0
TICK_SECONDS = 0.5
START_SECONDS = 120.0  # in addition, for a process to import everything
MAX_POLL_SECONDS = 1.0  # the launcher counts longer gaps between its own checks as this long: it was stopped itself
IDLE_SHARE = 0.01  # of the time, in which a process computes at most if it is blocked; gloo's thread takes 0.004
MIN_UPDATES = 2  # after which a process is expected never to be idle
ITEM_BYTES = 8


class Row(NamedTuple):
    """The counters of one process."""

    calls: int  # of communication functions
    updates: int  # for which it has passed on its gradients
    ticks: int
    cpu: int  # nanoseconds of processor time
    is_done: int  # 1: its work is complete, whatever happens while it exits


class Heartbeats:
    """The counters of all processes, in shared memory that has no name: only their launcher can pass it on."""

    def __init__(self, descriptor: int, processes: int):
        """`descriptor` is that of a file which has the memory of all rows."""
        self.descriptor, self.processes = descriptor, processes
        self.numbers = memoryview(mmap.mmap(descriptor, processes * len(Row._fields) * ITEM_BYTES)).cast("q")

    @classmethod
    def create(cls, processes: int) -> Heartbeats:
        """Creates the memory, in the launcher; `descriptor` stays open until `close`."""
        if hasattr(os, "memfd_create"):  # on Linux: a full or slow disk must not look like a process that hangs
            descriptor = os.memfd_create("seqwise")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, processes * len(Row._fields) * ITEM_BYTES)
        return cls(descriptor, processes)

    def close(self) -> None:
        os.close(self.descriptor)

    def read(self, rank: int) -> Row:
        start = rank * len(Row._fields)
        return Row(*self.numbers[start : start + len(Row._fields)])

    @property
    def have_all_started(self) -> bool:
        return all(self.read(rank).ticks for rank in range(self.processes))


class HeartbeatRecorder:
    """Updates the counters of this process; the thread lives as long as the process."""

    def __init__(self, heartbeats: Heartbeats, rank: int):
        start = rank * len(Row._fields)
        self._numbers = heartbeats.numbers[start : start + len(Row._fields)]
        threading.Thread(target=self._tick, daemon=True).start()

    def record_call(self) -> None:
        self._numbers[Row._fields.index("calls")] += 1

    def record_update(self) -> None:
        self._numbers[Row._fields.index("updates")] += 1

    def record_end(self) -> None:
        self._numbers[Row._fields.index("is_done")] = 1

    def _tick(self) -> None:
        while True:
            self._numbers[Row._fields.index("cpu")] = time.process_time_ns()
            self._numbers[Row._fields.index("ticks")] += 1
            time.sleep(TICK_SECONDS)


class HangDetector:
    """Finds processes that have not responded for `seconds`; 0: it finds none."""

    def __init__(self, heartbeats: Heartbeats, seconds: float):
        self.heartbeats, self.seconds = heartbeats, seconds
        self._clock, self._last_check = 0.0, time.monotonic()
        self._changes: dict[tuple[int, str], tuple[int, float]] = {}  # value of a counter, and when it changed

    def find_ranks(self) -> list[int]:
        """Returns the ranks of the processes that do not respond. It must be called several times a second."""
        now = time.monotonic()
        self._clock += min(now - self._last_check, MAX_POLL_SECONDS)
        self._last_check = now
        rows = {rank: self.heartbeats.read(rank) for rank in range(self.heartbeats.processes)}
        rows = {rank: row for rank, row in rows.items() if not row.is_done}
        if not rows or not self.seconds:
            return []
        grain = IDLE_SHARE * 1e9 * self.seconds  # nanoseconds of processor time
        # Silent: does not tick. Quiet: enters no communication call. Idle: quiet, and does not compute. Behind: has
        # entered the fewest calls, so that the others wait for it.
        silent = {rank for rank, row in rows.items() if self._is_unchanged(rank, "ticks", row)}
        quiet = {rank for rank, row in rows.items() if self._is_unchanged(rank, "calls", row)}
        idle = quiet & {rank for rank, row in rows.items() if self._is_unchanged(rank, "cpu", row, grain)}
        fewest_calls = min(row.calls for row in rows.values())
        behind = {rank for rank, row in rows.items() if row.calls == fewest_calls}
        is_blocked = all(row.updates >= MIN_UPDATES for row in rows.values()) and behind <= idle
        return sorted(silent or (behind if is_blocked else ()))

    def _is_unchanged(self, rank: int, name: str, row: Row, tolerance: float = 0.0) -> bool:
        """Returns whether a counter has not changed for too long; it may stay longer at 0, until the process starts."""
        value = getattr(row, name)
        first_change = self._clock + (START_SECONDS if value == 0 else 0.0)
        last_value, since = self._changes.get((rank, name), (value, first_change))
        if value - last_value > tolerance:
            last_value, since = value, self._clock
        self._changes[rank, name] = last_value, since
        return self._clock - since >= self.seconds


def read_hang_seconds() -> float:
    """Returns the time-out of the environment variable, or the default."""
    text = os.environ.get(SECONDS_VARIABLE) or str(DEFAULT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        problem = f"{SECONDS_VARIABLE}: expected a number of seconds, or 0 for no time-out; received {text!r}."
        raise UsageError(problem, fix=f"For example: export {SECONDS_VARIABLE}={DEFAULT_SECONDS:.0f}")
    return seconds
