"""The folder of a comparison: its files, and how it is claimed, so that one process creates it.

Reading the data may take long, and meanwhile the folder has no plan. The process that creates it locks a file in it:
a locked file belongs to a running process, an unlocked one was left behind by a process that was killed.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from seqwise.errors import SaveError, UsageError
from seqwise.files import explain_cause
from seqwise.training.run import COMPARISON_FILE, ENVIRONMENT, WEIGHTS

PLAN_FILE = COMPARISON_FILE
TRIALS_FOLDER = "trials"
PREPROCESSOR_FOLDER = "preprocessor"
OLD_PREPROCESSOR_FOLDER = "learned"  # of version 0.1
WORKER_LOG = "workers.log"
CLAIM_FILE = ".claim"  # exists while a comparison is created
PARTIAL_PLAN = f".{PLAN_FILE}.writing"
FILES_BEFORE_PLAN = {CLAIM_FILE, PREPROCESSOR_FOLDER, PARTIAL_PLAN}  # what exists before the plan


class FolderTakenError(UsageError):
    """The folder belongs to another comparison or holds other files."""


def get_preprocessor_folder(folder: Path) -> Path:
    """Returns the folder with the preprocessor that all trials of a comparison share."""
    old = folder / OLD_PREPROCESSOR_FOLDER
    return old if old.is_dir() else folder / PREPROCESSOR_FOLDER


def get_resume_command(folder: Path) -> str:
    return f"seqwise compare --resume {shlex.quote(str(folder))}"


def has_trained(folder: Path) -> bool:
    """Returns whether any trial has saved weights or a checkpoint."""
    trials = folder / TRIALS_FOLDER
    return any(trials.glob("*/*/checkpoints/step-*")) or any(trials.glob(f"*/*/{WEIGHTS}"))


def remove_untrained_comparison(folder: Path) -> None:
    """Removes a comparison in which nothing was trained, to make room for another; other files stay."""
    if has_trained(folder):
        return
    for name in (PLAN_FILE, WORKER_LOG, ENVIRONMENT, CLAIM_FILE):
        with suppress(OSError):
            (folder / name).unlink()
    for name in (PREPROCESSOR_FOLDER, OLD_PREPROCESSOR_FOLDER, TRIALS_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
    _remove_empty([folder])


def check_folder(folder: Path) -> None:
    """Raises an error unless the folder is missing, empty, or left by a process that was killed while reading data."""
    if (folder / PLAN_FILE).exists():
        fix = f"Resume it: {get_resume_command(folder)}\nOr name another folder with --out."
        raise FolderTakenError(f"{folder} already holds a comparison.", fix=fix)
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    if names and not (CLAIM_FILE in names and names <= FILES_BEFORE_PLAN):
        raise FolderTakenError(f"{folder} is not an empty folder.", fix="Name another folder with --out.")


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Creates the folder; if two processes try at the same time, one fails. If the block fails, removes what is new."""
    new_folders = [each for each in (folder, *folder.parents) if not each.exists()]
    claim = folder / CLAIM_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        existed = claim.exists()
        file = claim.open("a")
    except OSError as error:
        _remove_empty(new_folders)
        raise make_creation_error(folder, error) from error
    with file:
        is_locked = try_lock(file, claim)
        # Without lock support a claim that existed before may belong to a running process.
        if is_locked is False or (is_locked is None and existed):
            raise _make_taken_error(folder)
        try:
            check_folder(folder)  # the process that had it may have finished meanwhile
            if is_locked:
                _remove_partial_plan(folder)
            (folder / PREPROCESSOR_FOLDER).mkdir()  # succeeds in one process only
        except (OSError, FolderTakenError) as error:
            claim.unlink(missing_ok=True)
            if isinstance(error, FolderTakenError):
                raise
            is_taken = isinstance(error, FileExistsError)
            raise (_make_taken_error(folder) if is_taken else make_creation_error(folder, error)) from error
        try:
            yield
        except BaseException:
            (folder / PLAN_FILE).unlink(missing_ok=True)
            _remove_partial_plan(folder)
            claim.unlink(missing_ok=True)
            _remove_empty(new_folders)
            raise
        claim.unlink(missing_ok=True)


def try_lock(file: IO[str], path: Path) -> bool | None:
    """Locks the open `file` at `path` without waiting; returns whether it succeeded, None without lock support.

    The lock ends with the process that holds it, even if that is killed.
    """
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


def make_creation_error(folder: Path, error: OSError | SaveError) -> SaveError:
    """Returns the error for a folder that cannot be created."""
    cause, fix = explain_cause(error.__cause__ or error, "Or name another folder with --out.")
    return SaveError(f"cannot create {folder}: {cause}.", fix=fix)


def _make_taken_error(folder: Path) -> FolderTakenError:
    return FolderTakenError(f"another process is creating {folder}.", fix="Name another folder with --out.")


def _remove_partial_plan(folder: Path) -> None:
    shutil.rmtree(folder / PREPROCESSOR_FOLDER, ignore_errors=True)
    (folder / PARTIAL_PLAN).unlink(missing_ok=True)


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
