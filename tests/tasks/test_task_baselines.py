"""Baselines of each task equal hand-computed values."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.config import parse_settings
from seqwise.tasks import get_task
from seqwise.tasks.task import Task


def prepare_task(task: str, folder: Path) -> Task:
    return get_task(task).prepare(str(folder), parse_settings({"task": task}))


def write(folder: Path, suffix: str, **splits: str) -> Path:
    for name, text in splits.items():
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return folder


def test_the_most_frequent_label_is_that_of_the_training_split(tmp_path: Path):
    rows = {
        "train": "ababb",
        "valid": "ab",
        "test": "aaab",
    }  # most frequent: b in train, a in test
    texts = {split: "".join(f"word {index} of {split}\t{label}\n" for index, label in enumerate(labels))
             for split, labels in rows.items()}  # fmt: skip
    (baseline,) = prepare_task("classify", write(tmp_path, "tsv", **texts)).baselines("test")
    assert (baseline.name, baseline.value) == ("most frequent label", 0.25)
    assert baseline.about == "It always answers 'b', the most frequent label of the training split."


def format_conll(*sentences: str) -> str:
    return (
        "\n".join("".join(f"{pair.replace('/', ' ')}\n" for pair in sentence.split()) for sentence in sentences) + "\n"
    )


def test_a_word_gets_its_most_frequent_tag_and_an_unseen_word_gets_o(tmp_path: Path):
    train = format_conll("Rome/B-LOC sleeps/O", "Rome/B-LOC and/O Ann/B-PER", "Ann/B-LOC or/O Ann/B-PER Rome/B-PER")
    test = format_conll("Rome/B-LOC and/O Bob/B-PER", "Ann/B-LOC sleeps/O Lima/B-LOC")
    (baseline,) = prepare_task("tag", write(tmp_path, "conll", train=train, valid=test, test=test)).baselines("test")
    # Rome is correct, Ann is tagged as a person, Bob and Lima are not found: 1 of 2 predicted and of 4 true spans.
    assert baseline.value == pytest.approx(2 * 1 / (2 + 4))
    assert baseline.about.endswith("an unseen one O.")


def test_an_unseen_word_gets_the_most_frequent_plain_tag(tmp_path: Path):
    train = format_conll("a/DET dog/NOUN runs/VERB", "a/DET cat/NOUN runs/NOUN", "cat/NOUN runs/VERB")
    test = format_conll("a/DET bird/NOUN runs/NOUN", "birds/VERB")
    (baseline,) = prepare_task("tag", write(tmp_path, "conll", train=train, valid=test, test=test)).baselines("test")
    assert baseline.value == 2 / 4  # "a", and "bird", because unseen words are nouns
    assert baseline.about.endswith("an unseen one NOUN.")


def test_the_language_task_has_no_baseline(tmp_path: Path):
    (tmp_path / "book.txt").write_text("a line of some book\n" * 400, encoding="utf-8")
    assert prepare_task("language", tmp_path / "book.txt").baselines("test") == ()
