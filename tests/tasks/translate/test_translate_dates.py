"""`builtin:dates`: every spelling means one day, and no day occurs twice."""

from __future__ import annotations

import hashlib
from datetime import date

import pytest

from seqwise.tasks.translate.dates import (
    DATE_FORMATS,
    NUM_PAIRS,
    TWO_DIGIT_YEAR_FORMATS,
    format_date,
    format_ordinal,
    generate_date_pairs,
)
from seqwise.tasks.translate.reader import build_date_pairs

DAY = date(1997, 5, 3)  # a Saturday


def test_the_pairs_are_reproducible():
    content = "\n".join("\t".join(pair) for pair in generate_date_pairs())
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == "0c8c380ab2a2ae49"


def test_no_day_and_no_spelling_occurs_twice():
    pairs = generate_date_pairs()
    assert len(pairs) == len({iso for _, iso in pairs}) == NUM_PAIRS
    assert len({spelling for spelling, _ in pairs}) == NUM_PAIRS


@pytest.mark.parametrize(
    "spelling",
    [
        *("3 May 1997", "May 3rd, 1997", "the 3rd of May, 1997", "Saturday, May 3rd, 1997", "Sat 3 May 1997"),
        *("03-MAY-1997", "3.5.1997", "03.05.1997", "5/3/1997", "1997/05/03", "19970503", "3. Mai 1997"),
        *("Samstag, der 3. Mai 1997", "samedi 3 mai 1997", "3 May '97"),
    ],
)
def test_common_spellings_occur(spelling: str):
    assert spelling in [format_date(DAY, each) for each in DATE_FORMATS + TWO_DIGIT_YEAR_FORMATS]


def test_years_of_two_digits_are_those_of_posix():
    years = {pair[1][:4] for pair in generate_date_pairs() if "'" in pair[0]}
    assert min(years) >= "1969"
    assert max(years) <= "2068"


def test_ordinals_have_the_english_suffixes():
    numbers = (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30, 31)
    assert " ".join(map(format_ordinal, numbers)) == "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 23rd 30th 31st"


def test_pairs_of_dates_have_a_location():
    pair = build_date_pairs()[41]
    assert (pair.file, pair.line, len(pair.targets)) == ("builtin:dates", 42, 1)
