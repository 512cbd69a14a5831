"""Reads a table as columns of text, chooses their roles, and parses numbers and timestamps.

Every error names file, line and column. The module knows nothing of grids or gaps; `reader.py` continues from here.
"""

from __future__ import annotations

import io
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, compress, islice
from pathlib import Path

import numpy as np

from seqwise.config import ForecastSettings
from seqwise.data.delimited import parse_text
from seqwise.data.examples import find_split_files
from seqwise.data.hub import fetch_if_hub
from seqwise.data.reading import get_format_suffix
from seqwise.data.tables import OBJECT_SUFFIXES, SUFFIXES, read_records, split_commas
from seqwise.errors import DataError, Findings, MissingColumnError, UsageError, suggest
from seqwise.tasks.forecast.time_columns import find_time_columns, join_timestamps
from seqwise.tasks.forecast.timestamps import FORMATS, TimeGrid, detect_style, find_local_styles, get_parser

MISSING_TEXTS = {"", "na", "nan", "n/a", "null", "none", "."}
# `builtin:sunspots`: the yearly mean sunspot number, 1700–2008, twenty years per line. Observations: the international
# sunspot number, version 1, of the World Data Center SILSO at the Royal Observatory of Belgium, Brussels. A cycle lasts
# ten to twelve years, and cycles differ in height.
SUNSPOTS = """
1700: 5 11 16 23 36 58 29 20 10 8 3 0 0 2 11 27 47 63 60 39
1720: 28 26 22 11 21 40 78 122 103 73 47 35 11 5 16 34 70 81 111 101
1740: 73 40 20 16 5 11 22 40 60 80.9 83.4 47.7 47.8 30.7 12.2 9.6 10.2 32.4 47.6 54
1760: 62.9 85.9 61.2 45.1 36.4 20.9 11.4 37.8 69.8 106.1 100.8 81.6 66.5 34.8 30.6 7 19.8 92.5 154.4 125.9
1780: 84.8 68.1 38.5 22.8 10.2 24.1 82.9 132 130.9 118.1 89.9 66.6 60 46.9 41 21.3 16 6.4 4.1 6.8
1800: 14.5 34 45 43.1 47.5 42.2 28.1 10.1 8.1 2.5 0 1.4 5 12.2 13.9 35.4 45.8 41.1 30.1 23.9
1820: 15.6 6.6 4 1.8 8.5 16.6 36.3 49.6 64.2 67 70.9 47.8 27.5 8.5 13.2 56.9 121.5 138.3 103.2 85.7
1840: 64.6 36.7 24.2 10.7 15 40.1 61.5 98.5 124.7 96.3 66.6 64.5 54.1 39 20.6 6.7 4.3 22.7 54.8 93.8
1860: 95.8 77.2 59.1 44 47 30.5 16.3 7.3 37.6 74 139 111.2 101.6 66.2 44.7 17 11.3 12.4 3.4 6
1880: 32.3 54.3 59.7 63.7 63.5 52.2 25.4 13.1 6.8 6.3 7.1 35.6 73 85.1 78 64 41.8 26.2 26.7 12.1
1900: 9.5 2.7 5 24.4 42 63.5 53.8 62 48.5 43.9 18.6 5.7 3.6 1.4 9.6 47.4 57.1 103.9 80.6 63.6
1920: 37.6 26.1 14.2 5.8 16.7 44.3 63.9 69 77.8 64.9 35.7 21.2 11.1 5.7 8.7 36.1 79.7 114.4 109.6 88.8
1940: 67.8 47.5 30.6 16.3 9.6 33.2 92.6 151.6 136.3 134.7 83.9 69.4 31.5 13.9 4.4 38 141.7 190.2 184.8 159
1960: 112.3 53.9 37.6 27.9 10.2 15.1 47 93.8 105.9 105.5 104.5 66.6 68.9 38 34.5 15.5 12.6 27.5 92.5 155.4
1980: 154.6 140.4 115.9 66.6 45.9 17.9 13.4 29.4 100.2 157.6 142.6 145.7 94.3 54.6 29.9 17.5 8.6 21.5 64.3 93.3
2000: 119.6 111 104 63.7 40.4 29.8 15.2 7.5 2.9
"""
BLOCK_ROWS = 1 << 12  # fields of a column that are joined in memory
MAX_VALUE = 1e30  # larger numbers mark missing values, or are mistakes: no model could be trained on them
DATE_ORDER = "--forecast.date-order"
RAGGED_ROW_FIX = "Numbers need a decimal point, not a comma; a missing value is an empty field."


