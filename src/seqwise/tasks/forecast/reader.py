"""Tables of numbers over time → series on one even grid. Policies for what is wrong in them are stated, never silent.

One file holds one or many series: wide, a column for each, or long, where a column names the series of a row. It knows
nothing of splits, scaling or models; `tasks/forecast/windows.py` goes on from here.

| found | what happens |
|---|---|
| a value that is no number, a repeated stamp, an unreadable stamp | error with file, line and column |
| rows out of order | sorted, counted |
| stamps a little off the grid (up to a quarter of a step) | moved to the nearest grid point, counted; more: error |
| stamps missing | inserted with missing values, counted |
| values missing | filled as `forecast.missing` says, counted; never a target |
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from seqwise.config import Settings
from seqwise.data.findings import Findings
from seqwise.data.splitting import SPLITS
from seqwise.data.tables import reject_columns
from seqwise.errors import DataError
from seqwise.tasks.forecast.table import Columns, Frame, choose_columns, demand, merged, numbers, read_frames, ticks_of
from seqwise.tasks.forecast.timestamps import OFF, Clock, clock_of

SPARSE = 20  # steps per row from which on a table has more gaps than values
FILLED = {"interpolate": "a line between their neighbours", "previous": "the value before"}


@dataclass
class Series:
    """C series over T even steps. A missing value is NaN; after `end` no series has any value, only what is known."""

    name: str
    names: list[str]
    values: np.ndarray  # (T, C) float64
    known: np.ndarray  # (G, T, K) float64: known in advance, the same for all series of a group
    group: np.ndarray  # (C,) which group a series belongs to
    groups: list[str]  # their names; one that is empty where the table is wide
    clock: Clock
    columns: Columns
    end: int
    given: tuple[int, int, int] | None = None  # ends of train, valid and test, where files are named for them
    findings: Findings = field(default_factory=Findings)

    def span(self) -> str:
        """From when to when, in words."""
        first, last = self.clock.label(0), self.clock.label(self.end - 1)
        return f"{self.end:,} steps (step: {self.clock.spacing}) from {first} to {last}"


def read_series(spec: str, settings: Settings, columns: Columns | None = None, clock: Clock | None = None) -> Series:
    """Read, check and put on a grid. `columns` and `clock` are those of a trained run, to read another file alike.

    `spec` is a file, a folder with train.*, valid.* and test.*, a built-in name, or the text of a table itself.
    """
    findings = Findings()
    frame = merged(read_frames(spec, findings))
    findings.raise_errors()
    if not frame.lines:
        raise DataError(
            "there is a header, but no row below it.", repair="Give a table with rows.", file=frame.files[0]
        )
    if columns is None:
        reject_columns(
            settings.columns, "Name them with --target, --forecast.time, --forecast.known-future, --forecast.series."
        )
    columns = columns or choose_columns(frame, settings.forecast, settings.target, findings)
    for column in (columns.time, *columns.targets, *columns.known, *([columns.series] if columns.series else [])):
        demand(column, frame)
    values = np.stack([numbers(frame, column, findings) for column in columns.targets], axis=1)
    known = np.stack([numbers(frame, column, findings) for column in columns.known], axis=1) if columns.known else None
    ticks, style = ticks_of(frame, columns.time, findings, clock)
    findings.raise_errors()
    groups = _groups(frame, columns, ticks, findings)
    findings.raise_errors()
    clock = clock_of(np.unique(ticks), style) if clock is None else clock.from_first(ticks)
    policy = settings.forecast.missing
    places = _on_grid(frame, groups, ticks, clock, findings, policy)
    findings.raise_errors()
    series = _gridded(spec, frame, columns, groups, places, (values, known), clock, findings)
    _check_missing(frame, groups, places, values, series, policy)
    return series


# Rows → groups in order of time


def _groups(frame: Frame, columns: Columns, ticks: np.ndarray, findings: Findings) -> dict[str, np.ndarray]:
    """Name of a group of series → its rows in the order of time. Repeated stamps are errors."""
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(frame.fields[columns.series] if columns.series else [""] * len(frame.lines)):
        if columns.series and not name.strip():
            frame.wrong(
                findings,
                row,
                f"column {columns.series!r}: the name of the series is empty.",
                repair="Each row must name its series.",
            )
        groups.setdefault(name.strip(), []).append(row)
    found = {}
    for name, listed in groups.items():
        rows = np.array(listed)
        for row in rows[1:][np.diff(ticks[rows]) < 0]:
            frame.note(findings, row, "rows out of order, which are sorted by time")
        found[name] = rows = rows[np.argsort(ticks[rows], kind="stable")]
        for before, row in zip(rows[:-1][np.diff(ticks[rows]) == 0], rows[1:][np.diff(ticks[rows]) == 0]):
            whose = f" of series {name!r}" if name else ""
            frame.wrong(
                findings,
                row,
                f"the time stamp {frame.fields[columns.time][row].strip()}{whose} occurs twice, "
                f"first in line {frame.lines[before]}.",
                repair="Remove one of the rows. Where rows belong to different series, name the column that tells "
                "them apart with --forecast.series.",
            )
    return found


# Onto the grid


def _on_grid(
    frame: Frame, groups: dict[str, np.ndarray], ticks: np.ndarray, clock: Clock, findings: Findings, policy: str
) -> np.ndarray:
    """The number of the step of each row."""
    exact = clock.numbers(ticks)
    places = np.round(exact).astype(np.int64)
    off = np.abs(exact - places)
    if places.max() > SPARSE * len(places) + 1000:
        order = np.argsort(places)
        row = int(order[1:][np.diff(places[order]).argmax()])
        problem = (
            f"the stamps span {places.max() + 1:,} steps (step: {clock.spacing}), but there are {len(places):,} rows"
        )
        after = "A stamp may be mistyped where this gap ends; otherwise sum or average the rows over longer steps."
        frame.wrong(findings, row, f"{problem}; the longest gap ends here.", repair=after)
        findings.raise_errors()
    uneven = "Give stamps at even distances, one row per step: sum or average the rows of each step first."
    for row in np.flatnonzero(off > OFF).tolist():
        frame.wrong(
            findings,
            row,
            f"the stamp lies {off[row]:.2f} steps beside the grid (step: {clock.spacing}).",
            repair=uneven,
        )
    for row in np.flatnonzero((off > 0) & (off <= OFF)).tolist():
        what = f"time stamps a little off the grid (step: {clock.spacing}), moved to the nearest grid point"
        frame.note(findings, row, what)
    for rows in groups.values():
        steps = np.diff(places[rows])
        for row in rows[1:][(steps == 0) & (off[rows[1:]] <= OFF)]:
            frame.wrong(findings, row, f"two rows fall on the same step (step: {clock.spacing}).", repair=uneven)
        for row, gap in zip(rows[1:][steps > 1], steps[steps > 1]):
            if policy == "stop":
                problem = f"{gap - 1:,} time stamps are missing before this line (step: {clock.spacing})."
                frame.wrong(
                    findings, row, problem, "Insert them, or let --forecast.missing interpolate or previous do it."
                )
                continue
            what = f"missing time stamps (step: {clock.spacing}), inserted with missing values"
            for _ in range(gap - 1):
                frame.note(findings, row, what)
    return places


def _gridded(
    spec: str,
    frame: Frame,
    columns: Columns,
    groups: dict[str, np.ndarray],
    places: np.ndarray,
    read: tuple[np.ndarray, np.ndarray | None],
    clock: Clock,
    findings: Findings,
) -> Series:
    values, known = read
    steps, width = int(places.max()) + 1, len(columns.targets)
    grid = np.full((steps, len(groups) * width), np.nan)
    there = np.full((len(groups), steps, len(columns.known)), np.nan)
    names: list[str] = []
    for number, (name, rows) in enumerate(groups.items()):
        grid[places[rows], number * width : (number + 1) * width] = values[rows]
        names += [column if not name else name if width == 1 else f"{name}/{column}" for column in columns.targets]
        if known is not None:
            there[number, places[rows]] = known[rows]
            _fill_known(there[number], frame, columns, rows, places, findings)
    findings.raise_errors()
    observed = np.flatnonzero(~np.isnan(grid).all(axis=1))
    if not len(observed):
        raise DataError("all values are missing.", repair="Give some numbers.", file=frame.files[0])
    end = int(observed[-1]) + 1
    group = np.repeat(np.arange(len(groups)), width)
    name = spec if "\n" not in spec else "standard input"
    given = _given(frame, places, end)
    return Series(name, names, grid, there, group, list(groups), clock, columns, end, given, findings)


def _fill_known(
    grid: np.ndarray, frame: Frame, columns: Columns, rows: np.ndarray, places: np.ndarray, findings: Findings
) -> None:
    """What is known in advance must be complete; only at stamps that were inserted the value before goes on.

    Before the first row and after the last one of a group nothing is known.
    """
    for row in rows:
        for at in np.flatnonzero(np.isnan(grid[places[row]])):
            problem = f"column {columns.known[at]!r} is to be known in advance, but the value is missing."
            repair = "Give it a value, or leave the column out of --forecast.known-future."
            frame.wrong(findings, row, problem, repair)
    first, last = places[rows].min(), places[rows].max() + 1
    grid[first:last] = filled(grid[first:last], "previous")


def _given(frame: Frame, places: np.ndarray, end: int) -> tuple[int, int, int] | None:
    """The ends of the splits that files are named for, which must follow each other in time."""
    splits = np.array(frame.splits)
    if (splits == "train").all():
        return None
    last = 0
    ends: list[int] = []
    for split in SPLITS:
        mine = places[splits == split]
        if not len(mine):
            raise DataError(f"there is no file for the split {split!r}.", repair="Name files train, valid and test.")
        if mine.min() < last:
            row = int(np.flatnonzero((splits == split) & (places == mine.min()))[0])
            raise DataError(
                f"the {split} rows must come after the ones before them in time.",
                repair="Splits of a forecast follow each other: train, then valid, then test.",
                file=frame.files[row],
                line=frame.lines[row],
            )
        last = int(mine.max()) + 1
        ends.append(last)
    return ends[0], ends[1], min(ends[2], end)


def _check_missing(
    frame: Frame, groups: dict[str, np.ndarray], places: np.ndarray, values: np.ndarray, series: Series, policy: str
) -> None:
    """Empty fields from the first to the last value of a series: counted, or an error where the policy is to stop."""
    width = values.shape[1]
    for number, rows in enumerate(groups.values()):
        for at in range(width):
            name, column = series.names[number * width + at], values[rows, at]
            there = np.flatnonzero(~np.isnan(column))
            if not len(there):
                repair = "Remove it, or choose others with --target."
                frame.wrong(series.findings, rows[0], f"series {name!r} has no value at all.", repair)
                continue
            inside = rows[there[0] : there[-1] + 1][np.isnan(column[there[0] : there[-1] + 1])]
            for row in inside:
                if policy == "stop":
                    repair = "Fill it in, or let --forecast.missing interpolate or previous do it."
                    frame.wrong(series.findings, row, f"the value of {name!r} is missing.", repair)
                else:
                    frame.note(series.findings, row, f"missing values, filled with {FILLED[policy]}; never a target")
    series.findings.raise_errors()


def filled(values: np.ndarray, policy: str) -> np.ndarray:
    """(T, C) without gaps. Before the first value the first, after the last one the last goes on."""
    result = values.copy()
    steps = np.arange(len(values))
    for at in range(values.shape[1]):
        there = np.flatnonzero(~np.isnan(values[:, at]))
        if not len(there) or len(there) == len(values):
            continue
        if policy == "interpolate":
            result[:, at] = np.interp(steps, there, values[there, at])
        else:
            before = np.maximum(np.searchsorted(there, steps, side="right") - 1, 0)
            result[:, at] = values[there[before], at]
    return result
