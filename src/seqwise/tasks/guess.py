"""Which task a file is for, when the user did not say: a guess from names and the first lines, with its reason.

It reads little and complains about nothing but data that is not there; the task itself reads and checks everything.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import get_args

from seqwise.config import TaskName
from seqwise.data.examples import files_of
from seqwise.data.reading import BOM, opened
from seqwise.data.splitting import NAMES
from seqwise.data.tables import suffix_of
from seqwise.errors import DataError, UsageError

BUILTIN: dict[str, TaskName] = {
    "docs": "language",
    "code": "language",
    "modules": "classify",
    "dates": "translate",
    "shapes": "caption",
    "sunspots": "forecast",
}
COLUMNS: dict[tuple[str, ...], TaskName] = {
    ("text", "label"): "classify",
    ("source", "target"): "translate",
    ("image", "caption"): "caption",
    ("tokens", "tags"): "tag",
    ("text",): "language",
}
LOOK = 64 * 1024  # bytes of a file that are looked at
FEW = 0.1  # labels per line: more different ones than that are no labels
SPAN = re.compile(r"[BIES]-\S+")
STAMP = re.compile(r"\d{4}([-/.]\d{1,2}([-/.]\d{1,2}([T ]\d{1,2}(:\d{2}){0,2}\S*)?)?)?|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}.*")


def guess_task(data: str) -> tuple[TaskName, str]:
    """The task, and why, as the end of a sentence."""
    if data.startswith("builtin:"):
        return BUILTIN.get(data.removeprefix("builtin:"), "language"), "that is what this built-in data is for"
    path = Path(data)
    if path.is_dir():
        return _of_folder(path)
    files_of(path, ("", suffix_of(path)))  # complains where there is no such file
    return _of_file(path)


def _of_folder(folder: Path) -> tuple[TaskName, str]:
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if any(name.startswith("captions.") for name in names):
        return "caption", "the folder holds captions"
    endings: dict[str, list[str]] = {}
    for name in names:
        stem, _, ending = name.removesuffix(".gz").rpartition(".")
        if ending in ("csv", "tsv", "jsonl", "txt", "zip", "md") or ending in NAMES:
            continue
        endings.setdefault(stem, []).append(ending)
    if pairs := [stem for stem, found in endings.items() if len(found) > 1]:
        stem = pairs[0]
        return "translate", f"{stem}.{endings[stem][0]} and {stem}.{endings[stem][1]} lie side by side"
    try:
        files = files_of(folder, ("", ".txt", ".csv", ".tsv", ".jsonl", ".conll"))
    except DataError:
        return "language", "it holds nothing else"  # that task will say what it misses
    task, why = _of_file(files["train"][0])
    return task, f"in {files['train'][0].name} {why}"


def _of_file(path: Path) -> tuple[TaskName, str]:
    with opened(path) as file:
        head = file.read(LOOK)
    text = head.removeprefix(BOM).decode("utf-8", "ignore").replace("\r\n", "\n")
    whole = len(head) < LOOK
    lines = text.split("\n") if whole else text.split("\n")[:-1] or [text]
    suffix = suffix_of(path)
    if suffix == ".jsonl":
        return _of_names(_keys(lines), path)
    if suffix == ".csv":
        return _of_csv(lines, path)
    if tag := _tags(lines):
        return "tag", f"each line holds a word and its tag, such as {tag}, and empty lines part the sentences"
    if found := _two_columns([line for line in lines if line.strip()], suffix):
        return found
    if suffix == ".tsv":
        return _of_names([name.strip().lower() for name in lines[0].split("\t")], path)
    return "language", "it is plain text"


def _of_names(names: list[str], path: Path) -> tuple[TaskName, str]:
    for columns, task in COLUMNS.items():
        if all(column in names for column in columns):
            return task, f"it has {' and '.join(columns)}"
    tasks = ", ".join(get_args(TaskName))
    raise UsageError(
        f"the columns {', '.join(names) or '(none)'} do not tell what is to be learned.",
        repair=f"Say it with --task ({tasks}), and with --columns where the names differ.",
        file=path,
    )


def _keys(lines: list[str]) -> list[str]:
    for line in lines:
        if line.strip():
            try:
                content = json.loads(line)
            except ValueError:
                return []
            return list(content) if isinstance(content, dict) else []
    return []


def _of_csv(lines: list[str], path: Path) -> tuple[TaskName, str]:
    try:
        rows = [row for row in csv.reader(lines[:50]) if any(field.strip() for field in row)]
    except csv.Error:
        rows = []
    if not rows:
        raise DataError("the file is empty or no CSV.", repair="Say what it is with --task.", file=path)
    names = [name.strip().lower() for name in rows[0]]
    for columns, task in COLUMNS.items():
        if all(column in names for column in columns):
            return task, f"it has the columns {' and '.join(columns)}"
    if len(rows) > 1 and any(STAMP.fullmatch(field.strip()) for field in rows[1]) and any(map(_number, rows[1])):
        return "forecast", "it has time stamps and numbers"
    return _of_names(names, path)


def _two_columns(lines: list[str], suffix: str) -> tuple[TaskName, str] | None:
    """`text<TAB>label` or `source<TAB>target` without a header."""
    rows = [line.split("\t") for line in lines]
    if len(rows) < 2 or any(len(row) != 2 for row in rows):
        return None
    if tuple(name.strip().lower() for name in rows[0]) in COLUMNS:
        return None
    kinds = Counter(row[1].strip() for row in rows)
    if len(kinds) <= max(2, FEW * len(rows)):
        some = ", ".join(sorted(kinds)[:3])
        return "classify", f"after the tab there are only {len(kinds)} different labels ({some})"
    return "translate", "each line holds two texts with a tab between them"


def _tags(lines: list[str]) -> str:
    """A tag, if the lines are columns whose last one is a tag and blank lines part sentences; else nothing."""
    rows = [line.split() for line in lines if line.strip()]
    if not rows or not any(not line.strip() for line in lines[:-1]):
        return ""
    width, count = Counter(len(row) for row in rows).most_common(1)[0]
    kinds = Counter(row[-1] for row in rows if len(row) == width)
    if not 2 <= width <= 12 or count < 0.95 * len(rows):
        return ""
    if any(SPAN.fullmatch(kind) for kind in kinds) or (count >= 20 and len(kinds) <= FEW * count):
        return next((kind for kind, _ in kinds.most_common() if kind != "O"), "O")
    return ""


def _number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
