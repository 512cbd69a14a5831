"""Reads tables: `.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet` and `.xlsx`, plain or gzip, with the line of each row.

Files with any other suffix are expected to be tab-separated. Another separator and another encoding than UTF-8 are
detected and noted. Columns are chosen by name or by number. Blank lines are skipped and counted; a row of empty fields
is a row. The module does not know what the columns mean.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from seqwise.data import json_objects, spreadsheets
from seqwise.data.delimited import OPEN_QUOTE_FIX, SEPARATOR_NAMES, parse_text
from seqwise.data.encodings import decode_text, note_encoding
from seqwise.data.reading import get_format_suffix, open_binary
from seqwise.errors import DataError, Findings, MissingColumnError, UsageError, pluralize
from seqwise.text.patterns import replace_surrogates

OBJECT_SUFFIXES = (".jsonl", ".json", spreadsheets.PARQUET)  # rows are objects: values have types, all have names
SUFFIXES = (".csv", ".tsv", *OBJECT_SUFFIXES, spreadsheets.EXCEL)
HEADER_READ_AS_EXAMPLE = "first lines that look like column names are read as examples, since --columns gives numbers"
ID_NAME = re.compile(r"(?i:(.*[\W_])?(id|ids|index|nr|no|number|key|uuid|guid)|unnamed: \d+|)|.*[a-z]I[Dd]")
SINGLE_WORD = re.compile(r"[^\W\d][\w.-]{0,29}")  # such as a column name


@dataclass(frozen=True)
class Row:
    """The fields of a row by the names that the task gives them, and its location."""

    values: dict[str, Any]
    file: str
    line: int  # at which the row starts


@dataclass(frozen=True)
class Table:
    """All rows of a file."""

    rows: list[Row]
    has_header: bool  # the file names its columns: in its first line, or as keys of objects


def read_text(path: Path, findings: Findings | None = None, encoding: str | None = None) -> str:
    """Returns the whole text of a file with line breaks as \\n; a note in `findings` says if it is not UTF-8."""
    with open_binary(path) as file:
        data = file.read()
    text, encoding = decode_text(data, path, encoding)
    if findings is not None:
        note_encoding(findings, path, encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_header(path: Path, encoding: str | None = None) -> list[str]:
    """Returns the fields of the first record of a table, or the keys of its first object."""
    findings = Findings()
    if get_format_suffix(path) in OBJECT_SUFFIXES:
        _, content = next(read_objects(path, findings, encoding), (0, None))
        return list(content) if isinstance(content, dict) else []
    return next((fields for _, fields in read_records(path, findings, encoding)), [])


def read_table(
    path: Path,
    field_names: Sequence[str],
    findings: Findings,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
) -> Table:
    """Returns the rows of a file with the fields that a task needs, such as text and label.

    `columns` are the columns of the file for these fields, by name or by number from 1. Without it a header must
    contain the names of the fields, or the file has no header and its columns are taken in order. Ragged rows, unclosed
    quotes and repeated headers are errors.
    """
    if columns is not None and len(columns) != len(field_names):
        expected = f"expected {len(field_names)} ({', '.join(field_names)})"
        raise DataError(f"--columns: {expected}, received {len(columns)}.")
    if get_format_suffix(path) in OBJECT_SUFFIXES:
        return _read_object_table(path, field_names, findings, columns, encoding)
    num_earlier_errors = len(findings.errors)
    records = read_records(path, findings, encoding)
    first_line, first_record = next(records, (1, None))
    if first_record is None:
        if len(findings.errors) > num_earlier_errors:
            return Table([], False)
        fix = f"Give a file with the columns {', '.join(field_names)}."
        raise DataError("the file is empty.", fix=fix, file=path)
    try:
        indices, has_header = _find_columns(first_record, field_names, columns, path, first_line)
    except DataError:
        # The caller reports this error with those in `findings`: wrong quotes may be its cause, ragged rows are not.
        for _ in records:
            pass
        errors = findings.errors[num_earlier_errors:]
        findings.errors[num_earlier_errors:] = [error for error in errors if error.fix == OPEN_QUOTE_FIX]
        raise
    rows = []
    for line, record in records if has_header else chain([(first_line, first_record)], records):
        if has_header and record == first_record:
            problem = f"the header of line {first_line} is repeated."
            fix = "Remove the line; files that are joined keep one header."
            findings.error(problem, fix=fix, file=path, line=line)
        else:
            rows.append(Row({name: record[index] for name, index in indices.items()}, str(path), line))
    if columns is not None and not has_header and _is_header(rows):
        findings.warn(HEADER_READ_AS_EXAMPLE, path, first_line)
    return Table(rows, has_header)


def read_records(
    path: Path,
    findings: Findings,
    encoding: str | None = None,
    ragged_row_fix: str = "",
    decimal_commas: bool = False,
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, fields) of each record that has as many fields as the first."""
    if get_format_suffix(path) in spreadsheets.SUFFIXES:
        return spreadsheets.read_records(path, findings)
    if get_format_suffix(path) in OBJECT_SUFFIXES:
        return spreadsheets.format_objects(read_objects(path, findings, encoding))
    return parse_text(read_text(path, findings, encoding), path, findings, ragged_row_fix, decimal_commas)


