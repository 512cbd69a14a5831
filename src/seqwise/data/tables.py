"""Reading tables: `.csv`, `.tsv` and `.jsonl`, plain or gzip, with the line each row begins in.

Files with any other suffix are read as tab-separated. Columns are chosen by name or by number. Blank lines between
rows are counted; a row of empty fields is a row. The module does not know what the columns mean.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from seqwise.data.reading import BOM, check_utf8, get_format_suffix, open_binary
from seqwise.errors import DataError, Findings, UsageError, suggest
from seqwise.text.patterns import replace_surrogates

csv.field_size_limit(1 << 30)  # a field may be a whole document
SUFFIXES = (".csv", ".tsv", ".jsonl")
BLANK_LINES = "blank lines, which are skipped"
HEADER_READ_AS_EXAMPLE = "first lines that look like column names are read as examples, since --columns gives numbers"
SEPARATOR_NAMES = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
RAGGED_ROW_FIXES = {
    ",": 'A text that contains a comma must be quoted: "one, two",label',
    "\t": "Fields are separated by one tab each; remove tabs inside a text.",
}
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


def read_text(path: Path) -> str:
    """Return the whole text of a file, checked to be UTF-8, with plain line breaks."""
    with open_binary(path) as file:
        data = file.read()
    check_utf8(data, 0, 1, path)
    return data.removeprefix(BOM).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def read_header(path: Path) -> list[str]:
    """Return the fields of the first line of a table, or the keys of its first object."""
    line = read_text(path).lstrip("\n ").partition("\n")[0]
    if get_format_suffix(path) != ".jsonl":
        return next(csv.reader([line], delimiter="\t" if get_format_suffix(path) == ".tsv" else ","), [])
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(content) if isinstance(content, dict) else []


def read_table(path: Path, names: Sequence[str], findings: Findings, columns: Sequence[str] | None = None) -> Table:
    """Read the columns that the task calls `names`.

    `columns` says which columns of the file these are, by name or by number from 1. Without it a header must contain
    the names, or the file has no header and its columns are taken in order. Ragged rows and unclosed quotes are errors.
    """
    if columns is not None and len(columns) != len(names):
        raise DataError(f"--columns: expected {len(names)} ({', '.join(names)}), received {len(columns)}.")
    if get_format_suffix(path) in (".jsonl", ".json"):
        return _read_json(path, names, findings, columns)
    return _read_delimited(path, names, findings, columns)


def _read_delimited(path: Path, names: Sequence[str], findings: Findings, columns: Sequence[str] | None) -> Table:
    separator = "," if get_format_suffix(path) == ".csv" else "\t"
    num_errors = len(findings.errors)
    text = read_text(path).rstrip("\n")
    records = parse_records(text, separator, path, findings, RAGGED_ROW_FIXES[separator])
    first_line, first = next(records, (1, None))
    if first is None:
        if len(findings.errors) > num_errors:
            return Table([], False)
        raise DataError("the file is empty.", repair=f"Give a file with the columns {', '.join(names)}.", file=path)
    try:
        indices, has_header = _find_columns(first, names, columns, path, first_line)
    except DataError:
        del findings.errors[num_errors:]
        if separator == ",":
            list(_parse_csv(text, path, findings))  # wrong quotes are reported with it
        raise
    rows = [
        Row({name: fields[index] for name, index in indices.items()}, str(path), line)
        for line, fields in (records if has_header else chain([(first_line, first)], records))
    ]
    if columns is not None and not has_header and _begins_with_names(rows):
        findings.warn(HEADER_READ_AS_EXAMPLE, path, first_line)
    return Table(rows, has_header)


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

    Tab-separated files have no quotes.
    """
    if separator == ",":
        records = _parse_csv(text, path, findings)
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


def _parse_csv(text: str, path: Path, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a CSV file; reading continues after a malformed one."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
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
            repair = 'Close the quote, or double a quote that is part of the text: ""'
            findings.error(problem, repair=repair, file=path, line=line)
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
        indices = {name: header.index(c) if by_name else int(c) - 1 for name, c in zip(names, columns)}
        for index in indices.values():
            if not 0 <= index < len(header):
                raise error(f"there is no column {index + 1}: the first line has {len(header)}.")
        return indices, by_name or not missing
    if not missing:
        return {name: lower_case_names.index(name) for name in names}, True
    if len(missing) < len(names):
        repair = f"Rename a column, or say which ones to read: --columns {','.join(header[: len(names)])}"
        raise error(f"the header has no column {' nor '.join(missing)}; it has {', '.join(header)}.", repair=repair)
    if len(header) == len(names):
        return {name: index for index, name in enumerate(names)}, False
    found = f"found {len(header)} columns: {', '.join(header)[:80]}"
    raise error(f"expected the columns {', '.join(names)}, {found}.", repair=_column_count_fix(header, names))


def _column_count_fix(header: list[str], names: Sequence[str]) -> str:
    if len(header) >= len(names):
        numbers = ",".join(map(str, range(1, len(names) + 1)))
        return f"Say which ones to read, by name or by number: --columns {numbers}"
    for separator, name in SEPARATOR_NAMES.items():
        if separator in header[0]:
            return f"Its fields may be separated by {name}: .csv needs commas, .tsv tabs. Convert the file."
    return "Fields are separated by commas in .csv, by tabs in .tsv."


def _read_json(path: Path, names: Sequence[str], findings: Findings, columns: Sequence[str] | None) -> Table:
    keys = dict(zip(names, columns or names))
    expected = "Each line must be one object: {" + ", ".join(f'"{key}": …' for key in keys.values()) + "}"
    rows, num_errors = [], len(findings.errors)
    for line, text in enumerate(read_text(path).rstrip("\n").split("\n"), start=1):
        if not text.strip():
            findings.warn(BLANK_LINES, path, line)
            continue
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", str(error))
            findings.error(f"not valid JSON: {reason}.", repair=expected, file=path, line=line)
            continue
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


def _clean(value: Any) -> Any:
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return replace_surrogates(value) if isinstance(value, str) else value


def reject_columns(columns: str | None, repair: str) -> None:
    """Raise for tasks that do not choose columns with --columns."""
    if columns:
        raise UsageError(f"--columns {columns} means nothing to this task.", repair=repair)


def read_input_column(path: Path, names: Sequence[str], columns: str | None) -> list[str]:
    """Return the first column that a task reads, of a table with or without the others: the inputs of a model."""
    findings, columns_to_read = Findings(), parse_columns(columns)
    try:
        table = read_table(path, names, findings, columns_to_read)
    except DataError:
        findings = Findings()
        table = read_table(path, names[:1], findings, columns_to_read[:1] if columns_to_read else None)
    findings.raise_errors()
    return [str(row.values[names[0]]) for row in table.rows]


def parse_columns(columns: str | None) -> list[str] | None:
    """Return `--columns text,label` as a list."""
    return [column.strip() for column in columns.split(",")] if columns else None
