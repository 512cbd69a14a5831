"""The line where two parallel texts become misaligned, found by lengths and numbers."""

from __future__ import annotations

import random

import pytest

from seqwise.tasks.translate.alignment import find_misalignment


def create_texts(count: int = 400) -> tuple[list[str], list[str]]:
    """Returns two parallel texts: matching lines have about the same length and the same number."""
    rng = random.Random(5)
    lengths = [rng.randint(2, 40) for _ in range(count)]
    first = ["word " * length + str(rng.randrange(100)) for length in lengths]
    second = [f"mot{'x' * rng.randrange(3)} " * length + line.split()[-1] for length, line in zip(lengths, first)]
    return first, second


@pytest.mark.parametrize("index", [0, 1, 57, 200, 398])
def test_a_line_without_a_partner_is_found(index: int):
    first, second = create_texts()
    del second[index]
    assert find_misalignment(first, second) == [index]


def test_several_lines_are_found_in_order():
    first, second = create_texts()
    for index in (300, 120, 7):
        del second[index]
    assert find_misalignment(first, second) == [7, 120, 300]


def test_an_extra_empty_line_is_found():
    first, second = create_texts()
    first.insert(150, "")
    assert find_misalignment(first, second) == [150]


def test_missing_lines_at_the_end_are_found():
    first, second = create_texts()
    assert find_misalignment(first, second[:370]) == list(range(370, 400))


def test_a_missing_line_is_distinguished_from_an_empty_partner():
    """Line 100 has an empty partner, line 200 none: only the second misaligns later lines."""
    first, second = create_texts()
    second[100] = ""
    del second[200]
    assert find_misalignment(first, second) == [200]
