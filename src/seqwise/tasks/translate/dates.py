"""`builtin:dates`: dates in many formats and their ISO form, generated without files. It knows nothing of models.

Each pair has a different day, so no day of the test split occurs in training, in any format. Formats are unambiguous:
dotted dates start with the day, dates with slashes with the month or a four-digit year, eight digits are YYYYMMDD, and
two-digit years are those of POSIX (69 to 99 are 1969 to 1999, 00 to 68 are 2000 to 2068).
"""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

from seqwise.data.shuffle import hash_integers, permute_indices

NUM_PAIRS = 16_000
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)
SEED = 1997

ENGLISH_MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
]  # fmt: skip
GERMAN_MONTHS = [
    "Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November",
    "Dezember",
]  # fmt: skip
FRENCH_MONTHS = [
    "janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre", "octobre", "novembre",
    "décembre",
]  # fmt: skip
ENGLISH_WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
GERMAN_WEEKDAYS = ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"]
FRENCH_WEEKDAYS = ["lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"]

# d, m and y are the numbers of day, month and year; month and weekday are English names unless they say otherwise.
DATE_FORMATS = (
    "{d} {month} {y}", "{month} {d}, {y}", "{month} {ordinal}, {y}", "{ordinal} of {month} {y}",
    "the {ordinal} of {month}, {y}", "{weekday}, {month} {ordinal}, {y}", "{weekday:.3} {d} {month:.3} {y}",
    "{lower_weekday} {lower_month} {d} {y}", "{d:02}-{upper_month:.3}-{y}", "{month:.3}. {d}, {y}",
    "{upper_month} {d} {y}", "{y}, {month} {d}", "{d}.{m}.{y}", "{d:02}.{m:02}.{y}", "{m}/{d}/{y}",
    "{y}/{m:02}/{d:02}", "{y}{m:02}{d:02}", "{d}. {german_month} {y}", "{german_weekday}, der {d}. {german_month} {y}",
    "{french_day} {french_month} {y}", "{french_weekday} {french_day} {french_month} {y}",
)  # fmt: skip
TWO_DIGIT_YEAR_FORMATS = ("{d} {month:.3} '{short_year:02}", "{month} {ordinal} '{short_year:02}")


def format_date(day: date, date_format: str) -> str:
    """Returns a day in one of the formats."""
    month, weekday = ENGLISH_MONTHS[day.month - 1], ENGLISH_WEEKDAYS[day.weekday()]
    return date_format.format(
        d=day.day,
        m=day.month,
        y=day.year,
        short_year=day.year % 100,
        month=month,
        lower_month=month.lower(),
        upper_month=month.upper(),
        weekday=weekday,
        lower_weekday=weekday.lower(),
        ordinal=format_ordinal(day.day),
        german_month=GERMAN_MONTHS[day.month - 1],
        german_weekday=GERMAN_WEEKDAYS[day.weekday()],
        french_month=FRENCH_MONTHS[day.month - 1],
        french_weekday=FRENCH_WEEKDAYS[day.weekday()],
        french_day="1er" if day.day == 1 else day.day,
    )


def format_ordinal(number: int) -> str:
    """Returns 1st, 2nd, 3rd, 4th, … 11th, 12th, 13th, … 21st."""
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def generate_date_pairs(count: int = NUM_PAIRS) -> list[tuple[str, str]]:
    """Returns (formatted date, ISO 8601 date) of `count` different days; the same days and formats at every call."""
    pairs = []
    for offset in permute_indices(np.arange(count), (LAST_DAY - FIRST_DAY).days + 1, SEED).tolist():
        day = FIRST_DAY + timedelta(days=offset)
        formats = DATE_FORMATS + TWO_DIGIT_YEAR_FORMATS if 1969 <= day.year <= 2068 else DATE_FORMATS
        pairs.append((format_date(day, formats[hash_integers(SEED, offset) % len(formats)]), day.isoformat()))
    return pairs
