"""Timestamps: text → integers ("ticks") → positions on an even grid, and back.

Accepts ISO dates and times, local formats (31.12.2020 14:00, 12/31/2020 2:00 PM, 31 Dec 2020), months (2020-01),
years, compact dates (20200131), Unix seconds and milliseconds, and plain numbers. A `TimeGrid` is the even spacing
of the timestamps of a table. It formats any step of the grid in the style of the file, so that a forecast continues
where the history ends. The module knows nothing of values or files.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

SECOND = 1_000_000  # ticks: times are in microseconds, numbers with a fraction in millionths, other numbers in ones
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
EPOCH = datetime(1970, 1, 1)
ROUND_STEPS = [SECOND * n for n in (1, 2, 5, 10, 15, 20, 30)] + [MINUTE * n for n in (1, 2, 5, 10, 15, 20, 30)]
ROUND_STEPS += [HOUR * n for n in (1, 2, 3, 4, 6, 8, 12)] + [DAY, 7 * DAY]

UNIX_UNITS = {"unix": SECOND, "unix-ms": SECOND // 1000}  # style → unit in ticks
PATTERNS = {"month": "%Y-%m", "compact": "%Y%m%d"}  # style → pattern of `strptime`
MAX_OFFSET = 0.25  # maximum distance of a timestamp from the grid, in steps
FORMATS = (
    "2020-01-31, 2020-01-31 18:00, 31.01.2020, 01/31/2020 6:00 PM, 2020-01, a year, Unix seconds or a whole number"
)
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
LOCAL_DATE = re.compile(r"(\d{1,4})([/.\-])\d{1,2}\2(\d{1,4})(?!\d)")  # 31/12/2020, 12-31-20, 2020/12/31
NAMED_DATE_PATTERNS = (
    "%d %b %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%b %Y",
    "%B %Y",
    "%b-%y",
)
CLOCK_PATTERNS = (
    "%H:%M",
    "%H:%M:%S",
    "%H:%M:%S.%f",
    "%I:%M %p",
    "%I:%M:%S %p",
    "%I:%M%p",
    "%I %p",
    "%H.%M.%S",
    "%H.%M",
)


@dataclass(frozen=True)
class TimeGrid:
    """Evenly spaced timestamps with indices from 0.

    Months count from the year 0, business days from 1970; moments are microseconds since 1970.
    """

    unit: str  # moment, month, business day or number
    step: int  # distance of two timestamps, in units
    first: int  # the timestamp with index 0, in units
    style: str  # how timestamps are written, see `detect_style`; "row" for row numbers in a table without timestamps
    day: int = 1  # day of the month, if the unit is month; 31 is the last day

    def format_timestamp(self, index: int) -> str:
        """Returns the timestamp with an index, written as in the file."""
        value = self.first + index * self.step
        if self.unit != "number":
            return _format_datetime(self.get_datetimes(np.array([index]))[0].item(), self.style)
        if self.style != "decimal":
            return str(value)
        text = f"{value / SECOND:.6f}".rstrip("0")
        return f"{text}0" if text.endswith(".") else text

    def get_datetimes(self, indices: np.ndarray) -> np.ndarray:
        """Returns the timestamps with these indices as datetime64 in microseconds; meaningless for the unit number."""
        values = self.first + np.asarray(indices, dtype=np.int64) * self.step
        if self.unit == "month":
            last_days = [calendar.monthrange(int(value) // 12, int(value) % 12 + 1)[1] for value in values]
            first_days = (values - 1970 * 12).astype("datetime64[M]").astype("datetime64[D]")
            return (first_days + (np.minimum(self.day, last_days) - 1)).astype("datetime64[us]")
        if self.unit == "business day":
            return np.busday_offset(np.datetime64(0, "D"), values).astype("datetime64[us]")
        return values.astype("datetime64[us]")

    def find_positions(self, ticks: np.ndarray) -> np.ndarray:
        """Returns the positions of timestamps on the grid, which are fractions if they are off the grid."""
        return (self._count_units(ticks) - self.first) / self.step

    def _count_units(self, ticks: np.ndarray) -> np.ndarray:
        if self.unit == "month":
            return _count_months(ticks)
        return _count_business_days(ticks) if self.unit == "business day" else ticks

    def align(self, ticks: np.ndarray) -> TimeGrid:
        """Returns this grid with index 0 at the earliest of other timestamps; if they are off the grid, shifts it."""
        earliest = int(self._count_units(ticks).min())
        index = round((earliest - self.first) / self.step)
        aligned = replace(self, first=self.first + index * self.step)
        offsets = np.abs(aligned.find_positions(ticks) - np.round(aligned.find_positions(ticks)))
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
        """The number of steps in the shortest calendar cycle (a day, a week or a year) that is longer than a step.

        A year of days is 52 weeks. None for numbers, and if the cycle is not a multiple of the step.
        """
        cycles = {"month": (12,), "business day": (5,), "moment": (DAY, 7 * DAY, 364 * DAY)}.get(self.unit, ())
        cycle = next((cycle for cycle in cycles if self.step < cycle), None)
        return cycle // self.step if cycle is not None and cycle % self.step == 0 else None

    def compute_calendar_phases(self, indices: np.ndarray) -> dict[str, tuple[np.ndarray, float]]:
        """Returns for each calendar cycle the phase of each step, from 0 to 1, and the length of the cycle in steps."""
        if self.unit == "number":
            return {}
        moments = self.get_datetimes(indices)
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


def detect_style(texts: Sequence[str], date_order: str = "auto") -> str | None:
    """Returns the style in which these timestamps are written, or None if they are not timestamps.

    A style is "month", "year", "integer", "decimal", "unix", "unix-ms" or "compact"; for ISO formats the precision
    ("date", "minutes", "seconds" or "fractions"), the separator, and "+" if there is a time zone; for local formats
    the pattern of `strptime`. It depends on the first timestamp; for integers and local formats on all of them.
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
        return next(iter(find_local_styles(texts, date_order)), None)
    if len(first) <= 10:
        return "date"
    precision = "seconds" if re.match(r".{11}\d\d:\d\d:\d\d", first) else "minutes"
    precision = "fractions" if "." in first else precision
    return f"{precision}{first[10]}{'+' if moment.tzinfo else ''}"


