"""Finds the columns of a table that hold the time: one, several (year, month, day, hour; date and time), or none.

Several columns become one column of timestamps whose name is theirs, separated by commas. A plain number is time only
in a column that is called so, or in a first column that counts, with a warning. The module knows nothing of grids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from seqwise.tasks.forecast.timestamps import MONTH_NAMES, detect_style

TIME_NAMES = (
    *("date", "time", "timestamp", "datetime", "date_time", "stamp", "ds", "dt", "ts", "t", "epoch", "period"),
    *("year", "month", "week", "day", "hour", "step", "index"),
)
UNITS = {
    "year": ("year", "yr", "yyyy"),
    "month": ("month", "mo", "mnth", "mm", "quarter", "qtr"),
    "day": ("day", "dd", "dom", "day_of_month", "mday"),
    "hour": ("hour", "hr", "hh", "hour_of_day"),
    "minute": ("minute", "min", "mins"),
    "second": ("second", "sec", "secs"),
}
QUARTERS = ("quarter", "qtr")
CLOCKS = ("time", *UNITS["hour"], "time_of_day", "clock")  # beside a column of dates
PLAIN_NUMBERS = ("integer", "decimal", "year", "unix", "unix-ms")  # styles that other numbers have, too
COUNTER_WARNING = "column of numbers that count, {!r}, which is read as time (--forecast.time or --target decide)"
SAMPLE = 20  # timestamps that are read to recognise a column


def find_time_columns(columns: Mapping[str, Sequence[str]], series: str | None) -> tuple[list[str], str]:
    """Returns the names of the columns that hold the time, in order, and a warning or "". No names: there is none."""
    styles = {name: detect_style([text for text in texts if text.strip()][:SAMPLE]) for name, texts in columns.items()}
    by_name = {name.strip().lower(): name for name in columns}
    dated = [name for name, style in styles.items() if style is not None and style not in PLAIN_NUMBERS]
    dated.sort(key=lambda name: name.lower() not in TIME_NAMES)
    if dated:
        clocks = [by_name[clock] for clock in CLOCKS if clock in by_name and by_name[clock] != dated[0]]
        is_repeated = _has_repeated_rows(columns, [dated[0], *([series] if series else [])])
        return ([dated[0], clocks[0]] if clocks and is_repeated else [dated[0]]), ""
    parts = [next((by_name[name] for name in names if name in by_name), None) for names in UNITS.values()]
    found = parts[: parts.index(None)] if None in parts else parts
    if len(found) > 1:
        return [name for name in found if name], ""
    named = [name for name, style in styles.items() if style and name.strip().lower() in TIME_NAMES]
    named = [name for name in named if not _is_cyclic(columns[name])]
    if named:
        return named[:1], ""
    first = next(iter(columns))
    if styles[first] and _is_counter(columns[first]):
        return [first], COUNTER_WARNING.format(first)
    return [], "table without a column of timestamps, whose rows are read as equal steps (--forecast.time names one)"


def _has_repeated_rows(columns: Mapping[str, Sequence[str]], names: Sequence[str]) -> bool:
    rows = list(zip(*(columns[name] for name in names)))
    return len(set(rows)) < len(rows)


def _parse_integers(texts: Sequence[str]) -> np.ndarray | None:
    try:
        return np.array([int(text) for text in texts])
    except (ValueError, OverflowError):
        return None


def _is_cyclic(texts: Sequence[str]) -> bool:
    """Returns whether small numbers start again and again, as those of hours and months do."""
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


def join_timestamps(columns: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[str]:
    """Returns the timestamp of each row, as text: `2020-01-31 18:00`, or date and time as they are written."""
    rows = zip(*(columns[name] for name in names))
    if not _is_date(columns[names[0]], names[0]):
        return [_join_numbers(fields, names) for fields in rows]
    return [f"{date.strip()} {_format_clock(clock.strip())}" for date, clock, *_ in rows]


def _is_date(texts: Sequence[str], name: str) -> bool:
    """Returns whether a column holds whole dates, rather than years."""
    style = detect_style([text for text in texts if text.strip()][:SAMPLE])
    return name.strip().lower() not in UNITS["year"] and style not in (None, *PLAIN_NUMBERS)


def _join_numbers(fields: Sequence[str], names: Sequence[str]) -> str:
    try:
        year, month, *others = (_parse_part(field, name) for field, name in zip(fields, names))
    except ValueError:
        return " ".join(fields)  # reported as an unreadable timestamp
    date = "-".join(f"{part:02}" for part in (year, month, *others[:1]))
    clock = ":".join(f"{part:02}" for part in [*others[1:], *([0] if len(others) == 2 else [])])
    return f"{date} {clock}".strip()


def _parse_part(text: str, name: str) -> int:
    word = text.strip()
    if word[:3].lower() in MONTH_NAMES:
        return MONTH_NAMES.index(word[:3].lower()) + 1
    number = float(word.lstrip("Qq"))
    if number != int(number):
        raise ValueError(f"{text!r} is not a whole number")
    return 3 * int(number) - 2 if name.strip().lower() in QUARTERS else int(number)


def _format_clock(text: str) -> str:
    """Returns the time of day; a whole number is an hour."""
    return f"{int(text):02}:00" if re.fullmatch(r"\d{1,2}", text) else text


def split_timestamp(label: str, names: Sequence[str]) -> list[str]:
    """Returns a timestamp of `join_timestamps` as the fields of its columns."""
    if len(names) < 2:
        return [label]
    if names[1].strip().lower() in CLOCKS and names[0].strip().lower() not in UNITS["year"]:
        date, _, clock = label.partition(" ")
        return [date, str(int(clock[:2])) if names[1].strip().lower() in UNITS["hour"] else clock]
    numbers = [int(number) for number in re.findall(r"\d+", label)]
    if names[1].strip().lower() in QUARTERS:
        numbers[1] = (numbers[1] + 2) // 3
    return [str(number) for number in numbers[: len(names)]]
