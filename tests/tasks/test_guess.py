"""Guessing the task from the data: every format of docs/data.md, and names that are ambiguous."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from seqwise.config import DataSettings, parse_settings
from seqwise.data.limits import get_limits
from seqwise.errors import DataError, SeqwiseError, UsageError
from seqwise.tasks import guess
from seqwise.tasks.guess import detect_task, guess_task

LABELS = "".join(f"film {number}\t{'yes' if number % 2 else 'no'}\n" for number in range(30))
PAIRS = "".join(f"word {number}\tWort {number}\n" for number in range(30))
CONLL = "Anna B-PER\nsleeps O\n\nBob B-PER\nwakes O\n"
FORECAST_TABLE = "date,value\n2020-01-01,1.5\n2020-01-02,2.5\n"


def test_the_guess_has_the_limits_of_the_settings(tmp_path: Path, monkeypatch):
    path, messages = write_files(tmp_path, {"a.csv": ""}) / "a.csv", []
    monkeypatch.setattr(guess, "_guess_from_file", lambda *_: ("tag", f"at most {get_limits().max_text_mb} MB"))
    assert guess_task(str(path), limits=DataSettings(max_text_mb=3))[1] == "at most 3 MB"
    detect_task(parse_settings({"data": {"max_text_mb": 4}}), str(path), messages.append)
    assert messages == ["task: tag, because at most 4 MB. Choose another with --task."]


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
        ("damaged.conll", "Ann B-PER\nlives\n\nhere\n", "tag"),
        ("damaged.bio", "Ann\nlives\n", "tag"),
        ("a.txt", CONLL, "tag"),
        ("a.bio", CONLL, "tag"),
        ("a.tsv", CONLL.replace(" ", "\t"), "tag"),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n', "tag"),
        ("a.csv", "source,target\na,b\n", "translate"),
        ("a.tsv", "source\ttarget\na\tb\n", "translate"),
        ("a.tsv", PAIRS, "translate"),
        ("a.jsonl", '{"source": "a", "target": "b"}\n', "translate"),
        ("a.csv", "image,caption\na.png,a dog\n", "caption"),
        ("a.csv", "text;label\ngood, really;yes\n", "classify"),
        ("a.tsv", "source|target\na|b\n", "translate"),
        ("a.json", '[{"text": "good", "label": 1}]', "classify"),
        ("a.csv", "date;value\n2020-01-01;1\n2020-01-02;2\n", "forecast"),
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


@pytest.mark.parametrize(
    ("name", "header", "columns", "task"),
    [
        ("a.csv", "Comment,Mood,id", "Comment,Mood", "classify"),
        ("a.csv", "Comment,Mood,id", "1,2", "classify"),
        ("a.tsv", "Comment\tMood\tid", "Comment,Mood", "classify"),
        ("a.jsonl", "Comment,Mood,id", "Comment,Mood", "classify"),
        ("a.csv", "label,TEXT,id", "TEXT,label", "classify"),
        ("a.csv", "source,target,id", "source,target", "translate"),
    ],
)
def test_the_task_is_guessed_from_chosen_columns(tmp_path: Path, name: str, header: str, columns: str, task: str):
    rows = [(f"film number {i}", "good" if i % 2 else "bad", str(i)) for i in range(40)]
    separator = "\t" if name.endswith(".tsv") else ","
    lines = [header, *map(separator.join, rows)]
    if name.endswith(".jsonl"):
        lines = [json.dumps(dict(zip(header.split(","), row))) for row in rows]
    write_files(tmp_path, {name: "\n".join(lines)})
    assert guess_task(str(tmp_path / name), columns=columns)[0] == task
    if task == "classify" and "Mood" in header:
        with pytest.raises(UsageError, match="--columns Comment,id does not determine the task"):
            guess_task(str(tmp_path / name), columns="Comment,id")
        with pytest.raises(DataError, match="Perhaps you meant 'Mood'"):
            guess_task(str(tmp_path / name), columns="Comment,Mod")


@pytest.mark.parametrize(("content", "task"), [(PAIRS, "translate"), (LABELS, "classify"), (CONLL, "tag")])
def test_chosen_columns_do_not_hide_what_the_lines_show(tmp_path: Path, content: str, task: str):
    write_files(tmp_path, {"a.tsv": content.replace(" B-", "\tB-").replace(" O", "\tO")})
    assert guess_task(str(tmp_path / "a.tsv"), columns="1,2")[0] == task


def test_no_columns_are_suggested_where_all_values_are_different(tmp_path: Path):
    write_files(tmp_path, {"a.csv": "text,customer\n" + "".join(f"film {i},{i}\n" for i in range(40))})
    with pytest.raises(UsageError) as excinfo:
        guess_task(str(tmp_path / "a.csv"))
    assert "such as" not in str(excinfo.value)


DAMAGED = gzip.compress(b"text,label\n" + os.urandom(2000).hex().encode())[:-200]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv.gz", DAMAGED, "the gzip file is damaged: it ends too early"),
        ("a.jsonl.gz", b"no gzip", "the gzip file is damaged"),
        ("a.csv", b"", "the file is empty"),
        ("a.txt", b" \n", "the file is empty"),
        ("a.json", b"[]", "the file is empty"),
        ("a.txt", b"one\ntwo \xe6\x97", "a.txt:2: byte 0xE6 at offset 8 .* the file is truncated"),
        ("a.csv", b"text,label\n\x00\x01\n", "a.csv:2: this is a binary file, not text: byte 0x00 at offset 11"),
        ("a.txt", b"PK\x03\x04", "a zip archive or an Office document, not UTF-8 text"),
        ("a.jsonl", b'{"text": "a", \n', "a.jsonl:1: not valid JSON"),
        ("a.json", b'[{"text": "a"\n', "a.json:2: not valid JSON"),
        ("a.parquet", b"PAR1 not really", "the Parquet file is damaged"),
        ("a.xlsx", b"not really", "the Excel file is damaged"),
        ("a.pdf", b"%PDF-1.7", r"PDF documents \(.pdf\) are not read.\nSeqwise reads .txt, .csv"),
        ("a.docx", b"PK", r"word processor documents \(.docx\) are not read.\nSeqwise reads .txt, .csv"),
        ("a.png", b"\x89PNG", r"images without captions \(.png\) are not read.\nSeqwise reads .txt, .csv"),
    ],
)
def test_damaged_and_unsupported_files_are_named_as_such(tmp_path: Path, name: str, content: bytes, problem: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=problem) as excinfo:
        guess_task(str(tmp_path / name))
    assert excinfo.value.file == tmp_path / name


def test_a_folder_without_data_names_what_is_in_it(tmp_path: Path):
    write_files(tmp_path, {"a.png": "", "b.png": "", "c.pdf": ""})
    with pytest.raises(DataError, match=r"contains no data that is read; found 2 .png, 1 .pdf.\nSeqwise reads .txt"):
        guess_task(str(tmp_path))


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
