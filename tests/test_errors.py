"""Suggestions and messages."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from seqwise.errors import DataError, Findings, pluralize, suggest, suggest_path


def test_a_message_has_location_problem_and_fix():
    error = DataError("a tag is missing.", fix="Add it.", file="a.txt", line=3)
    assert str(error) == "a.txt:3: a tag is missing.\nAdd it."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert error.exit_status == 2


def test_the_old_name_of_a_fix_is_still_accepted():
    error = DataError("a tag is missing.", repair="Add it.")
    assert (error.fix, error.repair) == ("Add it.", "Add it.")
    error.repair = "Add one."
    assert str(error) == "a tag is missing.\nAdd one."


def test_the_most_similar_word_is_suggested_and_otherwise_all_are_listed():
    assert suggest("lstn", ["lstm", "gru"]) == "Perhaps you meant 'lstm'."
    assert suggest("xyz", ["lstm", "gru"]) == "Choose from: lstm, gru."


@pytest.mark.parametrize(
    ("path", "suggested"),
    [("bok.txt", "book.txt.gz"), ("/tmp/nope.txt", ""), ("runs/none", ""), ("elsewhere/ptb-gur", "runs/ptb-gru")],
)
def test_a_path_is_suggested_by_its_name_without_suffix_and_folder(path, suggested):
    others = [Path("book.txt.gz"), Path("/tmp/bin.txt"), Path("runs/tf"), Path("runs/ptb-gru")]
    assert suggest_path(Path(path), others) == (f"Perhaps you meant {suggested!r}." if suggested else "")


@pytest.mark.parametrize(
    ("plural", "singular"),
    [
        ("empty texts, which are dropped", "1 empty text, which is dropped"),
        ("texts come with different labels; all are kept", "1 text comes with different labels; it is kept"),
        ("texts are in train too, so they may be memorised", "1 text is in train too, so it may be memorised"),
        ("vectors", "1 vector"),
    ],
)
def test_a_count_of_one_is_reported_in_the_singular(plural, singular):
    assert pluralize(1, plural) == singular
    assert pluralize(2, plural) == f"2 {plural}"
    findings = Findings()
    findings.warn(plural, "a.csv", 3)
    assert findings.warning_messages() == [f"{singular} (a.csv:3)."]


def test_very_long_values_are_shortened_in_messages():
    error = DataError(f"expected a number, found {'x' * 1_000_000}.\nSecond line.", fix="y" * 500_000, file="a.csv")
    lines = str(error).split("\n")
    assert lines[0].startswith("a.csv: expected a number, found xxx")
    assert "… (1,000,026 characters) …" in lines[0]
    assert lines[0].endswith("x.")
    assert lines[1] == "Second line."
    assert max(map(len, lines)) < 3_000
    assert len(str(DataError("a line\n" * 100_000))) < 25_000
    assert DataError("x" * 2_000).problem == "x" * 2_000