@dataclass(frozen=True)
class SeriesColumns:
    """The role of each column. It is saved with a run, so that other files are read in the same way."""

    time: str  # several columns are separated by commas; "": rows are equal steps
    targets: tuple[str, ...]
    known: tuple[str, ...] = ()  # known in advance
    series: str | None = None  # names the series of a row

    @property
    def time_columns(self) -> list[str]:
        return split_commas(self.time) or []


class TextColumn(Sequence[str]):
    """The fields of a column as text, many of them joined to one: as a `str` of its own, each would need 60 bytes."""

    def __init__(self, texts: Iterable[str] = ()):
        self.blocks: list[str | list[str]] = []  # of BLOCK_ROWS fields each, except the last
        self.last: list[str] = []
        self.extend(texts)

    def extend(self, texts: Iterable[str]) -> None:
        """Adds fields."""
        texts = iter(texts)
        while fields := list(islice(texts, BLOCK_ROWS - len(self.last))):
            self.last += fields
            if len(self.last) == BLOCK_ROWS:
                block = "\0".join(self.last)
                self.blocks.append(block if block.count("\0") == BLOCK_ROWS - 1 else self.last)
                self.last = []

    def __len__(self) -> int:
        return len(self.blocks) * BLOCK_ROWS + len(self.last)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(map(_split_block, [*self.blocks, self.last]))

    def __getitem__(self, row):
        block, index = divmod(range(len(self))[row], BLOCK_ROWS)
        return (_split_block(self.blocks[block]) if block < len(self.blocks) else self.last)[index]


def _split_block(block: str | list[str]) -> list[str]:
    return block.split("\0") if isinstance(block, str) else block


@dataclass
class TextTable:
    """The fields of one or more files as text, column by column. Errors and warnings are collected in `findings`."""

    columns: dict[str, TextColumn]
    files: list[tuple[str, str]]  # path and split of each file; the split is "train" unless the file is named for one
    file_indices: array[int]  # file of each row
    lines: array[int]  # line of each row
    findings: Findings

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def file(self) -> str:
        """The path of the first file."""
        return self.files[0][0]

    @property
    def splits(self) -> np.ndarray:
        """The split of each row."""
        return np.array([split for _, split in self.files])[self.file_indices]

    def get_location(self, row: int) -> tuple[str, int]:
        """Returns file and line of a row."""
        return self.files[self.file_indices[row]][0], self.lines[row]

    def add_error(self, row: int, problem: str, fix: str) -> None:
        """Adds an error about a row."""
        file, line = self.get_location(row)
        self.findings.error(problem, fix=fix, file=file, line=line)

    def add_warning(self, row: int, warning: str) -> None:
        """Adds a warning about a row."""
        self.findings.warn(warning, *self.get_location(row))

    def join_time_columns(self, names: Sequence[str], date_order: str) -> None:
        """Adds a column of timestamps joined from several columns; its name is their names, separated by commas."""
        name = ",".join(names)
        if len(names) > 1 and name not in self.columns:
            for column in names:
                self.check_column(column)
            self.columns[name] = TextColumn(join_timestamps(self.columns, names, date_order))

    def check_column(self, name: str) -> None:
        if name not in self.columns:
            raise MissingColumnError.create(name, self.columns, self.file, self.header_line)

    def drop_duplicates(self) -> TextTable:
        """Returns the table without rows that repeat an earlier one in every column; adds a warning for each."""
        hashes = np.fromiter(map(hash, zip(*self.columns.values())), np.int64, len(self))
        unique, counts = np.unique(hashes, return_counts=True)
        if len(unique) == len(self):
            return self
        repeated = set(unique[counts > 1].tolist())
        earlier: set[tuple[str, ...]] = set()  # of the few rows that are compared: those whose hash occurs twice
        is_selected = [True] * len(self)
        for row, fields in enumerate(zip(*self.columns.values())):
            if hash(fields) in repeated:
                is_selected[row] = fields not in earlier
                earlier.add(fields)
                if not is_selected[row]:
                    self.add_warning(row, "rows equal to an earlier one, which are dropped")
        columns = {name: TextColumn(compress(texts, is_selected)) for name, texts in self.columns.items()}
        file_indices, lines = (
            array("q", compress(self.file_indices, is_selected)),
            array("q", compress(self.lines, is_selected)),
        )
        return replace(self, columns=columns, file_indices=file_indices, lines=lines)

    @property
    def header_line(self) -> int | None:
        """The line with the names of the columns; None if the rows are objects."""
        return None if get_format_suffix(Path(self.file)) in OBJECT_SUFFIXES else 1

    def build_header_error(self, problem: str, fix: str) -> DataError:
        """Returns an error about the columns."""
        return DataError(problem, fix=fix, file=self.file, line=self.header_line)


