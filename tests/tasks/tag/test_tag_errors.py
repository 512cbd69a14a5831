"""Invalid files for tagging, and the errors and warnings about each: file, line, cause, fix."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from seqwise.config import Settings
from seqwise.errors import DataError, UsageError
from seqwise.tasks.tag.reader import TaggedSplits, read_tagged_data
from seqwise.tasks.tag.task import Tag

GOOD = "EU B-ORG\nrejects O\n\nPeter B-PER\nBlackburn I-PER\n\nYes O\n\nNo O\n\n"
FIVE_WORDS = "one O\ntwo O\nthree O\nfour O\nfive O\n\n"

# case → files, settings, what the error must say
ERRORS = {
    "a missing tag column": ({"a.conll": "EU\nrejects\n"}, {}, ["a.conll:1", "one column", "tags are missing"]),
    "a tag missing in one line": (
        {"a.conll": GOOD + "EU\n"},
        {},
        ["a.conll:11", "expected 2 columns as in line 1", "found 1", "'EU'"],
    ),
    "a column too many": ({"a.conll": GOOD + "New York B-LOC\n"}, {}, ["a.conll:11", "expected 2 columns", "found 3"]),
    "an empty tag after a tab": ({"a.tsv": "EU\tB-ORG\nno\t\n"}, {}, ["a.tsv:2", "expected 2 columns", "missing"]),
    "an empty word before a tab": ({"a.tsv": "EU\tB-ORG\n\tO\n"}, {}, ["a.tsv:2", "the word is empty"]),
    "a malformed tag": ({"a.conll": GOOD + "Oslo Q-LOC\n"}, {}, ["a.conll:11", "'Q-LOC'", "'Oslo'", "not BIO"]),
    "a type without a prefix": ({"a.conll": GOOD + "Oslo LOC\n"}, {}, ["a.conll:11", "'LOC'", "--tag.scheme plain"]),
    "an unknown column": ({"a.conll": GOOD}, {"columns": "1,4"}, ["a.conll:1", "no column 4", "has 2"]),
    "columns by name": ({"a.conll": GOOD}, {"columns": "word,tag"}, ["--columns", "word,tag", "--columns 1,2"]),
    "plain text": ({"a.txt": "This is a book.\nIt has lines.\n"}, {}, ["a.txt:2", "expected 4 columns", "found 3"]),
    "unequal lists": ({"a.jsonl": '{"tokens": ["a", "b"], "tags": ["O"]}\n'}, {}, ["a.jsonl:1", "2 tokens but 1 tags"]),
    "tags as a string": (
        {"a.jsonl": '{"tokens": ["a"], "tags": "O"}\n'},
        {},
        ["a.jsonl:1", "a list under 'tags'", "str"],
    ),
    "tags as numbers": (
        {"a.jsonl": '{"tokens": ["a"], "tags": [3]}\n'},
        {},
        ["a.jsonl:1", "found 3", "names of the tags"],
    ),
    "a blank token": (
        {"a.jsonl": '{"tokens": ["a", " "], "tags": ["O", "O"]}\n'},
        {},
        ["a.jsonl:1", "entry 2", "blank"],
    ),
    "no tags at all": (
        {"a.jsonl": '{"tokens": ["a"]}\n'},
        {},
        ["a.jsonl: there is no column tags", "--columns"],
    ),
    "no words": ({"a.jsonl": '{"tokens": [], "tags": []}\n'}, {}, ["a.jsonl:1", "no words", "--data.on-empty drop"]),
    "broken JSON": ({"a.jsonl": '{"tokens": ["a"], "tags": ["O"]\n'}, {}, ["a.jsonl:1", "not valid JSON"]),
    "an empty file": ({"a.conll": "\n\n"}, {}, ["a.conll", "no examples"]),
    "one sentence": ({"a.conll": "EU B-ORG\n"}, {}, ["a.conll", "too few"]),
    "one tag": ({"a.conll": "a X\n\nb X\n\nc X\n\nd X\n"}, {}, ["a.conll", "all words have the tag 'X'", "--columns"]),
    "two encodings": (
        {"a.conll": f"{GOOD}Genève B-LOC\n".encode() + "Genève B-LOC\n".encode("latin1")},
        {},
        ["a.conll:12", "not UTF-8", "mixes encodings"],
    ),
    "a damaged gzip": ({"a.conll.gz": gzip.compress(GOOD.encode())[:-9]}, {}, ["a.conll.gz", "damaged"]),
    "a folder without tags": (
        {"README": "x", "notes.md": "x"},
        {},
        [
            "the folder contains no data that this task reads (2 other files).\nGive .conll, .conll03, .bio, .iob, "
            ".tsv, .txt, .jsonl, .json, .parquet, a file named after its split such as eng.train, gzip of these, or a "
            "folder of them."
        ],
    ),
    "a mistake in the test split": (
        {"train.conll": GOOD, "test.conll": GOOD + "EU\n"},
        {},
        ["test.conll:11", "found 1"],
    ),
}


def read_data(path: str | Path, **settings) -> TaggedSplits:
    return read_tagged_data(path, Settings(**settings))


def write_files(folder: Path, files: dict) -> Path:
    """Writes the files; returns their folder, or the file if there is only one."""
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / next(iter(files)) if len(files) == 1 else folder


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_names_file_line_cause_and_fix(tmp_path: Path, case: str):
    files, settings, fragments = ERRORS[case]
    with pytest.raises((DataError, UsageError)) as caught:
        Tag.prepare(str(write_files(tmp_path, files)), Settings(**settings))
    assert [fragment for fragment in fragments if fragment not in str(caught.value)] == []


# case → content, what the warnings must say
WARNINGS = {
    "I- without B-": (
        GOOD + "the O\nUN I-ORG\n",
        ["1 tag that BIO does not allow", "I-ORG without a B-ORG", "conlleval", "a.conll:12"],
    ),
    "B- in IOB1": (
        "EU I-ORG\nUN I-ORG\n\nOslo I-LOC\n\nx O\ny B-PER\n\nz O\n",
        ["1 tag that IOB1 does not", "a.conll:7"],
    ),
    "E- without B-": (
        "EU S-ORG\n\nx O\nUN E-ORG\n\ny O\n\nz O\n",
        ["1 tag that BIOES does not", "E-ORG without", "a.conll:4"],
    ),
    "B- without an end": ("EU S-ORG\n\nUN B-ORG\nx O\n\ny O\n\nz O\n", ["B-ORG whose span has no end", "a.conll:3"]),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_warnings_are_counted(tmp_path: Path, case: str):
    content, fragments = WARNINGS[case]
    messages = " ".join(read_data(write_files(tmp_path, {"a.conll": content})).findings.warning_messages())
    assert [fragment for fragment in fragments if fragment not in messages] == []


def test_a_scheme_violation_is_read_as_conlleval_reads_it(tmp_path: Path):
    messages: list[str] = []
    task = Tag.prepare(
        str(write_files(tmp_path, {"a.conll": GOOD + "the O\nUN I-ORG\n"})), Settings(), log=messages.append
    )
    assert any("I-ORG without a B-ORG before it" in message for message in messages)
    assert task.vocabulary.get_tag_ids(["O", "I-ORG"]) == [0, task.vocabulary.tags.index("S-ORG")]


def test_differences_between_splits_are_counted(tmp_path: Path):
    files = {
        "train.conll": GOOD + FIVE_WORDS,
        "valid.conll": GOOD + FIVE_WORDS,
        "test.conll": "Oslo B-LOC\nis O\n\n" + FIVE_WORDS,
    }
    messages = " ".join(read_data(write_files(tmp_path, files)).findings.warning_messages())
    assert "1 tag of the test split is 'LOC', never seen in training; it counts as an error" in messages
    assert "test.conll:1" in messages
    assert "1 sentence of 5 words or more in valid is in train too" in messages
    assert "1 sentence of 5 words or more in test is in train too" in messages


def test_sentences_without_words_are_dropped_on_request(tmp_path: Path):
    line = '{"tokens": ["a", "b"], "tags": ["B-X", "O"]}\n'
    path = write_files(tmp_path, {"a.jsonl": 4 * line + '{"tokens": [], "tags": []}\n'})
    splits = read_data(path, data={"on_empty": "drop"})
    assert len(splits.all_examples()) == 4
    assert f"1 sentence without words, which is dropped ({path}:5)." in splits.findings.warning_messages()


def test_long_sentences_are_split_and_counted(tmp_path: Path):
    messages: list[str] = []
    path = write_files(tmp_path, {"a.conll": GOOD + "x O\n" * 9})
    Tag.prepare(str(path), Settings(data={"max_length": 4}), log=messages.append)
    assert f"note: 1 sentence is longer than 4 words; it is read in pieces ({path}:11)." in messages


def test_many_errors_are_reported_together(tmp_path: Path):
    with pytest.raises(DataError, match="2 errors in the data") as caught:
        read_data(write_files(tmp_path, {"a.conll": GOOD + "EU\nUN O O\n"}))
    assert "a.conll:11" in str(caught.value)
    assert "a.conll:12" in str(caught.value)
