"""Atomic file writes: after a crash or on a full disk the old file or the new one is there, never half of one.

A file is written under a temporary name in the same folder, flushed to the disk (fsync) and renamed. This is the only
module that does so, and, except for lock files (`locks.py`), the only one that removes files and folders: never through
a link that leads elsewhere. It knows nothing of what the files contain.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from seqwise.errors import RunError, SaveError, UsageError

PARTIAL_SUFFIX = ".writing"  # of temporary files and folders
DEFAULT_FIX = "Or name another file."
# Error code of the operating system → cause and fix
CAUSES = {
    errno.ENOSPC: ("the disk is full", "Make room there."),
    errno.EDQUOT: ("your disk quota is used up", "Delete files of your own there, or ask for a larger quota."),
    errno.EROFS: ("the file system is read-only", "Mount it for writing."),
    errno.EACCES: ("there is no permission to write there", "Change its permissions."),
}
CAUSES[errno.EPERM] = CAUSES[errno.EACCES]


def write_text(path: Path, text: str, *, fix: str = DEFAULT_FIX, concurrent: bool = False) -> None:
    """Writes a text file in UTF-8."""
    write_bytes(path, text.encode(), fix=fix, concurrent=concurrent)


def write_bytes(path: Path, content: bytes, *, fix: str = DEFAULT_FIX, concurrent: bool = False) -> None:
    """Writes a binary file."""
    with replace_file(path, fix=fix, concurrent=concurrent) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replace_file(
    path: Path, *, fix: str = DEFAULT_FIX, concurrent: bool = False, in_temporary_folder: bool = False
) -> Iterator[Path]:
    """Yields a temporary path to write to; at the end of the block the file written there replaces `path`.

    If the block raises, the temporary file is removed. Errors of the file system become a `SaveError`, whose fix ends
    with `fix`.
    """
    with explain_write_errors(path, fix):
        file = AtomicFile(path, concurrent, in_temporary_folder)
        try:
            yield file.temporary
            file.commit()
        finally:
            file.discard()


class AtomicFile:
    """A temporary file beside `path` that replaces it when `commit` is called.

    The target of a symbolic link is replaced, not the link. A pipe or a device cannot be replaced: it is written to
    directly. With `concurrent`, several processes may write `path` at once, each under a temporary name of its own;
    otherwise the name is fixed, so that the next write removes what a killed process left behind.

    With `in_temporary_folder`, that name is of a folder, and the temporary file is in it. This is for libraries that
    write to a file of their own beside it, whose name is random, as `save_file` of safetensors does.
    """

    def __init__(self, path: Path, concurrent: bool = False, in_temporary_folder: bool = False):
        self.path = resolve_target(path)
        self.temporary = self.path
        self.folder: Path | None = None
        if is_replaceable(self.path):
            unique = f".{uuid.uuid4().hex[:12]}" if concurrent else ""
            self.temporary = self.path.with_name(f".{self.path.name}{unique}{PARTIAL_SUFFIX}")
            if self.temporary.is_dir() and not self.temporary.is_symlink():
                shutil.rmtree(self.temporary)
            else:
                self.temporary.unlink(missing_ok=True)  # writing to a link could change a file elsewhere
            if in_temporary_folder:
                self.folder = self.temporary
                self.folder.mkdir()
                self.temporary = self.folder / self.path.name
            self.temporary.touch()
            self._mode = self.temporary.stat().st_mode & 0o777

    def commit(self) -> None:
        """Replaces the file by what was written, which must be closed."""
        if self.temporary != self.path:
            self.temporary.chmod(self._mode)  # safetensors creates files that only their owner can read
            sync(self.temporary)
            self.temporary.replace(self.path)

    def discard(self) -> None:
        """Removes the temporary file; after `commit` there is none."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self.temporary != self.path:
            with suppress(OSError):
                self.temporary.unlink(missing_ok=True)


def resolve_target(path: Path) -> Path:
    """Returns the target of symbolic links, except to pipes and devices, which may have no name (/dev/stdout)."""
    return path if path.exists() and not path.is_file() else path.resolve()


def is_replaceable(target: Path) -> bool:
    """Returns whether the path is free or an ordinary file, rather than a pipe or a device."""
    return target.is_file() or not target.exists()


