"""Reads tables of numbers over time into series on one even grid. Every problem is reported, none is silently fixed.

One file holds one or many series: wide, a column for each, or long, where a column names the series of a row. The
module knows nothing of splits, scaling or models; `windows.py` continues from here.

| problem | what happens |
|---|---|
| a value that is not a number, a repeated timestamp, an unreadable timestamp | error with file, line and column |
| rows equal to an earlier one | dropped, counted |
| rows out of order | sorted, counted |
| timestamps a little off the grid (up to a quarter of a step) | moved to the nearest grid point, counted; more: error |
| timestamps missing | inserted with missing values, counted |
| values missing | filled as `forecast.missing` says, counted; never a target |
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from seqwise.config import Settings
from seqwise.data.examples import SPLITS
from seqwise.data.limits import limited
from seqwise.data.tables import reject_columns
from seqwise.errors import DataError, Findings, format_location, pluralize
from seqwise.tasks.forecast.table import (
    SeriesColumns,
    TextTable,
    choose_columns,
    parse_numbers,
    parse_timestamps,
    read_table,
)
from seqwise.tasks.forecast.timestamps import MAX_OFFSET, TimeGrid, infer_grid

MAX_STEPS_PER_ROW = 20  # a table with more steps per row has more gaps than values
FILL_NAMES = {"interpolate": "a line between their neighbours", "previous": "the value before"}
EVEN_STEPS = "Give timestamps at even distances, one row per step: sum or average the rows of each step first."
FILL_OPTION = "set --forecast.missing to interpolate or previous."


@dataclass
class SeriesData:
    """C series over T even steps. A missing value is NaN; after `end` there are only values known in advance."""

    source: str
    names: list[str]
    values: np.ndarray  # (T, C) float64
    known: np.ndarray  # (G, T, K) float64: K values known in advance, for each of G groups of series
    group: np.ndarray  # (C,) int: the group of each series
    group_names: list[str]  # the names in the column of series; [""] if the table is wide
    grid: TimeGrid
    columns: SeriesColumns
    end: int  # one after the last step with a value
    split_ends: tuple[int, int, int] | None = None  # of train, valid and test, if files are named for them
    findings: Findings = field(default_factory=Findings)

    def describe_span(self) -> str:
        """Returns number of steps, first and last timestamp in words."""
        first, last = self.grid.format_timestamp(0), self.grid.format_timestamp(self.end - 1)
        return f"{self.end:,} steps (step: {self.grid.step_name}) from {first} to {last}"

    def describe_time(self) -> str:
        """Returns where the time of a row comes from, in words."""
        names = self.columns.time_columns
        return (
            f"time in column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
            if names
            else "no time column"
        )


@limited
def read_series(
    spec: str, settings: Settings, columns: SeriesColumns | None = None, grid: TimeGrid | None = None
) -> SeriesData:
    """Reads and checks a table and puts it on a grid. `columns` and `grid` are those of a trained run, if there is one.

    `spec` is a file, a folder with train.*, valid.* and test.*, a built-in name, or the text of a table.
    """
    findings, policy = Findings(), settings.forecast.missing
    table = read_table(spec, findings, settings.data.encoding)
    findings.raise_errors()
    if not len(table):
        problem = "there is a header, but no row below it."
        raise DataError(problem, fix="Give a table with rows.", file=table.file)
    if columns is None:
        options = "--target, --forecast.time, --forecast.known-future, --forecast.series"
        reject_columns(settings.columns, f"Name them with {options}.")
        columns = choose_columns(table, settings.forecast, settings.target)
    if columns.time:
        names = [columns.time] if columns.time in table.columns else columns.time_columns
        table.join_time_columns(names, settings.forecast.date_order)
        table = table.drop_duplicates()
    for name in (columns.time, *columns.targets, *columns.known, columns.series):
        if name:
            table.check_column(name)
    values, known = parse_numbers(table, columns.targets), parse_numbers(table, columns.known)
    if columns.time:
        ticks, style = parse_timestamps(table, columns.time, grid, settings.forecast.date_order)
    else:
        ticks, style = _number_rows(table, columns)
    findings.raise_errors()
    groups = _group_rows(table, columns, ticks)
    for row, column in np.argwhere(np.isnan(known)).tolist():
        problem = f"column {columns.known[column]!r} is to be known in advance, but the value is missing."
        table.add_error(row, problem, "Give it a value, or leave the column out of --forecast.known-future.")
    findings.raise_errors()
    grid = infer_grid(np.unique(ticks), style) if grid is None else grid.align(ticks)
    steps = _find_steps(table, groups, ticks, grid, policy)
    findings.raise_errors()
    names = list(columns.targets)
    if columns.series:
        names = list(groups) if len(names) == 1 else [f"{group}/{column}" for group in groups for column in names]
    _check_missing(table, groups, steps, names, values, policy)
    findings.raise_errors()
    grid_values, grid_known = _place_on_grid(groups, steps, values, known)
    end = int(np.flatnonzero(~np.isnan(grid_values).all(axis=1))[-1]) + 1
    return SeriesData(
        spec if "\n" not in spec else "standard input",
        names,
        grid_values,
        grid_known,
        np.repeat(np.arange(len(groups)), len(columns.targets)),
        list(groups),
        grid,
        columns,
        end,
        _find_split_ends(table, steps, end),
        findings,
    )


def _number_rows(table: TextTable, columns: SeriesColumns) -> tuple[np.ndarray, str]:
    """Returns the number of each row within its series, which serves as its timestamp, and the style "row"."""
    counts: Counter[str] = Counter()
    ticks = array("q")
    for name in table.columns[columns.series] if columns.series else [""] * len(table):
        ticks.append(counts[name.strip()])
        counts[name.strip()] += 1
    return np.array(ticks), "row"


def _group_rows(table: TextTable, columns: SeriesColumns, ticks: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the rows of each group of series in the order of time. Repeated timestamps are errors."""
    row_lists: dict[str, array[int]] = {}
    for row, name in enumerate(table.columns[columns.series] if columns.series else [""] * len(ticks)):
        if columns.series and not name.strip():
            problem = f"column {columns.series!r}: the name of the series is empty."
            table.add_error(row, problem, "Each row must name its series.")
        row_lists.setdefault(name.strip(), array("q")).append(row)
    groups = {}
    for name, row_list in row_lists.items():
        rows = np.array(row_list)
        for row in rows[1:][np.diff(ticks[rows]) < 0]:
            table.add_warning(row, "rows out of order, which are sorted by time")
        groups[name] = rows = rows[np.argsort(ticks[rows], kind="stable")]
        is_repeated = np.diff(ticks[rows]) == 0
        for previous, row in zip(rows[:-1][is_repeated], rows[1:][is_repeated]):
            timestamp = table.columns[columns.time][row].strip() + (f" of series {name!r}" if name else "")
            problem = (
                f"the timestamp {timestamp} occurs twice, first in {format_location(*table.get_location(previous))}."
            )
            fix = "Remove one of the rows, or name the column that tells series apart with --forecast.series."
            table.add_error(row, problem, fix)
    return groups


