"""Reading tables: `.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet` and `.xlsx`, plain or gzip, with the line of each row.

Files with any other suffix are read as tab-separated. Another separator and another encoding than UTF-8 are detected
and reported. Columns are chosen by name or by number. Blank lines between rows are counted; a row of empty fields is a
row. The module does not know what the columns mean.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from seqwise.data import json_objects, spreadsheets
from seqwise.data.encodings import decode_text, warn_about_encoding
from seqwise.data.reading import get_format_suffix, open_binary
from seqwise.errors import DataError, Findings, UsageError, pluralize, suggest
from seqwise.text.patterns import replace_surrogates

csv.field_size_limit(1 << 30)  # a field may be a whole document
OBJECT_SUFFIXES = (".jsonl", ".json", spreadsheets.PARQUET)  # rows are objects: values have types, all have names
SUFFIXES = (".csv", ".tsv", *OBJECT_SUFFIXES, spreadsheets.EXCEL)
BLANK_LINES = json_objects.BLANK_LINES
HEADER_READ_AS_EXAMPLE = "first lines that look like column names are read as examples, since --columns gives numbers"
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MIN_CONSISTENCY = 0.9  # share of the first rows with equally many fields, for a separator that the suffix does not name
SAMPLE_ROWS = 100
QUOTE_FIX = 'A text that contains the separator must be quoted: "one{separator} two"{separator}label'
OPEN_QUOTE = 'Close the quote, or double a quote that is part of the text: ""'
TAB_FIX = "Fields are separated by one tab each; remove tabs inside a text."
DECIMAL_COMMA = re.compile(r"^(\s*[-+]?\d+),(\d+\s*)$")
WORD = re.compile(r"[^\W\d][\w.-]{0,29}")


@dataclass(frozen=True)
class Row:
    """The fields of a row by column name, and where it begins."""

    values: dict[str, Any]
    file: str
    line: int


@dataclass(frozen=True)
class Table:
    """All rows of a file."""

    rows: list[Row]
    has_header: bool  # the file contains the column names


def read_text(path: Path, findings: Findings | None = None, encoding: str | None = None) -> str:
    """Return the whole text of a file with plain line breaks; reports in `findings` if it is converted to UTF-8."""
    with open_binary(path) as file:
        data = file.read()
    text, encoding = decode_text(data, path, encoding)
    if findings is not None:
        warn_about_encoding(findings, path, encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_header(path: Path, encoding: str | None = None) -> list[str]:
    """Return the fields of the first record of a table, or the keys of its first object."""
    findings = Findings()
    if get_format_suffix(path) in OBJECT_SUFFIXES:
        _, content = next(read_objects(path, findings, encoding), (0, None))
        return list(content) if isinstance(content, dict) else []
    return next((fields for _, fields in read_records(path, findings, encoding)), [])


def read_table(
    path: Path,
    names: Sequence[str],
    findings: Findings,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
) -> Table:
    """Read the columns that the task calls `names`.

    `columns` says which columns of the file these are, by name or by number from 1. Without it a header must contain
    the names, or the file has no header and its columns are taken in order. Ragged rows, unclosed quotes and repeated
    headers are errors.
    """
    if columns is not None and len(columns) != len(names):
        raise DataError(f"--columns: expected {len(names)} ({', '.join(names)}), received {len(columns)}.")
    if get_format_suffix(path) in OBJECT_SUFFIXES:
        return _select_values(path, names, findings, columns, encoding)
    num_errors = len(findings.errors)
    records = read_records(path, findings, encoding)
    first_line, first = next(records, (1, None))
    if first is None:
        if len(findings.errors) > num_errors:
            return Table([], False)
        raise DataError("the file is empty.", repair=f"Give a file with the columns {', '.join(names)}.", file=path)
    try:
        indices, has_header = _find_columns(first, names, columns, path, first_line)
    except DataError:
        for _ in records:  # wrong quotes are reported with it, rows of the wrong length are not
            pass
        findings.errors[num_errors:] = [error for error in findings.errors[num_errors:] if error.repair == OPEN_QUOTE]
        raise
    rows = []
    for line, fields in records if has_header else chain([(first_line, first)], records):
        if has_header and fields == first:
            problem = f"the header of line {first_line} is repeated."
            repair = "Remove the line; files that are joined keep one header."
            findings.error(problem, repair=repair, file=path, line=line)
        else:
            rows.append(Row({name: fields[index] for name, index in indices.items()}, str(path), line))
    if columns is not None and not has_header and _begins_with_names(rows):
        findings.warn(HEADER_READ_AS_EXAMPLE, path, first_line)
    return Table(rows, has_header)


def read_records(
    path: Path,
    findings: Findings,
    encoding: str | None = None,
    ragged_row_fix: str = "",
    decimal_commas: bool = False,
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line it begins in, fields) of each record that has as many fields as the first."""
    if get_format_suffix(path) in spreadsheets.SUFFIXES:
        return spreadsheets.read_records(path, findings)
    if get_format_suffix(path) in OBJECT_SUFFIXES:
        return spreadsheets.format_objects(read_objects(path, findings, encoding))
    return parse_text(read_text(path, findings, encoding), path, findings, ragged_row_fix, decimal_commas)