def read_table(spec: str, findings: Findings, encoding: str | None = None) -> TextTable:
    """Reads a file, a folder with train.*, valid.* and test.*, a built-in name, or a table given as text."""
    if spec.startswith("builtin:"):
        if spec != "builtin:sunspots":
            raise DataError(f"this task has no built-in data {spec[8:]!r}.", fix=suggest(spec[8:], ["sunspots"]))
        numbers = [number for line in SUNSPOTS.split("\n") for number in line.partition(": ")[2].split()]
        rows = [f"{year},{number}" for year, number in enumerate(numbers, start=1700)]
        path, text = Path(spec), "\n".join(["year,sunspots", *rows])
        files = [("train", path, parse_text(io.StringIO(text), path, findings, RAGGED_ROW_FIX))]
    elif "\n" in spec:  # the text of a table, from standard input
        path = Path("standard input")
        files = [("train", path, parse_text(io.StringIO(spec), path, findings, RAGGED_ROW_FIX, decimal_commas=True))]
    else:
        groups = find_split_files(Path(fetch_if_hub(spec)), SUFFIXES, findings)
        num_tables = sum(map(len, groups.values()))
        if num_tables > 1 and len(groups) == 1:
            fix = "Pass one of them, or rename three to train.csv, valid.csv and test.csv."
            raise DataError(f"the folder holds {num_tables} tables; expected one.", fix=fix, file=spec)
        files = [
            (split, path, read_records(path, findings, encoding, RAGGED_ROW_FIX, decimal_commas=True))
            for split, paths in groups.items()
            for path in paths
        ]
    table = TextTable({}, [(str(path), split) for split, path, _ in files], array("q"), array("q"), findings)
    for index, (_, path, records) in enumerate(files):
        _append_file(table, records, path, index)
    return table


def _append_file(table: TextTable, records: Iterator[tuple[int, list[str]]], path: Path, file_index: int) -> None:
    """Adds the records of a file to the columns of the table; its header must be that of the files before."""
    header_line, first_record = next(records, (1, None))
    if first_record is None:
        table.findings.raise_errors()
        raise DataError("the file is empty.", fix="Give a table with a column of timestamps and numbers.", file=path)
    header = [name.strip() for name in first_record]
    _check_header(header, path, header_line)
    if table.columns and header != list(table.columns):
        expected = f"but those of {table.file} are {', '.join(table.columns)}"
        fix = "All files need the same columns."
        raise DataError(f"the columns are {', '.join(header)}, {expected}.", fix=fix, file=path, line=1)
    columns = [table.columns.setdefault(name, TextColumn()) for name in header]

    def list_rows() -> Iterator[list[str]]:
        for line, fields in records:
            if fields == first_record:
                problem = f"the header of line {header_line} is repeated."
                table.findings.error(problem, fix="Remove the line.", file=path, line=line)
            else:
                table.lines.append(line)
                yield fields

    rows = list_rows()
    while block := list(islice(rows, BLOCK_ROWS)):
        for column, texts in zip(columns, zip(*block)):
            column.extend(texts)
    table.file_indices.extend([file_index] * (len(table.lines) - len(table.file_indices)))


def _check_header(header: list[str], path: Path, line: int) -> None:
    error = partial(DataError, file=path, line=line)
    duplicates = [name for name in header if header.count(name) > 1]
    if duplicates:
        raise error(f"two columns are called {duplicates[0]!r}.", fix="Rename one.")
    if all(_is_number(name) or name.lower() in MISSING_TEXTS for name in header):
        problem = f"expected the names of the columns in the first line, found numbers: {', '.join(header)[:60]}."
        raise error(problem, fix="Put a line such as time,value above the numbers.")


# Roles of the columns


