"""The runs and comparisons in the folders of the studio, whichever process writes them.

Folders are read again when one of their files has changed. This module knows nothing of servers and pages.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from seqwise.errors import UsageError
from seqwise.locks import find_owner
from seqwise.studio.curves import CurveCache, CurveFile
from seqwise.studio.entries import Entry, read_entry
from seqwise.studio.scan import (
    COMPARISON_FILE,
    FAILURE_FILE,
    MAX_DEPTH,
    METRICS_FILE,
    NOTES_FILE,
    RUN_FILE,
    SUMMARY_FILE,
    TRIALS_FOLDER,
    Found,
    Mark,
    find_folders,
)

__all__ = [
    "COMPARISON_FILE", "FAILURE_FILE", "MAX_DEPTH", "METRICS_FILE", "NOTES_FILE", "RUN_FILE", "SUMMARY_FILE",
    "TRIALS_FOLDER", "Catalogue", "Entry",
]  # fmt: skip


def _name_folders(folders: Sequence[Path]) -> dict[Path, str]:
    """Returns a different name for each folder: its own, with a number if others have the same."""
    own = [folder.name for folder in folders]
    names: dict[Path, str] = {}
    for index, folder in enumerate(folders, start=1):
        name = folder.name if own.count(folder.name) == 1 else f"{folder.name}-{index}"
        while name in names.values() or (name != folder.name and name in own):
            name += "+"
        names[folder] = name
    return names


def _read(entry: Entry, files: Found, known: Entry | None) -> Entry:
    """Fills an entry; whatever is wrong with its files, the others are shown."""
    try:
        return read_entry(entry, files, known)
    except Exception as error:
        entry.problem = f"its files are damaged ({type(error).__name__}: {error})"
        return entry


class Catalogue:
    """All runs and comparisons below some folders. Several threads may use it."""

    def __init__(self, folders: Sequence[Path]):
        self.folders = list(dict.fromkeys(folder.resolve() for folder in folders))
        self.names = _name_folders(self.folders)
        self.entries: dict[str, Entry] = {}
        self._curves = CurveCache()
        self._marks: dict[str, tuple[str, Path, str, Mark]] = {}  # id → state of its files when they were read
        self._mutex = threading.Lock()
        self._curves_mutex = threading.Lock()  # reading long curves must not delay the table

    def refresh(self) -> set[str]:
        """Looks for changes in all folders; returns the ids of what is new, different or gone."""
        with self._mutex:
            found = {entry.id: (entry, files) for entry, files in self._find_entries()}
            changed = {identifier for identifier in self.entries if identifier not in found}
            for identifier in changed:
                del self.entries[identifier], self._marks[identifier]
            for identifier, (entry, files) in found.items():
                mark = (entry.kind, entry.folder, entry.parent, files.read_mark())
                known = self.entries.get(identifier)
                # A process that was killed changes no file.
                owner = find_owner(entry.folder) if files.has_lock else None
                if known is None or mark != self._marks[identifier]:
                    self._marks[identifier] = mark
                    self.entries[identifier] = known = _read(entry, files, known)
                    changed.add(identifier)
                if owner != known.owner:
                    known.owner = owner
                    changed.add(identifier)
            return changed

    def get(self, identifier: str) -> Entry:
        """Returns a run or comparison; its folder lies inside a root folder even if links have changed since."""
        entry = self.entries.get(identifier)
        if entry is None or not self.is_inside(entry.folder):
            raise UsageError(f"there is no run {identifier[:200]!r}.", fix="It may have been moved or deleted.")
        return entry

    def get_folder(self, identifier: str) -> Path:
        """Returns the folder of a run or comparison; raises an error if a link in it leads out of the folders."""
        folder = self.get(identifier).folder
        for parent, folder_names, file_names in os.walk(folder):
            for path in (Path(parent, name) for name in (*folder_names, *file_names)):
                if path.is_symlink() and not self.is_inside(path):
                    problem = f"{path.relative_to(folder)} is a link that leads out of the folders of the studio."
                    raise UsageError(problem, fix="Replace it by a copy.", file=path)
        return folder

    def get_root(self, entry: Entry) -> Path:
        """Returns the folder of the studio that an entry is in."""
        name = max((name for name in self.names.values() if f"{entry.id}/".startswith(f"{name}/")), key=len)
        return next(root for root, each in self.names.items() if each == name)

    def get_curve(self, identifier: str) -> CurveFile:
        """Returns the learning curve of a run as far as it is written."""
        path = self.get(identifier).folder / METRICS_FILE  # the only file that is read
        if path.is_symlink() and not self.is_inside(path):
            raise UsageError(f"{METRICS_FILE} is a link that leads elsewhere.", fix="Replace it by a copy.")
        with self._curves_mutex:
            return self._curves.get(path)

    def is_inside(self, path: Path) -> bool:
        """Returns whether the real path is inside one of the folders."""
        real = Path(os.path.realpath(path))
        return any(real == root or root in real.parents for root in self.folders)

    def _find_entries(self) -> Iterator[tuple[Entry, Found]]:
        for root in self.folders:
            name = self.names[root]
            for found in find_folders(root, self.is_inside):
                identifier = f"{name}/{found.path}" if found.path else name
                kind = "comparison" if found.is_comparison else "run"
                yield Entry(identifier, kind, found.folder), found  # type: ignore[arg-type]
                for trial in found.trials:
                    yield Entry(f"{identifier}/{trial.path}", "run", trial.folder, parent=identifier), trial
