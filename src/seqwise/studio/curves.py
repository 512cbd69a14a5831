"""Learning curves: reads `metrics.jsonl` while another process appends to it, and returns few points for a chart.

A curve of 100,000 points is reduced to the extremes of a few hundred intervals of the x axis, so that every peak stays
visible; a part of the axis with few points is exact. This module knows nothing of servers and pages.
"""

from __future__ import annotations

import json
import math
import os
import threading
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

X_AXES = ("step", "tokens", "seconds")
# Column → type of its numbers: 40 bytes per row.
COLUMNS = dict.fromkeys(X_AXES, "d") | dict.fromkeys(
    ("loss", "gradient_norm", "learning_rate", "tokens_per_second"), "f"
)
MAX_FLOAT32 = 3.4e38
MAX_ROWS = 2_000_000  # in memory, of all curves together
MAX_METRICS = 100  # of a validation
MAX_NOTES, MAX_NOTE = 1_000, 2_000  # messages of a run; characters of one
TAIL_BYTES = 1 << 16  # of a file, in which its last rows are
BLOCK_BYTES = 1 << 20  # of the file that are read at once
MAX_LINE_BYTES = 1 << 20  # of a line; a longer one is not a row of metrics


@dataclass(frozen=True)
class Points:
    """Points of a curve. `is_exact`: they are all points of the range, not the extremes of intervals."""

    x: list[float]
    y: list[float]
    is_exact: bool


class CurveFile:
    """The rows of a `metrics.jsonl`, as columns of numbers; `update` reads what was appended. Threads may share it."""

    def __init__(self, path: Path):
        self.path = path
        self.mutex = threading.RLock()  # of those who read or change the rows
        self._clear()

    def _clear(self) -> None:
        self.columns: dict[str, array[float]] = {name: array(kind) for name, kind in COLUMNS.items()}
        self.validations: list[tuple[int, dict[str, float]]] = []  # index of the row, metrics
        self.notes: list[tuple[float, str]] = []  # step, message
        self.ended = ""  # why training has ended
        self._offset, self._file_id = 0, (0, 0)

    def __len__(self) -> int:
        return len(self.columns["step"])

    def update(self) -> bool:
        """Reads the lines that were appended; returns whether the curve has changed.

        A resumed run replaces the file: then all of it is read again.
        """
        with self.mutex:
            return self._update()

    def _update(self) -> bool:
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                is_replaced = (status.st_dev, status.st_ino) != self._file_id or status.st_size < self._offset
                if is_replaced:
                    self._clear()
                    self._file_id = status.st_dev, status.st_ino
                file.seek(self._offset)
                before = len(self)
                for lines in self._read_lines(file):
                    self._add(lines)
        except OSError:
            is_replaced, before = len(self) > 0, 0
            self._clear()
        return is_replaced or len(self) != before

    def _read_lines(self, file: Any) -> Iterator[list[bytes]]:
        """Yields the complete lines from the present offset on; the last one may still be being written."""
        rest = b""
        while block := file.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            self._offset += sum(map(len, lines)) + len(lines)
            yield lines
            if len(rest) > MAX_LINE_BYTES:
                self._offset += len(rest)
                rest = b""

    def _add(self, lines: list[bytes]) -> None:
        # Without a step it is not a row of metrics.
        rows = [row for row in _parse_lines(lines) if not math.isnan(to_float(row.get("step")))]
        first = len(self)
        for name, column in self.columns.items():
            column.extend(_to_floats([row.get(name) for row in rows]))
        for index, row in enumerate(rows, start=first):
            if row.get("validation") or row.get("notes"):
                self._add_details(index, row)
        if rows:
            ended = rows[-1].get("ended")
            self.ended = ended[:MAX_NOTE] if isinstance(ended, str) else ""

    def _add_details(self, index: int, row: dict[str, Any]) -> None:
        if isinstance(validation := row.get("validation"), dict):
            metrics = list(validation.items())[:MAX_METRICS]
            self.validations.append((index, {name: to_float(value) for name, value in metrics}))
        notes = row.get("notes")
        for note in notes if isinstance(notes, list) and len(self.notes) < MAX_NOTES else ():
            self.notes.append((self.columns["step"][index], str(note)[:MAX_NOTE]))

    def get_series(self, name: str, x: str = "step") -> tuple[np.ndarray, np.ndarray]:
        """Returns the values of x, ascending, and y: a column, or `valid.METRIC`, with a value at each validation."""
        with self.mutex:  # rows cannot be added to a column that is being copied
            xs = np.array(self.columns[x])
            ys = np.array(self.columns.get(name, ()), dtype=np.float64)
            if name.startswith("valid."):
                metric = name.removeprefix("valid.")
                rows = [(index, values[metric]) for index, values in self.validations if metric in values]
                xs = xs[np.array([index for index, _ in rows], dtype=np.intp)]
                ys = np.array([value for _, value in rows], dtype=np.float64)
        is_usable = np.isfinite(xs)
        if not is_usable.all():
            xs, ys = xs[is_usable], ys[is_usable]
        if (xs[1:] < xs[:-1]).any():  # a clock or a counter went back
            order = np.argsort(xs, kind="stable")
            xs, ys = xs[order], ys[order]
        return xs, ys


