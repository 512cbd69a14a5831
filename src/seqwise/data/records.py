"""Rows of data frames, arrays, lists and iterables as dictionaries of JSON values.

Neither pandas nor polars is imported: a frame is an object with columns that can be iterated. The module knows nothing
of files or tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from os import PathLike
from typing import Any

import numpy as np

from seqwise.data.examples import SPLIT_NAMES
from seqwise.data.python_messages import name_data
from seqwise.errors import DataError, suggest

Data = str | PathLike[str] | Iterable[Any]  # what `train`, `evaluate`, `check` and `compare` take; a str is a path
ACCEPTED = "a path, a DataFrame, an array, a list of rows or texts, or a dictionary of these by split"
MIDNIGHT = " 00:00:00"


def check_data(data: object) -> None:
    """Raises an error unless `data` is something that can be read."""
    if data is None or isinstance(data, bytes) or not isinstance(data, str | PathLike | Iterable):
        received = "None" if data is None else f"{type(data).__name__} {str(data)[:40]}"
        raise DataError(f"data: expected {ACCEPTED}; received {received}.")


def is_frame(data: object) -> bool:
    """Returns whether this is a DataFrame of pandas or polars, or similar: named columns that can be iterated."""
    return hasattr(data, "columns") and hasattr(data, "__getitem__") and not isinstance(data, Mapping)


def is_numeric(data: object) -> bool:
    """Returns whether this looks like time series: an array or Series of numbers, or a DataFrame with times."""
    if is_frame(data):
        return any(map(_has_times, _read_columns(data).values()))
    if isinstance(data, Mapping):
        return bool(data) and is_numeric(next(iter(data.values())))
    if isinstance(data, Sequence) and not isinstance(data, str):
        return len(data) > 0 and isinstance(data[0], int | float | np.number)
    dtype: Any = getattr(data, "dtype", None)
    if hasattr(dtype, "is_numeric"):  # of polars
        return bool(dtype.is_numeric())
    return getattr(dtype, "kind", "") in ("i", "u", "f")


def _has_times(column: Any) -> bool:
    """Returns whether a column or index has a type of dates or times, by its first value."""
    first = next(iter(column), None) if column is not None and not callable(column) else None
    return isinstance(first, date | np.datetime64) or hasattr(first, "to_timestamp")


def get_splits(data: Any) -> dict[str, Any] | None:
    """Returns the parts of a dictionary of splits as train, valid and test; None for other data."""
    check_data(data)
    if not isinstance(data, Mapping):
        return None
    unknown = [name for name in data if str(name).lower() not in SPLIT_NAMES]
    if unknown or not data:
        received = f"{unknown[0]!r}" if unknown else "an empty dictionary"
        hint = f" {suggest(str(unknown[0]), SPLIT_NAMES)}" if unknown else ""
        fix = f'The keys of a dictionary are the splits: {{"train": …, "valid": …, "test": …}}.{hint}'
        raise DataError(f"data: expected train, valid or test; received {received}.", fix=fix)
    for part in data.values():
        check_data(part)
        if isinstance(part, str | PathLike):
            fix = "Put files called train.*, valid.* and test.* into one folder, and pass that."
            raise DataError(f"data: expected rows for each split; received the path {str(part)!r}.", fix=fix)
    return {SPLIT_NAMES[str(name).lower()]: part for name, part in data.items()}


# Rows


def iterate_records(data: Any, columns: Sequence[str], is_series: bool) -> Iterator[dict[str, Any]]:
    """Yields each row as a dictionary; raises if there is none."""
    if is_frame(data):
        table = _read_columns(data)
        table = {name: _format_times(column) if _has_times(column) else column for name, column in table.items()}
        records: Iterator[dict[str, Any]] = (dict(zip(table, values)) for values in zip(*table.values()))
    elif is_series:
        records = _iterate_steps(data)
    else:
        records = (_to_record(row, columns, f"row {index:,} of {name_data(data)}") for index, row in enumerate(data))
    first = next(records, None)
    if first is None:
        raise DataError(f"data: expected {ACCEPTED}; received an empty {type(data).__name__}.")
    yield first
    yield from records


def _read_columns(frame: Any) -> dict[str, Any]:
    """Returns the columns of a DataFrame by name. An index that has a name or times is a column too."""
    names = list(frame.columns)
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise DataError(f"data: two columns are called {duplicates[0]!r}.", fix="Rename one.")
    table = {str(name): frame[name] for name in names}
    index = getattr(frame, "index", None)
    index_name = getattr(index, "name", None) or ("time" if _has_times(index) else None)
    return table if index_name is None else {str(index_name): index, **table}


def _to_record(row: Any, columns: Sequence[str], location: str) -> dict[str, Any]:
    """Returns a row as a dictionary."""
    is_text = tuple(columns) == ("text",)
    if isinstance(row, str):
        row = {"text": row}
    elif is_text and isinstance(row, Sequence) and all(isinstance(word, str) for word in row):
        row = {"text": " ".join(row)}
    elif isinstance(row, tuple | list) and columns and len(row) == len(columns) and not is_text:
        row = dict(zip(columns, row))
    if not isinstance(row, Mapping):
        expected = "dictionaries or a DataFrame, or tuples together with task=…"
        if columns:
            expected = "texts" if is_text else f"tuples ({', '.join(columns)}), dictionaries or a DataFrame"
        received = f"{type(row).__name__} {str(row)[:60]}"
        raise DataError(f"expected {expected}; received {received}.", file=location)
    return {str(key): value for key, value in row.items()}


def _iterate_steps(data: Any) -> Iterator[dict[str, Any]]:
    """Yields the time and the values of each step of an array or Series; without times, steps count from 0."""
    index: Any = getattr(data, "index", None)
    if not hasattr(data, "__array__"):
        data = list(data)
        if data and isinstance(data[0], Mapping):
            yield from map(dict, data)
            return
    try:
        values = np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"data: expected an array of numbers, in rows of time: {error}.") from None
    if values.ndim not in (1, 2) or not values.size:
        problem = f"data: expected an array (time,) or (time, series); received shape {values.shape}."
        raise DataError(problem, fix="One column is one series.")
    name = str(getattr(data, "name", None) or "value")
    names = [name] if values.ndim == 1 else [f"{name}{number}" for number in range(1, values.shape[1] + 1)]
    times = _format_times(index) if _has_times(index) else range(len(values))
    for time, row in zip(times, values.reshape(len(values), -1).tolist()):
        yield {"time": time, **dict(zip(names, row))}


# Values


def _format_times(times: Iterable[Any]) -> list[str]:
    """Returns times as ISO texts, dates alone if all are at midnight; a missing one is empty."""
    texts = []
    for time in times:
        if isinstance(time, np.datetime64):
            time = time.astype("datetime64[us]").item()
        is_datetime = isinstance(time, datetime) and not _is_missing(time)
        texts.append(time.isoformat(sep=" ") if is_datetime else to_json(time))
    is_daily = all(text.endswith(MIDNIGHT) for text in texts if text)
    return [text.removesuffix(MIDNIGHT) for text in texts] if is_daily else texts


def to_json(value: Any) -> Any:
    """Returns a value as JSON holds it; a missing one is an empty text."""
    if _is_missing(value):
        return ""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, str | bool | int | float):
        return value
    return [to_json(each) for each in value] if isinstance(value, Iterable) else str(value)


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")
