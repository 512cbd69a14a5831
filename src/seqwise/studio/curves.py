"""Learning curves: reads `metrics.jsonl` while another process appends to it, and returns few points for a chart.

A curve of 100,000 points is reduced to the extremes of a few hundred intervals of the x axis, so that every peak stays
visible; a part of the axis with few points is exact. This module knows nothing of servers and pages.
"""

from __future__ import annotations

import json
import os
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
MAX_ROWS = 2_000_000  # in memory, of all curves together
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
    """The rows of a `metrics.jsonl`, as columns of numbers; `update` reads what was appended."""

    def __init__(self, path: Path):
        self.path = path
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
        """Reads the lines that were appended; returns whether there were any.

        A resumed run replaces the file: then all of it is read again.
        """
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._file_id or status.st_size < self._offset:
                    self._clear()
                    self._file_id = status.st_dev, status.st_ino
                file.seek(self._offset)
                before = len(self)
                for line in self._read_lines(file):
                    self._add(line)
        except FileNotFoundError:
            before = -len(self)
            self._clear()
        return len(self) != before

    def _read_lines(self, file: Any) -> Iterator[bytes]:
        """Yields the complete lines from the present offset on; the last one may still be being written."""
        rest = b""
        while block := file.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._offset += len(line) + 1
                yield line
            if len(rest) > MAX_LINE_BYTES:
                self._offset += len(rest)
                rest = b""

    def _add(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            values = [_to_float(row.get(name)) for name in COLUMNS]
        except (ValueError, TypeError, AttributeError, RecursionError):
            return  # a line that was cut off by a kill
        for column, value in zip(self.columns.values(), values):
            column.append(value)
        if isinstance(validation := row.get("validation"), dict):
            self.validations.append((len(self) - 1, validation))
        notes = row.get("notes")
        self.notes += [(values[0], str(note)) for note in (notes if isinstance(notes, list) else ())]
        self.ended = str(row.get("ended") or "")

    def get_series(self, name: str, x: str = "step") -> tuple[np.ndarray, np.ndarray]:
        """Returns the values of x and y: a column, or `valid.METRIC`, which has a value at each validation."""
        if name.startswith("valid."):
            metric = name.removeprefix("valid.")
            rows = [
                (index, values[metric])
                for index, values in self.validations
                if isinstance(values.get(metric), (int, float))
            ]
            indices = np.array([index for index, _ in rows], dtype=np.intp)
            return np.array(self.columns[x])[indices], np.array([value for _, value in rows], dtype=np.float64)
        return np.array(self.columns[x]), np.array(self.columns[name])


def _to_float(value: Any) -> float:
    return float("nan") if value is None else float(value)


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
    """Returns the last row of a `metrics.jsonl` and its last row with a validation, without reading all of it."""
    last: dict[str, Any] = {}
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).split(b"\n")
    except OSError:
        return {}, {}
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            last = last or row
            if isinstance(row.get("validation"), dict):
                return last, row
    return last, {}


def reduce_points(
    x: np.ndarray, y: np.ndarray, num_points: int, start: float | None = None, stop: float | None = None
) -> Points:
    """Returns at most about `num_points` points between `start` and `stop`, and one beyond each end.

    If there are more, the x axis is divided into intervals, and the smallest and largest value of each are kept.
    """
    first = 0 if start is None else max(0, int(np.searchsorted(x, start, "left")) - 1)
    last = len(x) if stop is None else min(len(x), int(np.searchsorted(x, stop, "right")) + 1)
    x, y = x[first:last], y[first:last]
    if len(x) <= num_points:
        return Points(x.tolist(), y.tolist(), True)
    edges = np.linspace(x[0], x[-1], max(2, num_points // 2) + 1)
    starts = np.unique(np.searchsorted(x, edges[:-1], "left"))
    finite = np.where(np.isfinite(y), y, np.nan)
    chosen = {0, len(x) - 1}
    for begin, end in zip(starts, [*starts[1:], len(x)]):
        values = finite[begin:end]
        if not np.isnan(values).all():
            chosen |= {int(begin + np.nanargmin(values)), int(begin + np.nanargmax(values))}
    indices = sorted(chosen)
    return Points(x[indices].tolist(), y[indices].tolist(), False)
