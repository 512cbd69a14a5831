"""Creates the folder of a run or of a comparison, so that one process fills it and a failure leaves nothing behind.

Reading the data may take long, and meanwhile the folder has a lock and no content. What a killed process left behind is
removed by the next command that creates the folder; a folder with other files is never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

from seqwise.errors import SaveError, UsageError
from seqwise.files import PARTIAL_SUFFIX, explain_cause, remove, remove_empty
from seqwise.locks import LOCK_FILE, lock_folder

OTHER_FOLDER_FIX = "Or name another folder with --out."
DEFAULT_PARENT = Path("runs")  # of folders that the user has not named


@dataclass(frozen=True)
class FolderKind:
    """What tells a complete folder from one whose creation was interrupted."""

    noun: str
    last_file: str  # its presence makes the folder complete
    earlier_files: tuple[str, ...]  # patterns of the names that are written before
    get_resume_command: Callable[[Path], str]

    def check_new(self, folder: Path) -> None:
        """Raises an error unless the folder is missing, empty, or left behind by a killed process.

        Such a folder has a lock file and otherwise only files of an interrupted creation.
        """
        if (folder / self.last_file).exists():
            fix = f"Resume it: {self.get_resume_command(folder)}\n{OTHER_FOLDER_FIX}"
            raise UsageError(f"{folder} already contains a {self.noun}.", fix=fix)
        if not folder.exists():
            return
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
        if names and not (LOCK_FILE in names and all(map(self._is_own, names - {LOCK_FILE}))):
            raise UsageError(f"{folder} is not an empty folder.", fix="Name another folder with --out.")

    def remove_unfinished(self, folder: Path) -> None:
        """Removes the files of an interrupted creation."""
        for path in folder.iterdir() if folder.is_dir() else ():
            if self._is_own(path.name):
                remove(path, folder, ignore_errors=True)

    def _is_own(self, name: str) -> bool:
        if name.endswith(PARTIAL_SUFFIX):
            name = name.removeprefix(".").removesuffix(PARTIAL_SUFFIX)
        return any(fnmatchcase(name, pattern) for pattern in (*self.earlier_files, self.last_file))


@contextmanager
def create_folder(kind: FolderKind, out: Path | None, name: str) -> Iterator[Path]:
    """Creates the folder `out`, or the next free one called `name`, and locks it for the block.

    If the block ends without the last file of the folder, removes everything that is new.
    """
    with nullcontext(out) if out is not None else reserve_folder(name) as folder:
        new_folders = [each for each in (folder, *folder.parents) if not each.exists()]
        if not (folder / LOCK_FILE).exists():
            kind.check_new(folder)
        try:
            with explain_creation_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            with lock_folder(folder, alternative=OTHER_FOLDER_FIX):
                kind.check_new(folder)  # again: the process that had it may have finished meanwhile
                kind.remove_unfinished(folder)
                try:
                    yield folder
                finally:
                    if not (folder / kind.last_file).exists():
                        kind.remove_unfinished(folder)
        finally:
            remove_empty(new_folders)


@contextmanager
def reserve_folder(name: str) -> Iterator[Path]:
    """Creates the first of runs/NAME-1, -2, … that does not exist; another process that does the same gets another.

    If the folder is empty in the end, removes it.
    """
    new_folders = [each for each in (DEFAULT_PARENT,) if not each.exists()]
    folder = next(each for number in count(1) if _is_created(each := DEFAULT_PARENT / f"{name}-{number}"))
    try:
        yield folder
    finally:
        remove_empty([folder, *new_folders])


def _is_created(folder: Path) -> bool:
    """Creates a folder; returns False if it exists already."""
    with explain_creation_errors(folder):
        folder.parent.mkdir(exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            return False
    return True


@contextmanager
def explain_creation_errors(folder: Path) -> Iterator[None]:
    """Turns an error while a folder is created or filled inside the block into a `SaveError`."""
    try:
        yield
    except (OSError, SaveError) as error:
        cause, fix = explain_cause(error.__cause__ or error, OTHER_FOLDER_FIX)
        raise SaveError(f"cannot create {folder}: {cause}.", fix=fix) from error
