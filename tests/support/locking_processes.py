"""Processes that lock a folder and are killed, for tests. They are forks of the test process, which start at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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


def kill(child: int) -> None:
    """Kills a child and waits until it has ended."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