def sync(path: Path) -> None:
    """Flushes a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_links(folder: Path) -> None:
    """Raises an error if a link in the folder, at any depth, leads out of it: nothing is written or removed there.

    The folder itself may be reached through links, and links to its own content are allowed.
    """
    for parent, folder_names, file_names in os.walk(folder):
        for name in (*folder_names, *file_names):
            check_link(Path(parent, name), folder)


def check_link(path: Path, folder: Path) -> None:
    """Raises an error if a path is a link that leads out of the folder."""
    if path.is_symlink() and not _is_inside(path, folder):
        target = os.path.realpath(path)
        problem = f"{path} is a link to {target}, outside of {folder}: nothing is written or removed there."
        copy = f"{shlex.join(['rm', str(path)])} && {shlex.join(['cp', '-r', target, str(path)])}"
        fix = f"Replace the link by a copy: {copy}\nTo use another disk, move the whole folder and link that."
        raise RunError(problem, fix=fix)


def remove(path: Path, inside: Path, *, ignore_errors: bool = False) -> None:
    """Removes a file or a folder, if it exists; of a link, the link itself.

    Raises an error if the path leads out of the folder `inside`, because a folder on the way is a link. With
    `ignore_errors`, what cannot be removed stays, as on a read-only disk.
    """
    if not _is_inside(path.parent, inside):
        real_path = Path(os.path.realpath(path.parent), path.name)
        raise RunError(f"{path} leads to {real_path}, outside of {inside}: it is not removed.")
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=ignore_errors)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        if not ignore_errors:
            cause, fix = explain_cause(error, "Or remove it yourself.")
            raise SaveError(f"cannot remove it: {cause}.", fix=fix, file=path) from error


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes those folders that are empty."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _is_inside(path: Path, folder: Path) -> bool:
    """Returns whether a path is the folder or in it, by their real paths."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def check_output_path(path: Path | None, suffixes: Sequence[str] = (), option: str = "--out") -> None:
    """Raises an error if the file of an option cannot be written or has none of the suffixes; None is valid."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError("expected a file, received a folder.", fix="Name a file in it.", file=path)
    if suffixes and path.suffix.lower() not in suffixes:
        raise UsageError(
            f"{option}: expected a file that ends in {' or '.join(suffixes)}; received {path.name!r}.",
            fix=f"For example: {option} {path.with_suffix(suffixes[0]) if path.name else f'answers{suffixes[0]}'}",
        )
    target = resolve_target(path)
    if not target.parent.is_dir():
        folder = target.parent if path.is_symlink() else path.parent
        raise UsageError("its folder does not exist.", fix=f"Make it: mkdir -p {folder}", file=path)
    # An ordinary file is written beside its target and renamed, so its folder must be writable as well.
    writable_paths = [*([target] if target.exists() else []), *([target.parent] if is_replaceable(target) else [])]
    if not all(os.access(each, os.W_OK) for each in writable_paths):
        raise UsageError("there is no permission to write it.", fix="Name another file.", file=path)


@contextmanager
def explain_write_errors(path: Path, fix: str = DEFAULT_FIX) -> Iterator[None]:
    """Turns an error of the file system or of safetensors inside the block into a `SaveError`; see `explain_cause`."""
    try:
        yield
    except Exception as error:
        # By its name, because importing safetensors here would slow down every command.
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        cause, fixes = explain_cause(error, fix)
        raise SaveError(f"cannot write: {cause}.", fix=fixes, file=path) from error


def explain_cause(error: BaseException | None, fix: str) -> tuple[str, str]:
    """Returns the cause of a failed write, and how to fix it: how to remove a known cause, followed by `fix`."""
    code = getattr(error, "errno", None)
    if code is None:  # safetensors has only the text
        code = next((known for known in CAUSES if os.strerror(known) in str(error)), None)
    if code not in CAUSES:
        fix = fix.removeprefix("Or ")
        return getattr(error, "strerror", None) or str(error), fix[:1].upper() + fix[1:]
    cause, fix_of_cause = CAUSES[code]
    return cause, f"{fix_of_cause} {fix}"
