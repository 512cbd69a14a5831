"""The line where two parallel texts become misaligned, found by lengths and numbers."""

from __future__ import annotations

import random

import pytest

from seqwise.tasks.translate.alignment import find_misalignment


def texts(count: int = 400) -> tuple[list[str], list[str]]:
    """Lines and their partners: about as long, with the same numbers."""
    draw = random.Random(5)
    lengths = [draw.randint(2, 40) for _ in range(count)]
    first = ["word " * length + str(draw.randrange(100)) for length in lengths]
    second = [f"mot{'x' * draw.randrange(3)} " * length + line.split()[-1] for length, line in zip(lengths, first)]
    return first, second


@pytest.mark.parametrize("place", [0, 1, 57, 200, 398])
def test_a_line_without_a_partner_is_found(place: int):
    first, second = texts()
    del second[place]
    assert find_misalignment(first, second) == [place]


def test_several_lines_are_found_in_order():
    first, second = texts()
    for place in (300, 120, 7):
        del second[place]
    assert find_misalignment(first, second) == [7, 120, 300]


def test_an_empty_line_too_many_is_found():
    first, second = texts()
    first.insert(150, "")
    assert find_misalignment(first, second) == [150]


def test_a_text_that_merely_ends_too_early_is_told_apart():
    first, second = texts()
    assert find_misalignment(first, second[:370]) == list(range(370, 400))


def test_a_missing_line_is_distinguished_from_an_empty_partner():
    """Line 100 has an empty partner, line 200 none: only the second shifts what follows."""
    first, second = texts()
    second[100] = ""
    del second[200]
    assert find_misalignment(first, second) == [200]
