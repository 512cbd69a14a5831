"""Reading labelled texts: tables, labels, splits, and the built-in docstrings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from seqwise.config import DataSettings, Settings
from seqwise.data.examples import Splits
from seqwise.errors import DataError, Findings
from seqwise.tasks.classify.reader import (
    MODULES,
    LabelledText,
    check_labels,
    format_label,
    iterate_docstrings,
    read_labelled_data,
    read_labelled_table,
    sort_labels,
)

LINES = [f"text {number}\t{'ab'[number % 2]}" for number in range(40)]


def read_data(path: Path, stratify: bool | None = None, **data) -> Splits[LabelledText]:
    settings = Settings(data=DataSettings.model_construct(**data), classify={"stratify": stratify})
    return read_labelled_data(str(path), settings)


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_text_and_label_are_stripped(tmp_path: Path):
    path = write(tmp_path / "a.csv", ["text,label", "  good film ,  yes "])
    assert read_labelled_table(path, Findings()) == [LabelledText("good film", "yes", str(path), 2)]


@pytest.mark.parametrize(
    ("value", "label"),
    [("a", "a"), (1, "1"), (0.5, "0.5"), (True, "true"), (False, "false"), (None, None), ([1], None), ({}, None)],
)
def test_a_label_is_converted_to_a_string(value, label):
    assert format_label(value) == label


def test_labels_are_sorted_by_value_if_all_are_numbers_else_by_spelling():
    assert sort_labels({"10", "9", "-1"}) == ["-1", "9", "10"]
    assert sort_labels({"10", "9", "good"}) == ["10", "9", "good"]


def test_a_folder_keeps_its_splits_and_a_file_is_split(tmp_path: Path):
    for name in ("train.tsv", "dev.tsv", "test.txt"):
        write(tmp_path / name, LINES)
    splits = read_data(tmp_path)
    assert {split: len(part) for split, part in splits.parts.items()} == {"train": 40, "valid": 40, "test": 40}
    splits = read_data(tmp_path / "train.tsv", valid_fraction=0.1, test_fraction=0.2)
    assert {split: len(part) for split, part in splits.parts.items()} == {"train": 28, "valid": 4, "test": 8}
    assert sort_labels({example.label for example in splits.parts["train"]}) == ["a", "b"]


def test_every_label_occurs_in_training_after_a_split(tmp_path: Path):
    rare = [f"rare {number}\tr{number}" for number in range(20)]
    path = write(tmp_path / "a.tsv", LINES + rare)
    splits = read_data(path, stratify=False, valid_fraction=0.2, test_fraction=0.2)
    check_labels(splits)
    assert {example.label for example in splits.parts["train"]} == {"a", "b", *(f"r{number}" for number in range(20))}
    assert len(splits.all_examples()) == 60
    (sentence,) = [line for line in splits.findings.warning_messages() if "held-out" in line]
    assert "which are put back into training" in sentence
    stratified = read_data(path, valid_fraction=0.2, test_fraction=0.2)
    check_labels(stratified)
    assert [len(stratified.parts[split]) for split in ("train", "valid", "test")] == [36, 12, 12]
    assert not [line for line in stratified.findings.warning_messages() if "held-out" in line]


def test_no_split_is_empty(tmp_path: Path):
    """If all held-out examples are put back, others are held out whose labels still occur in training."""
    rare = [f"rare {number}\tr{number}" for number in range(20)]
    splits = read_data(write(tmp_path / "a.tsv", LINES[:6] + rare), stratify=False)
    assert any("put back into training" in sentence for sentence in splits.findings.warning_messages())
    check_labels(splits)
    assert [len(splits.parts[split]) for split in ("train", "valid", "test")] == [24, 1, 1]
    assert len({example.text for example in splits.all_examples()}) == 26


def test_labels_that_all_occur_once_cannot_be_split(tmp_path: Path):
    path = write(tmp_path / "a.tsv", [f"text {number}\tr{number}" for number in range(9)])
    with pytest.raises(DataError, match=r"a.tsv: 9 examples are too few.*labels have more than one"):
        check_labels(read_data(path))
    assert len(read_data(path, valid_fraction=0.0, test_fraction=0.0).parts["train"]) == 9


def test_too_few_examples_are_counted_over_all_splits(tmp_path: Path):
    path = write(tmp_path / "a.tsv", ["good\tpos", "bad\tneg", "fine\tpos"])
    with pytest.raises(DataError, match=r"a.tsv: 3 examples are too few.*labels have more than one"):
        check_labels(read_data(path))


@pytest.mark.parametrize("ending", ["tsv", "txt"])
def test_columns_can_be_named_if_the_first_line_looks_like_a_header(tmp_path: Path, ending: str):
    path = write(tmp_path / f"a.{ending}", ["review\tmood", *LINES])
    findings = Findings()
    read_labelled_table(path, findings)
    assert "looks like a header" in findings.errors[0].problem
    assert "--columns 'review,mood'" in findings.errors[0].fix
    assert len(read_labelled_table(path, Findings(), ["review", "mood"])) == 40
    by_number = Findings()
    assert len(read_labelled_table(path, by_number, ["1", "2"])) == 41
    assert len(by_number.warning_messages()) == 1
    assert "is read as an example" in by_number.warning_messages()[0]


def test_examples_with_an_empty_field_are_dropped_and_counted_on_request(tmp_path: Path):
    path = write(tmp_path / "a.csv", ["good,1", ",0", "bad,", "fine,1", "poor,0"])
    findings = Findings()
    assert [example.text for example in read_labelled_table(path, findings, on_empty="drop")] == [
        "good",
        "fine",
        "poor",
    ]
    assert findings.warning_messages() == [
        f"1 example with an empty text, which is dropped ({path}:2).",
        f"1 example with an empty label, which is dropped ({path}:3).",
    ]


def test_duplicates_contradictions_and_rare_labels_are_counted(tmp_path: Path):
    write(tmp_path / "train.tsv", [*LINES * 3, "text 0\tb", "odd\tc"])
    write(tmp_path / "valid.tsv", ["text 1\tb", "new\ta"])
    write(tmp_path / "test.tsv", ["new\ta"])
    splits = read_data(tmp_path)
    check_labels(splits)
    assert splits.findings.warning_messages() == [
        f"1 text of valid is in train too, so it may be memorised ({tmp_path / 'valid.tsv'}:1).",
        f"1 text of train comes with different labels; it is kept ({tmp_path / 'train.tsv'}:121).",
        "1 label is rare: 'c' has 1 of 122 training examples, 'b' has 61; macro_f1 says more than accuracy then; "
        "--classify.class-weights balanced gives all labels equal weight.",
    ]


@pytest.mark.slow
def test_the_builtin_docstrings_are_many_and_do_not_name_their_module():
    examples = list(iterate_docstrings())
    counts = Counter(example.label for example in examples)
    assert set(counts) <= set(MODULES)
    assert len(examples) > 1_000
    assert min(counts.values()) > 30
    assert [example for example in examples if example.label in example.text.lower()] == []
    assert len({example.text for example in examples}) == len(examples)
    assert all(example.file.startswith("builtin:modules/") and example.line > 0 for example in examples)
    assert not any(":modules//" in example.file for example in examples)
