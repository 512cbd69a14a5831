"""How a folder becomes a comparison: taken by one process, and given back if nothing comes of it.

Reading the data may take long, and all that while the folder holds no plan. Whoever makes it keeps a lock on it, so
that what a killed process left behind can be told from what somebody is still at work on. Nothing here knows what a
plan says.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from seqwise.compare.plan.plan import CLAIM, LEARNED, PLAN, resume_command
from seqwise.compare.run.locks import locked
from seqwise.errors import SaveError, UsageError

MADE = {CLAIM, LEARNED, f".{PLAN}.writing"}  # what is there before the plan is


class Taken(UsageError):
    """The folder belongs to somebody else."""


def refuse_existing(folder: Path) -> None:
    """Only a folder that is missing or empty may become a comparison, or one whose making was cut off by a kill."""
    if (folder / PLAN).exists():
        raise Taken(
            f"{folder} already holds a comparison.",
            repair=f"Go on with it: {resume_command(folder)}\nOr name another folder with --out.",
        )
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    if names and not (CLAIM in names and names <= MADE):
        raise Taken(f"{folder} is not an empty folder.", repair="Name another folder with --out.")


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Take the folder; of two that try at the same time, one is refused. A block that fails leaves nothing behind."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file, found = _open(folder / CLAIM)
    except OSError as error:
        _remove_empty(made)
        raise unmade(folder, error) from error
    with file:
        _take(folder, file, found)
        try:
            yield
        except BaseException:
            (folder / PLAN).unlink(missing_ok=True)
            _clear(folder)
            (folder / CLAIM).unlink(missing_ok=True)
            _remove_empty(made)
            raise
        (folder / CLAIM).unlink(missing_ok=True)


def _open(mark: Path) -> tuple[IO[str], bool]:
    """The file to lock, and whether somebody had made it before."""
    try:
        return mark.open("x"), False
    except FileExistsError:
        return mark.open("a"), True


def _take(folder: Path, file: IO[str], found: bool) -> None:
    """Make the folder ours, with what a killed process left in it; or refuse."""
    mine = locked(file, folder / CLAIM)
    if mine is False or (mine is None and found):  # without locks nobody knows whether its maker lives
        raise _taken(folder)
    try:
        if found:
            refuse_existing(folder)  # whoever had it may have come to an end meanwhile
            _clear(folder)
        (folder / LEARNED).mkdir()  # which only one can do
    except Taken:
        (folder / CLAIM).unlink(missing_ok=True)
        raise
    except OSError as error:
        (folder / CLAIM).unlink(missing_ok=True)
        raise (_taken(folder) if isinstance(error, FileExistsError) else unmade(folder, error)) from error


def _clear(folder: Path) -> None:
    shutil.rmtree(folder / LEARNED, ignore_errors=True)
    (folder / f".{PLAN}.writing").unlink(missing_ok=True)


def _taken(folder: Path) -> Taken:
    return Taken(f"{folder} was taken by somebody else.", repair="Name another folder with --out.")


def unmade(folder: Path, error: OSError | SaveError) -> SaveError:
    """Why the folder could not be made."""
    problem = f"could not make {folder}: {getattr(error, 'strerror', None) or error.__cause__ or error}."
    return SaveError(problem, repair="Name a folder on another disk with --out.")


def _remove_empty(folders: list[Path]) -> None:
    for each in folders:
        with suppress(OSError):
            each.rmdir()