def choose_columns(table: TextTable, settings: ForecastSettings, target: str | None) -> SeriesColumns:
    """Returns the roles of the columns by the settings; targets that are not set are all other columns of numbers."""
    known, series, warning = split_commas(settings.known_future) or [], settings.series or None, ""
    times = split_commas(settings.time) or []
    if settings.time in table.columns:
        times = [settings.time]  # one column, whose name contains a comma
    elif not times:
        times, warning = find_time_columns(table.columns, series, settings.date_order)
    if warning:
        table.findings.warn(warning, table.file, table.header_line)
    targets = split_commas(target) or []
    if not targets:
        others = [name for name in table.columns if name not in (*times, series, *known)]
        targets = [name for name in others if _is_numeric_column(table.columns[name])]
        for name in others:
            if name not in targets:
                table.findings.warn(
                    f"column that holds no numbers, {name!r}, which is not read", table.file, table.header_line
                )
    if not targets:
        problem = f"no column holds numbers besides the timestamps; the columns are {', '.join(table.columns)}."
        raise table.build_header_error(problem, "Give a table with a column of numbers, or name it with --target.")
    # A target that is known in advance would reveal its own future.
    roles = [*((name, "time") for name in times), *([(series, "the name of the series")] if series else [])]
    roles += [*((name, "known in advance") for name in known), *((name, "a target") for name in targets)]
    first_roles: dict[str, str] = {}
    for name, role in roles:
        if name in first_roles:
            both = "twice" if first_roles[name] == role else f"as {first_roles[name]} and"
            fix = "Name it once, in --target, --forecast.time, --forecast.series or --forecast.known-future."
            raise UsageError(f"the column {name!r} is to be read {both} as {role}.", fix=fix)
        first_roles[name] = role
    return SeriesColumns(",".join(times), tuple(targets), tuple(known), series)


def _is_numeric_column(texts: Sequence[str]) -> bool:
    num_present = num_numbers = 0
    for text in texts:
        if text.strip().lower() not in MISSING_TEXTS:
            num_present += 1
            num_numbers += _is_number(text)
    return num_numbers * 2 > num_present


def _is_number(text: str) -> bool:
    try:
        return "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


# Text → numbers and times


def parse_numbers(table: TextTable, names: Sequence[str]) -> np.ndarray:
    """Returns the numbers of some columns, (rows, columns); NaN where one is missing."""
    values = np.full((len(table), len(names)), np.nan)
    for index, name in enumerate(names):
        for row, text in enumerate(table.columns[name]):
            if _is_number(text):
                values[row, index] = float(text)
                if abs(values[row, index]) > MAX_VALUE:
                    problem = f"column {name!r}: the number {text.strip()[:40]} is too large."
                    fix = (
                        f"Numbers are at most {MAX_VALUE:g}: correct it, or leave it empty if it marks a missing value."
                    )
                    table.add_error(row, problem, fix)
            elif text.strip().lower() not in MISSING_TEXTS:
                problem = f"column {name!r}: expected a number, found {text.strip()[:40]!r}."
                fix = "Write numbers with a decimal point and no other signs; leave a missing value empty."
                table.add_error(row, problem, fix)
    return values


def parse_timestamps(table: TextTable, column: str, grid: TimeGrid | None, date_order: str) -> tuple[np.ndarray, str]:
    """Returns the timestamps of a column as integers, and their style: that of `grid`, or else the detected one."""
    texts = table.columns[column]
    present = TextColumn(text for text in texts if text.strip())
    style = grid.style if grid else detect_style(present, date_order)
    if grid is None and "%" in (style or "") and len(find_local_styles(present, date_order)) > 1:
        problem = f"the timestamps of {column!r}, such as {present[0]!r}, are ambiguous: day or month first."
        fix = f"Pass {DATE_ORDER} day-first or {DATE_ORDER} month-first, or write them as 2020-01-31."
        raise table.build_header_error(problem, fix)
    example = grid.format_timestamp(0) if grid else next(iter(present), "")
    parse = get_parser(style or "date")
    ticks = np.zeros(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        try:
            ticks[row] = parse(text)
        except (ValueError, OverflowError):
            such_as = f" such as {example}" if style else ""
            problem = f"column {column!r}: expected a timestamp{such_as}, found {text.strip()[:40]!r}."
            fix = f"Timestamps are {FORMATS}, all in one format; or name another column with --forecast.time."
            if date_order != "auto":
                fix += f" Dates are read as {DATE_ORDER} {date_order}."
            table.add_error(row, problem, fix)
    return ticks, style or "date"
