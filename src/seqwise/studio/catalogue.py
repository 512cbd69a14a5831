"""The runs and comparisons in the folders of the studio, and what the table shows of each.

Folders are read again when one of their files has changed, whichever process writes them. Nothing is executed or
loaded: settings, metrics and summaries are text. This module knows nothing of servers and pages.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from seqwise.errors import UsageError
from seqwise.locks import Owner, find_owner
from seqwise.studio.curves import CurveCache, CurveFile, read_last_rows
from seqwise.yaml_files import read_yaml

State = Literal["running", "finished", "stopped", "failed"]
Kind = Literal["run", "comparison"]
RUN_FILE, COMPARISON_FILE, METRICS_FILE, SUMMARY_FILE = "config.yaml", "compare.yaml", "metrics.jsonl", "summary.json"
FAILURE_FILE = "failure.json"
NOTES_FILE = "notes.json"
TRIALS_FOLDER = "trials"
FILES = (RUN_FILE, COMPARISON_FILE, METRICS_FILE, SUMMARY_FILE, FAILURE_FILE, NOTES_FILE, ".lock")
MAX_JSON_BYTES = 1 << 20  # of a summary
MAX_DEPTH = 3  # folders below a given one in which runs are found
# The metric in the table is the first of these that the validation has; True: higher is better.
METRICS = {
    "bleu": True, "span_f1": True, "token_accuracy": True, "accuracy": True, "exact_match": True,
    "perplexity": False, "mse": False, "loss": False,
}  # fmt: skip


@dataclass
class Entry:
    """A run or a comparison: its path below a given folder, and what its files say."""

    id: str
    kind: Kind
    folder: Path
    parent: str = ""  # the comparison whose trial it is
    settings: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)  # tags and a note of the user
    last: dict[str, Any] = field(default_factory=dict)  # row of metrics.jsonl
    validated: dict[str, Any] = field(default_factory=dict)  # last row with a validation
    problem: str = ""  # why the folder cannot be read
    num_bytes: int = 0
    changed: float = 0.0  # time of its last change
    owner: Owner | None = None  # the process that writes it

    def describe(self) -> dict[str, Any]:
        """Returns the row of the table."""
        run = self.settings.get("run")
        run = run if isinstance(run, dict) else {}
        metric, value, higher = self._find_metric()
        families = self.settings.get("families")
        return {
            "id": self.id,
            "kind": self.kind,
            "parent": self.parent,
            "name": self.folder.name,
            "task": self.settings.get("task"),
            "model": self.settings.get("model") or ", ".join(map(str, families if isinstance(families, list) else ())),
            "data": run.get("data") or self.settings.get("data"),
            "seed": self.settings.get("seed"),
            "state": self.state,
            "problem": self.problem or str(self.failure.get("problem") or "" if self.state == "failed" else ""),
            "metric": metric,
            "value": value,
            "higher_is_better": higher,
            **{name: _get_number(self.last, name) for name in ("progress", "step", "tokens", "seconds")},
            "ended": self.last.get("ended") or "",
            "bytes": self.num_bytes,
            "changed": self.changed,
            "process": None if self.owner is None else {"pid": self.owner.pid, "host": self.owner.host},
            "tags": self.notes.get("tags") or [],
            "note": self.notes.get("note") or "",
        }

    @property
    def state(self) -> State:
        """Whether the run trains, has ended, or can be resumed."""
        if self.problem:
            return "failed"
        if self.owner is not None:
            return "running"
        if self.failure:
            return "failed"
        return "finished" if self.summary else "stopped"

    def _find_metric(self) -> tuple[str | None, float | None, bool]:
        values = self.summary.get("validation")
        values = values if isinstance(values, dict) else self.validated.get("validation") or {}
        for name, higher in METRICS.items():
            if (value := _get_number(values, name)) is not None:
                return name, value, higher
        return None, None, False


def _get_number(row: dict[str, Any], name: str) -> float | None:
    value = row.get(name)
    is_number = isinstance(value, (int, float)) and abs(value) < float("inf")  # not NaN either
    return float(value) if is_number else None  # type: ignore[arg-type]


class Catalogue:
    """All runs and comparisons below some folders. Several threads may use it."""

    def __init__(self, folders: Sequence[Path]):
        self.folders = list(dict.fromkeys(folder.resolve() for folder in folders))
        names = [folder.name for folder in self.folders]
        self.names = {
            folder: name if names.count(name) == 1 else f"{name}-{index}"
            for index, (folder, name) in enumerate(zip(self.folders, names), start=1)
        }
        self.entries: dict[str, Entry] = {}
        self._curves = CurveCache()
        self._marks: dict[str, tuple] = {}  # id → sizes and times of its files when they were read
        self._mutex = threading.Lock()

    def refresh(self) -> set[str]:
        """Looks for changes in all folders; returns the ids of what is new, different or gone."""
        with self._mutex:
            found = {entry.id: entry for entry in self._find_entries()}
            changed = {identifier for identifier in self.entries if identifier not in found}
            for identifier in changed:
                del self.entries[identifier], self._marks[identifier]
            for identifier, entry in found.items():
                mark = (entry.kind, entry.folder, entry.parent, *_read_mark(entry.folder))
                if mark != self._marks.get(identifier):
                    self._marks[identifier] = mark
                    self.entries[identifier] = _read(entry)
                    changed.add(identifier)
                known = self.entries[identifier]
                owner = find_owner(entry.folder)  # a process that was killed changes no file
                if owner != known.owner:
                    known.owner = owner
                    changed.add(identifier)
            return changed

    def get(self, identifier: str) -> Entry:
        """Returns a run or comparison; its folder lies inside a given one even if links have changed since."""
        entry = self.entries.get(identifier)
        if entry is None or not self.is_inside(entry.folder):
            raise UsageError(f"there is no run {identifier[:200]!r}.", fix="It may have been moved or deleted.")
        return entry

    def get_curve(self, identifier: str) -> CurveFile:
        """Returns the learning curve of a run as far as it is written."""
        path = self.get(identifier).folder / METRICS_FILE
        with self._mutex:
            return self._curves.get(path)

    def is_inside(self, path: Path) -> bool:
        """Returns whether the real path lies in one of the folders."""
        real = path.resolve()
        return any(real == root or root in real.parents for root in self.folders)

    def _find_entries(self) -> Iterator[Entry]:
        for root in self.folders:
            name = self.names[root]
            for folder in _walk(root, MAX_DEPTH):
                if not self.is_inside(folder):
                    continue
                path = folder.relative_to(root).as_posix()
                identifier = name if path == "." else f"{name}/{path}"
                is_comparison = (folder / COMPARISON_FILE).is_file()
                yield Entry(identifier, "comparison" if is_comparison else "run", folder)
                if is_comparison and self.is_inside(folder / TRIALS_FOLDER):
                    for trial in _walk(folder / TRIALS_FOLDER, 2):
                        if self.is_inside(trial):
                            path = trial.relative_to(folder).as_posix()
                            yield Entry(f"{identifier}/{path}", "run", trial, parent=identifier)


def _read(entry: Entry) -> Entry:
    """Fills an entry with what the files of its folder say."""
    folder = entry.folder
    file = folder / (RUN_FILE if entry.kind == "run" else COMPARISON_FILE)
    try:
        settings = read_yaml(file)
        entry.settings = settings if isinstance(settings, dict) else {}
        entry.problem = "" if entry.settings else f"{file.name} has no settings."
    except (OSError, yaml.YAMLError) as error:
        entry.problem = f"{file.name} cannot be read: {error}"
    for name, attribute in ((SUMMARY_FILE, "summary"), (FAILURE_FILE, "failure"), (NOTES_FILE, "notes")):
        setattr(entry, attribute, _read_json(folder / name))
    if entry.kind == "run":
        entry.last, entry.validated = read_last_rows(folder / METRICS_FILE)
    with suppress(OSError):
        files = [each.stat(follow_symlinks=False) for each in os.scandir(folder) if each.is_file(follow_symlinks=False)]
        entry.num_bytes = sum(each.st_size for each in files)
        entry.changed = max((each.st_mtime for each in files), default=0.0)
    return entry


def _read_json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError), path.open("rb") as file:
        value = json.loads(file.read(MAX_JSON_BYTES))
        return value if isinstance(value, dict) else {}
    return {}


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Yields the folders of runs and comparisons; there is nothing else to be found inside one."""
    if (folder / RUN_FILE).is_file() or (folder / COMPARISON_FILE).is_file():
        yield folder
        return
    if depth:
        with suppress(OSError):
            below = sorted(each.path for each in os.scandir(folder) if each.is_dir() and not each.name.startswith("."))
            for path in below:
                yield from _walk(Path(path), depth - 1)


def _read_mark(folder: Path) -> tuple:
    """Returns something that differs once a file of the run has changed."""
    marks = []
    for name in FILES:
        with suppress(OSError):
            status = (folder / name).stat()
            marks.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(marks)