def _is_header(rows: Sequence[Row]) -> bool:
    """Returns whether the first row looks like a header.

    Its fields are single words that occur nowhere else in their column, while most other rows are not single words.
    """
    if len(rows) < 2 or not _has_only_single_words(rows[0]):
        return False
    header, others = rows[0], rows[1:]
    if any(row.values[name].strip() == field.strip() for row in others for name, field in header.values.items()):
        return False
    return 2 * sum(map(_has_only_single_words, others)) < len(others)


def _has_only_single_words(row: Row) -> bool:
    return all(SINGLE_WORD.fullmatch(field.strip()) for field in row.values.values())


def _find_columns(
    first_record: list[str], field_names: Sequence[str], columns: Sequence[str] | None, path: Path, line: int
) -> tuple[dict[str, int], bool]:
    """Returns the index of the column of each field, and whether the first record is a header."""
    error = partial(DataError, file=path, line=line)
    header = [field.strip() for field in first_record]
    lower_case_header = [field.lower() for field in header]
    missing = [name for name in field_names if name not in lower_case_header]
    if columns is not None:
        by_name = all(column in header for column in columns)
        if not by_name and not all(column.isdecimal() for column in columns):
            unknown = next(column for column in columns if column not in header)
            raise MissingColumnError.create(unknown, header, path, line)
        if by_name:
            _reject_duplicates(header, error)
        indices = {name: header.index(c) if by_name else int(c) - 1 for name, c in zip(field_names, columns)}
        for index in indices.values():
            if not 0 <= index < len(header):
                raise error(f"there is no column {index + 1}: the first line has {len(header)}.")
        return indices, by_name or not missing
    if not missing:
        _reject_duplicates(header, error)
        _reject_duplicates([name for name in lower_case_header if name in field_names], error)
        return {name: lower_case_header.index(name) for name in field_names}, True
    if len(missing) < len(field_names):
        problem = f"the header has no column {' or '.join(missing)}; it has {', '.join(header)}."
        raise error(problem, fix=_fix_missing_column(field_names, header))
    if len(header) == len(field_names):
        return {name: index for index, name in enumerate(field_names)}, False
    found = f"found {pluralize(len(header), 'columns')}: {', '.join(header)[:80]}"
    fix = _fix_number_of_columns(header, field_names)
    raise error(f"expected the columns {', '.join(field_names)}, {found}.", fix=fix)


def _reject_duplicates(header: list[str], error: Callable[..., DataError]) -> None:
    """Raises if two columns have the same name; columns without a name may be several."""
    for index, name in enumerate(header):
        if name and name in header[:index]:
            fix = "Rename one, or choose columns by number: --columns 1,2"
            raise error(f"two columns are called {name!r}: {header.index(name) + 1} and {index + 1}.", fix=fix)


def is_id_name(name: str) -> bool:
    """Returns whether a column with this name identifies rows, as that of an index does, so that it holds no labels."""
    return ID_NAME.fullmatch(name.strip()) is not None


def suggest_columns(names: Sequence[str], header: Sequence[str]) -> list[str]:
    """Returns a column of the header for each of `names`: the one of that name, or else another; [] if too few."""
    lower_case_header = [column.lower() for column in header]
    others = [column for column, name in zip(header, lower_case_header) if name not in names and not is_id_name(column)]
    if sum(name not in lower_case_header for name in names) > len(others):
        return []
    rest = iter(others)
    return [header[lower_case_header.index(name)] if name in lower_case_header else next(rest) for name in names]


