"""Parses tables of text into columns of numbers and timestamps. Every error names file, line and column.

It knows nothing of series, grids or gaps; `reader.py` continues from here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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
RAGGED_ROW_FIX = "Numbers need a decimal point, not a comma; a missing value is an empty field."


@dataclass(frozen=True)
class SeriesColumns:
    """The role of each column. Saved with a run, so that other files are read in the same way."""

    time: str
    targets: tuple[str, ...]
    known: tuple[str, ...] = ()
    series: str | None = None


@dataclass
class TextTable:
    """The fields of one or more files as text, column by column. Errors and warnings are collected in `findings`."""

    columns: dict[str, list[str]]
    locations: list[tuple[str, int]]  # file and line of each row
    splits: list[str]  # of each row: the split that its file is named for, else train
    file: str  # the first one
    findings: Findings

    def error(self, row: int, problem: str, repair: str) -> None:
        file, line = self.locations[row]
        self.findings.error(problem, repair=repair, file=file, line=line)

    def warn(self, row: int, what: str) -> None:
        self.findings.warn(what, *self.locations[row])

    def header_error(self, problem: str, repair: str) -> DataError:
        return DataError(problem, repair=repair, file=self.file, line=1)


def read_table(spec: str, findings: Findings) -> TextTable:
    """Reads a file, a folder with train.*, valid.* and test.*, a built-in name, or a table given as text."""
    if spec.startswith("builtin:"):
        if spec != "builtin:sunspots":
            raise DataError(f"this task has no built-in data {spec[8:]!r}.", repair=suggest(spec[8:], ["sunspots"]))
        files = [("train", Path(spec), sunspots.to_csv(), ",")]
    elif "\n" in spec:  # the text of a table, from standard input
        files = [("train", Path("standard input"), spec, "\t" if "\t" in spec.partition("\n")[0] else ",")]
    else:
        groups = find_split_files(Path(spec), SUFFIXES, findings)
        num_tables = sum(map(len, groups.values()))
        if num_tables > 1 and len(groups) == 1:
            repair = "Name one of them, or name three train.csv, valid.csv and test.csv."
            raise DataError(f"the folder holds {num_tables} tables; expected one.", repair=repair, file=spec)
        separators = {".tsv": "\t", ".csv": ","}
        files = [
            (split, path, read_text(path), separators[get_format_suffix(path)])
            for split, paths in groups.items()
            for path in paths
        ]
    table = TextTable({}, [], [], str(files[0][1]), findings)
    for split, path, text, separator in files:
        _append_file(table, text, separator, path, split)
    return table


def _append_file(table: TextTable, text: str, separator: str, path: Path, split: str) -> None:
    records = parse_records(text.rstrip("\n"), separator, path, table.findings, RAGGED_ROW_FIX)
    header_line, first = next(records, (1, None))
    if first is None:
        table.findings.raise_errors()
        raise DataError("the file is empty.", repair="Give a table with a column of timestamps and numbers.", file=path)
    header = [name.strip() for name in first]
    _check_header(header, path, header_line)
    if table.columns and header != list(table.columns):
        expected = f"but those of {table.file} are {', '.join(table.columns)}"
        repair = "All files need the same columns."
        raise DataError(f"the columns are {', '.join(header)}, {expected}.", repair=repair, file=path, line=1)
    rows = list(records)
    for name, *texts in zip(header, *(fields for _, fields in rows)):
        table.columns.setdefault(name, []).extend(texts)
    table.locations += [(str(path), line) for line, _ in rows]
    table.splits += [split] * len(rows)


def _check_header(header: list[str], path: Path, line: int) -> None:
    error = partial(DataError, file=path, line=line)
    if len(header) == 1 and ";" in header[0]:
        repair = "Separate them by commas (with decimal points), or by tabs in a file called .tsv."
        raise error(f"fields are separated by semicolons: {header[0][:60]}", repair=repair)
    duplicates = [name for name in header if header.count(name) > 1]
    if duplicates:
        raise error(f"two columns are called {duplicates[0]!r}.", repair="Rename one.")
    if all(_is_number(name) or name.lower() in MISSING for name in header):
        problem = f"expected the names of the columns in the first line, found numbers: {', '.join(header)[:60]}."
        raise error(problem, repair="Put a line such as time,value above the numbers.")


# Roles of the columns


def choose_columns(table: TextTable, settings: ForecastSettings, target: str | None) -> SeriesColumns:
    """Returns the columns that the settings name; where they name none, the targets are all columns of numbers."""
    known = parse_columns(settings.known_future) or []
    time, series = settings.time or _find_time_column(table), settings.series or None
    targets = parse_columns(target) or []
    if not targets:
        others = [name for name in table.columns if name not in (time, series, *known)]
        targets = [name for name in others if _is_numeric_column(table.columns[name])]
        for name in others:
            if name not in targets:
                table.findings.warn(f"column that holds no numbers, {name!r}, which is not read", table.file, 1)
    if not targets:
        problem = f"no column holds numbers besides the timestamps; the columns are {', '.join(table.columns)}."
        raise table.header_error(problem, "Give a table with a column of numbers, or name it with --target.")
    # A target that is known in advance would reveal its own future.
    roles = [(time, "time"), *([(series, "the name of the series")] if series else [])]
    roles += [*((name, "known in advance") for name in known), *((name, "a target") for name in targets)]
    first_roles: dict[str, str] = {}
    for name, role in roles:
        if name in first_roles:
            both = "twice" if first_roles[name] == role else f"as {first_roles[name]} and"
            repair = "Name it once, in --target, --forecast.time, --forecast.series or --forecast.known-future."
            raise UsageError(f"the column {name!r} is to be read {both} as {role}.", repair=repair)
        first_roles[name] = role
    return SeriesColumns(time, tuple(targets), tuple(known), series)


def _find_time_column(table: TextTable) -> str:
    """Returns the first column with a name of time, else the first with dates, else a first column of numbers."""
    styles = {
        name: detect_style([text for text in texts[:20] if text.strip()]) for name, texts in table.columns.items()
    }
    first_name = next(iter(styles))
    for name, style in styles.items():
        if name.lower() in TIME_NAMES and style:
            return name
    for name, style in styles.items():
        if style not in (None, "integer", "decimal", "year"):
            return name
    if styles[first_name]:
        return first_name
    for name, texts in table.columns.items():
        text = next((text.strip() for text in texts if text.strip()), "")
        if AMBIGUOUS_DATE.fullmatch(text):
            problem = f"the timestamps of {name!r}, such as {text!r}, are ambiguous: day or month first."
            raise table.header_error(problem, f"Write them as {FORMATS}.")
    problem = f"no column looks like timestamps; the columns are {', '.join(table.columns)}."
    raise table.header_error(problem, f"Name it with --forecast.time. Timestamps are {FORMATS}.")


def _is_numeric_column(texts: Sequence[str]) -> bool:
    present = [text for text in texts if text.strip().lower() not in MISSING]
    return bool(present) and sum(map(_is_number, present)) * 2 > len(present)


def _is_number(text: str) -> bool:
    try:
        return "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


# Text → numbers and times


def parse_numbers(table: TextTable, names: Sequence[str]) -> np.ndarray:
    """Returns the numbers of some columns, (rows, columns); NaN where one is missing."""
    values = np.full((len(table.locations), len(names)), np.nan)
    for index, name in enumerate(names):
        for row, text in enumerate(table.columns[name]):
            if _is_number(text):
                values[row, index] = float(text)
            elif text.strip().lower() not in MISSING:
                problem = f"column {name!r}: expected a number, found {text.strip()[:40]!r}."
                repair = "Write numbers with a decimal point and no other signs; leave a missing value empty."
                table.error(row, problem, repair)
    return values


def parse_timestamps(table: TextTable, column: str, grid: TimeGrid | None) -> tuple[np.ndarray, str]:
    """Returns the timestamps of a column as integers, and their style: that of `grid`, or the detected one."""
    texts = table.columns[column]
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
            table.error(row, problem, repair)
    return ticks, style or "date"
