"""Data passed from Python: data frames, arrays, lists and iterables → a file in the cache, named by its content.

    "reviews.csv", Path("reviews.csv")            a path, returned as it is
    [("good", "yes"), …], [{"text": …}, …]        rows: tuples in the order of the task's columns, or dictionaries
    DataFrame (pandas, polars), datasets.Dataset  rows by column name
    ["a text", "another", …]                      texts, one document each; lists of words are joined by spaces
    array (T,) or (T, N), Series                  series of numbers, in rows of time
    {"train": …, "valid": …, "test": …}           any of these by split

What a file is for stays true: a run can be resumed, other processes read the same data, and its fingerprint depends
on the content alone (docs/decisions/0022). Equal data has one file. The module knows no task by name.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.data.examples import SPLIT_NAMES
from seqwise.data.reading import SAVED_DATA, missing_file_error
from seqwise.environment import cache_folder
from seqwise.errors import DataError, suggest
from seqwise.files import explain_write_errors
from seqwise.text.patterns import replace_surrogates

Data = str | PathLike[str] | Iterable[Any]  # what `train`, `evaluate` and `compare` take; a str is a path
CACHE_REPAIR = "Make room there, or set SEQWISE_CACHE to a folder on another disk."
ACCEPTED = "a path, a DataFrame, an array, a list of rows or texts, or a dictionary of these by split"


def save_data(data: Data, columns: Sequence[str] = (), is_series: bool = False, file_column: str | None = None) -> str:
    """Return the path of the data, which is written to the cache unless it is a path.

    `columns` are the names of a tuple's fields. A table of numbers (`is_series`) is written as CSV, everything else as
    JSON lines. The values of `file_column` are images: arrays, or paths.
    """
    if isinstance(data, str | PathLike):
        if "\n" in str(data):
            repair = "A str is a path. To train on the text itself, pass a list: [text]"
            raise DataError("a path has no line breaks.", repair=repair, file=f"{str(data)[:20]!r} …")
        return str(data)
    splits = _get_splits(data)

    def write(folder: Path) -> str:
        parts = (splits or {"data": data}).items()
        names = [_write_part(part, folder, split, columns, is_series, file_column) for split, part in parts]
        return "" if splits else names[0]

    return _add_to_cache(write)


def save_array(array: Any) -> str:
    """Return the path of an array that is written to the cache: an image or its features."""
    return _add_to_cache(lambda folder: _add_image(np.asarray(array), folder, "array"))


def _add_to_cache(write: Callable[[Path], str]) -> str:
    """Let `write` fill a new folder, and name it by its content; return the path of the file that `write` returns."""
    with explain_write_errors(cache_folder(), CACHE_REPAIR):
        folder = cache_folder() / SAVED_DATA / f".{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        try:
            name = write(folder)
            target = folder.with_name(_hash_files(folder))
            if not target.exists():
                folder.rename(target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return str(target / name)


def check_data(data: object) -> None:
    """Raise an error unless `data` is something that can be read."""
    if data is None or isinstance(data, bytes) or not isinstance(data, str | PathLike | Iterable):
        received = "None" if data is None else f"{type(data).__name__} {str(data)[:40]}"
        raise DataError(f"data: expected {ACCEPTED}; received {received}.")


def is_frame(data: object) -> bool:
    """Return whether this is a DataFrame of pandas or polars, or similar: named columns that can be iterated."""
    return hasattr(data, "columns") and hasattr(data, "__getitem__") and not isinstance(data, Mapping)


def is_numeric(data: object) -> bool:
    """Return whether this is an array or Series of numbers, or a DataFrame with times, rather than of texts."""
    if is_frame(data):
        frame: Any = data
        return _has_times(getattr(frame, "index", None)) or any(map(_has_times, _read_columns(frame).values()))
    if isinstance(data, Mapping):
        return bool(data) and is_numeric(next(iter(data.values())))
    if isinstance(data, Sequence) and not isinstance(data, str):
        return len(data) > 0 and isinstance(data[0], int | float | np.number)
    kind = getattr(getattr(data, "dtype", None), "kind", "")  # of polars: a method tells
    is_polars_number = getattr(getattr(data, "dtype", None), "is_numeric", lambda: False)
    return bool(kind in ("i", "u", "f") or is_polars_number())


def _has_times(column: Any) -> bool:
    """Return whether a column or index has a type of dates or times, by its first value."""
    first = next(iter(column), None) if column is not None and not callable(column) else None
    return isinstance(first, date | np.datetime64) or hasattr(first, "to_timestamp")


def _get_splits(data: Any) -> dict[str, Any] | None:
    """Return the parts of a dictionary of splits by their usual names; None for other data."""
    check_data(data)
    if not isinstance(data, Mapping):
        return None
    unknown = [name for name in data if str(name).lower() not in SPLIT_NAMES]
    if unknown or not data:
        received = f"{unknown[0]!r}" if unknown else "an empty dictionary"
        hint = f" {suggest(str(unknown[0]), SPLIT_NAMES)}" if unknown else ""
        repair = f'The keys of a dictionary are the splits: {{"train": …, "valid": …, "test": …}}.{hint}'
        raise DataError(f"data: expected train, valid or test; received {received}.", repair=repair)
    for part in data.values():
        check_data(part)
        if isinstance(part, str | PathLike):
            repair = "Put files called train.*, valid.* and test.* into one folder, and pass that."
            raise DataError(f"data: expected rows for each split; received the path {str(part)!r}.", repair=repair)
    return {SPLIT_NAMES[str(name).lower()]: part for name, part in data.items()}


def _hash_files(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"\0{path.relative_to(folder).as_posix()}\0".encode())
            with path.open("rb") as file:
                for block in iter(lambda: file.read(1 << 20), b""):
                    digest.update(block)
    return digest.hexdigest()


def _write_part(
    data: Any, folder: Path, name: str, columns: Sequence[str], is_series: bool, file_column: str | None
) -> str:
    """Write the data of one split; return the name of its file."""
    if is_series:
        header, rows = _read_series(data)
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows([_format_field(value) for value in row] for row in rows)
        return f"{name}.csv"
    records = (_to_record(row, columns, number) for number, row in enumerate(_iterate_rows(data), start=1))
    first, second = next(records, None), next(records, None)
    if first is None:
        raise DataError(f"data: expected {ACCEPTED}; received an empty {type(data).__name__}.")
    if second is None and list(first) == ["text"]:  # the end of a single text is held out, not whole documents
        (folder / f"{name}.txt").write_text(replace_surrogates(str(first["text"])), encoding="utf-8")
        return f"{name}.txt"
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for number, record in enumerate(chain([first], [] if second is None else [second], records), start=1):
            if file_column in record:
                record[file_column] = _add_image(record[file_column], folder, f"{name}-{number:06}")
            file.write(json.dumps({key: _to_json(value) for key, value in record.items()}) + "\n")
    return f"{name}.jsonl"


# Rows


def _iterate_rows(data: Any) -> Iterator[Any]:
    if is_frame(data):
        table = _read_columns(data)
        return (dict(zip(table, values)) for values in zip(*table.values()))
    return iter(data)


def _read_columns(frame: Any) -> dict[str, Any]:
    """Return the columns of a DataFrame by name; a named index is a column too."""
    names = list(frame.columns)
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise DataError(f"data: two columns are called {duplicates[0]!r}.", repair="Rename one.")
    table = {str(name): frame[name] for name in names}
    index = getattr(frame, "index", None)
    if getattr(index, "name", None) is not None and not callable(index):
        table = {str(index.name): index, **table}  # type: ignore[union-attr]
    return table


def _to_record(row: Any, columns: Sequence[str], number: int) -> dict[str, Any]:
    """Return a row as a dictionary."""
    is_text = tuple(columns) == ("text",)
    if isinstance(row, str):
        row = {"text": row}
    elif is_text and isinstance(row, Sequence) and all(isinstance(word, str) for word in row):
        row = {"text": " ".join(row)}
    elif isinstance(row, tuple | list) and columns and len(row) == len(columns) and not is_text:
        row = dict(zip(columns, row))
    if not isinstance(row, Mapping):
        expected = "dictionaries or a DataFrame, or tuples together with task=…"
        if columns:
            expected = "texts" if is_text else f"tuples ({', '.join(columns)}), dictionaries or a DataFrame"
        received = f"{type(row).__name__} {str(row)[:60]}"
        raise DataError(f"data, row {number:,}: expected {expected}; received {received}.")
    return {str(key): value for key, value in row.items()}


def _to_json(value: Any) -> Any:
    """Return a value as JSON holds it; a missing one is an empty text."""
    if _is_missing(value):
        return ""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, str | bool | int | float):
        return value
    return [_to_json(each) for each in value] if isinstance(value, Iterable) else str(value)


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _add_image(image: Any, folder: Path, stem: str) -> str:
    """Put an image beside the table, where the reader looks for it: an array as a file, a file as a link."""
    if not isinstance(image, str | PathLike):
        np.save(folder / f"{stem}.npy", np.asarray(image))
        return f"{stem}.npy"
    path = Path(image)
    if not path.is_file():
        raise missing_file_error(path)
    target = folder / f"{stem}{path.suffix}"
    try:
        target.symlink_to(path.resolve())
    except OSError:  # a file system without links
        shutil.copyfile(path, target)
    return target.name


# Series of numbers


def _read_series(data: Any) -> tuple[list[str], Iterable[Sequence[Any]]]:
    """Return the header and the rows of a table; without times, steps are counted from 0."""
    index = getattr(data, "index", None)
    times = index if _has_times(index) else None
    if is_frame(data):
        table = _read_columns(data)
        if times is not None:
            table = {str(index.name or "time"): index, **table}  # type: ignore[union-attr]
        return list(table), zip(*table.values())
    if not hasattr(data, "__array__") and isinstance(data, Iterable):
        data = list(data)
        if data and isinstance(data[0], Mapping):
            return list(data[0]), [list(row.values()) for row in data]
    try:
        values = np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"data: expected an array of numbers, in rows of time: {error}.") from None
    if values.ndim not in (1, 2) or not values.size:
        problem = f"data: expected an array (time,) or (time, series); received shape {values.shape}."
        raise DataError(problem, repair="One column is one series.")
    name = str(getattr(data, "name", None) or "value")
    header = [name] if values.ndim == 1 else [f"{name}{number}" for number in range(1, values.shape[1] + 1)]
    steps = range(len(values)) if times is None else times
    return ["time", *header], ([step, *np.atleast_1d(row)] for step, row in zip(steps, values))


def _format_field(value: Any) -> str:
    if _is_missing(value):
        return ""
    return value.isoformat() if isinstance(value, date) else str(value)
