"""Commands in processes of their own: `python -m seqwise …` with the same Seqwise, and signals to the right process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from seqwise.errors import UsageError

SOURCE = Path(__file__).parents[2]  # the folder from which Seqwise is imported
PROCESSES = Path("/proc")
POLL_SECONDS = 0.1


def build_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command of a process; -P keeps the current folder out of the import path."""
    return [sys.executable, "-P", "-m", "seqwise", *arguments]


def build_environment() -> dict[str, str]:
    """Returns the environment of a process, which imports the same Seqwise as this one."""
    paths = filter(None, (os.environ.get("PYTHONPATH"), str(SOURCE)))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}


def find_working_folder() -> Path | None:
    """Returns the working folder; None if it was removed."""
    with suppress(OSError):
        return Path.cwd().resolve()
    return None


def is_running(pid: int, arguments: Sequence[str]) -> bool:
    """Returns whether the process runs `seqwise ARGUMENTS`; its number may belong to another by now."""
    if pid <= 0:
        return False  # a signal to such a number would reach many processes
    if not PROCESSES.is_dir():
        with suppress(OSError, OverflowError):
            os.kill(pid, 0)
            return True
        return False
    try:
        words = (PROCESSES / str(pid) / "cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return False
    return words[1:] == [os.fsencode(word) for word in build_command(arguments)[1:]]


def find_error(log: str) -> str:
    """Returns the last error that a command has printed: its problem, and in the next lines how to fix it."""
    _, marker, error = f"\n{log}".rpartition("\nerror: ")
    return error.strip() if marker else ""


def terminate(pid: int, is_same: Callable[[], bool]) -> None:
    """Sends SIGTERM to a process, unless `is_same` says that its number belongs to another by now."""
    try:
        if not hasattr(os, "pidfd_open"):
            if is_same():
                os.kill(pid, signal.SIGTERM)
            return
        descriptor = os.pidfd_open(pid)
        try:
            if is_same():
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        finally:
            os.close(descriptor)
    except ProcessLookupError:
        pass  # it has just ended
    except PermissionError:
        raise UsageError(f"process {pid} belongs to another user.", fix="That user can stop it.") from None


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits for a condition; returns whether it holds in the end."""
    end = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    return holds