def _find_steps(
    table: TextTable, groups: dict[str, np.ndarray], ticks: np.ndarray, grid: TimeGrid, policy: str
) -> np.ndarray:
    """Returns the step of the grid that each row belongs to."""
    positions = grid.find_positions(ticks)
    steps = np.round(positions).astype(np.int64)
    offsets = np.abs(positions - steps)
    step_name = f"(step: {grid.step_name})"
    if steps.max() > MAX_STEPS_PER_ROW * len(steps) + 1000:
        order = np.argsort(steps)
        row = int(order[1:][np.diff(steps[order]).argmax()])
        span = f"the timestamps span {steps.max() + 1:,} steps {step_name}, but there are {len(steps):,} rows"
        fix = "A timestamp may be mistyped where this gap ends; otherwise sum or average the rows over longer steps."
        table.add_error(row, f"{span}; the longest gap ends here.", fix)
        table.findings.raise_errors()
    for row in np.flatnonzero(offsets).tolist():
        if offsets[row] > MAX_OFFSET:
            table.add_error(row, f"the timestamp is {offsets[row]:.2f} steps off the grid {step_name}.", EVEN_STEPS)
        else:
            table.add_warning(row, f"timestamps a little off the grid {step_name}, moved to the nearest grid point")
    for rows in groups.values():
        for row, distance in zip(rows[1:], np.diff(steps[rows]).tolist()):
            if distance == 0 and offsets[row] <= MAX_OFFSET:
                table.add_error(row, f"two rows fall on the same step {step_name}.", EVEN_STEPS)
            elif distance > 1 and policy == "stop":
                problem = f"{pluralize(distance - 1, 'timestamps are missing')} before this row {step_name}."
                table.add_error(row, problem, f"Insert them, or {FILL_OPTION}")
            for _ in range(distance - 1):
                table.add_warning(row, f"missing timestamps {step_name}, inserted with missing values")
    return steps