def parse_text(
    text: str, path: Path, findings: Findings, ragged_row_fix: str = "", decimal_commas: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of the text of a table, whose separator is detected.

    With `decimal_commas`, numbers such as 1,5 get a decimal point where semicolons separate the fields, as
    spreadsheets write them in many countries.
    """
    text = text.rstrip("\n")
    separator = detect_separator(text, path, findings)
    fix = ragged_row_fix or (TAB_FIX if separator == "\t" else QUOTE_FIX.format(separator=separator))
    for line, fields in parse_records(text, separator, path, findings, fix):
        if decimal_commas and separator == ";":
            fields = [DECIMAL_COMMA.sub(r"\1.\2", field) for field in fields]
        yield line, fields


def detect_separator(text: str, path: Path, findings: Findings | None = None) -> str:
    """Return what separates the fields: what the suffix says, unless the first rows show another separator."""
    suffix = get_format_suffix(path)
    usual = "," if suffix == ".csv" else "\t"
    shares = {separator: _measure_consistency(text, separator) for separator in SEPARATOR_NAMES}
    best = max(shares, key=lambda separator: (shares[separator], separator == usual))
    is_named = suffix in (".csv", ".tsv", ".txt")
    if shares[best] <= shares[usual] or (is_named and shares[best] < MIN_CONSISTENCY):
        return usual
    if findings is not None and is_named:
        findings.warn(f"files ({suffix}) with {SEPARATOR_NAMES[best]} between fields", path)
    return best


def _measure_consistency(text: str, separator: str) -> float:
    """Return the share of the first rows that have as many fields as the first, if that has several; else 0."""
    reader = csv.reader(io.StringIO(text[: 1 << 20], newline=""), delimiter=separator)
    try:
        counts = [len(fields) for fields in islice(reader, SAMPLE_ROWS) if "".join(fields).strip()]
    except csv.Error:
        return 0.0
    return counts.count(counts[0]) / len(counts) if counts and counts[0] > 1 else 0.0


def _begins_with_names(rows: Sequence[Row]) -> bool:
    """Return whether the first row looks like column names.

    These are single words that occur nowhere else in their column, while most other rows are not single words.
    """
    if len(rows) < 2 or not _has_only_single_words(rows[0]):
        return False
    first, others = rows[0], rows[1:]
    if any(row.values[name].strip() == field.strip() for row in others for name, field in first.values.items()):
        return False
    return 2 * sum(map(_has_only_single_words, others)) < len(others)


def _has_only_single_words(row: Row) -> bool:
    return all(WORD.fullmatch(field.strip()) for field in row.values.values())


def parse_records(
    text: str, separator: str, path: Path, findings: Findings, ragged_row_fix: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line it begins in, fields) of each record that has as many fields as the first.

    Tab-separated files have no quotes, unless they are called `.csv`.
    """
    if separator != "\t" or get_format_suffix(path) == ".csv":
        records = _parse_csv(text, separator, path, findings)
    else:
        records = ((number, line.split("\t")) for number, line in enumerate(text.split("\n"), start=1))
    first_line = num_fields = 0
    for line, fields in records:
        if len(fields) <= 1 and not "".join(fields).strip():
            if text.strip():
                findings.warn(BLANK_LINES, path, line)
            continue
        if not first_line:
            first_line, num_fields = line, len(fields)
        if len(fields) == num_fields:
            yield line, fields
        else:
            problem = f"expected {num_fields} fields as in line {first_line}, found {len(fields)}."
            findings.error(problem, repair=ragged_row_fix, file=path, line=line)


def _parse_csv(text: str, separator: str, path: Path, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a CSV file; reading continues after a malformed one."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            until = f" (read up to line {reader.line_num})" if reader.line_num > line else ""
            is_unclosed = "unexpected end of data" in str(error)
            problem = "a quote is opened here and never closed." if is_unclosed else f"not valid CSV{until}: {error}."
            findings.error(problem, repair=OPEN_QUOTE, file=path, line=line)
            continue
        yield line, fields


def _find_columns(
    first: list[str], names: Sequence[str], columns: Sequence[str] | None, path: Path, line: int
) -> tuple[dict[str, int], bool]:
    """Return the index of each column, and whether the first record, which begins in `line`, is a header."""
    error = partial(DataError, file=path, line=line)
    header = [field.strip() for field in first]
    lower_case_names = [field.lower() for field in header]
    missing = [name for name in names if name not in lower_case_names]
    if columns is not None:
        by_name = all(column in header for column in columns)
        if not by_name and not all(column.isdecimal() for column in columns):
            unknown = next(column for column in columns if column not in header)
            raise error(f"there is no column {unknown!r}.", repair=suggest(unknown, header))
        if by_name:
            _reject_duplicates(header, error)
        indices = {name: header.index(c) if by_name else int(c) - 1 for name, c in zip(names, columns)}
        for index in indices.values():
            if not 0 <= index < len(header):
                raise error(f"there is no column {index + 1}: the first line has {len(header)}.")
        return indices, by_name or not missing
    if not missing:
        _reject_duplicates(header, error)
        _reject_duplicates([name for name in lower_case_names if name in names], error)
        return {name: lower_case_names.index(name) for name in names}, True
    if len(missing) < len(names):
        others = iter([column for column, name in zip(header, lower_case_names) if name not in names])
        suggested = [name if name in missing else header[lower_case_names.index(name)] for name in names]
        suggested = [next(others, name) if name in missing else name for name in suggested]
        repair = f"Rename a column, or say which ones to read: --columns {','.join(suggested)}"
        raise error(f"the header has no column {' or '.join(missing)}; it has {', '.join(header)}.", repair=repair)
    if len(header) == len(names):
        return {name: index for index, name in enumerate(names)}, False
    found = f"found {pluralize(len(header), 'columns')}: {', '.join(header)[:80]}"
    raise error(f"expected the columns {', '.join(names)}, {found}.", repair=_column_count_fix(header, names))


def _reject_duplicates(header: list[str], error: Callable[..., DataError]) -> None:
    """Raise if two columns have the same name; columns without a name may be several."""
    for index, name in enumerate(header):
        if name and name in header[:index]:
            repair = "Rename one, or choose columns by number: --columns 1,2"
            raise error(f"two columns are called {name!r}: {header.index(name) + 1} and {index + 1}.", repair=repair)


def _column_count_fix(header: list[str], names: Sequence[str]) -> str:
    if len(header) >= len(names):
        numbers = ",".join(map(str, range(1, len(names) + 1)))
        return f"Say which ones to read, by name or by number: --columns {numbers}"
    return f"Each row needs as many fields, separated by {', '.join(SEPARATOR_NAMES.values())}."


def read_objects(path: Path, findings: Findings, encoding: str | None = None) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) of each JSON value, or (number, values) of each row of a Parquet file."""
    if get_format_suffix(path) == spreadsheets.PARQUET:
        return spreadsheets.read_objects(path)
    return json_objects.parse_objects(read_text(path, findings, encoding), path, findings)


def _select_values(
    path: Path, names: Sequence[str], findings: Findings, columns: Sequence[str] | None, encoding: str | None
) -> Table:
    keys = dict(zip(names, columns or names))
    expected = "Each row must be one object: {" + ", ".join(f'"{key}": …' for key in keys.values()) + "}"
    rows, num_errors = [], len(findings.errors)
    for line, content in read_objects(path, findings, encoding):
        missing = [key for key in keys.values() if not isinstance(content, dict) or key not in content]
        if missing:
            found = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
            problem = f"expected {', '.join(missing)}, found {found or 'an empty object'}."
            findings.error(problem, repair=f"{expected}; or name the keys with --columns.", file=path, line=line)
            continue
        rows.append(Row({name: _clean(content[key]) for name, key in keys.items()}, str(path), line))
    if not rows and len(findings.errors) == num_errors:
        raise DataError("the file is empty.", repair=expected, file=path)
    return Table(rows, True)


def join_list(value: Any) -> Any:
    """Return a list of strings, which JSON and Parquet may have instead of a text, joined with blanks."""
    is_text_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return " ".join(value) if is_text_list else value


def _clean(value: Any) -> Any:
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return replace_surrogates(value) if isinstance(value, str) else value


def reject_columns(columns: str | None, repair: str) -> None:
    """Raise for tasks that do not choose columns with --columns."""
    if columns:
        raise UsageError(f"--columns {columns} means nothing to this task.", repair=repair)


def read_input_column(path: Path, names: Sequence[str], columns: str | None, encoding: str | None = None) -> list[str]:
    """Return the first column that a task reads, of a table with or without the others: the inputs of a model."""
    findings, columns_to_read = Findings(), parse_columns(columns)
    try:
        table = read_table(path, names, findings, columns_to_read, encoding)
    except DataError:
        findings = Findings()
        table = read_table(path, names[:1], findings, columns_to_read[:1] if columns_to_read else None, encoding)
    findings.raise_errors()
    return [str(join_list(row.values[names[0]])) for row in table.rows]


def parse_columns(columns: str | None) -> list[str] | None:
    """Return `--columns text,label` as a list."""
    return [column.strip() for column in columns.split(",")] if columns else None
