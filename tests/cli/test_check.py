"""`seqwise check` as a user sees it."""

from __future__ import annotations

import json
import re
import shlex

import pytest


def test_a_clean_text_is_described(seqwise_command, book):
    result = seqwise_command("check", book, "--task", "language")
    lines = result.out.splitlines()
    assert result.status == 0
    assert result.err == ""
    assert [line.split()[0] for line in lines[:4]] == ["split", "train", "valid", "test"]
    assert lines[-1] == "no errors."


def test_json_is_one_document_with_the_counts(seqwise_command, book):
    result = seqwise_command("check", book, "--task", "language", "--json")
    document = json.loads(result.out)
    assert result.err == ""
    assert sum(split["characters"] for split in document["splits"].values()) == len(book.read_text())
    assert document["tokenizer"] == "characters"
    assert document["warnings"] == []


def test_a_leak_between_the_splits_is_a_warning(seqwise_command, tmp_path):
    line = "the same long line in two splits is memorised and then measured as if it had been understood\n"
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(line if split != "valid" else "another\n")
    result = seqwise_command("check", tmp_path, "--task", "language")
    assert result.status == 0
    assert result.err.startswith("warning: 1 long line is in test as well as in train")
    assert result.out.endswith("no errors, 1 warning.\n")
    document = json.loads(seqwise_command("check", tmp_path, "--task", "language", "--json").out)
    assert len(document["warnings"]) == 1


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.jsonl",
            b'{"text": "a b"}\n{"txt": "c"}\n',
            ":2: expected an object with a string under `text`, found txt.",
        ),
        ("a.jsonl", b"{\n", ":1: not valid JSON"),
        ("a.txt", b"g\xc3\xb6d\nb\xe9d\n", ":2: byte 0xE9 at offset 6 (line 2) is not UTF-8. 1 other character is"),
        ("a.csv", b"a,b\n", ": files ending in '.csv' are not read."),
        ("a.txt.gz", b"not gzip", ": the gzip file is damaged"),
    ],
)
def test_an_error_has_file_line_cause_and_fix(seqwise_command, tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    result = seqwise_command("check", path, "--task", "language")
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith(f"error: {path}{expected}")
    assert len(result.err.splitlines()) == 2


def test_the_task_is_inferred_and_the_reason_printed(seqwise_command, book):
    result = seqwise_command("check", book)
    assert result.err == "task: language, because it is plain text. Choose another with --task.\n"


def test_json_contains_the_errors(seqwise_command, tmp_path):
    path = tmp_path / "ragged.csv"
    path.write_text("text,label\ngood,1\nbad\nugly,1,2\n")
    result = seqwise_command("check", path, "--json")
    assert result.status == 2
    errors = json.loads(result.out)["errors"]
    assert [(error["file"], error["line"]) for error in errors] == [(str(path), 3), (str(path), 4)]
    assert all(error["problem"] and error["fix"] for error in errors)
    assert all(error["repair"] == error["fix"] for error in errors)  # the old key


VALUES = {
    **dict.fromkeys(("Text", "text", "comment"), lambda i: f"this is film number {i}"),
    **dict.fromkeys(("stars", "Stars", "Bewertung", "my mood"), lambda i: "good" if i % 3 else "bad"),
}  # column → its value in row i; those of other columns are all different


@pytest.mark.parametrize(
    ("header", "words", "columns"),
    [
        ("id,Text,stars", [], "Text,stars"),
        ("id,Text,stars", ["--task", "classify"], "Text,stars"),
        ("Bewertung,Text,Kunde", [], "Text,Bewertung"),
        ("Bewertung,Text,Kunde", ["--task", "classify"], "Text,Bewertung"),
        (",Text,Stars", ["--task", "classify"], "Text,Stars"),
        ("Unnamed: 0,text,Stars", [], "text,Stars"),
        ("reviewId,comment,my mood", [], "comment,my mood"),
    ],
)
def test_suggested_columns_work_as_printed(seqwise_command, tmp_path, header, words, columns):
    """Names are those of the file, in the order text,label; an ID is never the label."""
    names, path = header.split(","), tmp_path / "reviews.csv"
    rows = [",".join(VALUES.get(name, str)(i) for name in names) for i in range(80)]
    path.write_text("\n".join([header, *rows]))
    result = seqwise_command("check", path, *words)
    assert result.status == 2
    assert re.search(rf"--columns {re.escape(shlex.quote(columns))}\.?$", result.err, flags=re.MULTILINE), result.err
    result = seqwise_command("check", path, "--columns", columns)
    assert result.status == 0, result.err
    label = columns.split(",")[1]
    assert f"task: classify, because the column {label} has only 2 different values (bad, good)." in result.err
