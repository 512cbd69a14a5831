"""Files that the page has sent, such as an image to describe: kept in a temporary folder while the server runs."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import uuid
from contextlib import ExitStack, suppress
from pathlib import Path

from seqwise.errors import SeqwiseError, UsageError
from seqwise.files import remove
from seqwise.locks import find_owner, lock_folder, read_owner

PREFIX = "seqwise-studio-"
MAX_FILES = 20  # the oldest one is removed
SUFFIXES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".webp",
    ".bmp",
    ".gif",
    ".npy",
    ".csv",
    ".tsv",
    ".txt",
    ".jsonl",
    ".vec",
    ".bin",
    ".safetensors",
)


class Uploads:
    """The newest `MAX_FILES` files. Several threads may use it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
        with suppress(SeqwiseError):  # where nothing can be locked, the folder is not recognised as left behind
            self._stack.enter_context(lock_folder(self._folder))
        remove_stale(self._folder.parent)
        self._files: dict[str, Path] = {}  # by id, oldest first
        self._mutex = threading.Lock()

    def add(self, name: str, content: bytes) -> str:
        """Saves a file and returns its id. Only the suffix of its name is used."""
        suffix = re.sub(r"[^a-z.]", "", Path(name[-100:]).suffix.lower())
        if suffix not in SUFFIXES:
            raise UsageError(
                f"files {suffix or 'without a suffix'} are not read.", fix=f"Use one of {', '.join(SUFFIXES)}."
            )
        identifier = uuid.uuid4().hex
        path = self._folder / f"{identifier}{suffix}"
        path.write_bytes(content)
        with self._mutex:
            self._files[identifier] = path
            while len(self._files) > MAX_FILES:
                remove(self._files.pop(next(iter(self._files))), self._folder, ignore_errors=True)
        return identifier

    def get(self, identifier: str) -> Path:
        """Returns the path of a file."""
        path = self._files.get(identifier)
        if path is None:
            raise UsageError("the file is no longer there.", fix="Choose it again.")
        return path

    def close(self) -> None:
        """Removes all files."""
        self._stack.close()


def remove_stale(folder: Path) -> None:
    """Removes temporary folders of this user whose server was killed: their locks name a process that has ended."""
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if is_own(path) and not path.is_symlink() and read_owner(path) is not None and find_owner(path) is None:
                remove(path, folder, ignore_errors=True)


def is_own(path: Path) -> bool:
    """Whether a path belongs to this user. On Windows, a temporary folder has one user only."""
    return not hasattr(os, "getuid") or path.stat(follow_symlinks=False).st_uid == os.getuid()