def find_local_styles(texts: Sequence[str], date_order: str = "auto") -> list[str]:
    """Returns the patterns of `strptime` that match most of these timestamps; several if day and month are ambiguous.

    With the order auto, the day is first with dots, as in 31.12.2020. Otherwise the order that matches more timestamps
    is chosen; if both match equally many, the order with fewer gaps between the timestamps.
    """
    first = texts[0].strip() if texts else ""
    date_patterns: tuple[str, ...] = NAMED_DATE_PATTERNS
    if match := LOCAL_DATE.match(first):
        date_patterns = _list_date_patterns(match[1], match[2], match[3], date_order)
    patterns = [
        *date_patterns,
        *(f"{date}{space}{clock}" for date in date_patterns for space in " T" for clock in CLOCK_PATTERNS),
    ]
    ticks = {pattern: _parse_matching(texts, pattern) for pattern in patterns if _parse_matching([first], pattern)}
    num_matches = max(map(len, ticks.values()), default=0)
    ticks = {pattern: values for pattern, values in ticks.items() if len(values) == num_matches}
    densities = {pattern: _compute_density(np.unique(values)) for pattern, values in ticks.items()}
    return [pattern for pattern, density in densities.items() if density == max(densities.values())]


def _list_date_patterns(first_number: str, separator: str, last_number: str, date_order: str) -> tuple[str, ...]:
    """Returns the patterns that a date may have, by its first and last number and its separator."""
    year = "Y" if len(last_number) == 4 else "y"
    orders = {"day-first": f"dm{year}", "month-first": f"md{year}", "year-first": "ymd"}
    possible = [orders["day-first"]] if separator == "." else [orders["day-first"], orders["month-first"]]
    if date_order != "auto":
        possible = [orders[date_order]]
    if len(first_number) == 4:
        possible = ["Ymd"]
    return tuple(separator.join(f"%{letter}" for letter in order) for order in possible)


def _compute_density(ticks: np.ndarray) -> float:
    """Returns the number of sorted, distinct timestamps divided by the number of steps of their grid."""
    return len(ticks) / (1 + round(float(infer_grid(ticks, "date").find_positions(ticks)[-1])))


def _parse_matching(texts: Sequence[str], pattern: str) -> list[int]:
    """Returns the timestamps that match a pattern of `strptime`."""
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
    """Returns the function that parses timestamps of a style into ticks; it raises ValueError for other texts."""
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
    """Returns the grid of sorted, distinct timestamps; its step is their most frequent distance, or a round number."""
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
    # Irregular timestamps: the step is a round number near their median distance; the grid is its multiples since 1970.
    step = min(ROUND_STEPS, key=lambda size: abs(np.log(size / np.median(np.diff(ticks)))))
    return TimeGrid("moment", step, round(int(ticks[0]) / step) * step, style)


def _find_mode(distances: np.ndarray) -> tuple[int, float]:
    """Returns the most frequent distance (of several the smallest) and its share."""
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
