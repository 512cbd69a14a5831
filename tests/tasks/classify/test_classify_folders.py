"""Labelled texts as people have them: a folder or a file per label, scores instead of labels, names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import seqwise
from seqwise.config import Settings
from seqwise.data.examples import Splits
from seqwise.errors import DataError, Findings
from seqwise.tasks.classify.folders import find_labelled_files
from seqwise.tasks.classify.reader import LabelledText, check_labels, read_labelled_data
from seqwise.tasks.classify.task import Classify
from seqwise.tasks.guess import guess_task

TEXT = "a film\nof two lines\n"


def write(folder: Path, names: list[str], text: str = TEXT) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number} {text}")
    return folder


def read(folder: Path, **settings) -> Splits[LabelledText]:
    return read_labelled_data(str(folder), Settings(**settings))


def list_labels_by_split(splits: Splits[LabelledText]) -> dict[str, dict[str, int]]:
    return {split: dict(Counter(example.label for example in part)) for split, part in splits.parts.items()}


def test_a_folder_per_label_has_a_text_per_file(tmp_path: Path):
    write(tmp_path, [f"{label}/{n}.txt" for label in ("neg", "pos") for n in range(40)])
    splits = read(tmp_path)
    assert list_labels_by_split(splits) == {
        "train": {"neg": 36, "pos": 36},
        "valid": {"neg": 2, "pos": 2},
        "test": {"neg": 2, "pos": 2},
    }
    assert splits.all_examples()[0].text == "0 a film\nof two lines"
    assert guess_task(str(tmp_path)) == ("classify", "each label has a folder of texts, such as neg and pos")


def test_folders_of_splits_hold_the_folders_of_labels(tmp_path: Path):
    names = [f"acl/{split}/{label}/{n}.txt" for split in ("train", "test") for label in "ab" for n in range(20)]
    write(tmp_path, [*names, "acl/train/unsup/1.txt", "acl/train/urls.txt", "acl/README"])
    splits = read(tmp_path)
    assert list_labels_by_split(splits)["test"] == {"a": 20, "b": 20}
    assert list_labels_by_split(splits)["valid"] == {"a": 1, "b": 1}
    assert splits.has_predefined_splits
    first = tmp_path / "acl/train/unsup/1.txt"
    assert f"2 files without a label, which are not read (first: {first})." in splits.findings.warning_messages()


def test_files_without_suffix_are_texts_and_their_names_are_no_splits(tmp_path: Path):
    write(tmp_path, [f"{group}/{name}" for group in ("sci.med", "alt.atheism") for name in ("53068", "test1", "train")])
    found = find_labelled_files(tmp_path)
    assert found is not None
    assert {split: len(paths) for split, paths in found.splits.items()} == {"train": 6}
    assert set(found.labels.values()) == {"sci.med", "alt.atheism"}


@pytest.mark.parametrize(
    "names",
    [
        ("train/neg.txt", "train/pos.txt", "test/neg.txt", "test/pos.txt"),
        ("neg.train.txt", "pos.train.txt", "test_neg.txt", "test_pos.txt"),
    ],
)
def test_a_file_per_label_has_a_text_per_line(tmp_path: Path, names: tuple[str, ...]):
    write(tmp_path, [*names, "README.txt"], "\n".join(f"text {n}" for n in range(30)) + "\n\n")
    splits = read(tmp_path)
    assert list_labels_by_split(splits)["test"] == {"neg": 30, "pos": 30}
    assert list_labels_by_split(splits)["valid"] == {"neg": 1, "pos": 2} or list_labels_by_split(splits)["valid"] == {
        "neg": 2,
        "pos": 1,
    }
    assert splits.parts["test"][1].text == "text 1"
    assert splits.parts["test"][1].line == 2


def test_tables_in_folders_are_still_tables(tmp_path: Path):
    for year in ("2020", "2021"):
        (tmp_path / year).mkdir()
        (tmp_path / year / "a.txt").write_text("".join(f"text {n}\t{'ab'[n % 2]}\n" for n in range(20)))
    assert find_labelled_files(tmp_path) is None
    assert set(list_labels_by_split(read(tmp_path))["train"]) == {"a", "b"}


def test_an_empty_file_is_an_error_or_dropped(tmp_path: Path):
    write(tmp_path, [f"{label}/{n}.txt" for label in "ab" for n in range(20)])
    (tmp_path / "a" / "3.txt").write_text(" \n")
    with pytest.raises(DataError, match=r"a/3.txt:1: the text of this example is empty.*\n.*on-empty drop"):
        read(tmp_path)
    splits = read(tmp_path, data={"on_empty": "drop"})
    assert len(splits.all_examples()) == 39


def test_a_folder_of_labels_trains_without_preparation(tmp_path: Path):
    for label, word in (("good", "joy"), ("bad", "dull")):
        for number in range(30):
            path = tmp_path / "data" / label / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"a {word} film number {number}\n")
    settings = {"network": {"width": 16}, "training": {"learning_rate": 0.05}}
    run = seqwise.train(tmp_path / "data", budget="8-epochs", model="gru", out=tmp_path / "run", settings=settings)
    assert run.settings.task == "classify"
    (prediction,) = run.predict(["a joy to see"])
    assert prediction.values["label"] == "good"


# Scores, names


def check(labels: list[str]) -> Findings:
    examples = [LabelledText(f"text {n}", label, "t.csv", n + 2) for n, label in enumerate(labels)]
    splits = Splits("t.csv", "", {"train": examples})
    check_labels(splits)
    return splits.findings


def test_labels_that_are_many_different_numbers_give_a_warning_or_an_error():
    with pytest.raises(
        DataError, match=r"t.csv: the labels are 60 different numbers \(0.5, 1.5, 2.5 … 59.5\).*regress"
    ):
        check([f"{n % 60}.5" for n in range(900)])
    with pytest.raises(DataError, match=r"100 different numbers .*\nGroup the numbers.*--columns"):
        check([str(n % 100) for n in range(400)])
    (warning,) = check([str(n % 77) for n in range(900)]).warning_messages()
    assert "column of labels has 77 different numbers (0, 1, 2 … 76)" in warning
    assert "group them into a few classes" in warning


@pytest.mark.parametrize("labels", [[str(n % 5) for n in range(50)], [f"intent{n % 90}" for n in range(300)]])
def test_few_numbers_and_words_are_labels(labels: list[str]):
    assert check(labels).warnings == {}


def test_names_are_read_as_characters(tmp_path: Path):
    names = [("Rossi", "it"), ("Bianchi", "it"), ("Schmidt", "de"), ("Müller", "de"), ("De Luca", "it")]
    rows = [f"{name}{'aeiou'[n % 5]},{label}" for n in range(20) for name, label in names]
    (tmp_path / "names.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    settings, messages = Settings(task="classify"), []
    Classify.prepare(str(tmp_path / "names.csv"), settings, log=messages.append)
    assert settings.text.tokenizer == "characters"
    assert "tokeniser: characters, because the texts are single words." in messages
