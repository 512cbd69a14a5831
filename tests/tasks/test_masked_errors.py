"""Invalid text files for the masked task, and the errors and warnings about each: file, line, cause, fix."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from seqwise.config import parse_settings
from seqwise.errors import DataError, UsageError
from seqwise.tasks.defaults import DefaultsContext, resolve
from seqwise.tasks.language.task import Language
from seqwise.tasks.masked.task import Masked

GOOD = "the cat sat on the mat\n"
JSON = '{"text": "the cat sat on the mat"}\n'

# name, content, what the error must say
ERRORS = [
    ("mixed.txt", "le café\n".encode() + "le café\n".encode("latin1"), ["mixed.txt:2", "0xE9", "mixes encodings"]),
    ("wide.txt", (GOOD * 5).encode("utf-16")[:-1], ["wide.txt", "the UTF-16 text is damaged"]),
    ("binary.txt", GOOD.encode() + b"a\0b\n", ["binary.txt:2", "binary file", "0x00"]),
    ("empty.txt", b"", ["empty.txt", "empty", "Give a file with text"]),
    ("blank.txt", b" \n \n", ["blank.txt", "empty"]),
    ("field.jsonl", (JSON + '{"txt": "a"}\n').encode(), ["field.jsonl:2", "`text`", "found txt", "Rename"]),
    ("broken.jsonl", (JSON * 2 + '{"text": "a\n').encode(), ["broken.jsonl:3", "not valid JSON", "one object"]),
    ("number.jsonl", (JSON + '{"text": 5}\n').encode(), ["number.jsonl:2", "string under `text`"]),
    ("list.jsonl", b'["text"]\n', ["list.jsonl:1", "expected an object"]),
    ("damaged.txt.gz", gzip.compress((GOOD * 500).encode())[:40], ["damaged.txt.gz", "gzip", "damaged"]),
    ("one.txt", b"aaaa\n" * 50, ["one symbol", "'a'", "at least two different"]),
    ("short.txt", b"the cat", ["short.txt", "too short to split", "Give a longer text"]),
    ("few.jsonl", (JSON * 2).encode(), ["few.jsonl", "2 documents are too few"]),
    ("table.xlsx", b"PK", ["table.xlsx", ".xlsx", ".txt"]),
]


@pytest.mark.parametrize(("name", "content", "fragments"), ERRORS, ids=[name for name, _, _ in ERRORS])
def test_an_error_names_file_line_cause_and_fix(name: str, content: bytes, fragments: list[str], tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        Masked.prepare(str(tmp_path / name), parse_settings({"task": "masked"}))
    message = str(caught.value)
    assert [fragment for fragment in fragments if fragment not in message] == []
    assert caught.value.exit_status == 2


def test_the_error_for_a_missing_file_suggests_a_similar_name(tmp_path: Path):
    (tmp_path / "book.txt").write_text(GOOD)
    with pytest.raises(DataError, match=r"bok\.txt: there is no such file(.|\n)*book\.txt"):
        Masked.prepare(str(tmp_path / "bok.txt"), parse_settings({"task": "masked"}))


def test_a_text_shorter_than_a_window_is_rejected(tmp_path: Path):
    (tmp_path / "a.txt").write_text(GOOD * 40)
    settings = parse_settings({"task": "masked", "data": {"window": 5000}})
    task = Masked.prepare(str(tmp_path / "a.txt"), settings)
    with pytest.raises(DataError, match=r"the train text has 252 tokens(.|\n)*--data.window"):
        task.check(resolve(settings, DefaultsContext(300, 9, False, 1))[0])


def test_unknown_words_and_repeated_lines_are_counted(tmp_path: Path):
    long = "a line that is long enough not to occur twice by chance, because it has so many letters in it\n"
    (tmp_path / "train.txt").write_text(GOOD * 40 + long * 2)
    (tmp_path / "valid.txt").write_text(GOOD * 10 + long)
    (tmp_path / "test.txt").write_text(GOOD * 5 + "zebras graze here\n" * 5)
    task = Masked.prepare(str(tmp_path), parse_settings({"task": "masked"}))
    assert task.count_data()["test"]["unknown"] == 15
    unknown, repeated = task.warnings()
    assert "of the test tokens are <unk>" in unknown
    assert repeated.startswith("1 long line is in valid as well as in train")


@pytest.mark.parametrize("task", [Masked, Language])
def test_the_option_columns_is_rejected_for_plain_text(task: type[Language], tmp_path: Path):
    (tmp_path / "a.jsonl").write_text(JSON * 40)
    settings = parse_settings({"task": "masked" if task is Masked else "language", "columns": "body"})
    with pytest.raises(UsageError, match=r"does not use --columns; received body.*\n.*`text` of .jsonl"):
        task.prepare(str(tmp_path / "a.jsonl"), settings)