def _fix_missing_column(field_names: Sequence[str], header: Sequence[str]) -> str:
    """Returns the fix for a table that lacks the column of a field."""
    suggested = suggest_columns(field_names, header)
    example = f": --columns {shlex.quote(','.join(suggested))}" if suggested else " with --columns."
    return f"Rename a column, or say which ones to read{example}"


def _fix_number_of_columns(header: list[str], field_names: Sequence[str]) -> str:
    """Returns the fix for a table without the names of fields and with more or fewer columns."""
    if len(header) >= len(field_names):
        numbers = ",".join(map(str, range(1, len(field_names) + 1)))
        return f"Say which ones to read, by name or by number: --columns {numbers}"
    return f"Each row needs as many fields, separated by {', '.join(SEPARATOR_NAMES.values())}."


def read_objects(path: Path, findings: Findings, encoding: str | None = None) -> Iterator[tuple[int, Any]]:
    """Yields (line number, value) of each JSON value, or (row number, values by column) of each row of Parquet."""
    if get_format_suffix(path) == spreadsheets.PARQUET:
        return spreadsheets.read_objects(path)
    return json_objects.parse_objects(read_text(path, findings, encoding), path, findings)


def _read_object_table(
    path: Path, field_names: Sequence[str], findings: Findings, columns: Sequence[str] | None, encoding: str | None
) -> Table:
    """Returns the table of a file whose rows are objects. A key that no object has is one error, not one per row."""
    keys = dict(zip(field_names, columns or field_names))
    fix = "Each row must be one object: {" + ", ".join(f'"{key}": …' for key in keys.values()) + "}"
    num_earlier_errors = len(findings.errors)
    objects = list(read_objects(path, findings, encoding))
    if not objects and len(findings.errors) == num_earlier_errors:
        raise DataError("the file is empty.", fix=fix, file=path)
    found_keys = dict.fromkeys(key for _, values in objects if isinstance(values, dict) for key in values)
    missing = [key for key in keys.values() if key not in found_keys]
    if found_keys and missing and columns is not None:
        raise MissingColumnError.create(missing[0], found_keys, path, None)
    if found_keys and missing:
        problem = f"there is no column {' or '.join(missing)}; there are {', '.join(found_keys)}."
        raise DataError(problem, fix=_fix_missing_column(field_names, list(found_keys)), file=path)
    rows = []
    for line, values in objects:
        missing = [key for key in keys.values() if not isinstance(values, dict) or key not in values]
        if missing:
            found = ", ".join(map(str, values)) if isinstance(values, dict) else type(values).__name__
            problem = f"expected {', '.join(missing)}, found {found or 'an empty object'}."
            findings.error(problem, fix=f"{fix}; or name the keys with --columns.", file=path, line=line)
            continue
        rows.append(Row({name: _replace_surrogates(values[key]) for name, key in keys.items()}, str(path), line))
    return Table(rows, True)


def join_list(value: Any) -> Any:
    """Returns a list of strings, which JSON may have instead of a text, joined with spaces; other values unchanged."""
    is_text_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return " ".join(value) if is_text_list else value


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, list):
        return [_replace_surrogates(each) for each in value]
    return replace_surrogates(value) if isinstance(value, str) else value


def reject_columns(columns: str | None, fix: str) -> None:
    """Raises an error if --columns is set, for tasks that do not use it."""
    if columns:
        raise UsageError(f"this task does not use --columns; received {columns}.", fix=fix)


def read_input_column(
    path: Path, field_names: Sequence[str], columns: str | None, encoding: str | None = None
) -> list[str]:
    """Returns the column of the first field, which is the input of a model; the other columns may be missing."""
    findings, names = Findings(), split_commas(columns)
    try:
        table = read_table(path, field_names, findings, names, encoding)
    except DataError:
        findings = Findings()
        table = read_table(path, field_names[:1], findings, names[:1] if names else None, encoding)
    findings.raise_errors()
    return [str(join_list(row.values[field_names[0]])) for row in table.rows]


def split_commas(text: str | None) -> list[str] | None:
    """Returns the parts of a setting such as `--columns text,label`; None if it is not set."""
    return [part.strip() for part in text.split(",")] if text else None
