"""Finds the columns of a table that hold the time: one, several (year, month, day, hour; date and time), or none.

Several columns are joined into one column of timestamps, called by their names separated by commas. Plain numbers are
read as time only in a column with a name such as "time", or, with a warning, in a first column that counts. The module
knows nothing of grids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from seqwise.tasks.forecast.timestamps import MONTH_NAMES, detect_style

TIME_NAMES = (
    *("date", "time", "timestamp", "datetime", "date_time", "stamp", "ds", "dt", "ts", "t", "epoch", "period"),
    *("year", "month", "week", "day", "hour", "step", "index"),
)
UNITS = {  # unit → names of a column that holds it
    "year": ("year", "yr", "yyyy"),
    "month": ("month", "mo", "mnth", "mm", "quarter", "qtr"),
    "day": ("day", "dd", "dom", "day_of_month", "mday"),
    "hour": ("hour", "hr", "hh", "hour_of_day"),
    "minute": ("minute", "min", "mins"),
    "second": ("second", "sec", "secs"),
}
QUARTER_NAMES = ("quarter", "qtr")
CLOCK_NAMES = ("time", *UNITS["hour"], "time_of_day", "clock")  # names of a column of times beside one of dates
NUMBER_STYLES = ("integer", "decimal", "year", "unix", "unix-ms")  # styles of timestamps that may be other numbers
COUNTER_WARNING = "column of numbers that count, {!r}, which is read as time (or set --forecast.time or --target)"
SAMPLE_SIZE = 20  # timestamps that are read to recognise a column


def find_time_columns(
    columns: Mapping[str, Sequence[str]], series: str | None, date_order: str = "auto"
) -> tuple[list[str], str]:
    """Returns the names of the columns that hold the time, in order, or none; and a warning or ""."""
    styles = {name: _detect_column_style(texts, date_order) for name, texts in columns.items()}
    by_lower_name = {name.strip().lower(): name for name in columns}
    dates = [name for name, style in styles.items() if style is not None and style not in NUMBER_STYLES]
    dates.sort(key=lambda name: name.lower() not in TIME_NAMES)
    if dates:
        clocks = [by_lower_name[name] for name in CLOCK_NAMES if name in by_lower_name]
        clocks = [name for name in clocks if name != dates[0]]
        is_repeated = clocks and _has_repeated_rows(columns, [dates[0], *([series] if series else [])])
        return ([dates[0], clocks[0]] if is_repeated else [dates[0]]), ""
    # Columns of year, month, day, …, up to the first unit without a column.
    found = [next((by_lower_name[name] for name in names if name in by_lower_name), None) for names in UNITS.values()]
    found = found[: found.index(None)] if None in found else found
    if len(found) > 1:
        return [name for name in found if name], ""
    numbers = [name for name, style in styles.items() if style and name.strip().lower() in TIME_NAMES]
    numbers = [name for name in numbers if not _is_cyclic(columns[name])]
    if numbers:
        return numbers[:1], ""
    first_name = next(iter(columns))
    if styles[first_name] and _is_counter(columns[first_name]):
        return [first_name], COUNTER_WARNING.format(first_name)
    return [], "table without a column of timestamps, whose rows are read as equal steps (--forecast.time names one)"


def _detect_column_style(texts: Sequence[str], date_order: str) -> str | None:
    """Returns the style of the first timestamps of a column, or None if it has none.

    If they do not match `date_order`, any other order is accepted.
    """
    sample = list(islice((text for text in texts if text.strip()), SAMPLE_SIZE))
    return detect_style(sample, date_order) or detect_style(sample)


def _has_repeated_rows(columns: Mapping[str, Sequence[str]], names: Sequence[str]) -> bool:
    hashes = np.fromiter(map(hash, zip(*(columns[name] for name in names))), np.int64)
    return len(np.unique(hashes)) < len(hashes)


def _parse_integers(texts: Sequence[str]) -> np.ndarray | None:
    try:
        return np.array([int(text) for text in texts])
    except (ValueError, OverflowError):
        return None


def _is_cyclic(texts: Sequence[str]) -> bool:
    """Returns whether small numbers repeat in cycles, as hours and months do."""
    numbers = _parse_integers(texts)
    if numbers is None or not len(numbers) or numbers.max() > 366:
        return False
    return (np.diff(numbers) < 0).sum() > 1 and 2 * len(np.unique(numbers)) < len(numbers)


def _is_counter(texts: Sequence[str]) -> bool:
    """Returns whether whole numbers increase in every row, mostly by the same step."""
    numbers = _parse_integers(texts)
    if numbers is None or len(numbers) < 3 or (np.diff(numbers) <= 0).any():
        return False
    _, counts = np.unique(np.diff(numbers), return_counts=True)
    return bool(2 * counts.max() > counts.sum())


# Several columns → one timestamp → several columns


def join_timestamps(
    columns: Mapping[str, Sequence[str]], names: Sequence[str], date_order: str = "auto"
) -> Iterator[str]:
    """Yields the timestamp of each row, as text: `2020-01-31 18:00`, or date and time as they are written."""
    rows = zip(*(columns[name] for name in names))
    if not _is_date(columns[names[0]], names[0], date_order):
        return (_join_numbers(fields, names) for fields in rows)
    return (f"{date.strip()} {_format_clock(clock.strip())}" for date, clock, *_ in rows)


def _is_date(texts: Sequence[str], name: str, date_order: str) -> bool:
    """Returns whether a column holds whole dates, rather than years."""
    style = _detect_column_style(texts, date_order)
    return name.strip().lower() not in UNITS["year"] and style not in (None, *NUMBER_STYLES)


def _join_numbers(fields: Sequence[str], names: Sequence[str]) -> str:
    """Returns the timestamp with this year, month and, if there are more fields, day, hour, minute and second."""
    try:
        year, month, *others = (_parse_unit(field, name) for field, name in zip(fields, names))
    except (ValueError, OverflowError):
        return " ".join(fields)  # reported as an unreadable timestamp
    date = "-".join(f"{number:02}" for number in (year, month, *others[:1]))
    clock = ":".join(f"{number:02}" for number in [*others[1:], *([0] if len(others) == 2 else [])])
    return f"{date} {clock}".strip()


def _parse_unit(text: str, name: str) -> int:
    """Returns the number in a field of the column `name`; a month may be a name, a quarter is its first month."""
    word = text.strip()
    if word[:3].lower() in MONTH_NAMES:
        return MONTH_NAMES.index(word[:3].lower()) + 1
    number = float(word.lstrip("Qq"))
    if number != int(number):
        raise ValueError(f"{text!r} is not a whole number")
    return 3 * int(number) - 2 if name.strip().lower() in QUARTER_NAMES else int(number)


def _format_clock(text: str) -> str:
    """Returns the time of day as hours and minutes; a whole number is an hour."""
    return f"{int(text):02}:00" if re.fullmatch(r"\d{1,2}", text) else text


def split_timestamp(timestamp: str, names: Sequence[str]) -> list[str]:
    """Returns the fields of the columns from which `join_timestamps` builds a timestamp."""
    if len(names) < 2:
        return [timestamp]
    if names[1].strip().lower() in CLOCK_NAMES and names[0].strip().lower() not in UNITS["year"]:
        date, _, clock = timestamp.partition(" ")
        return [date, str(int(clock[:2])) if names[1].strip().lower() in UNITS["hour"] else clock]
    numbers = [int(number) for number in re.findall(r"\d+", timestamp)]
    if names[1].strip().lower() in QUARTER_NAMES:
        numbers[1] = (numbers[1] + 2) // 3
    return [str(number) for number in numbers[: len(names)]]
