"""Processes that lock a folder and are killed, for tests. They are forks of the test process, which start at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from killed_calls import CallKiller

from seqwise.locks import lock_folder

COMMAND = "seqwise train --resume elsewhere"


@contextmanager
def run_in_child(function: Callable[[Callable[[], None]], object]) -> Iterator[int]:
    """Runs `function(report_ready)` in a child and yields its process id when it is ready; kills it at the end."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            function(lambda: os.close(writer))
        finally:
            os._exit(0)
    os.close(writer)
    try:
        os.read(reader, 1)  # ends when the child closes its end, or ends
        yield child
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


@contextmanager
def lock_in_child(folder: Path) -> Iterator[int]:
    """Yields the process id of a child that has locked the folder; kills it at the end."""

    def lock(report_ready: Callable[[], None]) -> None:
        with lock_folder(folder, command=COMMAND):
            report_ready()
            signal.pause()

    with run_in_child(lock) as child:
        yield child


def run_with_kill(function: Callable[[], int], fatal_call: int) -> int:
    """Runs `function` in a fork that is killed just before its n-th call that changes the disk; returns its status.

    The status is negative for a kill. If there are fewer calls, or `fatal_call` is 0, it is what `function` returns.
    """
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    killer = CallKiller(fatal_call)
    killer.wrap(os, "fsync", "pwrite", "ftruncate")
    killer.wrap(Path, "mkdir", "touch", "replace", "write_bytes", "unlink")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        os._exit(function())
    finally:
        os._exit(99)  # it raised an error


def kill(child: int) -> None:
    """Kills a child and waits until it has ended."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
