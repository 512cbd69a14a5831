"""Invalid parallel texts, and the errors and warnings about each: file, line, cause, fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.tasks.translate.reader import read_pairs, warn_about_suspicious_pairs


def create_lines(word: str, count: int = 40) -> bytes:
    return "".join(f"{word} {'x' * (number * 7 % 23)} {number}\n" for number in range(count)).encode()


def remove_line(data: bytes, line: int) -> bytes:
    rows = data.splitlines(keepends=True)
    return b"".join(rows[: line - 1] + rows[line:])


def clear_lines(data: bytes, *numbers: int) -> bytes:
    rows = data.splitlines(keepends=True)
    for number in numbers:
        rows[number - 1] = b"\n"
    return b"".join(rows)


def insert_empty_line(data: bytes, line: int) -> bytes:
    rows = data.splitlines(keepends=True)
    return b"".join([*rows[: line - 1], b"\n", *rows[line - 1 :]])


EN, DE, FR = create_lines("one"), create_lines("eins"), create_lines("un")

# case → files, settings, what the error must say
ERRORS = {
    "a line is missing on one side": (
        {"train.en": EN, "train.de": remove_line(DE, 12)},
        {},
        "train.en:12: train.de has 39 lines but train.en has 40: from about line 12 on the pairs no longer match",
        "Add what is missing to train.de, or remove it from train.en.",
    ),
    "an empty line too many": (
        {"train.en": insert_empty_line(EN, 25), "train.de": DE},
        {},
        "train.en:25: train.de has 40 lines but train.en has 41: from line 25 on the pairs no longer match "
        "(train.en line 25 is empty).",
        "Remove that line from train.en, or pass --data.on-empty drop",
    ),
    "one side ends too early": (
        {"train.en": EN, "train.de": create_lines("eins", 31)},
        {},
        "train.en:32: train.de has 31 lines but train.en has 40: the lines of train.en from 32 on have no",
        "Add what is missing to train.de",
    ),
    "empty lines on one side": (
        {"train.en": EN, "train.de": clear_lines(DE, 3, 17)},
        {},
        "train.de:3: train.de is empty here, train.en is not.",
        "train.de:17:",
        "pass --data.on-empty drop to drop such pairs entirely.",
    ),
    "a third language does not match": (
        {"train.en": EN, "train.de": DE, "train.fr": remove_line(FR, 30)},
        {"target": "de,fr"},
        "train.fr has 39 lines but train.en has 40",
        "line 30",
    ),
    "an empty file": ({"train.en": EN, "train.de": b" \n"}, {}, "train.de: the file is empty."),
    "two encodings": (
        {"train.en": EN, "train.de": DE + "schön\n".encode() + "schön\n".encode("latin1")},
        {},
        "train.de:42: byte 0xF6 at offset",
        "mixes encodings",
    ),
    "damaged UTF-16": (
        {"train.en": EN, "train.de": DE.decode().encode("utf-16")[:-1]},
        {},
        "train.de: the UTF-16 text is damaged",
    ),
    "a damaged gzip file": (
        {"train.en": EN, "train.de.gz": b"\x1f\x8b nothing"},
        {},
        "train.de.gz: the gzip file is damaged",
    ),
    "two languages and no target": (
        {"train.en": EN, "train.de": DE},
        {"target": None},
        "there are texts in de and en: which one is the target?",
        "--target de or --target en",
    ),
    "three languages and no source": (
        {"train.en": EN, "train.de": DE, "train.fr": FR},
        {},
        "there are texts in de, en and fr: which one is the source?",
        "--columns en,de or --columns fr,de",
    ),
    "an unknown language": (
        {"train.en": EN, "train.de": DE},
        {"target": "dee"},
        "there is no text in 'dee'; there are de and en.",
        "Perhaps you meant 'de'.",
    ),
    "a test file without its partner": (
        {"train.en": EN, "train.de": DE, "train.fr": FR, "test.en": EN, "test.fr": FR},
        {"columns": "en,de"},
        "test.en: test.de is missing beside test.en.",
    ),
    "a text without a counterpart": ({"train.en": EN}, {}, "train.en: the file has no counterpart", "train.de"),
    "a folder without texts": ({"notes.md": b"x"}, {}, "contains no pairs (1 other file).", "train.en beside train.de"),
    "an empty folder": ({}, {}, "the folder is empty.", "Expected train.en beside train.de"),
    "the same text twice": (
        {"train.en": EN, "train.en.gz": b"", "train.de": DE},
        {},
        "train.en and train.en.gz are the same text twice.",
    ),
    "a table without a target": (
        {"train.csv": b"source,goal\na,b\n"},
        {"target": None},
        "train.csv:1: the header has no column target; it has source, goal.",
        "--columns source,goal",
    ),
    "a ragged row": (
        {"train.csv": b"source,target\na,b\nhello, world,c\n"},
        {"target": None},
        "train.csv:3: expected 2 fields as in line 1, found 3.",
        "must be quoted",
    ),
    "an unclosed quote": (
        {"train.csv": b'source,target\na,b\n"c,d\ne,f\n'},
        {"target": None},
        "train.csv:3: a quote is opened here and never closed.",
    ),
    "a row with an empty target": (
        {"train.tsv": b"source\ttarget\na\tb\nc\t\n"},
        {"target": None},
        "train.tsv:3: target is empty here, source is not.",
        "--data.on-empty drop",
    ),
    "a number instead of text": (
        {"train.jsonl": b'{"source": "a", "target": "b"}\n{"source": "c", "target": 7}\n'},
        {"target": None},
        "train.jsonl:2: expected text under target, found int.",
    ),
    "a key that is missing": (
        {"train.jsonl": b'{"source": "a", "target": "b"}\n{"source": "c"}\n'},
        {"target": None},
        "train.jsonl:2: expected target, found source.",
    ),
    "too few pairs": (
        {"train.csv": b"source,target\na,b\n"},
        {"target": None},
        "1 example is too few to hold some out",
    ),
}


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_names_file_line_cause_and_fix(tmp_path: Path, case: str):
    files, settings, *fragments = ERRORS[case]
    write_files(tmp_path, files)
    with pytest.raises(UsageError) as caught:
        read_pairs(str(tmp_path), Settings(**{"target": "de", **settings}))
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert caught.value.fix or "empty" in fragments[0] or "damaged" in fragments[0]


# case → files, the warning, the number of remaining pairs
DROPPED_PAIRS = {
    "empty on one side": (
        {"train.en": EN, "train.de": clear_lines(DE, 3, 17)},
        "2 pairs with an empty text, which are dropped (first: {}/train.de:3).",
        38,
    ),
    "empty lines too many": (
        {"train.en": insert_empty_line(EN, 25), "train.de": DE},
        "1 empty line without a corresponding line, which is dropped ({}/train.en:25).",
        40,
    ),
    "empty rows of a table": (
        {"train.jsonl": b'{"source": "a", "target": "b"}\n' * 9 + b'{"source": "c", "target": null}\n'},
        "1 pair with an empty text, which is dropped ({}/train.jsonl:10).",
        9,
    ),
}


@pytest.mark.parametrize("case", DROPPED_PAIRS)
def test_dropped_pairs_are_counted(tmp_path: Path, case: str):
    files, warning, num_pairs = DROPPED_PAIRS[case]
    write_files(tmp_path, files)
    target = None if "train.jsonl" in files else "de"
    splits = read_pairs(str(tmp_path), Settings(target=target, data={"on_empty": "drop"}))
    assert warning.format(tmp_path) in splits.findings.warning_messages()
    assert len(splits.all_examples()) == num_pairs


def test_dropping_misaligns_no_pair(tmp_path: Path):
    write_files(tmp_path, {"train.en": insert_empty_line(clear_lines(EN, 8), 25), "train.de": clear_lines(DE, 3, 30)})
    splits = read_pairs(str(tmp_path), Settings(target="de", data={"on_empty": "drop"}))
    pairs = splits.all_examples()
    assert len(pairs) == 37
    assert all(pair.source.split()[-1] == pair.targets[0].split()[-1] for pair in pairs)
    numbers = {pair.source.split()[-1]: pair.line for pair in pairs}
    assert numbers["20"] == 21
    assert numbers["39"] == 41  # the line of the file, not the number of the pair


def test_a_missing_line_is_an_error_even_if_empty_ones_are_dropped(tmp_path: Path):
    write_files(tmp_path, {"train.en": EN, "train.de": remove_line(DE, 12)})
    with pytest.raises(UsageError, match="from about line 12 on"):
        read_pairs(str(tmp_path), Settings(target="de", data={"on_empty": "drop"}))


# case → files, the warning or note
WARNINGS = {
    "empty lines at the end of one file": (
        {"train.en": EN + b"\n\n", "train.de": DE},
        "2 empty lines at the end of a file, which are skipped (first: {}/train.en:42).",
    ),
    "pairs of empty lines": (
        {"train.en": clear_lines(EN, 5), "train.de": clear_lines(DE, 5)},
        "1 pair without any text, which is dropped ({}/train.en:5).",
    ),
    "the same on both sides": (
        {"train.en": EN + b"same\n", "train.de": DE + b"same\n"},
        "1 pair whose target equals the source; it is kept ({}/train.en:41).",
    ),
    "test pairs in training": (
        {"train.en": EN, "train.de": DE, "test.en": EN[:40], "test.de": DE[:43]},
        "pairs of test are in train too, so they may be memorised",
    ),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_warnings_are_counted(tmp_path: Path, case: str):
    files, warning = WARNINGS[case]
    write_files(tmp_path, files)
    splits = read_pairs(str(tmp_path), Settings(target="de"))
    warn_about_suspicious_pairs(splits)
    messages = splits.findings.warning_messages() + splits.findings.note_messages()
    assert any(warning.format(tmp_path) in message for message in messages)
