"""Documents held out by fractions, and split names in file names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwise.data.examples import parse_split_name, space_splits_evenly


@given(st.integers(3, 500), st.floats(0.01, 0.3), st.floats(0.01, 0.3))
def test_each_split_gets_its_fraction_of_documents(count: int, valid: float, test: float) -> None:
    assign = space_splits_evenly(count, valid, test)
    splits = [assign(number) for number in range(count)]
    assert splits.count("valid") == max(1, round(count * valid))
    assert splits.count("test") == max(1, round(count * test))


def test_held_out_documents_are_evenly_spaced_and_alternate() -> None:
    assign = space_splits_evenly(40, 0.05, 0.05)
    assert {number: assign(number) for number in range(40) if assign(number) != "train"} == {
        4: "test",
        14: "valid",
        24: "test",
        34: "valid",
    }


def test_nothing_is_held_out_at_fraction_zero() -> None:
    assert {space_splits_evenly(10, 0, 0)(number) for number in range(10)} == {"train"}
    assert {space_splits_evenly(10, 0.1, 0)(number) for number in range(10)} == {"train", "valid"}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("ptb.train.txt.gz", "train"),
        ("wiki-dev.txt", "valid"),
        ("test_2016.txt", "test"),
        ("TRAIN.txt", "train"),
        ("train/contest.txt", "train"),
        ("contest.txt", None),
        ("trains.txt", None),
    ],
)
def test_a_split_name_is_recognised_as_a_word_of_the_file_name(name: str, split: str | None) -> None:
    assert parse_split_name(Path(name)) == split
