"""`seqwise.check` reports what `seqwise check` prints, for files and for data in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import seqwise
from seqwise.cli.main import main
from seqwise.errors import UsageError

REVIEWS = [
    (f"{word} film number {number}", label) for number in range(30) for word, label in (("good", "yes"), ("bad", "no"))
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))


def write_reviews(path: Path, separator: str = ",") -> Path:
    path.write_text("\n".join([f"text{separator}label", *(f"{text}{separator}{label}" for text, label in REVIEWS)]))
    return path


def test_a_report_has_the_counts_and_prints_like_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write_reviews(tmp_path / "reviews.csv", ";")
    report = seqwise.check(path)
    assert (report.task, report.tokenizer, report.errors) == ("classify", "words", ())
    assert report.splits is not None
    assert {split: counts["texts"] for split, counts in report.splits.items()} == {"train": 54, "valid": 3, "test": 3}
    assert report.notes == (f"1 file (.csv) with semicolons between fields ({path}).",)
    assert main(["check", str(path)]) == 0
    command = capsys.readouterr()
    printed = [line for line in str(report).splitlines() if not line.startswith(("note: ", "warning: "))]
    assert printed == command.out.splitlines()
    assert [line for line in str(report).splitlines() if line.startswith("note: ")] == [f"note: {report.notes[0]}"]
    assert f"note: {report.notes[0]}" in command.err
    assert repr(report) == f"<DataReport {path}: classify, {report.conclusion.rstrip('.')}>"


def test_data_in_memory_has_the_report_of_the_same_file(tmp_path: Path):
    of_file, of_rows = seqwise.check(write_reviews(tmp_path / "a.csv")), seqwise.check(REVIEWS, task="classify")
    assert (of_rows.splits, of_rows.fingerprint) == (of_file.splits, of_file.fingerprint)
    assert of_rows.data == "the list"
    wave = seqwise.check(np.sin(np.arange(300) / 4), horizon=8)
    assert (wave.task, wave.tokenizer, wave.errors) == ("forecast", None, ())


def test_errors_in_the_data_are_returned_with_rows_and_arguments():
    rows = [*REVIEWS[:5], ("", "yes"), *REVIEWS[5:], ("no label", None)]
    report = seqwise.check(rows, task="classify")
    assert [error.file for error in report.errors] == ["row 5 of the list", "row 61 of the list"]
    assert str(report).startswith("2 errors in the data:\nrow 5 of the list: the text of this example is empty.")
    assert 'settings={"data.on_empty": "drop"}' in report.errors[0].fix
    dropped = seqwise.check(rows, task="classify", settings={"data.on_empty": "drop"})
    assert dropped.errors == ()
    assert "1 example with an empty text, which is dropped (row 5 of the list)." in dropped.warnings


def test_a_wrong_argument_is_raised(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^horizon has an effect with the task forecast only"):
        seqwise.check(write_reviews(tmp_path / "a.csv"), horizon=3)
    with pytest.raises(UsageError, match=r"Set task \(.* and columns where"):
        seqwise.check([{"a": "1", "b": "2"}] * 9)
