"""Locks that end with the process that holds them, even if it is killed. They know nothing of jobs or comparisons."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


def try_lock(file: IO[str], path: Path) -> bool | None:
    """Locks the open `file` at `path` without waiting; returns whether it succeeded, None without lock support."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())  # its last owner may have removed the file
    except FileNotFoundError:
        return False
