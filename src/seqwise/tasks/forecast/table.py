"""Tables of numbers as text → columns of numbers and moments. Every complaint names file, line and column.

It knows nothing of series, grids or gaps; `tasks/forecast/reader.py` goes on from here.
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
from seqwise.data.findings import Findings
from seqwise.data.tables import get_format_suffix, parse_columns, parse_records, read_text
from seqwise.errors import DataError, UsageError, nearest
from seqwise.tasks.forecast import sunspots
from seqwise.tasks.forecast.timestamps import SHAPE, Clock, style_of, tick_of

SUFFIXES = (".csv", ".tsv")
DAY_FIRST = re.compile(r"\d{1,2}[/.]\d{1,2}[/.]\d{2,4}.*")  # or month first: nobody can tell
MISSING = {"", "na", "nan", "n/a", "null", "none", "."}
TIMES = ("date", "time", "timestamp", "datetime", "stamp", "ds", "year", "month", "week", "day", "hour", "period")


@dataclass(frozen=True)
class Columns:
    """Which columns mean what. Saved with a run, so that other files are read alike."""

    time: str
    targets: tuple[str, ...]
    known: tuple[str, ...] = ()
    series: str | None = None


@dataclass
class Frame:
    """The fields of one or more files as text, column by column, with the place of each row."""

    header: list[str]
    fields: dict[str, list[str]]
    lines: list[int]
    files: list[str]
    splits: list[str]  # of each row, where files are named for splits; else all train

    def wrong(self, findings: Findings, row: int, problem: str, repair: str) -> None:
        """An error in a row."""
        findings.error(problem, repair=repair, file=self.files[row], line=self.lines[row])

    def note(self, findings: Findings, row: int, what: str) -> None:
        """A remark about a row."""
        findings.warn(what, self.files[row], self.lines[row])


def read_frames(spec: str, findings: Findings) -> list[Frame]:
    if spec.startswith("builtin:"):
        if spec != "builtin:sunspots":
            raise DataError(f"this task has no built-in data {spec[8:]!r}.", repair=nearest(spec[8:], ["sunspots"]))
        return [_frame(sunspots.table(), ",", Path(spec), "train", findings)]
    if "\n" in spec:  # a table itself, as it came from standard input
        first = spec.partition("\n")[0]
        return [_frame(spec, "\t" if "\t" in first else ",", Path("standard input"), "train", findings)]
    groups = find_split_files(Path(spec), SUFFIXES, findings)
    files = [(split, path) for split, paths in groups.items() for path in paths]
    if len(files) > 1 and len(groups) == 1:
        raise DataError(
            f"the folder holds {len(files)} tables; expected one.",
            repair="Name one of them, or name three train.csv, valid.csv and test.csv.",
            file=spec,
        )
    marks = {".tsv": "\t", ".csv": ","}
    return [_frame(read_text(path), marks[get_format_suffix(path)], path, split, findings) for split, path in files]


def _frame(text: str, mark: str, path: Path, split: str, findings: Findings) -> Frame:
    rows = list(parse_records(text.rstrip("\n"), mark, path, findings))
    if not rows:
        findings.raise_errors()
        raise DataError("the file is empty.", repair="Give a table with a column of stamps and numbers.", file=path)
    line, header = rows[0][0], [name.strip() for name in rows[0][1]]
    _check_header(header, path, line)
    whole = [(at, fields) for at, fields in rows[1:] if len(fields) == len(header)]
    for at, fields in rows[1:]:
        if len(fields) != len(header):
            findings.error(
                f"expected {len(header)} fields as in line {line}, found {len(fields)}.",
                repair="Numbers need a decimal point, not a comma; a missing value is an empty field.",
                file=path,
                line=at,
            )
    columns = {name: [row[1][at] for row in whole] for at, name in enumerate(header)}
    lines = [at for at, _ in whole]
    return Frame(header, columns, lines, [str(path)] * max(1, len(lines)), [split] * len(lines))


def _check_header(header: list[str], path: Path, line: int) -> None:
    if len(header) == 1 and ";" in header[0]:
        raise DataError(
            f"fields are separated by semicolons: {header[0][:60]}",
            repair="Separate them by commas (with decimal points), or by tabs in a file called .tsv.",
            file=path,
            line=line,
        )
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise DataError(f"two columns are called {twice[0]!r}.", repair="Rename one.", file=path, line=line)
    if all(_is_number(name) or name.lower() in MISSING for name in header):
        raise DataError(
            f"expected the names of the columns in the first line, found numbers: {', '.join(header)[:60]}.",
            repair="Put a line such as time,value above the numbers.",
            file=path,
            line=line,
        )


def merged(frames: list[Frame]) -> Frame:
    first = frames[0]
    for other in frames[1:]:
        if other.header != first.header:
            raise DataError(
                f"the columns are {', '.join(other.header)}, "
                f"but those of {first.files[0]} are {', '.join(first.header)}.",
                repair="All files need the same columns.",
                file=other.files[0],
                line=1,
            )
    return Frame(
        first.header,
        {name: [value for frame in frames for value in frame.fields[name]] for name in first.header},
        [line for frame in frames for line in frame.lines],
        [file for frame in frames for file in frame.files],
        [split for frame in frames for split in frame.splits],
    )


# Which columns


def choose_columns(frame: Frame, wishes: ForecastSettings, target: str | None, findings: Findings) -> Columns:
    known = tuple(parse_columns(wishes.known_future) or ())
    time = wishes.time or _time_column(frame)
    if target:
        return _apart(Columns(time, tuple(parse_columns(target) or ()), known, wishes.series or None))
    others = [name for name in frame.header if name not in (time, wishes.series, *known)]
    targets = [name for name in others if _mostly_numbers(frame.fields[name])]
    for name in others:
        if name not in targets:
            findings.warn(f"column that holds no numbers, {name!r}, which is not read", frame.files[0], 1)
    if not targets:
        raise DataError(
            f"no column holds numbers besides the stamps; the columns are {', '.join(frame.header)}.",
            repair="Give a table with a column of numbers, or name it with --target.",
            file=frame.files[0],
            line=1,
        )
    return _apart(Columns(time, tuple(targets), known, wishes.series or None))


def _apart(columns: Columns) -> Columns:
    """The columns, if each has one meaning: a target that is known in advance would tell its own future."""
    meanings = [(columns.time, "time")]
    meanings += [(columns.series, "the name of the series")] if columns.series else []
    meanings += [(name, "known in advance") for name in columns.known]
    meanings += [(name, "a target") for name in columns.targets]
    first: dict[str, str] = {}
    for name, meaning in meanings:
        if name in first:
            twice = "twice" if first[name] == meaning else f"as {first[name]} and"
            raise UsageError(
                f"the column {name!r} is to be read {twice} as {meaning}.",
                repair="Name it once, in --target, --forecast.time, --forecast.series or --forecast.known-future.",
            )
        first[name] = meaning
    return columns


def demand(column: str, frame: Frame) -> None:
    if column not in frame.fields:
        raise DataError(
            f"there is no column {column!r}.", repair=nearest(column, frame.header), file=frame.files[0], line=1
        )


def _time_column(frame: Frame) -> str:
    """The first whose name speaks of time, or else the first that holds dates, or else a first column of numbers."""

    def style(name: str) -> str | None:
        return style_of([text for text in frame.fields[name][:20] if text.strip()])

    plain = ("integer", "decimal")
    for name in frame.header:
        if name.lower() in TIMES and style(name):
            return name
    for name in frame.header:
        if style(name) not in (None, *plain, "year"):
            return name
    first = frame.header[0]
    if style(first):
        return first
    for name in frame.header:
        text = next((text for text in frame.fields[name] if text.strip()), "")
        if DAY_FIRST.fullmatch(text.strip()):
            raise DataError(
                f"the stamps of {name!r}, such as {text.strip()!r}, can be read in two ways: day or month first.",
                repair=f"Write them as {SHAPE}.",
                file=frame.files[0],
                line=1,
            )
    raise DataError(
        f"no column looks like time stamps; the columns are {', '.join(frame.header)}.",
        repair=f"Name it with --forecast.time. Stamps are {SHAPE}.",
        file=frame.files[0],
        line=1,
    )


def _mostly_numbers(texts: Sequence[str]) -> bool:
    there = [text for text in texts if text.strip().lower() not in MISSING]
    return bool(there) and sum(map(_is_number, there)) * 2 > len(there)


def _is_number(text: str) -> bool:
    try:
        return "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


# Text → numbers and moments


def numbers(frame: Frame, column: str, findings: Findings) -> np.ndarray:
    values = np.full(len(frame.lines), np.nan)
    for row, text in enumerate(frame.fields[column]):
        if _is_number(text):
            values[row] = float(text)
        elif text.strip().lower() not in MISSING:
            frame.wrong(
                findings,
                row,
                f"column {column!r}: expected a number, found {text.strip()[:40]!r}.",
                repair="Write numbers with a decimal point and no other signs; leave a missing value empty.",
            )
    return values


def ticks_of(frame: Frame, column: str, findings: Findings, clock: Clock | None) -> tuple[np.ndarray, str]:
    texts = frame.fields[column]
    style = clock.style if clock else style_of([text for text in texts if text.strip()])
    example = clock.label(0) if clock else next((text for text in texts if text.strip()), "")
    read = tick_of(style or "date")
    ticks = np.zeros(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        try:
            ticks[row] = read(text)
        except (ValueError, OverflowError):
            like = f" such as {example}" if style else ""
            frame.wrong(
                findings,
                row,
                f"column {column!r}: expected a time stamp{like}, found {text.strip()[:40]!r}.",
                repair=f"Stamps are {SHAPE}, all written alike; or name another column with --forecast.time.",
            )
    return ticks, style or "date"
