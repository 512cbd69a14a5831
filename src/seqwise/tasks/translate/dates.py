"""`builtin:dates`: spelled dates and their ISO form, generated without files. The module knows nothing of models.

Every pair has another day, so a day of the test split never occurs in training in another spelling. Spellings are
unambiguous: numbers with dots begin with the day, numbers with slashes with the month or with four digits of the year,
and years of two digits are those of POSIX (69 to 99 are 1969 to 1999, 00 to 68 are 2000 to 2068).
"""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

from seqwise.data.shuffle import hash_integers, permute_indices

COUNT = 16_000
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
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

SPELLINGS = (
    "{d} {month} {y}", "{month} {d}, {y}", "{month} {ordinal}, {y}", "{ordinal} of {month} {y}",
    "the {ordinal} of {month}, {y}", "{weekday}, {month} {ordinal}, {y}", "{weekday:.3} {d} {month:.3} {y}",
    "{lower_weekday} {lower_month} {d} {y}", "{d:02}-{upper_month:.3}-{y}", "{month:.3}. {d}, {y}",
    "{upper_month} {d} {y}", "{y}, {month} {d}", "{d}.{m}.{y}", "{d:02}.{m:02}.{y}", "{m}/{d}/{y}",
    "{y}/{m:02}/{d:02}", "{y}{m:02}{d:02}", "{d}. {german_month} {y}", "{german_weekday}, der {d}. {german_month} {y}",
    "{french_day} {french_month} {y}", "{french_weekday} {french_day} {french_month} {y}",
)  # fmt: skip
SHORT_SPELLINGS = ("{d} {month:.3} '{short_year:02}", "{month} {ordinal} '{short_year:02}")


def format_date(day: date, spelling: str) -> str:
    """Return a day in one of the spellings."""
    month, weekday = ENGLISH_MONTHS[day.month - 1], ENGLISH_WEEKDAYS[day.weekday()]
    return spelling.format(
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
    """Return 1st, 2nd, 3rd, 4th, … 11th, 12th, 13th, … 21st."""
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def spell_dates(count: int = COUNT) -> list[tuple[str, str]]:
    """Return (spelled date, ISO 8601 date) of `count` different days; always the same."""
    pairs = []
    for number in permute_indices(np.arange(count), (LAST - FIRST).days + 1, SEED).tolist():
        day = FIRST + timedelta(days=number)
        spellings = SPELLINGS + SHORT_SPELLINGS if 1969 <= day.year <= 2068 else SPELLINGS
        pairs.append((format_date(day, spellings[hash_integers(SEED, number) % len(spellings)]), day.isoformat()))
    return pairs