def _check_missing(
    table: TextTable,
    groups: dict[str, np.ndarray],
    steps: np.ndarray,
    names: list[str],
    values: np.ndarray,
    policy: str,
) -> None:
    """Counts empty fields. Between the first and the last value of a series they are errors if the policy is stop.

    Others are before the first value or after the last one of their series, while another has a value.
    """
    if np.isnan(values).all():
        raise DataError("all values are missing.", fix="Give some numbers.", file=table.file)
    last_step = steps[~np.isnan(values).all(axis=1)].max()
    columns = [(rows, column) for rows in groups.values() for column in values[rows].T]
    for name, (rows, column) in zip(names, columns):
        present = np.flatnonzero(~np.isnan(column))
        if not len(present):
            fix = "Remove it, or choose others with --target."
            table.add_error(rows[0], f"series {name!r} has no value at all.", fix)
            continue
        inside = slice(present[0], present[-1] + 1)
        for row in rows[inside][np.isnan(column[inside])]:
            if policy == "stop":
                table.add_error(row, f"the value of {name!r} is missing.", f"Fill it in, or {FILL_OPTION}")
            else:
                table.add_warning(row, f"missing values, filled with {FILL_NAMES[policy]}; never a target")
        for row in np.concatenate([rows[: inside.start], rows[inside.stop :]]):
            if steps[row] <= last_step:
                warning = "values missing before the first or after the last one of their series, not used"
                table.add_warning(row, warning)


def _place_on_grid(
    groups: dict[str, np.ndarray], steps: np.ndarray, values: np.ndarray, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values (T, C), and the values known in advance (G, T, K).

    At inserted timestamps the latter are the value before. Before the first and after the last row of a group nothing
    is known.
    """
    num_steps, num_targets = int(steps.max()) + 1, values.shape[1]
    grid_values = np.full((num_steps, len(groups) * num_targets), np.nan)
    grid_known = np.full((len(groups), num_steps, known.shape[1]), np.nan)
    for index, rows in enumerate(groups.values()):
        grid_values[steps[rows], index * num_targets : (index + 1) * num_targets] = values[rows]
        grid_known[index, steps[rows]] = known[rows]
        between = slice(steps[rows].min(), steps[rows].max() + 1)
        grid_known[index, between] = fill_missing(grid_known[index, between], "previous")
    return grid_values, grid_known


def _find_split_ends(table: TextTable, steps: np.ndarray, end: int) -> tuple[int, int, int] | None:
    """Returns the end of each split if files are named for splits, which must follow each other in time; else None."""
    splits = table.splits
    if (splits == "train").all():
        return None
    ends = [0]
    for split in SPLITS:
        split_steps = steps[splits == split]
        if not len(split_steps):
            raise DataError(f"there is no file for the split {split!r}.", fix="Name files train, valid and test.")
        if split_steps.min() < ends[-1]:
            row = int(np.flatnonzero((splits == split) & (steps == split_steps.min()))[0])
            fix = "Splits of a forecast follow each other: train, then valid, then test."
            table.add_error(row, f"the {split} rows must be later than the rows of the split before.", fix)
            table.findings.raise_errors()
        ends.append(int(split_steps.max()) + 1)
    return ends[1], ends[2], min(ends[3], end)


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
