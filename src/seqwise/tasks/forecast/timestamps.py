"""Timestamps: text → time → positions on an even grid, and back. The module knows nothing of values or files.

Accepts ISO dates and times, local formats (31.12.2020 14:00, 12/31/2020 2:00 PM, 31 Dec 2020), months (2020-01),
years, compact dates (20200131), Unix seconds and milliseconds, and plain numbers. A `TimeGrid` is the even spacing
found in a table. It formats any step of the grid as the file writes timestamps, so that a forecast continues where the
history ends.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

SECOND = 1_000_000  # times are integers in microseconds, plain numbers with a fraction integers in millionths
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
EPOCH = datetime(1970, 1, 1)
ROUND_STEPS = [SECOND * n for n in (1, 2, 5, 10, 15, 20, 30)] + [MINUTE * n for n in (1, 2, 5, 10, 15, 20, 30)]
ROUND_STEPS += [HOUR * n for n in (1, 2, 3, 4, 6, 8, 12)] + [DAY, 7 * DAY]

UNIX_UNITS = {"unix": SECOND, "unix-ms": SECOND // 1000}  # by style
PATTERNS = {"month": "%Y-%m", "compact": "%Y%m%d"}  # by style
MAX_OFFSET = 0.25  # how far a timestamp may be off the grid, in steps
FORMATS = (
    "2020-01-31, 2020-01-31 18:00, 31.01.2020, 01/31/2020 6:00 PM, 2020-01, a year, Unix seconds or a whole number"
)
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
LOCAL_DATE = re.compile(r"(\d{1,4})([/.\-])\d{1,2}\2(\d{1,4})(?!\d)")  # 31/12/2020, 12-31-20, 2020/12/31
NAMED_DATES = ("%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %Y", "%B %Y", "%b-%y")
CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%I %p", "%H.%M.%S", "%H.%M")


@dataclass(frozen=True)
class TimeGrid:
    """Evenly spaced timestamps, numbered from 0. `first` is the value of the first one; it and `step` are in `unit`.

    Months count from the year 0, business days from 1970; moments are microseconds since 1970.
    """

    unit: str  # moment, month, business day or number
    step: int
    first: int
    style: str  # how timestamps are written; see `detect_style`
    day: int = 1  # of the month, if the unit is month; 31 is the last day

    def label(self, index: int) -> str:
        """Returns a timestamp, written as in the file."""
        value = self.first + index * self.step
        if self.unit != "number":
            return _format_datetime(self.datetimes(np.array([index]))[0].item(), self.style)
        if self.style != "decimal":
            return str(value)
        text = f"{value / SECOND:.6f}".rstrip("0")
        return f"{text}0" if text.endswith(".") else text

    def datetimes(self, indices: np.ndarray) -> np.ndarray:
        """Returns timestamps as datetime64 in microseconds; meaningless if the unit is number."""
        values = self.first + np.asarray(indices, dtype=np.int64) * self.step
        if self.unit == "month":
            last_days = [calendar.monthrange(int(value) // 12, int(value) % 12 + 1)[1] for value in values]
            first_days = (values - 1970 * 12).astype("datetime64[M]").astype("datetime64[D]")
            return (first_days + (np.minimum(self.day, last_days) - 1)).astype("datetime64[us]")
        if self.unit == "business day":
            return np.busday_offset(np.datetime64(0, "D"), values).astype("datetime64[us]")
        return values.astype("datetime64[us]")

    def positions(self, ticks: np.ndarray) -> np.ndarray:
        """Returns where timestamps are on the grid; a fraction is off the grid."""
        return (self._count_units(ticks) - self.first) / self.step

    def _count_units(self, ticks: np.ndarray) -> np.ndarray:
        if self.unit == "month":
            return _count_months(ticks)
        return _count_business_days(ticks) if self.unit == "business day" else ticks

    def align(self, ticks: np.ndarray) -> TimeGrid:
        """Returns this grid starting at the earliest of other timestamps, or a shifted one if they are not on it."""
        earliest = int(self._count_units(ticks).min())
        index = round((earliest - self.first) / self.step)
        aligned = replace(self, first=self.first + index * self.step)
        offsets = np.abs(aligned.positions(ticks) - np.round(aligned.positions(ticks)))
        return aligned if offsets.max() <= MAX_OFFSET else replace(self, first=earliest)

    @property
    def step_name(self) -> str:
        """One step in words."""
        if self.unit == "month":
            return {1: "month", 3: "quarter", 12: "year"}.get(self.step, f"{self.step} months")
        if self.unit == "business day":
            return "business day" if self.step == 1 else f"{self.step} business days"
        if self.unit == "number":
            if self.style == "row":
                return "row"
            size = self.step / SECOND if self.style == "decimal" else self.step
            return "year" if self.style == "year" and size == 1 else f"step of {size:g}"
        for size, name in ((7 * DAY, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second")):
            if self.step % size == 0:
                return name if self.step == size else f"{self.step // size} {name}s"
        return f"{self.step / SECOND:g} seconds"

    @property
    def season(self) -> int | None:
        """Steps of the next longer calendar cycle (a day, a week or a year); None if there is none."""
        cycles = {"month": (12,), "business day": (5,), "moment": (DAY, 7 * DAY, 364 * DAY)}.get(self.unit, ())
        cycle = next((cycle for cycle in cycles if self.step < cycle), None)
        return cycle // self.step if cycle is not None and cycle % self.step == 0 else None

    def calendar_phases(self, indices: np.ndarray) -> dict[str, tuple[np.ndarray, float]]:
        """Returns for each calendar cycle the phase of each step, from 0 to 1, and the length of the cycle in steps."""
        if self.unit == "number":
            return {}
        moments = self.datetimes(indices)
        days = moments.astype("datetime64[D]")
        phases = {}
        if self.unit == "moment" and self.step < DAY:
            phases["time of day"] = ((moments - days).astype(np.int64) / DAY, DAY / self.step)
        if self.unit == "business day" or (self.unit == "moment" and self.step <= DAY):
            length = 5.0 if self.unit == "business day" else 7 * DAY / self.step
            phases["day of week"] = ((days.astype(np.int64) + 3) % 7 / 7, length)  # 1970 began on a Thursday
        if self.unit != "month" or self.step < 12:
            year = moments.astype("datetime64[Y]")
            phase = (days - year.astype("datetime64[D]")).astype(np.int64) / 366
            units_per_year = {"moment": 365.25 * DAY, "month": 12, "business day": 261}[self.unit]
            phases["time of year"] = (phase, units_per_year / self.step)
        return phases


def detect_style(texts: Sequence[str]) -> str | None:
    """Returns how these timestamps are written, or None if they are not timestamps.

    A style is "month", "year", "integer", "decimal", "unix", "unix-ms", "compact", for ISO formats the precision
    ("date", "minutes", "seconds" or "fractions"), the separator, and "+" if there is a time zone, or for local formats
    the pattern of `strptime`. The first timestamp decides, except that the styles of integers and of local formats
    depend on all of them.
    """
    first = texts[0].strip() if texts else ""
    if re.fullmatch(r"\d{4}-\d{2}", first):
        return "month"
    if re.fullmatch(r"[+-]?\d+", first):
        return _detect_integer_style([int(text) for text in texts if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text)])
    if re.fullmatch(r"[+-]?\d+\.\d*", first):
        return "decimal"
    try:
        moment = datetime.fromisoformat(first)
    except ValueError:
        return next(iter(find_local_styles(texts)), None)
    if len(first) <= 10:
        return "date"
    precision = "seconds" if re.match(r".{11}\d\d:\d\d:\d\d", first) else "minutes"
    precision = "fractions" if "." in first else precision
    return f"{precision}{first[10]}{'+' if moment.tzinfo else ''}"


def find_local_styles(texts: Sequence[str]) -> list[str]:
    """Returns the patterns of `strptime` that fit most of these timestamps; several where day and month are ambiguous.

    The day is first with dots, as in 31.12.2020. Otherwise all timestamps decide; where both orders fit all of them,
    the one that leaves fewer gaps between them.
    """
    first = texts[0].strip() if texts else ""
    dates: tuple[str, ...] = NAMED_DATES
    if match := LOCAL_DATE.match(first):
        start, mark, end = match.groups()
        year = "Y" if len(end) == 4 else "y"
        orders = ["Ymd"] if len(start) == 4 else [f"dm{year}"] if mark == "." else [f"dm{year}", f"md{year}"]
        dates = tuple(mark.join(f"%{part}" for part in order) for order in orders)
    patterns = [*dates, *(f"{date}{space}{clock}" for date in dates for space in " T" for clock in CLOCKS)]
    ticks = {pattern: _parse_all(texts, pattern) for pattern in patterns if _parse_all([first], pattern)}
    best = max(map(len, ticks.values()), default=0)
    ticks = {pattern: values for pattern, values in ticks.items() if len(values) == best}
    densities = {pattern: _compute_density(np.unique(values)) for pattern, values in ticks.items()}
    return [pattern for pattern, density in densities.items() if density == max(densities.values())]


def _compute_density(ticks: np.ndarray) -> float:
    """Returns the share of the steps of their grid that sorted, distinct timestamps fill."""
    return len(ticks) / (1 + round(float(infer_grid(ticks, "date").positions(ticks)[-1])))


def _parse_all(texts: Sequence[str], pattern: str) -> list[int]:
    """Returns the timestamps that a pattern of `strptime` fits."""
    ticks = []
    for text in texts:
        with suppress(ValueError):
            ticks.append(_count_microseconds(datetime.strptime(text.strip(), pattern)))
    return ticks


def _detect_integer_style(numbers: list[int]) -> str:
    if not numbers:
        return "integer"
    low, high = min(numbers), max(numbers)
    if low >= 1500 and high <= 2200:
        return "year"
    if all(map(_is_compact_date, numbers)):
        return "compact"
    ranges = {"unix": (10**8, 10**11), "unix-ms": (10**11, 10**14)}
    return next((style for style, (start, stop) in ranges.items() if start <= low and high < stop), "integer")


def _is_compact_date(number: int) -> bool:
    try:
        return 1900_01_01 <= number <= 2199_12_31 and bool(datetime.strptime(str(number), "%Y%m%d"))
    except ValueError:
        return False


def get_parser(style: str) -> Callable[[str], int]:
    """Returns the function that parses timestamps of a style into integers; it raises ValueError for any other."""
    if style in ("year", "integer"):
        return int
    if style == "decimal":
        return lambda text: round(float(text) * SECOND)
    if style in UNIX_UNITS:
        return lambda text: int(text) * UNIX_UNITS[style]
    if style in PATTERNS or "%" in style:
        pattern = PATTERNS.get(style, style)
        return lambda text: _count_microseconds(datetime.strptime(text.strip(), pattern))
    has_zone = style.endswith("+")

    def parse(text: str) -> int:
        moment = datetime.fromisoformat(text.strip())
        if (moment.tzinfo is not None) is not has_zone:
            raise ValueError("some timestamps have a time zone and others have none")
        return _count_microseconds(moment.astimezone(UTC).replace(tzinfo=None) if has_zone else moment)

    return parse


def infer_grid(ticks: np.ndarray, style: str) -> TimeGrid:
    """Returns the grid of sorted, distinct timestamps; its step is the most frequent distance or a round one."""
    if style in ("year", "integer", "decimal", "row"):
        step = _find_mode(np.diff(ticks))[0] if len(ticks) > 1 else 1
        return TimeGrid("number", step, int(ticks[0]), style)
    dates = ticks.astype("datetime64[us]").astype("datetime64[D]")
    is_same_time = len(np.unique(ticks - dates.astype(np.int64) * DAY)) == 1
    is_midnight = is_same_time and int(ticks[0]) % DAY == 0
    if is_midnight and len(ticks) > 1 and (day := _find_day_of_month(dates)):
        months = _count_months(ticks)
        return TimeGrid("month", _find_mode(np.diff(months))[0], int(months[0]), style, day)
    if len(ticks) == 1:
        return TimeGrid("moment", DAY, int(ticks[0]), style)
    step, share = _find_mode(np.diff(ticks))
    if is_midnight and step == DAY and len(ticks) > 10 and np.is_busday(dates).all():
        return TimeGrid("business day", 1, int(_count_business_days(ticks)[0]), style)
    if share >= 0.5:
        return TimeGrid("moment", step, int(ticks[0]), style)
    # Jittered timestamps: a round distance, counted from midnight.
    step = min(ROUND_STEPS, key=lambda size: abs(np.log(size / np.median(np.diff(ticks)))))
    return TimeGrid("moment", step, round(int(ticks[0]) / step) * step, style)


def _find_mode(distances: np.ndarray) -> tuple[int, float]:
    """Returns the most frequent distance (the smallest of several) and its share."""
    sizes, counts = np.unique(distances, return_counts=True)
    return int(sizes[counts.argmax()]), float(counts.max() / counts.sum())


def _find_day_of_month(dates: np.ndarray) -> int | None:
    """Returns the common day of dates in distinct months, 31 for the last day of each month, None if there is none."""
    months = dates.astype("datetime64[M]")
    days = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    if len(np.unique(months)) < len(dates):
        return None
    if len(np.unique(days)) == 1:
        return int(days[0])
    is_last_day = (dates + np.timedelta64(1, "D")).astype("datetime64[M]") != months
    return 31 if is_last_day.all() else None


def _count_microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def _count_months(ticks: np.ndarray) -> np.ndarray:
    return ticks.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) + 1970 * 12


def _count_business_days(ticks: np.ndarray) -> np.ndarray:
    dates = ticks.astype("datetime64[us]").astype("datetime64[D]")
    return np.busday_count(np.datetime64(0, "D"), dates)


def _format_datetime(moment: datetime, style: str) -> str:
    if style in PATTERNS or "%" in style:
        return moment.strftime(PATTERNS.get(style, style))
    if style in UNIX_UNITS:
        return str(_count_microseconds(moment) // UNIX_UNITS[style])
    if style == "date":
        is_midnight = (moment.hour, moment.minute, moment.second) == (0, 0, 0)
        return f"{moment:%Y-%m-%d}" if is_midnight else moment.isoformat(" ")
    precision = next(name for name in ("minutes", "seconds", "fractions") if style.startswith(name))
    separator, zone = style[len(precision)], "+00:00" if style.endswith("+") else ""
    return moment.isoformat(separator, "microseconds" if precision == "fractions" else precision) + zone
