"""Reads tables: `.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet` and `.xlsx`, plain or gzip, with the line of each row.

Files with any other suffix are expected to be tab-separated. Another separator and another encoding than UTF-8 are
detected and noted. Columns are chosen by name or by number. Blank lines are skipped and counted; a row of empty fields
is a row. The module does not know what the columns mean.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from seqwise.data import json_objects, spreadsheets
from seqwise.data.delimited import OPEN_QUOTE_FIX, SEPARATOR_NAMES, parse_text
from seqwise.data.reading import get_format_suffix
from seqwise.data.text_lines import open_text
from seqwise.errors import DataError, Findings, MissingColumnError, UsageError, pluralize
from seqwise.text.patterns import replace_surrogates

OBJECT_SUFFIXES = (".jsonl", ".json", spreadsheets.PARQUET)  # rows are objects: values have types, all have names
SUFFIXES = (".csv", ".tsv", *OBJECT_SUFFIXES, spreadsheets.EXCEL)
HEADER_READ_AS_EXAMPLE = "first lines that look like column names are read as examples, since --columns gives numbers"
MAX_KEYS = 1_000  # of objects that are remembered for messages
ID_NAME = re.compile(r"(?i:(.*[\W_])?(id|ids|index|nr|no|number|key|uuid|guid)|unnamed: \d+|)|.*[a-z]I[Dd]")
SINGLE_WORD = re.compile(r"[^\W\d][\w.-]{0,29}")  # such as a column name


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of a row by the names that the task gives them, and its location."""

    values: dict[str, Any]
    file: str
    line: int  # at which the row starts


@dataclass(frozen=True)
class Table:
    """The rows of a file, which are read one by one."""

    rows: Iterator[Row]
    has_header: bool  # the file names its columns: in its first line, or as keys of objects


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
        return Table(_read_object_rows(path, field_names, findings, columns, encoding), True)
    num_earlier_errors = len(findings.errors)
    records = read_records(path, findings, encoding)
    first_line, first_record = next(records, (1, None))
    if first_record is None:
        if len(findings.errors) > num_earlier_errors:
            return Table(iter(()), False)
        fix = f"Give a file with the columns {', '.join(field_names)}."
        raise DataError("the file is empty.", fix=fix, file=path)
    try:
        indices, has_header = _find_columns(first_record, field_names, columns, path, first_line)
    except DataError:
        # The caller reports this error with those in `findings`: wrong quotes may be its cause, ragged rows are not.
        with suppress(DataError):
            for _ in records:
                pass
        errors = findings.errors[num_earlier_errors:]
        findings.errors[num_earlier_errors:] = [error for error in errors if error.fix == OPEN_QUOTE_FIX]
        raise
    if not has_header:
        records = chain([(first_line, first_record)], records)
    rows = _build_rows(records, indices, path, findings, (first_line, first_record) if has_header else None)
    return Table(_warn_about_header(rows, findings) if columns is not None and not has_header else rows, has_header)


def _build_rows(
    records: Iterator[tuple[int, list[str]]],
    indices: Mapping[str, int],
    path: Path,
    findings: Findings,
    header: tuple[int, list[str]] | None,
) -> Iterator[Row]:
    """Yields the row of each record, with the columns `indices`; the header repeated is an error."""
    for line, record in records:
        if header is not None and record == header[1]:
            problem = f"the header of line {header[0]} is repeated."
            fix = "Remove the line; files that are joined keep one header."
            findings.error(problem, fix=fix, file=path, line=line)
        else:
            yield Row({name: record[index] for name, index in indices.items()}, str(path), line)


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
    return _read_delimited(path, findings, encoding, ragged_row_fix, decimal_commas)


def _read_delimited(
    path: Path, findings: Findings, encoding: str | None, ragged_row_fix: str, decimal_commas: bool
) -> Iterator[tuple[int, list[str]]]:
    with open_text(path, findings, encoding) as file:
        yield from parse_text(file, path, findings, ragged_row_fix, decimal_commas)


