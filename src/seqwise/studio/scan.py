"""Finds the folders of runs and comparisons, and says which of their files have changed.

The folders are looked at every second or two, so a folder costs one listing and the status of a few files. Links to
folders are not followed, and a file that is a link counts only if its target is inside the same folders. Nothing is
read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from seqwise.locks import LOCK_FILE

RUN_FILE, COMPARISON_FILE, METRICS_FILE, SUMMARY_FILE = "config.yaml", "compare.yaml", "metrics.jsonl", "summary.json"
FAILURE_FILE, NOTES_FILE, REPORT_FILE = "failure.json", "notes.json", "report.json"
FILES = frozenset({RUN_FILE, COMPARISON_FILE, METRICS_FILE, SUMMARY_FILE, FAILURE_FILE, NOTES_FILE, REPORT_FILE})
TRIALS_FOLDER = "trials"
OUTCOME_SUFFIX, TEST_SUFFIX = ".json", ".test.json"  # of the outcomes of a trial, which are beside its folder
MAX_DEPTH = 3  # folders below a root in which runs are found

IsInside = Callable[[Path], bool]
Mark = tuple


@dataclass
class Found:
    """A folder of a run or a comparison, with those of its files that may be read."""

    folder: Path
    path: str  # below the root, or of a trial below its comparison; "" is the root itself
    files: dict[str, os.DirEntry[str]]
    has_lock: bool
    outcomes: dict[str, os.DirEntry[str]] = field(default_factory=dict)  # of trials, by "family/seed-0.json"
    trials: list[Found] = field(default_factory=list)

    @property
    def is_comparison(self) -> bool:
        return COMPARISON_FILE in self.files

    def read_mark(self) -> Mark:
        """Returns something that differs once a file has changed."""
        marks = []
        for name, entry in (*self.files.items(), *self.outcomes.items()):
            with suppress(OSError):
                status = entry.stat()
                marks.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
        return self.has_lock, *marks


def find_folders(root: Path, is_inside: IsInside) -> Iterator[Found]:
    """Yields the runs and comparisons in a folder; there is nothing else to be found inside one."""
    yield from _walk(root, "", MAX_DEPTH, is_inside)


def _walk(folder: Path, path: str, depth: int, is_inside: IsInside) -> Iterator[Found]:
    entries = list_entries(folder)
    found = _recognize(folder, path, entries, is_inside)
    if found is not None:
        if found.is_comparison:
            _find_trials(found, is_inside)
        yield found
    elif depth:
        for name, each in _list_folders(entries).items():
            yield from _walk(each, f"{path}/{name}" if path else name, depth - 1, is_inside)


def _recognize(folder: Path, path: str, entries: dict[str, os.DirEntry[str]], is_inside: IsInside) -> Found | None:
    if RUN_FILE not in entries and COMPARISON_FILE not in entries:
        return None
    files = {name: entries[name] for name in sorted(FILES & entries.keys()) if is_file(entries[name], is_inside)}
    if RUN_FILE not in files and COMPARISON_FILE not in files:
        return None
    return Found(folder, path, files, LOCK_FILE in entries)


def _find_trials(comparison: Found, is_inside: IsInside) -> None:
    """Finds `trials/FAMILY/TRIAL`, and the outcomes beside them."""
    for family, family_folder in _list_folders(list_entries(comparison.folder / TRIALS_FOLDER)).items():
        entries = list_entries(family_folder)
        outcomes = {
            name: each for name, each in entries.items() if name.endswith(OUTCOME_SUFFIX) and is_file(each, is_inside)
        }
        comparison.outcomes |= {f"{family}/{name}": outcomes[name] for name in sorted(outcomes)}
        for name, folder in _list_folders(entries).items():
            trial = _recognize(folder, f"{TRIALS_FOLDER}/{family}/{name}", list_entries(folder), is_inside)
            if trial is not None and not trial.is_comparison:
                outcome = f"{name}{OUTCOME_SUFFIX}"
                trial.outcomes = {outcome: outcomes[outcome]} if outcome in outcomes else {}
                comparison.trials.append(trial)


def list_entries(folder: Path) -> dict[str, os.DirEntry[str]]:
    """Returns the content of a folder by name; nothing if it cannot be read or is a link."""
    with suppress(OSError), os.scandir(folder) as entries:
        return {entry.name: entry for entry in entries}
    return {}


def _list_folders(entries: dict[str, os.DirEntry[str]]) -> dict[str, Path]:
    return {
        name: Path(entry.path)
        for name, entry in sorted(entries.items())
        if not name.startswith(".") and entry.is_dir(follow_symlinks=False)
    }


def is_file(entry: os.DirEntry[str], is_inside: IsInside) -> bool:
    """Returns whether an entry is a file, or a link to one inside the folders of the studio."""
    with suppress(OSError):
        return entry.is_file(follow_symlinks=False) or (
            entry.is_symlink() and is_inside(Path(entry.path)) and entry.is_file()
        )
    return False


def measure_size(folder: Path) -> int:
    """Returns the bytes of all files in a folder, at any depth; links are not followed."""
    total, waiting = 0, [folder]
    while waiting:
        for entry in list_entries(waiting.pop()).values():
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total
