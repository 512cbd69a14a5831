"""Time stamps: text → moments → numbers of even steps, and back. It knows nothing of values or files.

Read are ISO dates and times, months (2020-01), years, compact dates (20200131), Unix seconds and milliseconds, and
plain numbers. A `Clock` is the even spacing that was found: it turns a number of steps into the stamp that stands for
it, in the way the file writes stamps, so that a forecast goes on where the history ends.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

SECOND = 1_000_000  # moments are counted in microseconds, plain numbers in millionths where they have a fraction
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
EPOCH = datetime(1970, 1, 1)
NICE = [SECOND * n for n in (1, 2, 5, 10, 15, 20, 30)] + [MINUTE * n for n in (1, 2, 5, 10, 15, 20, 30)]
NICE += [HOUR * n for n in (1, 2, 3, 4, 6, 8, 12)] + [DAY, 7 * DAY]

OFF = 0.25  # of a step that a stamp may lie beside the grid
SHAPE = "2020-01-31, 2020-01-31 18:00, 2020-01, a year, Unix seconds or a whole number"


@dataclass(frozen=True)
class Clock:
    """Evenly spaced stamps. `unit` says what is counted, `first` is the stamp of number 0 in that unit.

    Months are counted from the year 0 and business days from 1970, moments and numbers as they are.
    """

    unit: str  # moment, month, business day or number
    step: int
    first: int
    style: str  # how stamps are written; see `style_of`
    day: int = 1  # of the month, where months are counted; 31 is the last

    def label(self, number: int) -> str:
        """The stamp of a number, written as in the file."""
        value = self.first + number * self.step
        if self.unit == "number":
            return _decimal(value) if self.style == "decimal" else str(value)
        return _written(self.moments(np.array([number]))[0], self.style)

    def moments(self, numbers: np.ndarray) -> np.ndarray:
        """The stamps of numbers as datetime64 in microseconds; meaningless where plain numbers are counted."""
        values = self.first + np.asarray(numbers, dtype=np.int64) * self.step
        if self.unit == "month":
            years, months = values // 12, values % 12
            days = [min(self.day, calendar.monthrange(int(y), int(m) + 1)[1]) for y, m in zip(years, months)]
            dates = (values - 1970 * 12).astype("datetime64[M]").astype("datetime64[D]") + (np.array(days) - 1)
            return dates.astype("datetime64[us]")
        if self.unit == "business day":
            return np.busday_offset(np.datetime64(0, "D"), values).astype("datetime64[us]")
        return values.astype("datetime64[us]")

    def numbers(self, ticks: np.ndarray) -> np.ndarray:
        """Where stamps lie on the clock, as fractions of a step."""
        return (self._counted(ticks) - self.first) / self.step

    def _counted(self, ticks: np.ndarray) -> np.ndarray:
        if self.unit == "month":
            return _months(ticks)
        return _business_days(ticks) if self.unit == "business day" else ticks

    def from_first(self, ticks: np.ndarray) -> Clock:
        """The same spacing, beginning at the earliest of other stamps; on the same grid, if they lie on it."""
        earliest = int(self._counted(ticks).min())
        number = round((earliest - self.first) / self.step)
        same = Clock(self.unit, self.step, self.first + number * self.step, self.style, self.day)
        off = np.abs(same.numbers(ticks) - np.round(same.numbers(ticks)))
        return same if off.max() <= OFF else Clock(self.unit, self.step, earliest, self.style, self.day)

    @property
    def spacing(self) -> str:
        """One step in words."""
        if self.unit == "month":
            return {1: "month", 3: "quarter", 12: "year"}.get(self.step, f"{self.step} months")
        if self.unit == "business day":
            return "business day" if self.step == 1 else f"{self.step} business days"
        if self.unit == "number":
            size = self.step / SECOND if self.style == "decimal" else self.step
            return "year" if self.style == "year" and size == 1 else f"step of {size:g}"
        for size, name in ((7 * DAY, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second")):
            if self.step % size == 0:
                return name if self.step == size else f"{self.step // size} {name}s"
        return f"{self.step / SECOND:g} seconds"

    @property
    def season(self) -> int | None:
        """Steps of the cycle that such stamps usually have: a day, a week or a year; None where they tell nothing."""
        if self.unit == "month":
            return 12 // self.step if self.step < 12 and 12 % self.step == 0 else None
        if self.unit == "business day":
            return 5 if self.step == 1 else None
        if self.unit == "number":
            return None
        for cycle in (DAY, 7 * DAY, 364 * DAY):
            if self.step < cycle:
                return cycle // self.step if cycle % self.step == 0 else None
        return None

    def phases(self, numbers: np.ndarray) -> dict[str, tuple[np.ndarray, float]]:
        """Calendar features: name → (place in the cycle from 0 to 1 for each number, steps of the cycle)."""
        if self.unit == "number":
            return {}
        moments = self.moments(numbers)
        days = moments.astype("datetime64[D]")
        found = {}
        if self.unit == "moment" and self.step < DAY:
            found["time of day"] = ((moments - days).astype(np.int64) / DAY, DAY / self.step)
        if self.unit == "business day" or (self.unit == "moment" and self.step <= DAY):
            length = 5.0 if self.unit == "business day" else 7 * DAY / self.step
            found["day of week"] = ((days.astype(np.int64) + 3) % 7 / 7, length)  # 1970 began on a Thursday
        if self.unit != "month" or self.step < 12:
            year = moments.astype("datetime64[Y]")
            passed = (days - year.astype("datetime64[D]")).astype(np.int64) / 366
            found["time of year"] = (passed, self._steps_of_year())
        return found

    def _steps_of_year(self) -> float:
        if self.unit == "moment":
            return 365.25 * DAY / self.step
        return (12 if self.unit == "month" else 261) / self.step


def style_of(texts: Sequence[str]) -> str | None:
    """How these stamps are written, judged by all that are numbers and the first otherwise; None: no stamps.

    A style is "month", "year", "integer", "decimal", "unix", "unix-ms", "compact", or for ISO the parts that are
    written: "date", "minutes", "seconds" or "fractions", then the separator, then "+" where there is a zone.
    """
    first = texts[0].strip() if texts else ""
    if re.fullmatch(r"\d{4}-\d{2}", first):
        return "month"
    if re.fullmatch(r"[+-]?\d+", first):
        return _style_of_integers([int(text) for text in texts if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text)])
    if re.fullmatch(r"[+-]?\d+\.\d*", first):
        return "decimal"
    try:
        moment = datetime.fromisoformat(first)
    except ValueError:
        return None
    if len(first) <= 10:
        return "date"
    part = "seconds" if re.match(r".{11}\d\d:\d\d:\d\d", first) else "minutes"
    part = "fractions" if "." in first else part
    return f"{part}{first[10]}{'+' if moment.tzinfo else ''}"


def _style_of_integers(numbers: list[int]) -> str:
    if not numbers:
        return "integer"
    low, high = min(numbers), max(numbers)
    if low >= 1500 and high <= 2200:
        return "year"
    if all(_is_compact(number) for number in numbers):
        return "compact"
    if low >= 10**8 and high < 10**11:
        return "unix"
    return "unix-ms" if low >= 10**11 and high < 10**14 else "integer"


def _is_compact(number: int) -> bool:
    try:
        return 1900_01_01 <= number <= 2199_12_31 and bool(datetime.strptime(str(number), "%Y%m%d"))
    except ValueError:
        return False


def tick_of(style: str) -> Callable[[str], int]:
    """The function that reads one stamp of a style; it raises ValueError at anything else."""
    if style in ("year", "integer"):
        return lambda text: int(text)
    if style == "decimal":
        return lambda text: round(float(text) * SECOND)
    if style in ("unix", "unix-ms"):
        size = SECOND if style == "unix" else SECOND // 1000
        return lambda text: int(text) * size
    if style == "month":
        return lambda text: _tick(datetime.strptime(text.strip(), "%Y-%m"))
    if style == "compact":
        return lambda text: _tick(datetime.strptime(text.strip(), "%Y%m%d"))
    zone = style.endswith("+")

    def read(text: str) -> int:
        moment = datetime.fromisoformat(text.strip())
        if (moment.tzinfo is not None) is not zone:
            raise ValueError("some stamps have a time zone and others have none")
        return _tick(moment.astimezone(UTC).replace(tzinfo=None) if zone else moment)

    return read


def _tick(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def clock_of(ticks: np.ndarray, style: str) -> Clock:
    """The spacing of stamps that are sorted and all different; the most frequent distance, or a round one near it."""
    if style in ("year", "integer", "decimal"):
        step = _frequent(np.diff(ticks))[0] if len(ticks) > 1 else 1
        return Clock("number", step, int(ticks[0]), style)
    dates = ticks.astype("datetime64[us]").astype("datetime64[D]")
    whole_days = len(np.unique(ticks - dates.astype(np.int64) * DAY)) == 1
    midnight = whole_days and int(ticks[0]) % DAY == 0
    if midnight and len(ticks) > 1 and (day := _day_of_month(dates)):
        months = _months(ticks)
        return Clock("month", _frequent(np.diff(months))[0], int(months[0]), style, day)
    if len(ticks) == 1:
        return Clock("moment", DAY, int(ticks[0]), style)
    step, share = _frequent(np.diff(ticks))
    if midnight and step == DAY and len(ticks) > 10 and np.is_busday(dates).all():
        return Clock("business day", 1, int(_business_days(ticks)[0]), style)
    if share >= 0.5:
        return Clock("moment", step, int(ticks[0]), style)
    # Stamps that tremble: a round distance, counted from midnight.
    step = min(NICE, key=lambda nice: abs(np.log(nice / np.median(np.diff(ticks)))))
    return Clock("moment", step, round(int(ticks[0]) / step) * step, style)


def _frequent(distances: np.ndarray) -> tuple[int, float]:
    """The most frequent distance (the smallest of several) and its share."""
    sizes, counts = np.unique(distances, return_counts=True)
    return int(sizes[counts.argmax()]), float(counts.max() / counts.sum())


def _day_of_month(dates: np.ndarray) -> int | None:
    """The day on which all dates lie, one a month at most; 31 for the last day of each; None if there is no such."""
    months = dates.astype("datetime64[M]")
    days = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    if len(np.unique(months)) < len(dates):
        return None
    if len(np.unique(days)) == 1:
        return int(days[0])
    last = (dates + np.timedelta64(1, "D")).astype("datetime64[M]") != months
    return 31 if last.all() else None


def _months(ticks: np.ndarray) -> np.ndarray:
    return ticks.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) + 1970 * 12


def _business_days(ticks: np.ndarray) -> np.ndarray:
    dates = ticks.astype("datetime64[us]").astype("datetime64[D]")
    return np.busday_count(np.datetime64(0, "D"), dates)


def _decimal(value: int) -> str:
    """Millionths as a number with at least one place after the point."""
    text = f"{value / SECOND:.6f}".rstrip("0")
    return f"{text}0" if text.endswith(".") else text


def _written(moment: np.datetime64, style: str) -> str:
    when: datetime = moment.astype("datetime64[us]").item()
    if style == "month":
        return f"{when:%Y-%m}"
    if style == "compact":
        return f"{when:%Y%m%d}"
    if style in ("unix", "unix-ms"):
        return str(_tick(when) // (SECOND if style == "unix" else SECOND // 1000))
    if style == "date":
        return f"{when:%Y-%m-%d}" if (when.hour, when.minute, when.second) == (0, 0, 0) else when.isoformat(" ")
    part, rest = re.fullmatch(r"([a-z]+)(.*)", style, re.DOTALL).groups()  # type: ignore[union-attr]
    precision = {"minutes": "minutes", "seconds": "seconds", "fractions": "microseconds"}[part]
    return when.isoformat(rest[:1], precision) + ("+00:00" if rest.endswith("+") else "")
