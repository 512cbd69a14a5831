"""Rows of tables: `.csv`, `.tsv` and `.jsonl`, plain or gzip, with the line each row begins in.

Files of any other ending are read as tab-separated. Columns are found by name or by number. Blank lines between rows
are counted; a row of empty fields is a row. Nothing here knows what the columns mean.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqwise.data.findings import Findings
from seqwise.data.reading import BOM, check_utf8, is_gzip, open_binary
from seqwise.errors import DataError, UsageError, nearest

csv.field_size_limit(1 << 30)  # a field may be a whole document
SUFFIXES = (".csv", ".tsv", ".jsonl")
BLANK = "blank lines, which are passed over"
HEADER_READ_AS_EXAMPLE = (
    "first lines that look like names of columns are read as examples, since --columns gives numbers"
)
WORD = re.compile(r"[^\W\d][\w.-]{0,29}")


@dataclass(frozen=True)
class Row:
    """One row: its fields by column name, and where it begins."""

    values: dict[str, Any]
    file: str
    line: int


@dataclass(frozen=True)
class Table:
    """All rows of a file. `header` tells whether the names of the columns stand in the file."""

    columns: list[str]
    rows: list[Row]
    header: bool
    file: str


def get_format_suffix(path: Path) -> str:
    """The ending that tells the format, without `.gz`."""
    return (Path(path.stem).suffix if is_gzip(path) else path.suffix).lower()


def read_text(path: Path) -> str:
    """The whole text of a file, checked to be UTF-8, with plain line breaks."""
    with open_binary(path) as file:
        data = file.read()
    check_utf8(data, 0, 1, path)
    return data.removeprefix(BOM).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def read_table(path: Path, names: Sequence[str], findings: Findings, columns: Sequence[str] | None = None) -> Table:
    """The rows with the columns that the task calls `names`, under those names.

    `columns` says which columns of the file those are, by name or by number from 1; without it a header must hold the
    names, or the file has no header and its columns are taken in order. Ragged rows and unclosed quotes are errors.
    """
    if get_format_suffix(path) in (".jsonl", ".json"):
        return _from_json(path, names, findings, columns)
    return _from_text(path, names, findings, columns)


def _from_text(path: Path, names: Sequence[str], findings: Findings, columns: Sequence[str] | None) -> Table:
    text = read_text(path)
    mark = "," if get_format_suffix(path) == ".csv" else "\t"
    before = len(findings.errors)
    lines = list(parse_records(text.rstrip("\n"), mark, path, findings))
    if not lines and len(findings.errors) > before:
        return Table([], [], False, str(path))
    if not lines:
        raise DataError("the file is empty.", repair=f"Give a file with the columns {', '.join(names)}.", file=path)
    places, header = _places(lines[0][1], names, columns, path, lines[0][0])
    width, rows = len(lines[0][1]), []
    for line, fields in lines[1:] if header else lines:
        if len(fields) != width:
            findings.error(
                f"expected {width} fields as in line {lines[0][0]}, found {len(fields)}.",
                repair=_ragged(mark),
                file=path,
                line=line,
            )
            continue
        rows.append(Row({name: fields[at] for name, at in places.items()}, str(path), line))
    if columns is not None and not header and _suspect(rows):
        findings.warn(HEADER_READ_AS_EXAMPLE, path, lines[0][0])
    return Table(lines[0][1] if header else [], rows, header, str(path))


def _suspect(rows: Sequence[Row]) -> bool:
    """Does the first row look like the names of columns? They are single words that stand nowhere else in their
    column, and most other rows are not single words."""
    if len(rows) < 2 or not _words(rows[0]):
        return False
    first, others = rows[0], rows[1:]
    if any(row.values[name].strip() == field.strip() for row in others for name, field in first.values.items()):
        return False
    return 2 * sum(map(_words, others)) < len(others)


def _words(row: Row) -> bool:
    return all(WORD.fullmatch(field.strip()) for field in row.values.values())


def _ragged(mark: str) -> str:
    if mark == ",":
        return 'A text that holds a comma must stand in quotes: "one, two",label'
    return "Fields are separated by one tab each; remove tabs inside a text."


def parse_records(text: str, mark: str, path: Path, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """(line it begins in, fields) of each record. Tab-separated files have no quotes."""
    parse_records = _quoted(text, path, findings) if mark == "," else enumerate(map(_apart, text.split("\n")), start=1)
    for line, fields in parse_records:
        if len(fields) > 1 or "".join(fields).strip():
            yield line, fields
        elif text.strip():
            findings.warn(BLANK, path, line)


def _apart(line: str) -> list[str]:
    return line.split("\t")


def _quoted(text: str, path: Path, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file. After a wrong one reading goes on behind it."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            unclosed = "unexpected end of data" in str(error)
            until = f" (read up to line {reader.line_num})" if reader.line_num > begin else ""
            findings.error(
                "a quote is opened here and never closed." if unclosed else f"not valid CSV{until}: {error}.",
                repair='Close the quote, or double a quote that is part of the text: ""',
                file=path,
                line=begin,
            )
            continue
        yield begin, fields


def _places(
    first: list[str], names: Sequence[str], columns: Sequence[str] | None, path: Path, line: int
) -> tuple[dict[str, int], bool]:
    """Task's name of a column → its place, and whether the first record, which begins in `line`, is a header."""
    known = [field.strip() for field in first]
    lowered = [field.lower() for field in known]
    if columns is None:
        if all(name in lowered for name in names):
            return {name: lowered.index(name) for name in names}, True
        if any(name in lowered for name in names):
            missing = [name for name in names if name not in lowered]
            raise DataError(
                f"the header has no column {' nor '.join(missing)}; it has {', '.join(known)}.",
                repair=f"Rename a column, or say which ones to read: --columns {','.join(known[: len(names)])}",
                file=path,
                line=line,
            )
        if len(known) == len(names):
            return {name: at for at, name in enumerate(names)}, False
        raise DataError(
            f"expected the columns {', '.join(names)}, found {len(known)} columns: {', '.join(known)[:80]}.",
            repair=_which(known, names),
            file=path,
            line=line,
        )
    if len(columns) != len(names):
        raise DataError(f"--columns: expected {len(names)} ({', '.join(names)}), received {len(columns)}.")
    by_number = all(column.isdecimal() for column in columns)
    header = all(column in known for column in columns)
    if not header and not by_number:
        missing = [column for column in columns if column not in known]
        raise DataError(f"there is no column {missing[0]!r}.", repair=nearest(missing[0], known), file=path, line=line)
    places = {name: known.index(c) if header else int(c) - 1 for name, c in zip(names, columns)}
    for at in places.values():
        if not 0 <= at < len(known):
            raise DataError(f"there is no column {at + 1}: the first line has {len(known)}.", file=path, line=line)
    return places, header or all(name in lowered for name in names)


