"""Data passed from Python: data frames, arrays, lists and iterables → JSON lines in the cache, named by their content.

    "reviews.csv", Path("reviews.csv")            a path, returned as it is
    [("good", "yes"), …], [{"text": …}, …]        rows: tuples in the order of the task's columns, or dictionaries
    DataFrame (pandas, polars), datasets.Dataset  rows by column name
    ["a text", "another", …]                      texts, one document each; lists of words are joined by spaces
    array (T,) or (T, N), Series                  series of numbers, a row per time step
    {"train": …, "valid": …, "test": …}           any of these by split

Because the data is a file, a run can be resumed, other processes read the same data, and its fingerprint depends on the
content alone (docs/decisions/0022). Equal data has one file. The module knows no task by name.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.data.reading import SAVED_DATA, missing_file_error
from seqwise.data.records import Data, get_splits, iterate_records, to_json
from seqwise.environment import get_cache_folder
from seqwise.errors import DataError
from seqwise.files import explain_write_errors, remove
from seqwise.text.patterns import replace_surrogates

CACHE_FIX = "Make room there, or set SEQWISE_CACHE to a folder on another disk."


def save_data(data: Data, columns: Sequence[str] = (), is_series: bool = False, image_column: str | None = None) -> str:
    """Returns the path of the data, which is written to the cache unless it is a path.

    `columns` are the names of a tuple's fields. With `is_series` the data are numbers, one row per time step. The
    values of `image_column` are arrays, or paths of files.
    """
    if isinstance(data, str | PathLike):
        if "\n" in str(data):
            fix = "A str is a path. To train on the text itself, pass a list: [text]"
            raise DataError("a path has no line breaks.", fix=fix, file=f"{str(data)[:20]!r} …")
        return str(data)
    parts = get_splits(data) or {"data": data}

    def write(folder: Path) -> str:
        files = [
            _write_records(iterate_records(part, columns, is_series), folder, name, image_column)
            for name, part in parts.items()
        ]
        return files[0] if "data" in parts else ""

    return _add_to_cache(write)


def save_array(array: Any) -> str:
    """Returns the path of an array that is written to the cache: an image or its features."""
    return _add_to_cache(lambda folder: _add_image(np.asarray(array), folder, "array"))


def _add_to_cache(write: Callable[[Path], str]) -> str:
    """Lets `write` fill a new folder, named by its content; returns the path of the file that `write` returns."""
    with explain_write_errors(get_cache_folder(), CACHE_FIX):
        folder = get_cache_folder() / SAVED_DATA / f".{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        try:
            name = write(folder)
            target = folder.with_name(hash_files(folder))
            if target.exists() and hash_files(target) != target.name:  # damaged, such as by a faulty disk
                target.rename(folder.with_suffix(".damaged"))
            if not target.exists():
                folder.rename(target)
        finally:
            remove(folder, folder.parent, ignore_errors=True)
            remove(folder.with_suffix(".damaged"), folder.parent, ignore_errors=True)
    return str(target / name)


def hash_files(folder: Path) -> str:
    """Returns a hash of the names and the content of all files in a folder."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"\0{path.relative_to(folder).as_posix()}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _write_records(records: Iterator[dict[str, Any]], folder: Path, name: str, image_column: str | None) -> str:
    """Writes the records of one split as JSON lines, a single text as plain text; returns the name of the file."""
    first_records = list(islice(records, 2))
    if [list(record) for record in first_records] == [["text"]]:  # of a single text the end is held out
        (folder / f"{name}.txt").write_text(replace_surrogates(str(first_records[0]["text"])), encoding="utf-8")
        return f"{name}.txt"
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for index, record in enumerate(chain(first_records, records)):
            if image_column in record:
                record[image_column] = _add_image(record[image_column], folder, f"{name}-{index:06}")
            file.write(json.dumps({key: to_json(value) for key, value in record.items()}) + "\n")
    return f"{name}.jsonl"


def _add_image(image: Any, folder: Path, stem: str) -> str:
    """Puts an image next to the table, where the reader looks for it: an array as a file, a file as a link."""
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
