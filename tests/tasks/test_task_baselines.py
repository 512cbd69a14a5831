"""What needs no model, task by task, against numbers counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.config import parse_settings
from seqwise.tasks import get_task
from seqwise.tasks.task import Task


def prepared(task: str, folder: Path) -> Task:
    return get_task(task).prepare(str(folder), parse_settings({"task": task}))


def write(folder: Path, ending: str, **splits: str) -> Path:
    for name, text in splits.items():
        (folder / f"{name}.{ending}").write_text(text, encoding="utf-8")
    return folder


def test_the_most_frequent_label_is_that_of_the_training_split(tmp_path: Path):
    rows = {"train": "ababb", "valid": "ab", "test": "aaab"}  # b is the most frequent there, a in the test split
    texts = {split: "".join(f"word {at} of {split}\t{label}\n" for at, label in enumerate(labels))
             for split, labels in rows.items()}  # fmt: skip
    (found,) = prepared("classify", write(tmp_path, "tsv", **texts)).baselines("test")
    assert (found.name, found.value) == ("most frequent label", 0.25)
    assert found.about == "It always answers 'b', the most frequent label of the training split."


def conll(*sentences: str) -> str:
    return "\n".join("".join(f"{pair.replace('/', ' ')}\n" for pair in each.split()) + "" for each in sentences) + "\n"


def test_each_word_has_its_most_frequent_tag_and_an_unseen_one_is_outside(tmp_path: Path):
    train = conll("Rome/B-LOC sleeps/O", "Rome/B-LOC and/O Ann/B-PER", "Ann/B-LOC or/O Ann/B-PER Rome/B-PER")
    test = conll("Rome/B-LOC and/O Bob/B-PER", "Ann/B-LOC sleeps/O Lima/B-LOC")
    (found,) = prepared("tag", write(tmp_path, "conll", train=train, valid=test, test=test)).baselines("test")
    # Rome is right, Ann is called a person, Bob and Lima are not found: 1 right of 2 found and of 4.
    assert found.value == pytest.approx(2 * 1 / (2 + 4))
    assert found.about.endswith("an unseen one O.")


def test_plain_tags_are_counted_as_they_are(tmp_path: Path):
    train = conll("a/DET dog/NOUN runs/VERB", "a/DET cat/NOUN runs/NOUN", "cat/NOUN runs/VERB")
    test = conll("a/DET bird/NOUN runs/NOUN", "birds/VERB")
    (found,) = prepared("tag", write(tmp_path, "conll", train=train, valid=test, test=test)).baselines("test")
    assert found.value == 2 / 4  # a and bird, as unseen words are nouns
    assert found.about.endswith("an unseen one NOUN.")


def test_a_text_has_no_yardstick(tmp_path: Path):
    (tmp_path / "book.txt").write_text("a line of some book\n" * 400, encoding="utf-8")
    assert prepared("language", tmp_path / "book.txt").baselines("test") == ()
