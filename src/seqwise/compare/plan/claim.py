"""Claims a folder for a new comparison, so that one process creates it and nothing is left if that fails.

Reading the data may take long, and meanwhile the folder has no plan. The process that creates it locks a file in it:
what a killed process left behind is thereby distinguished from what a running one is still creating.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from seqwise.compare.plan.plan import CLAIM_FILE, PLAN_FILE, PREPROCESSOR_FOLDER, resume_command
from seqwise.compare.run.locks import try_lock
from seqwise.errors import SaveError, UsageError

PARTIAL_PLAN = f".{PLAN_FILE}.writing"
BEFORE_PLAN = {CLAIM_FILE, PREPROCESSOR_FOLDER, PARTIAL_PLAN}  # what exists before the plan


class FolderTakenError(UsageError):
    """The folder belongs to another comparison or holds other files."""


def check_folder(folder: Path) -> None:
    """Refuses a folder unless it is missing, empty, or left by a process that was killed while it read the data."""
    if (folder / PLAN_FILE).exists():
        raise FolderTakenError(
            f"{folder} already holds a comparison.",
            repair=f"Resume it: {resume_command(folder)}\nOr name another folder with --out.",
        )
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    if names and not (CLAIM_FILE in names and names <= BEFORE_PLAN):
        raise FolderTakenError(f"{folder} is not an empty folder.", repair="Name another folder with --out.")


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Creates the folder; of two processes that try at the same time, one is refused. On failure removes it again."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file, existed = _open_claim(folder / CLAIM_FILE)
    except OSError as error:
        _remove_empty(created)
        raise creation_error(folder, error) from error
    with file:
        _take(folder, file, existed)
        try:
            yield
        except BaseException:
            (folder / PLAN_FILE).unlink(missing_ok=True)
            _clear(folder)
            (folder / CLAIM_FILE).unlink(missing_ok=True)
            _remove_empty(created)
            raise
        (folder / CLAIM_FILE).unlink(missing_ok=True)


def _open_claim(path: Path) -> tuple[IO[str], bool]:
    """Returns the file to lock, and whether it existed before."""
    try:
        return path.open("x"), False
    except FileExistsError:
        return path.open("a"), True


def _take(folder: Path, file: IO[str], existed: bool) -> None:
    """Takes the folder, with what a killed process left in it; or refuses."""
    is_locked = try_lock(file, folder / CLAIM_FILE)
    # Without lock support a claim that existed before may belong to a running process.
    if is_locked is False or (is_locked is None and existed):
        raise _taken_error(folder)
    try:
        if existed:
            check_folder(folder)  # the process that had it may have finished meanwhile
            _clear(folder)
        (folder / PREPROCESSOR_FOLDER).mkdir()  # succeeds in one process only
    except FolderTakenError:
        (folder / CLAIM_FILE).unlink(missing_ok=True)
        raise
    except OSError as error:
        (folder / CLAIM_FILE).unlink(missing_ok=True)
        is_taken = isinstance(error, FileExistsError)
        raise (_taken_error(folder) if is_taken else creation_error(folder, error)) from error


def _clear(folder: Path) -> None:
    shutil.rmtree(folder / PREPROCESSOR_FOLDER, ignore_errors=True)
    (folder / PARTIAL_PLAN).unlink(missing_ok=True)


def _taken_error(folder: Path) -> FolderTakenError:
    return FolderTakenError(f"another process is creating {folder}.", repair="Name another folder with --out.")


def creation_error(folder: Path, error: OSError | SaveError) -> SaveError:
    """Returns the error for a folder that cannot be created."""
    problem = f"cannot create {folder}: {getattr(error, 'strerror', None) or error.__cause__ or error}."
    return SaveError(problem, repair="Name a folder on another disk with --out.")


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