def _warn_about_header(rows: Iterator[Row], findings: Findings) -> Iterator[Row]:
    """Yields the rows; adds a warning if the first looks like a header.

    Its fields are single words that occur nowhere else in their column, while most other rows are not single words.
    """
    header = next(rows, None)
    if header is None:
        return
    yield header
    fields = {name: field.strip() for name, field in header.values.items()}
    is_header, num_others, num_single_words = _has_only_single_words(header), 0, 0
    for row in rows:
        if is_header:
            num_others += 1
            num_single_words += _has_only_single_words(row)
            is_header = all(row.values[name].strip() != field for name, field in fields.items())
        yield row
    if is_header and 2 * num_single_words < num_others:
        findings.warn(HEADER_READ_AS_EXAMPLE, header.file, header.line)


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


def read_objects(
    path: Path, findings: Findings, encoding: str | None = None, names: Sequence[str] = ()
) -> Iterator[tuple[int, Any]]:
    """Yields (line number, value) of each JSON value, or (row number, values by column) of each row of Parquet.

    Of Parquet only the columns `names` are read, if there are all of them.
    """
    if get_format_suffix(path) == spreadsheets.PARQUET:
        yield from spreadsheets.read_objects(path, names)
        return
    with open_text(path, findings, encoding) as file:
        yield from json_objects.parse_objects(file, path, findings)


def _read_object_rows(
    path: Path, field_names: Sequence[str], findings: Findings, columns: Sequence[str] | None, encoding: str | None
) -> Iterator[Row]:
    """Yields the rows of a file of objects. A key that no object has is one error, not one per row."""
    keys = dict(zip(field_names, columns or field_names))
    fix = "Each row must be one object: {" + ", ".join(f'"{key}": …' for key in keys.values()) + "}"
    num_earlier_errors, has_objects = len(findings.errors), False
    found_keys: dict[str, None] = {}
    incomplete = Findings()  # errors about objects without some key
    try:
        for line, values in read_objects(path, findings, encoding, list(keys.values())):
            has_objects = True
            if isinstance(values, dict) and len(found_keys) < MAX_KEYS:
                found_keys |= dict.fromkeys(values)
            missing = [key for key in keys.values() if not isinstance(values, dict) or key not in values]
            if not missing:
                row = {name: _replace_surrogates(values[key]) for name, key in keys.items()}
                yield Row(row, str(path), line)
                continue
            found = ", ".join(map(str, values))[:200] if isinstance(values, dict) else type(values).__name__
            problem = f"expected {', '.join(missing)}, found {found or 'an empty object'}."
            incomplete.error(problem, fix=f"{fix}; or name the keys with --columns.", file=path, line=line)
    except DataError as error:
        if not error.parts:
            raise
    if not has_objects and len(findings.errors) == num_earlier_errors:
        raise DataError("the file is empty.", fix=fix, file=path)
    missing = [key for key in keys.values() if key not in found_keys]
    if found_keys and missing and columns is not None:
        raise MissingColumnError.create(missing[0], found_keys, path, None)
    if found_keys and missing:
        problem = f"there is no column {' or '.join(missing)}; there are {', '.join(found_keys)[:200]}."
        raise DataError(problem, fix=_fix_missing_column(field_names, list(found_keys)), file=path)
    findings.extend(incomplete)


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

    def read(field_names: Sequence[str], columns: list[str] | None) -> tuple[list[str], Findings]:
        findings = Findings()
        rows = read_table(path, field_names, findings, columns, encoding).rows
        return [str(join_list(row.values[field_names[0]])) for row in rows], findings

    names = split_commas(columns)
    try:
        texts, findings = read(field_names, names)
    except DataError:
        texts, findings = read(field_names[:1], names[:1] if names else None)
    findings.raise_errors()
    return texts


def split_commas(text: str | None) -> list[str] | None:
    """Returns the parts of a setting such as `--columns text,label`; None if it is not set."""
    return [part.strip() for part in text.split(",")] if text else None
