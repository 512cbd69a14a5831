"""Locks that end with their owner, however it ends. This module knows nothing of jobs or comparisons."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


def locked(file: IO[str], mark: Path) -> bool | None:
    """Is the lock on the open `file`, which is `mark`, ours? None: this file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    try:
        return os.path.samestat(os.fstat(file.fileno()), mark.stat())  # not removed by its last owner
    except FileNotFoundError:
        return False
