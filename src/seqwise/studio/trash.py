"""Deleted runs: moved into `.trash` of the folder of the studio that they were in, from where they can be restored.

    .trash/20261118-093015-1f2e3d4c/origin.json    where it was
    .trash/20261118-093015-1f2e3d4c/ptb-lstm       the folder itself

A folder is moved by renaming, which takes no time and no room. It is locked meanwhile, so that no training starts in
it. Nothing is moved or removed through a link that leads elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqwise.errors import LockedError, UsageError
from seqwise.files import check_link, explain_write_errors, remove, remove_empty, write_text
from seqwise.locks import LOCK_FILE, find_owner, lock_folder
from seqwise.studio.catalogue import Catalogue, Entry
from seqwise.studio.entries import get_number, get_text, read_json
from seqwise.studio.scan import COMPARISON_FILE, list_entries, measure_size

TRASH_FOLDER = ".trash"
ORIGIN_FILE = "origin.json"
_TOKEN = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}")


@dataclass(frozen=True)
class DeletedRun:
    """A run or comparison in the trash; `token` names its place there."""

    token: str
    root: Path
    path: str  # relative to the root, where it was
    folder: Path  # where it is now
    deleted: float  # time

    def describe(self) -> dict[str, Any]:
        """Returns what the page shows of it."""
        return {
            "token": self.token,
            "name": self.folder.name,
            "path": self.path,
            "kind": "comparison" if (self.folder / COMPARISON_FILE).is_file() else "run",
            "deleted": self.deleted,
            "bytes": measure_size(self.folder),
        }


class Trash:
    """The deleted runs of all folders of the studio."""

    def __init__(self, catalogue: Catalogue):
        self.catalogue = catalogue

    def delete(self, identifier: str) -> DeletedRun:
        """Moves a run or comparison into the trash; raises an error while it is running."""
        entry = self.catalogue.get(identifier)
        root = self.catalogue.get_root(entry)
        self._check(entry, root)
        now = time.time()
        token = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{uuid.uuid4().hex[:8]}"
        trash, path = root / TRASH_FOLDER, entry.folder.relative_to(root).as_posix()
        check_link(trash, root)
        place = trash / token
        deleted = DeletedRun(token, root, path, place / entry.folder.name, now)
        with explain_write_errors(trash, "Or remove the folder yourself."):
            place.mkdir(parents=True)
            try:
                write_text(place / ORIGIN_FILE, json.dumps({"path": path, "deleted": now}) + "\n")
                with lock_folder(entry.folder):
                    os.rename(entry.folder, deleted.folder)
            except BaseException:
                if not deleted.folder.exists():
                    remove(place, root, ignore_errors=True)
                    remove_empty([trash])
                raise
            remove(deleted.folder / LOCK_FILE, deleted.folder)  # that of the move
        return deleted

    def _check(self, entry: Entry, root: Path) -> None:
        if entry.parent:
            problem = f"{entry.folder.name} is a trial of {entry.parent}."
            raise UsageError(problem, fix="Delete the whole comparison.")
        if entry.folder == root:
            raise UsageError(f"{root} is the folder that the studio shows.", fix="Remove it yourself.")
        trials = [each for each in list(self.catalogue.entries.values()) if each.parent == entry.id]
        for each in (entry, *trials):
            owner = find_owner(each.folder)
            if owner is not None:
                problem = f"{each.folder.name} is running: process {owner.pid} on {owner.host} writes it."
                raise LockedError(problem, fix="Stop it first.")

    def list(self) -> list[DeletedRun]:
        """Returns what is in the trash, newest first."""
        found = [each for root in self.catalogue.folders for each in _find_deleted(root)]
        return sorted(found, key=lambda each: each.deleted, reverse=True)

    def restore(self, token: str) -> DeletedRun:
        """Moves a deleted run back to where it was; raises an error if there is something else now."""
        deleted = next((each for each in self.list() if each.token == token), None)
        if deleted is None:
            raise UsageError("it is no longer in the trash.")
        target = deleted.root / deleted.path
        if os.path.lexists(target):
            problem = f"{target} exists."
            raise UsageError(problem, fix=f"Move it away, or move {deleted.folder} yourself.")
        if not self.catalogue.is_inside(target.parent):
            raise UsageError(f"{target.parent} leads out of {deleted.root}.", fix=f"Move {deleted.folder} yourself.")
        with explain_write_errors(target, f"Or move {deleted.folder} yourself."):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(deleted.folder, target)
        remove(deleted.folder.parent, deleted.root, ignore_errors=True)
        remove_empty([deleted.root / TRASH_FOLDER])
        return deleted

    def empty(self) -> int:
        """Removes everything in the trash for good; returns how many runs that were."""
        deleted = self.list()
        for each in deleted:
            remove(each.folder.parent, each.root)
        remove_empty(root / TRASH_FOLDER for root in self.catalogue.folders)
        return len(deleted)


def _find_deleted(root: Path) -> Iterator[DeletedRun]:
    trash = root / TRASH_FOLDER
    for token, place in () if trash.is_symlink() else list_entries(trash).items():
        if not _TOKEN.fullmatch(token) or not place.is_dir(follow_symlinks=False):
            continue
        origin = read_json(Path(place.path) / ORIGIN_FILE)
        path = Path(get_text(origin, "path", 4_000))
        folder = Path(place.path) / path.name
        # The file may have been edited: a path that leads out of the root is nothing to restore.
        if not path.name or path.is_absolute() or ".." in path.parts or folder.is_symlink():
            continue
        with suppress(OSError):
            if folder.is_dir():
                yield DeletedRun(token, root, path.as_posix(), folder, get_number(origin, "deleted") or 0.0)
