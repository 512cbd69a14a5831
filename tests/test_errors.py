"""Suggestions and messages."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from seqwise.errors import DataError, suggest, suggest_path


def test_a_message_has_location_problem_and_fix():
    error = DataError("a tag is missing.", repair="Add it.", file="a.txt", line=3)
    assert str(error) == "a.txt:3: a tag is missing.\nAdd it."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert error.exit_status == 2


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