def _parse_lines(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yields the lines that are JSON objects. All lines at once are parsed faster than one by one."""
    try:
        rows = json.loads(b"[" + b",".join(filter(None, lines)) + b"]")
        if len(rows) != sum(map(bool, lines)):
            raise ValueError
    except (ValueError, RecursionError):
        rows = map(_parse_line, lines)
    yield from (row for row in rows if isinstance(row, dict))


def _parse_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None  # a line that was cut off by a kill


def to_float(value: Any) -> float:
    """Returns a number that float32 can hold; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -MAX_FLOAT32 < value < MAX_FLOAT32:
        return math.nan
    return float(value)


def _to_floats(values: list[Any]) -> list[float]:
    """Returns `to_float` of each value; lists of floats, which are the rule, are converted at once."""
    if set(map(type, values)) != {float}:
        return [to_float(value) for value in values]
    numbers = np.array(values)
    numbers[~(np.abs(numbers) < MAX_FLOAT32)] = np.nan
    return numbers.tolist()


class CurveCache:
    """The curves that were asked for, up to `max_rows` rows in memory. Only one thread may use it at a time."""

    def __init__(self, max_rows: int = MAX_ROWS):
        self.max_rows = max_rows
        self._curves: dict[Path, CurveFile] = {}  # the one that was used last is the last

    def get(self, path: Path) -> CurveFile:
        """Returns the curve in a file as far as it is written."""
        curve = self._curves.pop(path) if path in self._curves else CurveFile(path)
        self._curves[path] = curve
        curve.update()
        while len(self._curves) > 1 and sum(map(len, self._curves.values())) > self.max_rows:
            del self._curves[next(iter(self._curves))]
        return curve


def read_last_rows(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the last row of a `metrics.jsonl` and its last row with the best validation, without reading all of it.

    If no best one is near the end, it is the last row with a validation there.
    """
    last: dict[str, Any] = {}
    validated: dict[str, Any] = {}
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).split(b"\n")
    except OSError:
        return {}, {}
    for line in reversed(lines):
        row = _parse_line(line)
        if not isinstance(row, dict):
            continue
        last = last or row
        if isinstance(row.get("validation"), dict):
            validated = validated or row
            if row.get("best") is True:
                return last, row
    return last, validated


def cut_range(x: np.ndarray, start: float | None, stop: float | None) -> slice:
    """Returns the points between `start` and `stop`, and one beyond each end."""
    first = 0 if start is None else max(0, int(np.searchsorted(x, start, "left")) - 1)
    last = len(x) if stop is None else min(len(x), int(np.searchsorted(x, stop, "right")) + 1)
    return slice(first, max(first, last))


def choose_indices(x: np.ndarray, y: np.ndarray, num_points: int) -> np.ndarray:
    """Returns the indices of at most about `num_points` points, ascending; of all points if there are fewer.

    The x axis is divided into intervals, and the smallest and the largest value of each are chosen.
    """
    if len(x) <= num_points:
        return np.arange(len(x))
    edges = np.linspace(x[0], x[-1], max(2, num_points // 2) + 1)
    starts = np.unique(np.searchsorted(x, edges[:-1], "left"))
    starts = starts[starts < len(x)]
    values = np.where(np.isfinite(y), y, np.nan)
    interval = np.searchsorted(starts, np.arange(len(x)), "right") - 1  # of each point
    chosen = [np.array([0, len(x) - 1])]
    for extremes in (np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)):
        (positions,) = np.nonzero(values == extremes[interval])
        _, firsts = np.unique(interval[positions], return_index=True)
        chosen.append(positions[firsts])
    return np.unique(np.concatenate(chosen))


def reduce_points(
    x: np.ndarray, y: np.ndarray, num_points: int, start: float | None = None, stop: float | None = None
) -> Points:
    """Returns at most about `num_points` points between `start` and `stop`, and one beyond each end.

    If there are more, the x axis is divided into intervals, and the smallest and largest value of each are kept.
    """
    inside = cut_range(x, start, stop)
    x, y = x[inside], y[inside]
    indices = choose_indices(x, y, num_points)
    return Points(x[indices].tolist(), y[indices].tolist(), len(indices) == len(x))
