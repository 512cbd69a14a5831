"""Invalid files of labelled texts, and the errors and warnings about each: file, line, cause, fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.config import Settings
from seqwise.errors import DataError
from seqwise.tasks.classify.task import Classify

GOOD = "".join(f"a good one {number},yes\na bad one {number},no\n" for number in range(20))
TABS = GOOD.replace(",", "\t")

# case → files, what the error must say
ERRORS = {
    "two encodings": (
        {"a.csv": f"{GOOD}café,yes\n".encode() + b"caf\xe9,yes\n"},
        ["a.csv:42: byte 0xE9", "mixes encodings", "--data.encoding"],
    ),
    "damaged UTF-16": ({"a.csv": GOOD.encode("utf-16")[:-1]}, ["a.csv: ", "the UTF-16 text is damaged"]),
    "binary": ({"a.csv": GOOD.encode() + b"\0"}, ["a.csv:41: ", "binary"]),
    "empty file": ({"a.csv": b""}, ["a.csv: the file is empty", "text, label"]),
    "header alone": ({"a.csv": b"text,label\n"}, ["a.csv: no examples were found"]),
    "broken gzip": ({"a.csv.gz": b"\x1f\x8b\x08nothing"}, ["a.csv.gz: the gzip file is damaged"]),
    "ragged": ({"a.csv": f"{GOOD}one, two,yes\n"}, ["a.csv:41: expected 2 fields", "found 3", "quoted"]),
    "too few fields": ({"a.tsv": f"{TABS}no tab here\n"}, ["a.tsv:41: expected 2 fields", "found 1", "tab"]),
    "unclosed quote": ({"a.csv": f'{GOOD}"open,yes\nlast,no\n'}, ["a.csv:41: a quote is opened", 'double a quote']),
    "text after a quote": ({"a.csv": f'{GOOD}"done"more,yes\n'}, ["a.csv:41: not valid CSV", 'double a quote']),
    "a repeated header": ({"a.csv": f"text,label\n{GOOD}text,label\n"}, ["a.csv:42: ", "is repeated"]),
    "two columns of one name": ({"a.csv": "text,label,text\na,b,c\n"}, ["a.csv:1: ", "two columns are called 'text'"]),
    "header with other names": ({"a.csv": f"review,mood\n{GOOD}"}, ["a.csv:1: ", "header", "--columns 'review,mood'"]),
    "header without a text column": ({"a.csv": f"review,label\n{GOOD}"}, ["a.csv:1: ", "no column text", "--columns"]),
    "empty text": ({"a.csv": f"{GOOD} ,yes\n"}, ["a.csv:41: the text of this example is empty", "on-empty drop"]),
    "empty label": ({"a.tsv": f"{TABS}a text\t\n"}, ["a.tsv:41: the label of this example is empty", "on-empty"]),
    "both empty": ({"a.tsv": f"{TABS}\t\n"}, ["a.tsv:41: the text and the label of this example are empty"]),
    "columns swapped": ({"a.csv": "".join(f"{'ab'[n % 2]},text {n}\n" for n in range(40))},
                        ["a.csv: ", "columns may be swapped", "--columns 2,1"]),
    "one label": ({"a.csv": GOOD.replace(",no", ",yes")}, ["a.csv: ", "one label, 'yes'", "at least two"]),
    "unknown label": ({"train.csv": GOOD, "valid.csv": GOOD, "test.csv": f"{GOOD}odd,maybe\n"},
                      ["test.csv:41: the label 'maybe'", "The training labels are: no, yes"]),
    "not json": ({"a.jsonl": '{"text": "a", "label": 1}\n{"text": "b", label: 0}\n'}, ["a.jsonl:2: not valid JSON"]),
    "missing key": ({"a.jsonl": '{"text": "a", "label": 1}\n{"txt": "b", "label": 0}\n'},
                    ["a.jsonl:2: expected text, found txt, label", "--columns"]),
    "null label": ({"a.jsonl": '{"text": "a", "label": null}\n'}, ["a.jsonl:1: expected a string", "found null"]),
    "list as text": ({"a.jsonl": '{"text": [1], "label": 1}\n'}, ["a.jsonl:1: expected a string", "found [1]"]),
    "no table": ({"a.pdf": b"%PDF"}, ["a.pdf: PDF documents (.pdf) are not read", ".csv, .tsv, .jsonl"]),
    "too few": ({"a.csv": "good,1\nbad,0\n"}, ["a.csv: 2 examples are too few", "train.*, valid.* and test.*"]),
}  # fmt: skip


def write(folder: Path, files: dict[str, str | bytes]) -> str:
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder / next(iter(files)) if len(files) == 1 else folder)


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_names_file_line_cause_and_fix(tmp_path: Path, case: str):
    files, fragments = ERRORS[case]
    with pytest.raises(DataError) as caught:
        Classify.prepare(write(tmp_path, files), Settings(task="classify"))
    assert [fragment for fragment in fragments if fragment not in str(caught.value)] == [], str(caught.value)


# case → files, settings, what the warning must say
WARNINGS = {
    "blank lines": ({"a.csv": f"\n{GOOD}"}, {}, ["1 blank line, which is skipped", "a.csv:1"]),
    "empty texts": ({"a.csv": f"{GOOD},yes\n"}, {"data": {"on_empty": "drop"}},
                    ["1 example with an empty text", "dropped", "a.csv:41"]),
    "long texts": ({"a.csv": f"{GOOD}{'word ' * 30},yes\n"}, {"data": {"max_length": 20}},
                   ["1 text of more than 20 tokens, which is truncated", "a.csv:41"]),
    "texts of the training split": ({"train.csv": GOOD, "valid.csv": "new,yes\n", "test.csv": f"new,yes\n{GOOD}"}, {},
                         ["40 texts of test are in train too", "test.csv:2"]),
    "contradictions": ({"train.csv": f"{GOOD}a bad one 3,yes\n", "valid.csv": "new,yes\n", "test.csv": "new,yes\n"}, {},
                       ["1 text of train comes with different labels", "train.csv:41"]),
    "file without a split": ({"train.csv": GOOD, "valid.csv": "new,yes\n", "test.csv": "b,no\n", "notes.txt": "x"}, {},
                             ["1 file whose name contains no split", "notes.txt"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WARNINGS)
def test_warnings_are_counted_and_logged(tmp_path: Path, case: str):
    files, settings, fragments = WARNINGS[case]
    messages: list[str] = []
    data = write(tmp_path, files)
    task = Classify.prepare(data, Settings.model_validate({"task": "classify", **settings}), log=messages.append)
    assert [fragment for fragment in fragments if fragment not in "\n".join(messages)] == [], messages
    logged = {line for line in messages if line.startswith(("note: ", "warning: "))}
    assert logged == {f"note: {note}" for note in task.notes()} | {f"warning: {text}" for text in task.warnings()}


def test_errors_of_all_files_are_reported_together(tmp_path: Path):
    files = {"train.csv": f"{GOOD}a,b,c\n", "valid.csv": f"{GOOD},yes\n", "test.csv": "\n"}
    with pytest.raises(DataError) as caught:
        Classify.prepare(write(tmp_path, files), Settings(task="classify"))
    text = str(caught.value)
    assert text.startswith("3 errors in the data:")
    assert all(location in text for location in ("train.csv:41: ", "valid.csv:41: ", "test.csv: the file is empty"))
