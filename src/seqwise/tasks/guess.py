"""Guesses the task from file names and the first lines of the data, unless the user sets it.

The guess reads little. It raises an error where a file is damaged, is of a type that no task reads, or where files or
columns do not lead to a task. The task itself reads and checks everything.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import get_args

from seqwise.callbacks import LogFunction, no_log
from seqwise.config import DataSettings, Settings, TaskName
from seqwise.data.delimited import detect_separator
from seqwise.data.encodings import decode_head, decode_text
from seqwise.data.examples import find_split_files
from seqwise.data.hub import fetch_if_hub
from seqwise.data.json_objects import parse_objects
from seqwise.data.limits import limited
from seqwise.data.opening import open_binary, read_error
from seqwise.data.reading import FILE_TYPES, get_format_suffix, list_data, name_file_type
from seqwise.data.spreadsheets import EXCEL, PARQUET
from seqwise.data.tables import SUFFIXES, is_id_name, read_objects, read_records, split_commas
from seqwise.errors import DataError, Findings, MissingColumnError, UsageError, suggest
from seqwise.tasks.classify.folders import find_labelled_files
from seqwise.tasks.translate.languages import find_parallel_files

# Name after "builtin:" → the task.
BUILTIN_DATA_TASKS: dict[str, TaskName] = {
    "docs": "language",
    "code": "language",
    "modules": "classify",
    "dates": "translate",
    "shapes": "caption",
    "sunspots": "forecast",
}
# Column names that a task expects, in the order in which it reads them → the task.
TASK_COLUMNS: dict[tuple[str, ...], TaskName] = {
    ("text", "label"): "classify",
    ("source", "target"): "translate",
    ("image", "caption"): "caption",
    ("tokens", "tags"): "tag",
}
# JSON and Parquet with this column, but not all columns of another task, are a corpus; CSV, TSV and Excel never are.
TEXT = "text"
MAX_BYTES = 64 * 1024  # of a file that are read
MIN_FILES_PER_LABEL = 5  # mean; folders of fewer texts are parts of a corpus, rather than labels
MAX_ROWS = 50  # of a table that are read
FEW_ROWS = 10  # with the header; in a table with at most this many, all labels may be different
MIN_WORDS = 3  # mean words per row from which on a column holds texts
TAG_SUFFIXES = (".conll", ".conll03", ".bio", ".iob")
FILE_SUFFIXES = (".txt", *SUFFIXES, *TAG_SUFFIXES)
SUPPORTED = (
    f"Seqwise reads .txt, {', '.join(SUFFIXES)}, CoNLL columns, parallel files such as train.en and train.de, "
    "images beside captions.csv, gzip of text and tables, and folders of these."
)
MAX_LABEL_RATIO = 0.1  # distinct labels per line; a column with more distinct values does not hold labels
NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|\.\d+)(e[-+]?\d+)?|nan|[-+]?inf(inity)?", re.IGNORECASE)
SPAN_TAG = re.compile(r"[BIES]-\S+")
TIMESTAMP = re.compile(
    r"\d{4}([-/.]\d{1,2}([-/.]\d{1,2}([T ]\d{1,2}(:\d{2}){0,2}\S*)?)?)?|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}.*"
    r"|\d{1,2}[- ][A-Za-z]{3,9}[- ]\d{2,4}.*"
)


@limited
def guess_task(
    data: str, encoding: str | None = None, columns: str | None = None, limits: DataSettings | None = None
) -> tuple[TaskName, str]:
    """Returns the task, and the reason as the end of a sentence.

    `encoding` is that of text, detected unless set; `columns` are those of a table that the user wants to read;
    `limits` are the settings with the limits of readers.
    """
    if data.startswith("builtin:"):
        name = data.removeprefix("builtin:")
        if name not in BUILTIN_DATA_TASKS:
            raise DataError(f"there is no built-in data {name!r}.", fix=suggest(name, BUILTIN_DATA_TASKS))
        return BUILTIN_DATA_TASKS[name], "that is what this built-in data is for"
    path = Path(fetch_if_hub(data))
    if not path.is_dir():
        find_split_files(path, ("", get_format_suffix(path)))  # raises an error for a missing file
        return _guess_from_file(path, encoding, columns)
    return _guess_from_folder(path, encoding, columns)


def detect_task(settings: Settings, data: str, log: LogFunction = no_log) -> Settings:
    """Returns a copy of the settings with a task, which is guessed from the data if it is not set."""
    settings = settings.model_copy(deep=True)
    if settings.task is None:
        settings.task, reason = guess_task(data, settings.data.encoding, settings.columns, settings.data)
        log(f"task: {settings.task}, because {reason}. Choose another with --task.")
    return settings


def _guess_from_folder(folder: Path, encoding: str | None, columns: str | None) -> tuple[TaskName, str]:
    try:
        captions = [entry.name for entry in folder.iterdir() if entry.name.startswith("captions.")]
    except OSError as error:
        raise read_error(error, folder) from None
    if captions:
        return "caption", "the folder holds captions"
    try:
        files_by_stem, _ = find_parallel_files(folder)  # as the task translate finds them
        if files_by_stem:
            first, second, *_ = next(iter(files_by_stem.values())).values()
            return "translate", f"{first.name} and {second.name} are parallel files"
    except DataError:
        pass  # if the user sets --task translate, that task reports what does not match
    labelled_files = find_labelled_files(folder)
    if labelled_files and not labelled_files.is_text_per_line:  # files pos.txt and neg.txt may also be a corpus
        labels = sorted(set(labelled_files.labels.values()))
        if len(labelled_files.labels) >= MIN_FILES_PER_LABEL * len(labels):
            return "classify", f"each label has a folder of texts, such as {labels[0]} and {labels[1]}"
    try:
        files = find_split_files(folder, ("", *FILE_SUFFIXES))
    except DataError:
        raise _build_unsupported_folder_error(folder) from None
    task, reason = _guess_from_file(files["train"][0], encoding, columns)
    return task, f"in {files['train'][0].name} {reason}"


def _build_unsupported_folder_error(folder: Path) -> DataError:
    counts = Counter(get_format_suffix(file) or "without a suffix" for file in list_data(folder))
    found = ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common(5))
    problem = f"the folder contains no data that is read; found {found}." if counts else "the folder is empty."
    return DataError(problem, fix=SUPPORTED, file=folder)


def _guess_from_file(path: Path, encoding: str | None, columns: str | None) -> tuple[TaskName, str]:
    suffix = get_format_suffix(path)
    if suffix in FILE_TYPES:
        raise DataError(f"{name_file_type(path)} are not read.", fix=SUPPORTED, file=path)
    if suffix in (".json", ".jsonl", PARQUET):
        return _guess_from_objects(path, encoding, columns)
    if suffix == EXCEL:
        rows = [fields for _, fields in islice(read_records(path, Findings()), MAX_ROWS)]
        return _guess_from_table(rows, path, columns)
    lines = _read_lines(path, encoding)
    if not any(map(str.strip, lines)):
        raise DataError("the file is empty.", fix="Give a file with text in it.", file=path)
    if suffix == ".csv":
        return _guess_from_table(_parse_csv(lines, path), path, columns)
    separator = detect_separator("\n".join(lines), path) if suffix == ".tsv" else "\t"
    rows = [[field.strip() for field in line.split(separator)] for line in lines if line.strip()]
    if suffix == ".tsv" and _is_time_series(rows):
        return _guess_from_table(rows, path, columns)
    if tag := _find_tag(lines):
        return "tag", f"each line holds a word and its tag, such as {tag}, and empty lines separate the sentences"
    if suffix in TAG_SUFFIXES:
        return "tag", f"files ending in {suffix!r} have a word and its tag on each line"
    if guess := _guess_from_two_columns(rows):
        return guess
    if suffix == ".tsv" and rows:
        return _guess_from_table(rows, path, columns)
    return "language", "it is plain text"


def _read_lines(path: Path, encoding: str | None) -> list[str]:
    """Returns the first lines of a text file; raises if they are not text."""
    with open_binary(path) as file:
        head = file.read(MAX_BYTES)
    is_complete = len(head) < MAX_BYTES
    text = decode_text(head, path, encoding)[0] if is_complete else decode_head(head, path, encoding)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if is_complete else lines[:-1] or lines


def _guess_from_objects(path: Path, encoding: str | None, columns: str | None) -> tuple[TaskName, str]:
    """Guesses from the keys of the first object."""
    findings = Findings()
    if get_format_suffix(path) == ".jsonl":
        found = parse_objects(io.StringIO("\n".join(_read_lines(path, encoding))), path, findings)
    else:
        found = read_objects(path, findings, encoding)
    objects = [content for _, content in islice(found, MAX_ROWS)]
    if not objects:
        findings.raise_errors()
        raise DataError("the file is empty.", fix="Give a file with rows in it.", file=path)
    names = list(objects[0]) if isinstance(objects[0], dict) else []
    rows = [names, *([str(each.get(name, "")) for name in names] for each in objects if isinstance(each, dict))]
    if columns and (guess := _guess_from_chosen_columns(rows, path, columns)):
        return guess
    if task_columns := _find_task_columns(names):
        return TASK_COLUMNS[task_columns], f"it has {' and '.join(task_columns)}"
    if TEXT in names and not columns:
        return "language", f"it has {TEXT}"
    raise _build_ambiguous_columns_error(rows, path, columns)


def _guess_from_table(rows: list[list[str]], path: Path, columns: str | None) -> tuple[TaskName, str]:
    if not rows:
        raise DataError("the table is empty.", fix="Give a table with rows.", file=path)
    if columns and (guess := _guess_from_chosen_columns(rows, path, columns)):
        return guess
    if task_columns := _find_task_columns([name.lower() for name in rows[0]]):
        return TASK_COLUMNS[task_columns], f"it has the columns {' and '.join(task_columns)}"
    if _is_time_series(rows):
        return "forecast", "it has timestamps and numbers"
    raise _build_ambiguous_columns_error(rows, path, columns)


def _guess_from_chosen_columns(rows: list[list[str]], path: Path, columns: str) -> tuple[TaskName, str] | None:
    """Guesses from the columns that the user has chosen; the first row has the names of all columns."""
    header, chosen = rows[0], split_commas(columns) or []
    if task_columns := _find_task_columns([name.lower() for name in chosen]):
        return TASK_COLUMNS[task_columns], f"the columns are {' and '.join(task_columns)}"
    unknown = [name for name in chosen if name not in header and not name.isdecimal()]
    if unknown:
        raise MissingColumnError.create(unknown[0], header, path)
    if len(chosen) == 2:
        index = header.index(chosen[1]) if chosen[1] in header else int(chosen[1]) - 1
        labels = Counter(row[index] for row in rows[1:] if 0 <= index < len(row))
        if 0 < len(labels) <= max(2, MAX_LABEL_RATIO * labels.total()):
            examples = ", ".join(sorted(labels)[:3])
            return "classify", f"the column {chosen[1]} has only {len(labels)} different values ({examples})"
    return None


def _find_task_columns(names: list[str]) -> tuple[str, ...]:
    """Returns the columns of the first task whose columns are all present; () if there is none."""
    return next((columns for columns in TASK_COLUMNS if all(column in names for column in columns)), ())


def _is_time_series(rows: list[list[str]]) -> bool:
    """Returns whether the row after the header holds a timestamp and a number, which may be the same field."""
    return len(rows) > 1 and all(any(map(test, rows[1])) for test in (TIMESTAMP.fullmatch, NUMBER.fullmatch))


def _build_ambiguous_columns_error(rows: list[list[str]], path: Path, columns: str | None) -> UsageError:
    """Returns the error for a table whose header, the first row, and chosen columns do not determine the task."""
    if columns:
        return UsageError(
            f"--columns {columns} does not determine the task.",
            fix="Set --task too: classify for a text and its label, translate for a source and its target, caption for "
            "an image and its caption, tag for tokens and their tags.",
            file=path,
        )
    suggested = _suggest_columns(rows)
    example = f", such as --task classify --columns {shlex.quote(','.join(suggested))}" if suggested else ""
    return UsageError(
        f"the columns {', '.join(rows[0]) or '(none)'} do not show what is to be learned.",
        fix=f"Set --task ({', '.join(get_args(TaskName))}), and --columns where the names differ{example}.",
        file=path,
    )


def _suggest_columns(rows: list[list[str]]) -> tuple[str, str] | None:
    """Returns the names of a column of texts and of one of labels; None without them, or if a name has a comma."""
    header = rows[0]
    columns = dict(zip(header, zip(*(row for row in rows[1:] if len(row) == len(header)))))
    # The column that is called text, or else the one with most words.
    text = max(columns, key=lambda name: (name.lower() == TEXT, _compute_mean_words(columns[name])), default="")
    labels = [
        name
        for name, values in columns.items()
        if name != text and not is_id_name(name) and (len(rows) <= FEW_ROWS or 2 * len(set(values)) <= len(values))
    ]
    is_text = text.lower() == TEXT or _compute_mean_words(columns.get(text, ())) >= MIN_WORDS
    if not is_text or not labels or len(columns) < len(header) or "," in text + labels[0]:
        return None
    return text, labels[0]


def _compute_mean_words(texts: Sequence[str]) -> float:
    """Returns the mean number of words."""
    return sum(len(text.split()) for text in texts) / max(1, len(texts))


def _parse_csv(lines: list[str], path: Path) -> list[list[str]]:
    """Returns the first rows of a CSV file, without blank ones."""
    reader = csv.reader(lines[:MAX_ROWS], delimiter=detect_separator("\n".join(lines), path))
    try:
        return [[field.strip() for field in row] for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        problem = f"not valid CSV: {error}."
        raise DataError(problem, fix="Correct the line.", file=path, line=reader.line_num) from None


def _guess_from_two_columns(rows: list[list[str]]) -> tuple[TaskName, str] | None:
    """Guesses from lines `text<TAB>label` or `source<TAB>target` without a header; None for other lines."""
    if len(rows) < 2 or any(len(row) != 2 for row in rows) or _find_task_columns([name.lower() for name in rows[0]]):
        return None
    values = Counter(row[1] for row in rows)
    if len(values) <= max(2, MAX_LABEL_RATIO * len(rows)):
        examples = ", ".join(sorted(values)[:3])
        return "classify", f"after the tab there are only {len(values)} different labels ({examples})"
    return "translate", "each line holds two texts with a tab between them"


def _find_tag(lines: list[str]) -> str:
    """Returns a tag, if the last column holds tags and blank lines separate sentences; otherwise an empty string."""
    rows = [line.split() for line in lines if line.strip()]
    if not rows or not any(not line.strip() for line in lines[:-1]):
        return ""
    width, count = Counter(len(row) for row in rows).most_common(1)[0]
    tags = Counter(row[-1] for row in rows if len(row) == width)
    if not 2 <= width <= 12 or count < 0.95 * len(rows):
        return ""
    if any(SPAN_TAG.fullmatch(tag) for tag in tags) or (count >= 20 and len(tags) <= MAX_LABEL_RATIO * count):
        return next((tag for tag, _ in tags.most_common() if tag != "O"), "O")
    return ""
