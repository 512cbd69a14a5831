"""Which task data is for: every format of docs/data.md, and names that only look like one."""

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
STAMPS = "date,value\n2020-01-01,1.5\n2020-01-02,2.5\n"


def written(folder: Path, files: dict[str, str]) -> Path:
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
        ("a.csv", STAMPS, "forecast"),
        ("a.tsv", STAMPS.replace(",", "\t"), "forecast"),
        ("a.tsv", "date\ta\tb\n2020-01-01\t1\t2\n", "forecast"),
    ],
)
def test_a_file_tells_its_task(tmp_path: Path, name: str, content: str, task: str):
    written(tmp_path, {name: content})
    found, why = guess_task(str(tmp_path / name))
    assert found == task
    assert why


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
        ({"train.csv": STAMPS, "valid.csv": STAMPS, "test.csv": STAMPS}, "forecast"),
        # Files that lie beside the data and have no ending, or that of a format.
        ({"train.csv": "text,label\ngood,yes\n", "LICENSE": "free", "README": "read me"}, "classify"),
        ({"train.csv": "image,caption\ndog,a dog\n", "dog.jpg": "", "dog.npy": ""}, "caption"),
        ({"book.txt": "a text", "book.jpg": "", "book.pdf": ""}, "language"),
        ({"dog.jpg": "", "dog.npy": ""}, "language"),  # which says that it holds no text
    ],
)
def test_a_folder_tells_its_task(tmp_path: Path, files: dict[str, str], task: str):
    assert guess_task(str(written(tmp_path, files)))[0] == task


def test_files_side_by_side_are_named(tmp_path: Path):
    written(tmp_path, {"train.en": "a\n", "train.de": "b\n"})
    assert guess_task(str(tmp_path))[1] == "train.de and train.en are parallel files"


@pytest.mark.parametrize(
    ("name", "task"),
    [("docs", "language"), ("modules", "classify"), ("dates", "translate"), ("shapes", "caption")],
)
def test_builtin_data_tells_its_task(name: str, task: str):
    assert guess_task(f"builtin:{name}")[0] == task


@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_table_of_text_and_something_else_is_not_guessed(tmp_path: Path, mark: str):
    """No table is read as plain text, so it is not for the task language."""
    rows = [("text", "sentiment", "id"), ("good", "yes", "1"), ("bad", "no", "2")]
    name = "a.csv" if mark == "," else "a.tsv"
    written(tmp_path, {name: "".join(mark.join(row) + "\n" for row in rows)})
    with pytest.raises(UsageError, match="--task classify --columns text,sentiment"):
        guess_task(str(tmp_path / name))


def test_what_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no such file"):
        guess_task(str(tmp_path / "a.csv"))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_refused(tmp_path: Path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    try:
        with pytest.raises(SeqwiseError, match="cannot be read"):
            guess_task(str(closed))
    finally:
        closed.chmod(0o700)
