"""Reads tables of numbers over time into series on one even grid. How problems are handled is stated, never silent.

One file holds one or many series: wide, a column for each, or long, where a column names the series of a row. It knows
nothing of splits, scaling or models; `windows.py` continues from here.

| problem | what happens |
|---|---|
| a value that is no number, a repeated timestamp, an unreadable timestamp | error with file, line and column |
| rows out of order | sorted, counted |
| timestamps a little off the grid (up to a quarter of a step) | moved to the nearest grid point, counted; more: error |
| timestamps missing | inserted with missing values, counted |
| values missing | filled as `forecast.missing` says, counted; never a target |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from seqwise.config import Settings
from seqwise.data.splitting import SPLITS
from seqwise.data.tables import reject_columns
from seqwise.errors import DataError, Findings
from seqwise.tasks.forecast.table import (
    SeriesColumns,
    TextTable,
    choose_columns,
    parse_numbers,
    parse_timestamps,
    read_table,
    require_column,
)
from seqwise.tasks.forecast.timestamps import MAX_OFFSET, TimeGrid, infer_grid

MAX_STEPS_PER_ROW = 20  # a table with more steps per row has more gaps than values
FILL_NAMES = {"interpolate": "a line between their neighbours", "previous": "the value before"}
EVEN_STEPS = "Give timestamps at even distances, one row per step: sum or average the rows of each step first."


@dataclass
class SeriesData:
    """C series over T even steps. A missing value is NaN; after `end` there are only values known in advance."""

    source: str
    names: list[str]
    values: np.ndarray  # (T, C) float64
    known: np.ndarray  # (G, T, K) float64: known in advance, the same for all series of a group
    group: np.ndarray  # (C,) the group of each series
    group_names: list[str]  # [""] if the table is wide
    grid: TimeGrid
    columns: SeriesColumns
    end: int
    split_ends: tuple[int, int, int] | None = None  # of train, valid and test, if files are named for them
    findings: Findings = field(default_factory=Findings)

    def describe_span(self) -> str:
        """Returns number of steps, first and last timestamp in words."""
        first, last = self.grid.label(0), self.grid.label(self.end - 1)
        return f"{self.end:,} steps (step: {self.grid.step_name}) from {first} to {last}"


def read_series(
    spec: str, settings: Settings, columns: SeriesColumns | None = None, grid: TimeGrid | None = None
) -> SeriesData:
    """Reads and checks a table and puts it on a grid. `columns` and `grid` are those of a trained run, if there is one.

    `spec` is a file, a folder with train.*, valid.* and test.*, a built-in name, or the text of a table.
    """
    findings = Findings()
    table = read_table(spec, findings)
    findings.raise_errors()
    if not table.lines:
        problem = "there is a header, but no row below it."
        raise DataError(problem, repair="Give a table with rows.", file=table.files[0])
    if columns is None:
        options = "--target, --forecast.time, --forecast.known-future, --forecast.series"
        reject_columns(settings.columns, f"Name them with {options}.")
        columns = choose_columns(table, settings.forecast, settings.target, findings)
    for name in columns.all_names:
        require_column(name, table)
    values = _parse_columns(table, columns.targets, findings)
    known = _parse_columns(table, columns.known, findings)
    ticks, style = parse_timestamps(table, columns.time, findings, grid)
    findings.raise_errors()
    groups = _group_rows(table, columns, ticks, findings)
    findings.raise_errors()
    grid = infer_grid(np.unique(ticks), style) if grid is None else grid.align(ticks)
    policy = settings.forecast.missing
    steps = _find_steps(table, groups, ticks, grid, findings, policy)
    findings.raise_errors()
    _check_missing(table, groups, columns, values, findings, policy)
    return _build_series(spec, table, columns, groups, steps, values, known, grid, findings)


def _parse_columns(table: TextTable, names: Sequence[str], findings: Findings) -> np.ndarray:
    """Returns the numbers of some columns, (rows, columns)."""
    columns = [parse_numbers(table, name, findings) for name in names]
    return np.stack(columns, axis=1) if columns else np.zeros((len(table.lines), 0))


# Rows → groups in order of time


def _group_rows(
    table: TextTable, columns: SeriesColumns, ticks: np.ndarray, findings: Findings
) -> dict[str, np.ndarray]:
    """Returns the rows of each group of series in the order of time. Repeated timestamps are errors."""
    row_lists: dict[str, list[int]] = {}
    for row, name in enumerate(table.fields[columns.series] if columns.series else [""] * len(table.lines)):
        if columns.series and not name.strip():
            problem = f"column {columns.series!r}: the name of the series is empty."
            table.add_error(findings, row, problem, "Each row must name its series.")
        row_lists.setdefault(name.strip(), []).append(row)
    groups = {}
    for name, row_list in row_lists.items():
        rows = np.array(row_list)
        for row in rows[1:][np.diff(ticks[rows]) < 0]:
            table.add_warning(findings, row, "rows out of order, which are sorted by time")
        groups[name] = rows = rows[np.argsort(ticks[rows], kind="stable")]
        is_repeated = np.diff(ticks[rows]) == 0
        for previous, row in zip(rows[:-1][is_repeated], rows[1:][is_repeated]):
            timestamp = table.fields[columns.time][row].strip()
            series_suffix = f" of series {name!r}" if name else ""
            first = f"first in line {table.lines[previous]}"
            table.add_error(
                findings,
                row,
                f"the timestamp {timestamp}{series_suffix} occurs twice, {first}.",
                repair="Remove one of the rows. Where rows belong to different series, name the column that tells "
                "them apart with --forecast.series.",
            )
    return groups


# Onto the grid


def _find_steps(
    table: TextTable,
    groups: dict[str, np.ndarray],
    ticks: np.ndarray,
    grid: TimeGrid,
    findings: Findings,
    policy: str,
) -> np.ndarray:
    """Returns the step of the grid that each row belongs to."""
    positions = grid.positions(ticks)
    steps = np.round(positions).astype(np.int64)
    offsets = np.abs(positions - steps)
    step_name = f"(step: {grid.step_name})"
    if steps.max() > MAX_STEPS_PER_ROW * len(steps) + 1000:
        order = np.argsort(steps)
        row = int(order[1:][np.diff(steps[order]).argmax()])
        span = f"the timestamps span {steps.max() + 1:,} steps {step_name}, but there are {len(steps):,} rows"
        repair = "A timestamp may be mistyped where this gap ends; otherwise sum or average the rows over longer steps."
        table.add_error(findings, row, f"{span}; the longest gap ends here.", repair)
        findings.raise_errors()
    for row in np.flatnonzero(offsets > MAX_OFFSET).tolist():
        problem = f"the timestamp is {offsets[row]:.2f} steps off the grid {step_name}."
        table.add_error(findings, row, problem, EVEN_STEPS)
    for row in np.flatnonzero((offsets > 0) & (offsets <= MAX_OFFSET)).tolist():
        warning = f"timestamps a little off the grid {step_name}, moved to the nearest grid point"
        table.add_warning(findings, row, warning)
    for rows in groups.values():
        distances = np.diff(steps[rows])
        for row in rows[1:][(distances == 0) & (offsets[rows[1:]] <= MAX_OFFSET)]:
            table.add_error(findings, row, f"two rows fall on the same step {step_name}.", EVEN_STEPS)
        for row, distance in zip(rows[1:][distances > 1], distances[distances > 1]):
            if policy == "stop":
                problem = f"{distance - 1:,} timestamps are missing before this line {step_name}."
                repair = "Insert them, or let --forecast.missing interpolate or previous do it."
                table.add_error(findings, row, problem, repair)
                continue
            for _ in range(distance - 1):
                warning = f"missing timestamps {step_name}, inserted with missing values"
                table.add_warning(findings, row, warning)
    return steps


def _build_series(
    spec: str,
    table: TextTable,
    columns: SeriesColumns,
    groups: dict[str, np.ndarray],
    steps: np.ndarray,
    values: np.ndarray,
    known: np.ndarray,
    grid: TimeGrid,
    findings: Findings,
) -> SeriesData:
    num_steps, num_targets = int(steps.max()) + 1, len(columns.targets)
    grid_values = np.full((num_steps, len(groups) * num_targets), np.nan)
    grid_known = np.full((len(groups), num_steps, len(columns.known)), np.nan)
    for index, rows in enumerate(groups.values()):
        grid_values[steps[rows], index * num_targets : (index + 1) * num_targets] = values[rows]
        grid_known[index, steps[rows]] = known[rows]
        _fill_known(grid_known[index], table, columns, rows, steps, findings)
    findings.raise_errors()
    end = int(np.flatnonzero(~np.isnan(grid_values).all(axis=1))[-1]) + 1
    return SeriesData(
        spec if "\n" not in spec else "standard input",
        _name_series(groups, columns),
        grid_values,
        grid_known,
        np.repeat(np.arange(len(groups)), num_targets),
        list(groups),
        grid,
        columns,
        end,
        _find_split_ends(table, steps, end),
        findings,
    )


def _name_series(groups: dict[str, np.ndarray], columns: SeriesColumns) -> list[str]:
    """Returns the column of a wide table, the group of a long one, and group/column where there are several."""
    if not columns.series:
        return list(columns.targets)
    if len(columns.targets) == 1:
        return list(groups)
    return [f"{group}/{column}" for group in groups for column in columns.targets]


def _fill_known(
    known: np.ndarray,
    table: TextTable,
    columns: SeriesColumns,
    rows: np.ndarray,
    steps: np.ndarray,
    findings: Findings,
) -> None:
    """Requires values known in advance in every row; inserted timestamps get the value before.

    Before the first row and after the last one of a group nothing is known.
    """
    for row in rows:
        for index in np.flatnonzero(np.isnan(known[steps[row]])):
            problem = f"column {columns.known[index]!r} is to be known in advance, but the value is missing."
            repair = "Give it a value, or leave the column out of --forecast.known-future."
            table.add_error(findings, row, problem, repair)
    first, last = steps[rows].min(), steps[rows].max() + 1
    known[first:last] = fill_missing(known[first:last], "previous")


def _find_split_ends(table: TextTable, steps: np.ndarray, end: int) -> tuple[int, int, int] | None:
    """Returns the ends of the splits that files are named for, which must follow each other in time."""
    splits = np.array(table.splits)
    if (splits == "train").all():
        return None
    ends = [0]
    for split in SPLITS:
        split_steps = steps[splits == split]
        if not len(split_steps):
            raise DataError(f"there is no file for the split {split!r}.", repair="Name files train, valid and test.")
        if split_steps.min() < ends[-1]:
            row = int(np.flatnonzero((splits == split) & (steps == split_steps.min()))[0])
            raise DataError(
                f"the {split} rows must come after the ones before them in time.",
                repair="Splits of a forecast follow each other: train, then valid, then test.",
                file=table.files[row],
                line=table.lines[row],
            )
        ends.append(int(split_steps.max()) + 1)
    return ends[1], ends[2], min(ends[3], end)


def _check_missing(
    table: TextTable,
    groups: dict[str, np.ndarray],
    columns: SeriesColumns,
    values: np.ndarray,
    findings: Findings,
    policy: str,
) -> None:
    """Counts empty fields between the first and the last value of a series; they are errors if the policy is stop."""
    if np.isnan(values).all():
        raise DataError("all values are missing.", repair="Give some numbers.", file=table.files[0])
    names = iter(_name_series(groups, columns))
    for rows in groups.values():
        for column in values[rows].T:
            name, present = next(names), np.flatnonzero(~np.isnan(column))
            if not len(present):
                repair = "Remove it, or choose others with --target."
                table.add_error(findings, rows[0], f"series {name!r} has no value at all.", repair)
                continue
            inside = slice(present[0], present[-1] + 1)
            for row in rows[inside][np.isnan(column[inside])]:
                if policy == "stop":
                    repair = "Fill it in, or let --forecast.missing interpolate or previous do it."
                    table.add_error(findings, row, f"the value of {name!r} is missing.", repair)
                else:
                    warning = f"missing values, filled with {FILL_NAMES[policy]}; never a target"
                    table.add_warning(findings, row, warning)
    findings.raise_errors()


def fill_missing(values: np.ndarray, policy: str) -> np.ndarray:
    """Returns (T, C) without gaps. The first value also fills the steps before it, the last those after it."""
    filled = values.copy()
    steps = np.arange(len(values))
    for column in range(values.shape[1]):
        present = np.flatnonzero(~np.isnan(values[:, column]))
        if not len(present) or len(present) == len(values):
            continue
        if policy == "interpolate":
            filled[:, column] = np.interp(steps, present, values[present, column])
        else:
            previous = np.maximum(np.searchsorted(present, steps, side="right") - 1, 0)
            filled[:, column] = values[present[previous], column]
    return filled
