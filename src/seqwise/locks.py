"""Locks: one process at a time writes the folder of a run or of a comparison; reading needs no lock.

The process that writes locks the file `.lock` in the folder with flock and describes itself in it. The kernel releases
the lock when the process ends, even if it is killed, so a file that was left behind, or copied, locks nothing. Over NFS
the lock holds for all hosts. On a file system without locks, writing is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from seqwise.errors import LockedError, UsageError, in_command
from seqwise.files import check_links, explain_write_errors, remove

LOCK_FILE = ".lock"
POLL_SECONDS = 0.2
MAX_COMMAND = 300  # characters of the command in a message
MAX_PID = 2**31
MAX_CONTENT = 10_000  # bytes of a lock file that are read
OnWait = Callable[[LockedError], None]

_descriptors: set[int] = set()  # of the files that this process has locked


def _close_in_child() -> None:
    """Closes the files in a forked child, which would otherwise keep the locks after its parent has ended."""
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def lock_folder(
    folder: Path, *, command: str = "", on_wait: OnWait | None = None, alternative: str = ""
) -> Iterator[None]:
    """Locks a folder for writing. Raises an error if another process writes it, or if a link in it leads outside.

    `command` describes this process to others; by default it is the command line. If the folder is locked, `on_wait` is
    called with the error until it is free; `on_wait` may raise another one. `alternative` ends the fix of an error.
    """
    check_links(folder)
    with lock_file(folder / LOCK_FILE, folder, command=command, on_wait=on_wait, alternative=alternative):
        yield


@contextmanager
def lock_file(
    path: Path, subject: Path, *, command: str = "", on_wait: OnWait | None = None, alternative: str = ""
) -> Iterator[None]:
    """Locks the file at `path`, which is created and, in the end, removed. `subject` is what it locks, for messages."""
    path = path.absolute()  # the caller may change the working folder
    with explain_write_errors(path, alternative or "Or use a copy of the folder."):
        try:
            descriptor = _acquire(path, subject, command or _describe_command(), on_wait)
        except LockedError as error:
            error.fix = "\n".join(filter(None, [error.fix, alternative]))
            raise
    try:
        yield
    finally:
        if descriptor in _descriptors:  # it is not in a forked child
            _descriptors.discard(descriptor)
            with suppress(OSError):
                if _is_at(descriptor, path):
                    path.unlink()  # before it is unlocked: the next owner creates its own
            os.close(descriptor)


@dataclass(frozen=True)
class Owner:
    """The process that locks a folder, or that was killed while it did."""

    pid: int
    host: str
    command: str
    started: str
    inode: int  # of the lock file

    @property
    def is_here(self) -> bool:
        """Whether the process runs, or ran, on this host."""
        return self.host == platform.node()


def read_owner(folder: Path) -> Owner | None:
    """Returns the process that a lock file names, which may have been killed; None if there is no such file."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            values = json.loads(os.pread(descriptor, MAX_CONTENT, 0))
            inode = os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)
        pid = values["pid"]
        if isinstance(pid, int) and 0 < pid < MAX_PID:  # a signal to 0 or -1 would reach many processes
            return Owner(pid, str(values["host"]), str(values["command"]), str(values["started"]), inode)
    return None


def read_command(folder: Path) -> str:
    """Returns the command that locks a folder, or that was killed while it did; "" if there is none."""
    owner = read_owner(folder)
    return "" if owner is None else owner.command


def find_owner(folder: Path) -> Owner | None:
    """Returns the process that writes a folder now; None if no process does. The lock itself is not touched.

    Of a process on another host (NFS) it is not known whether it is alive: it counts as one that writes.
    """
    owner = read_owner(folder)
    return owner if owner is not None and (not owner.is_here or _has_lock(owner)) else None


def _has_lock(owner: Owner) -> bool:
    """Returns whether a process of this host holds its lock, by the kernel's list where there is one."""
    with suppress(OSError):
        with open("/proc/locks", encoding="ascii") as file:
            lines = [line.split() for line in file]
        # 1: FLOCK ADVISORY WRITE 4711 08:01:131 0 EOF
        locks = {(words[4], words[5].rpartition(":")[2]) for words in lines if len(words) > 5 and words[1] == "FLOCK"}
        return (str(owner.pid), str(owner.inode)) in locks
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def clear_folder(folder: Path) -> None:
    """Removes everything in a folder, which may be missing, but the lock of this process."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.name != LOCK_FILE:
            remove(path, folder, ignore_errors=True)


def _acquire(path: Path, subject: Path, command: str, on_wait: OnWait | None) -> int:
    """Returns the descriptor of the locked file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            # Otherwise its last owner has just removed it: try again with a new file.
            if (is_locked := _try_lock(descriptor, subject)) and _is_at(descriptor, path):
                with suppress(OSError):  # on a full disk it is locked all the same; other writes fail
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, _describe_process(command), 0)
                _descriptors.add(descriptor)
                return descriptor
            error = None if is_locked else _build_locked_error(descriptor, subject)
        except UsageError:  # no locks: the file has no use
            path.unlink(missing_ok=True)
            raise
        finally:
            if descriptor not in _descriptors:
                os.close(descriptor)
        if error is not None and on_wait is None:
            raise error
        if error is not None and on_wait is not None:
            on_wait(error)
            time.sleep(POLL_SECONDS)


def _try_lock(descriptor: int, subject: Path) -> bool:
    """Locks an open file without waiting; returns whether it succeeded."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        problem = f"{subject} cannot be locked, because its file system has no locks (flock: {error.strerror})."
        reason = "Without one, two processes could write the same files."
        fix = "Use a folder on another file system, or mount this one with locks (NFS: lockd runs; Lustre: -o flock)."
        raise UsageError(f"{problem} {reason}", fix=fix) from error
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Returns whether the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _describe_command() -> str:
    program = "seqwise" if in_command.get() else Path(sys.executable).name
    return shlex.join([program, *sys.argv[1 if in_command.get() else 0 :]])


def _describe_process(command: str) -> bytes:
    started = datetime.now().astimezone().isoformat(" ", "seconds")
    values = {"pid": os.getpid(), "host": platform.node(), "command": command[:MAX_COMMAND], "started": started}
    return (json.dumps(values) + "\n").encode()


def _build_locked_error(descriptor: int, subject: Path) -> LockedError:
    """Returns the error for a folder that another process writes, which is named in its lock file."""
    owner = "another process is writing it."
    # It may not have described itself yet.
    with suppress(OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        values = json.loads(os.pread(descriptor, MAX_CONTENT, 0))
        process = f"process {int(values['pid'])} on {values['host']}"
        owner = f"{process} has been writing it since {values['started']} ({values['command']})."
    fix = "Wait until that command ends, or stop it: after Ctrl-C or SIGTERM it saves first."
    return LockedError(f"{subject} is locked: {owner}", fix=fix)
