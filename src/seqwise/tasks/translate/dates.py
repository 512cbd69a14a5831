"""`builtin:dates`: written dates and their ISO form, made by arithmetic. It knows nothing of models.

Every pair is another day, so a day of the test split never occurs in training, in whatever spelling. What a spelling
means is never in doubt: numbers with dots begin with the day, numbers with slashes with the month or with four digits
of the year, and years of two digits are those of POSIX (69 to 99 are 1969 to 1999, 00 to 68 are 2000 to 2068).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import numpy as np

from seqwise.data.shuffle import hash_integers, permute_indices

COUNT = 16_000
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
SEED = 1997

ENGLISH = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
GERMAN = [
    *("Januar", "Februar", "März", "April", "Mai", "Juni"),
    *("Juli", "August", "September", "Oktober", "November", "Dezember"),
]
FRENCH = [
    *("janvier", "février", "mars", "avril", "mai", "juin"),
    *("juillet", "août", "septembre", "octobre", "novembre", "décembre"),
]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
WOCHENTAGE = ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"]
JOURS = ["lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"]


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, … 11th, 12th, 13th, … 21st."""
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _month(day: date) -> str:
    return ENGLISH[day.month - 1]


def _weekday(day: date) -> str:
    return WEEKDAYS[day.weekday()]


def _premier(day: date) -> str:
    return "1er" if day.day == 1 else str(day.day)


SPELLINGS: tuple[Callable[[date], str], ...] = (
    lambda day: f"{day.day} {_month(day)} {day.year}",
    lambda day: f"{_month(day)} {day.day}, {day.year}",
    lambda day: f"{_month(day)} {ordinal(day.day)}, {day.year}",
    lambda day: f"{ordinal(day.day)} of {_month(day)} {day.year}",
    lambda day: f"the {ordinal(day.day)} of {_month(day)}, {day.year}",
    lambda day: f"{_weekday(day)}, {_month(day)} {ordinal(day.day)}, {day.year}",
    lambda day: f"{_weekday(day)[:3]} {day.day} {_month(day)[:3]} {day.year}",
    lambda day: f"{_weekday(day).lower()} {_month(day).lower()} {day.day} {day.year}",
    lambda day: f"{day.day:02}-{_month(day)[:3].upper()}-{day.year}",
    lambda day: f"{_month(day)[:3]}. {day.day}, {day.year}",
    lambda day: f"{_month(day).upper()} {day.day} {day.year}",
    lambda day: f"{day.year}, {_month(day)} {day.day}",
    lambda day: f"{day.day}.{day.month}.{day.year}",
    lambda day: f"{day.day:02}.{day.month:02}.{day.year}",
    lambda day: f"{day.month}/{day.day}/{day.year}",
    lambda day: f"{day.year}/{day.month:02}/{day.day:02}",
    lambda day: f"{day.year}{day.month:02}{day.day:02}",
    lambda day: f"{day.day}. {GERMAN[day.month - 1]} {day.year}",
    lambda day: f"{WOCHENTAGE[day.weekday()]}, der {day.day}. {GERMAN[day.month - 1]} {day.year}",
    lambda day: f"{_premier(day)} {FRENCH[day.month - 1]} {day.year}",
    lambda day: f"{JOURS[day.weekday()]} {_premier(day)} {FRENCH[day.month - 1]} {day.year}",
)

# Only where two digits tell the year.
SHORT_SPELLINGS: tuple[Callable[[date], str], ...] = (
    lambda day: f"{day.day} {_month(day)[:3]} '{day.year % 100:02}",
    lambda day: f"{_month(day)} {ordinal(day.day)} '{day.year % 100:02}",
)


def written_dates(count: int = COUNT) -> list[tuple[str, str]]:
    """(as somebody wrote it, as ISO 8601 has it) of `count` different days; always the same."""
    days = (LAST - FIRST).days + 1
    numbers = permute_indices(np.arange(count), days, SEED)
    return [_pair(FIRST + timedelta(days=int(number)), hash_integers(SEED, int(number))) for number in numbers]


def _pair(day: date, chance: int) -> tuple[str, str]:
    plain = day.year < 1969 or day.year > 2068
    spellings = SPELLINGS if plain else SPELLINGS + SHORT_SPELLINGS
    return spellings[chance % len(spellings)](day), day.isoformat()
