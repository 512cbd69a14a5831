"""Counts the operations of this process that change files, and makes one of them fail or kill the process.

A kill is a SIGKILL just before the operation, or in the middle of it if it writes bytes. On a full disk the operation
fails with ENOSPC, half of the bytes are written, and so do all later ones that need room. The operations are recognised
below Python's file objects: by audit events (open for writing, mkdir, rename, remove, chmod …), in raw writes, in
`os.fsync` and in safetensors' `save_file`, which writes by itself.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

# Audit event → name of the operation
EVENTS = {f"os.{name}": name for name in ("mkdir", "rename", "remove", "rmdir", "chmod", "truncate", "link", "symlink")}
NEEDS_ROOM = ("open", "write", "mkdir", "save_file")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
FULL_DISK = os.strerror(errno.ENOSPC)


class FaultyFiles:
    """The operations below some folders. `action` is "kill" or "full disk", from operation `at` on (from 1; 0: never).

    Each operation is written to the file `log` as a line: its name and its path.
    """

    def __init__(self, folders: list[str], log: str, action: str = "", at: int = 0):
        self.folders, self.action, self.at = tuple(folders), action, at
        self.number = 0
        self.write = os.write
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def install(self) -> None:
        """Observes the operations of this process from now on, until it ends."""
        import safetensors.torch

        original = safetensors.torch.save_file
        for module in list(sys.modules.values()):
            if getattr(module, "save_file", None) is original:
                module.save_file = self._wrap_save_file(original)  # type: ignore[attr-defined]
        builtins.open = io.open = self._wrap_open(io.open)  # type: ignore[assignment]
        os.fsync, os.write = self._wrap_fsync(os.fsync), self._wrap_write(os.write)
        os.pwrite = self._wrap_write(os.pwrite)
        sys.addaudithook(self._audit)

    def is_faulty(self, name: str, path: object) -> bool:
        """Counts an operation; returns whether it fails."""
        self.number += 1
        self.write(self.log, f"{name} {path}\n".encode())
        if self.action == "full disk":
            return bool(self.at) and (self.number == self.at or (self.number > self.at and name in NEEDS_ROOM))
        return self.number == self.at

    def fail(self, path: object) -> OSError:
        """Kills the process, or returns the error of a full disk."""
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return OSError(errno.ENOSPC, FULL_DISK, str(path))

    def includes(self, path: object) -> bool:
        return isinstance(path, (str, Path)) and os.path.abspath(path).startswith(self.folders)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            name = "open"
        elif event in EVENTS:
            name = EVENTS[event]
        else:
            return
        path = arguments[0]
        # `shutil.rmtree` passes names relative to an open folder.
        is_relative = name in ("remove", "rmdir") and arguments[1] != -1
        if (is_relative or self.includes(path)) and self.is_faulty(name, path):
            raise self.fail(path)

    def _wrap_open(self, original: Any) -> Any:
        faults = self

        class Raw(io.FileIO):
            def write(self, content: Any) -> int:
                if faults.is_faulty("write", self.name):
                    super().write(bytes(content)[: len(bytes(content)) // 2])
                    raise faults.fail(self.name)
                return super().write(content)

        def open_file(
            file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
            newline: Any = None, closefd: bool = True, opener: Any = None,
        ) -> Any:  # fmt: skip
            if not set(mode) & set("wax+") or not self.includes(file):
                return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
            raw = Raw(file, mode.replace("b", "").replace("t", ""), closefd, opener)
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

        return open_file

    def _wrap_fsync(self, original: Any) -> Any:
        def fsync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if self.includes(path) and self.is_faulty("fsync", path):
                raise self.fail(path)
            original(descriptor)

        return fsync

    def _wrap_write(self, original: Any) -> Any:
        def write(descriptor: int, content: bytes, *offset: int) -> int:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if self.includes(path) and self.is_faulty("write", path):
                original(descriptor, content[: len(content) // 2], *offset)
                raise self.fail(path)
            return original(descriptor, content, *offset)

        return write

    def _wrap_save_file(self, original: Any) -> Any:
        from safetensors import SafetensorError

        def save_file(tensors: Any, path: Any, *args: Any, **options: Any) -> None:
            original(tensors, path, *args, **options)
            if self.includes(path) and self.is_faulty("save_file", path):
                os.truncate(path, os.path.getsize(path) // 2)
                self.fail(path)
                raise SafetensorError(f"Error while serializing: I/O error: {FULL_DISK} (os error 28)")

        return save_file