def _which(known: list[str], names: Sequence[str]) -> str:
    """How to repair a file with another number of columns than the task needs."""
    if len(known) >= len(names):
        numbers = ",".join(map(str, range(1, len(names) + 1)))
        return f"Say which ones to read, by name or by number: --columns {numbers}"
    for mark, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas"), ("|", "bars")):
        if mark in known[0]:
            return f"Its fields may be separated by {name}: .csv needs commas, .tsv tabs. Convert the file."
    return "Fields are separated by commas in .csv, by tabs in .tsv."


def _from_json(path: Path, names: Sequence[str], findings: Findings, columns: Sequence[str] | None) -> Table:
    keys = dict(zip(names, columns or names))
    if columns is not None and len(columns) != len(names):
        raise DataError(f"--columns: expected {len(names)} ({', '.join(names)}), received {len(columns)}.")
    shape = "{" + ", ".join(f'"{key}": …' for key in keys.values()) + "}"
    rows, before = [], len(findings.errors)
    for line, text in enumerate(read_text(path).rstrip("\n").split("\n"), start=1):
        if not text.strip():
            findings.warn(BLANK, path, line)
            continue
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", str(error))
            findings.error(
                f"not valid JSON: {reason}.", repair=f"Each line must be one object: {shape}", file=path, line=line
            )
            continue
        missing = [key for key in keys.values() if not isinstance(content, dict) or key not in content]
        if missing:
            found = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
            findings.error(
                f"expected {', '.join(missing)}, found {found or 'an empty object'}.",
                repair=f"Each line must be one object: {shape}; or name the keys with --columns.",
                file=path,
                line=line,
            )
            continue
        rows.append(Row({name: _sound(content[key]) for name, key in keys.items()}, str(path), line))
    if not rows and len(findings.errors) == before:
        raise DataError("the file is empty.", repair=f"Each line must be one object: {shape}", file=path)
    return Table(list(keys.values()), rows, True, str(path))


def _sound(value: Any) -> Any:
    """The value, with � for each half surrogate: JSON can spell what is no character, and no tokeniser takes it."""
    if isinstance(value, list):
        return [_sound(each) for each in value]
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def reject_columns(columns: str | None, instead: str) -> None:
    """For tasks that do not choose columns in this way."""
    if columns:
        raise UsageError(f"--columns {columns} means nothing to this task.", repair=instead)


def read_input_column(path: Path, names: Sequence[str], columns: str | None) -> list[str]:
    """The first column that a task reads, of a table with or without the others: what a model is asked about."""
    findings, chosen = Findings(), parse_columns(columns)
    try:
        table = read_table(path, names, findings, chosen)
    except DataError:
        findings = Findings()
        table = read_table(path, names[:1], findings, chosen[:1] if chosen else None)
    findings.raise_errors()
    return [str(row.values[names[0]]) for row in table.rows]


def parse_columns(columns: str | None) -> list[str] | None:
    """`--columns text,label` as a list."""
    return [column.strip() for column in columns.split(",")] if columns else None
