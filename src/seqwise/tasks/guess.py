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
from seqwise.data.examples import find_split_files
from seqwise.data.reading import BOM, get_format_suffix, open_binary, read_error
from seqwise.errors import DataError, UsageError, nearest
from seqwise.tasks.translate.parallel_files import find_parallel_files

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
}
TEXT = "text"  # alone in .jsonl it is for language; tables are not read as plain text
LOOK = 64 * 1024  # bytes of a file that are looked at
FEW = 0.1  # labels per line: more different ones than that are no labels
SPAN = re.compile(r"[BIES]-\S+")
STAMP = re.compile(r"\d{4}([-/.]\d{1,2}([-/.]\d{1,2}([T ]\d{1,2}(:\d{2}){0,2}\S*)?)?)?|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}.*")


def guess_task(data: str) -> tuple[TaskName, str]:
    """The task, and why, as the end of a sentence."""
    if data.startswith("builtin:"):
        name = data.removeprefix("builtin:")
        if name not in BUILTIN:
            raise DataError(f"there is no built-in data {name!r}.", repair=nearest(name, BUILTIN))
        return BUILTIN[name], "that is what this built-in data is for"
    path = Path(data)
    if path.is_dir():
        return _guess_from_folder(path)
    find_split_files(path, ("", get_format_suffix(path)))  # complains where there is no such file
    return _guess_from_file(path)


def _guess_from_folder(folder: Path) -> tuple[TaskName, str]:
    try:
        captions = [entry.name for entry in folder.iterdir() if entry.name.startswith("captions.")]
    except OSError as error:
        raise read_error(error, folder) from None
    if captions:
        return "caption", "the folder holds captions"
    if pair := _side_by_side(folder):
        return "translate", f"{pair[0]} and {pair[1]} lie side by side"
    try:
        files = find_split_files(folder, ("", ".txt", ".csv", ".tsv", ".jsonl", ".conll", ".conll03", ".bio", ".iob"))
    except DataError:
        return "language", "it holds nothing else"  # that task will say what it misses
    task, why = _guess_from_file(files["train"][0])
    return task, f"in {files['train'][0].name} {why}"


def _side_by_side(folder: Path) -> list[str]:
    """The names of files that hold one text in several languages, by the rule of the task that reads them."""
    try:
        sets, _ = find_parallel_files(folder)
    except DataError:
        return []
    return [path.name for path in sets[0].paths.values()] if sets else []


def _guess_from_file(path: Path) -> tuple[TaskName, str]:
    with open_binary(path) as file:
        head = file.read(LOOK)
    text = head.removeprefix(BOM).decode("utf-8", "ignore").replace("\r\n", "\n")
    whole = len(head) < LOOK
    lines = text.split("\n") if whole else text.split("\n")[:-1] or [text]
    suffix = get_format_suffix(path)
    if suffix == ".jsonl":
        return _guess_from_keys(_keys(lines), path)
    if suffix == ".csv":
        return _guess_from_csv(lines, path)
    rows = [[field.strip() for field in line.split("\t")] for line in lines if line.strip()]
    if suffix == ".tsv" and _stamped(rows):
        return _guess_from_table(rows, path)
    if tag := _tags(lines):
        return "tag", f"each line holds a word and its tag, such as {tag}, and empty lines part the sentences"
    if found := _two_columns(rows):
        return found
    if suffix == ".tsv" and rows:
        return _guess_from_table(rows, path)
    return "language", "it is plain text"


def _guess_from_keys(names: list[str], path: Path) -> tuple[TaskName, str]:
    if columns := _named(names):
        return COLUMNS[columns], f"it has {' and '.join(columns)}"
    if TEXT in names:
        return "language", f"it has {TEXT}"
    raise _untold(names, path)


def _guess_from_table(rows: list[list[str]], path: Path) -> tuple[TaskName, str]:
    if columns := _named([name.lower() for name in rows[0]]):
        return COLUMNS[columns], f"it has the columns {' and '.join(columns)}"
    if _stamped(rows):
        return "forecast", "it has timestamps and numbers"
    raise _untold(rows[0], path)


def _named(names: list[str]) -> tuple[str, ...]:
    """The columns of a task that are all there."""
    return next((columns for columns in COLUMNS if all(column in names for column in columns)), ())


def _stamped(rows: list[list[str]]) -> bool:
    return len(rows) > 1 and any(STAMP.fullmatch(field) for field in rows[1]) and any(map(_number, rows[1]))


def _untold(names: list[str], path: Path) -> UsageError:
    tasks, others = ", ".join(get_args(TaskName)), [name for name in names if name.lower() != TEXT]
    example = f", such as --task classify --columns {TEXT},{others[0]}" if 0 < len(others) < len(names) else ""
    return UsageError(
        f"the columns {', '.join(names) or '(none)'} do not tell what is to be learned.",
        repair=f"Say it with --task ({tasks}), and with --columns where the names differ{example}.",
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


def _guess_from_csv(lines: list[str], path: Path) -> tuple[TaskName, str]:
    try:
        rows = [[field.strip() for field in row] for row in csv.reader(lines[:50]) if any(map(str.strip, row))]
    except csv.Error:
        rows = []
    if not rows:
        raise DataError("the file is empty or no CSV.", repair="Say what it is with --task.", file=path)
    return _guess_from_table(rows, path)


def _two_columns(rows: list[list[str]]) -> tuple[TaskName, str] | None:
    """`text<TAB>label` or `source<TAB>target` without a header."""
    if len(rows) < 2 or any(len(row) != 2 for row in rows) or _named([name.lower() for name in rows[0]]):
        return None
    kinds = Counter(row[1] for row in rows)
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
