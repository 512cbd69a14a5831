"""Guessing the task from the data: every format of docs/data.md, and names that are ambiguous."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from seqwise.errors import DataError, SeqwiseError, UsageError
from seqwise.tasks.guess import guess_task

LABELS = "".join(f"film {number}\t{'yes' if number % 2 else 'no'}\n" for number in range(30))
PAIRS = "".join(f"word {number}\tWort {number}\n" for number in range(30))
CONLL = "Anna B-PER\nsleeps O\n\nBob B-PER\nwakes O\n"
FORECAST_TABLE = "date,value\n2020-01-01,1.5\n2020-01-02,2.5\n"


def write_files(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return folder


@pytest.mark.parametrize(
    ("name", "content", "task"),
    [
        ("a.txt", "once upon a time\n", "language"),
        ("a.txt.gz", "once upon a time\n", "language"),
        ("a.jsonl", '{"text": "once"}\n', "language"),
        ("a.csv", "text,label\ngood,yes\n", "classify"),
        ("a.csv", "\ufeffText,Label\r\ngood,yes\r\n", "classify"),
        ("a.csv.gz", "label,text\nyes,good\n", "classify"),
        ("a.tsv", "text\tlabel\ngood\tyes\n", "classify"),
        ("a.tsv", "label\ttext\nyes\tgood\n", "classify"),
        ("a.tsv", "id\ttext\tlabel\n1\tgood\tyes\n", "classify"),
        ("a.jsonl", '{"text": "good", "label": 1}\n', "classify"),
        ("a.txt", LABELS, "classify"),
        ("a.tsv", LABELS, "classify"),
        ("a.conll", CONLL, "tag"),
        ("a.txt", CONLL, "tag"),
        ("a.bio", CONLL, "tag"),
        ("a.tsv", CONLL.replace(" ", "\t"), "tag"),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n', "tag"),
        ("a.csv", "source,target\na,b\n", "translate"),
        ("a.tsv", "source\ttarget\na\tb\n", "translate"),
        ("a.tsv", PAIRS, "translate"),
        ("a.jsonl", '{"source": "a", "target": "b"}\n', "translate"),
        ("a.csv", "image,caption\na.png,a dog\n", "caption"),
        ("a.csv", FORECAST_TABLE, "forecast"),
        ("a.tsv", FORECAST_TABLE.replace(",", "\t"), "forecast"),
        ("a.tsv", "date\ta\tb\n2020-01-01\t1\t2\n", "forecast"),
    ],
)
def test_the_task_of_a_file_is_guessed(tmp_path: Path, name: str, content: str, task: str):
    write_files(tmp_path, {name: content})
    guessed, reason = guess_task(str(tmp_path / name))
    assert guessed == task
    assert reason


@pytest.mark.parametrize(
    ("files", "task"),
    [
        ({"one.txt": "a text", "two.txt": "another"}, "language"),
        ({"train.csv": "text,label\ngood,yes\n", "test.csv": "text,label\nbad,no\n"}, "classify"),
        ({"eng.train": CONLL, "eng.testa": CONLL, "eng.testb": CONLL}, "tag"),
        ({"train.bio": CONLL, "test.bio": CONLL}, "tag"),
        ({"train.en": "a\n", "train.de": "b\n"}, "translate"),
        ({"train.en.gz": "a\n", "train.de.gz": "b\n", "README.md": "read me"}, "translate"),
        ({"captions.csv": "image,caption\na.png,a dog\n", "images/a.png": ""}, "caption"),
        ({"train.csv": FORECAST_TABLE, "valid.csv": FORECAST_TABLE, "test.csv": FORECAST_TABLE}, "forecast"),
        # Other files beside the data, without a suffix or with that of a file format.
        ({"train.csv": "text,label\ngood,yes\n", "LICENSE": "free", "README": "read me"}, "classify"),
        ({"train.csv": "image,caption\ndog,a dog\n", "dog.jpg": "", "dog.npy": ""}, "caption"),
        ({"book.txt": "a text", "book.jpg": "", "book.pdf": ""}, "language"),
        ({"dog.jpg": "", "dog.npy": ""}, "language"),  # whose reader reports that there is no text
    ],
)
def test_the_task_of_a_folder_is_guessed(tmp_path: Path, files: dict[str, str], task: str):
    assert guess_task(str(write_files(tmp_path, files)))[0] == task


def test_the_reason_names_parallel_files(tmp_path: Path):
    write_files(tmp_path, {"train.en": "a\n", "train.de": "b\n"})
    assert guess_task(str(tmp_path))[1] == "train.de and train.en are parallel files"


@pytest.mark.parametrize(
    ("name", "task"),
    [("docs", "language"), ("modules", "classify"), ("dates", "translate"), ("shapes", "caption")],
)
def test_the_task_of_builtin_data_is_guessed(name: str, task: str):
    assert guess_task(f"builtin:{name}")[0] == task


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_table_with_unknown_columns_is_rejected_with_a_suggestion(tmp_path: Path, separator: str):
    """It is not read as plain text by the language task."""
    rows = [("text", "sentiment", "id"), ("good", "yes", "1"), ("bad", "no", "2")]
    name = "a.csv" if separator == "," else "a.tsv"
    write_files(tmp_path, {name: "".join(separator.join(row) + "\n" for row in rows)})
    with pytest.raises(UsageError, match="--task classify --columns text,sentiment"):
        guess_task(str(tmp_path / name))


def test_a_missing_file_is_rejected(tmp_path: Path):
    with pytest.raises(DataError, match="no such file"):
        guess_task(str(tmp_path / "a.csv"))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_without_read_permission_is_rejected(tmp_path: Path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o000)
    try:
        with pytest.raises(SeqwiseError, match="cannot be read"):
            guess_task(str(folder))
    finally:
        folder.chmod(0o700)
