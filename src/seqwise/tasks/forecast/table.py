"""Parses tables of text into columns of numbers and timestamps. Every error names file, line and column.

It knows nothing of series, grids or gaps; `reader.py` continues from here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqwise.config import ForecastSettings
from seqwise.data.examples import find_split_files
from seqwise.data.reading import get_format_suffix
from seqwise.data.tables import parse_columns, parse_records, read_text
from seqwise.errors import DataError, Findings, UsageError, suggest
from seqwise.tasks.forecast import sunspots
from seqwise.tasks.forecast.timestamps import FORMATS, TimeGrid, detect_style, get_parser

SUFFIXES = (".csv", ".tsv")
AMBIGUOUS_DATE = re.compile(r"\d{1,2}[/.]\d{1,2}[/.]\d{2,4}.*")  # the day or the month may come first
MISSING = {"", "na", "nan", "n/a", "null", "none", "."}
TIME_NAMES = ("date", "time", "timestamp", "datetime", "stamp", "ds", "year", "month", "week", "day", "hour", "period")


@dataclass(frozen=True)
class SeriesColumns:
    """The role of each column. Saved with a run, so that other files are read in the same way."""

    time: str
    targets: tuple[str, ...]
    known: tuple[str, ...] = ()
    series: str | None = None

    @property
    def all_names(self) -> list[str]:
        return [self.time, *self.targets, *self.known, *([self.series] if self.series else [])]


@dataclass
class TextTable:
    """The fields of one or more files as text, column by column, with file and line of each row."""

    header: list[str]
    fields: dict[str, list[str]]
    lines: list[int]
    files: list[str]
    splits: list[str]  # of each row: the split that its file is named for, else train

    def add_error(self, findings: Findings, row: int, problem: str, repair: str) -> None:
        findings.error(problem, repair=repair, file=self.files[row], line=self.lines[row])

    def add_warning(self, findings: Findings, row: int, warning: str) -> None:
        findings.warn(warning, self.files[row], self.lines[row])


def read_table(spec: str, findings: Findings) -> TextTable:
    """Reads a file, a folder with train.*, valid.* and test.*, a built-in name, or a table given as text."""
    if spec.startswith("builtin:"):
        if spec != "builtin:sunspots":
            raise DataError(f"this task has no built-in data {spec[8:]!r}.", repair=suggest(spec[8:], ["sunspots"]))
        return _parse_table(sunspots.to_csv(), ",", Path(spec), "train", findings)
    if "\n" in spec:  # the text of a table, from standard input
        separator = "\t" if "\t" in spec.partition("\n")[0] else ","
        return _parse_table(spec, separator, Path("standard input"), "train", findings)
    groups = find_split_files(Path(spec), SUFFIXES, findings)
    files = [(split, path) for split, paths in groups.items() for path in paths]
    if len(files) > 1 and len(groups) == 1:
        raise DataError(
            f"the folder holds {len(files)} tables; expected one.",
            repair="Name one of them, or name three train.csv, valid.csv and test.csv.",
            file=spec,
        )
    separators = {".tsv": "\t", ".csv": ","}
    return _merge_tables([
        _parse_table(read_text(path), separators[get_format_suffix(path)], path, split, findings)
        for split, path in files
    ])  # fmt: skip


def _parse_table(text: str, separator: str, path: Path, split: str, findings: Findings) -> TextTable:
    records = list(parse_records(text.rstrip("\n"), separator, path, findings))
    if not records:
        findings.raise_errors()
        raise DataError("the file is empty.", repair="Give a table with a column of timestamps and numbers.", file=path)
    header_line, header = records[0][0], [name.strip() for name in records[0][1]]
    _check_header(header, path, header_line)
    rows = []
    for line, fields in records[1:]:
        if len(fields) == len(header):
            rows.append((line, fields))
            continue
        findings.error(
            f"expected {len(header)} fields as in line {header_line}, found {len(fields)}.",
            repair="Numbers need a decimal point, not a comma; a missing value is an empty field.",
            file=path,
            line=line,
        )
    columns = {name: [fields[index] for _, fields in rows] for index, name in enumerate(header)}
    lines = [line for line, _ in rows]
    return TextTable(header, columns, lines, [str(path)] * max(1, len(lines)), [split] * len(lines))


def _check_header(header: list[str], path: Path, line: int) -> None:
    if len(header) == 1 and ";" in header[0]:
        raise DataError(
            f"fields are separated by semicolons: {header[0][:60]}",
            repair="Separate them by commas (with decimal points), or by tabs in a file called .tsv.",
            file=path,
            line=line,
        )
    duplicates = [name for name in header if header.count(name) > 1]
    if duplicates:
        raise DataError(f"two columns are called {duplicates[0]!r}.", repair="Rename one.", file=path, line=line)
    if all(_is_number(name) or name.lower() in MISSING for name in header):
        raise DataError(
            f"expected the names of the columns in the first line, found numbers: {', '.join(header)[:60]}.",
            repair="Put a line such as time,value above the numbers.",
            file=path,
            line=line,
        )


def _merge_tables(tables: list[TextTable]) -> TextTable:
    first = tables[0]
    for other in tables[1:]:
        if other.header != first.header:
            raise DataError(
                f"the columns are {', '.join(other.header)}, "
                f"but those of {first.files[0]} are {', '.join(first.header)}.",
                repair="All files need the same columns.",
                file=other.files[0],
                line=1,
            )
    return TextTable(
        first.header,
        {name: [value for table in tables for value in table.fields[name]] for name in first.header},
        [line for table in tables for line in table.lines],
        [file for table in tables for file in table.files],
        [split for table in tables for split in table.splits],
    )


# Roles of the columns


def choose_columns(
    table: TextTable, settings: ForecastSettings, target: str | None, findings: Findings
) -> SeriesColumns:
    """Returns the columns that the settings name; where they name none, the targets are all columns of numbers."""
    known = tuple(parse_columns(settings.known_future or None) or ())
    time, series = settings.time or _find_time_column(table), settings.series or None
    targets = parse_columns(target or None) or []
    if not targets:
        others = [name for name in table.header if name not in (time, series, *known)]
        targets = [name for name in others if _is_numeric_column(table.fields[name])]
        for name in others:
            if name not in targets:
                findings.warn(f"column that holds no numbers, {name!r}, which is not read", table.files[0], 1)
    if not targets:
        raise DataError(
            f"no column holds numbers besides the timestamps; the columns are {', '.join(table.header)}.",
            repair="Give a table with a column of numbers, or name it with --target.",
            file=table.files[0],
            line=1,
        )
    columns = SeriesColumns(time, tuple(targets), known, series)
    _check_roles(columns)
    return columns


def _check_roles(columns: SeriesColumns) -> None:
    """Refuses a column with two roles: a target that is known in advance would reveal its own future."""
    roles = [(columns.time, "time")]
    roles += [(columns.series, "the name of the series")] if columns.series else []
    roles += [(name, "known in advance") for name in columns.known]
    roles += [(name, "a target") for name in columns.targets]
    first_roles: dict[str, str] = {}
    for name, role in roles:
        if name in first_roles:
            both = "twice" if first_roles[name] == role else f"as {first_roles[name]} and"
            raise UsageError(
                f"the column {name!r} is to be read {both} as {role}.",
                repair="Name it once, in --target, --forecast.time, --forecast.series or --forecast.known-future.",
            )
        first_roles[name] = role


def require_column(name: str, table: TextTable) -> None:
    if name not in table.fields:
        problem = f"there is no column {name!r}."
        raise DataError(problem, repair=suggest(name, table.header), file=table.files[0], line=1)


def _find_time_column(table: TextTable) -> str:
    """Returns the first column with a name of time, else the first with dates, else a first column of numbers."""
    styles = {name: detect_style([text for text in table.fields[name][:20] if text.strip()]) for name in table.header}
    for name, style in styles.items():
        if name.lower() in TIME_NAMES and style:
            return name
    for name, style in styles.items():
        if style not in (None, "integer", "decimal", "year"):
            return name
    if styles[table.header[0]]:
        return table.header[0]
    for name in table.header:
        text = next((text.strip() for text in table.fields[name] if text.strip()), "")
        if AMBIGUOUS_DATE.fullmatch(text):
            raise DataError(
                f"the timestamps of {name!r}, such as {text!r}, are ambiguous: day or month first.",
                repair=f"Write them as {FORMATS}.",
                file=table.files[0],
                line=1,
            )
    raise DataError(
        f"no column looks like timestamps; the columns are {', '.join(table.header)}.",
        repair=f"Name it with --forecast.time. Timestamps are {FORMATS}.",
        file=table.files[0],
        line=1,
    )


def _is_numeric_column(texts: Sequence[str]) -> bool:
    present = [text for text in texts if text.strip().lower() not in MISSING]
    return bool(present) and sum(map(_is_number, present)) * 2 > len(present)


def _is_number(text: str) -> bool:
    try:
        return "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


# Text → numbers and times


def parse_numbers(table: TextTable, column: str, findings: Findings) -> np.ndarray:
    """Returns the numbers of a column, NaN where one is missing."""
    values = np.full(len(table.lines), np.nan)
    for row, text in enumerate(table.fields[column]):
        if _is_number(text):
            values[row] = float(text)
        elif text.strip().lower() not in MISSING:
            problem = f"column {column!r}: expected a number, found {text.strip()[:40]!r}."
            repair = "Write numbers with a decimal point and no other signs; leave a missing value empty."
            table.add_error(findings, row, problem, repair)
    return values


def parse_timestamps(
    table: TextTable, column: str, findings: Findings, grid: TimeGrid | None
) -> tuple[np.ndarray, str]:
    """Returns the timestamps of a column as integers, and their style: that of `grid`, or the detected one."""
    texts = table.fields[column]
    present = [text for text in texts if text.strip()]
    style = grid.style if grid else detect_style(present)
    example = grid.label(0) if grid else next(iter(present), "")
    parse = get_parser(style or "date")
    ticks = np.zeros(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        try:
            ticks[row] = parse(text)
        except (ValueError, OverflowError):
            such_as = f" such as {example}" if style else ""
            problem = f"column {column!r}: expected a timestamp{such_as}, found {text.strip()[:40]!r}."
            repair = f"Timestamps are {FORMATS}, all in one format; or name another column with --forecast.time."
            table.add_error(findings, row, problem, repair)
    return ticks, style or "date"
