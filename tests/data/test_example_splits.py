"""Which examples belong to which split."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from seqwise.data.examples import (
    Splits,
    TooShortError,
    find_split_files,
    find_training_duplicates,
    has_known_suffix,
    open_examples,
    select_evaluation_examples,
    split_examples,
)
from seqwise.errors import DataError, Findings


@dataclass(frozen=True)
class Word:
    word: str
    file: str = ""
    line: int = 0


def read(path: Path, findings: Findings) -> list[Word]:
    if path.read_text() == "broken":
        raise DataError("the file is broken.", file=path)
    found = [Word(word, str(path), line) for line, word in enumerate(path.read_text().split(), start=1)]
    for each in found:
        if each.word == "wrong":
            findings.error("a wrong word.", file=each.file, line=each.line)
    return [each for each in found if each.word != "wrong"]


def opened(spec: Path | str, valid: float = 0.05, test: float = 0.05) -> Splits[Word]:
    builtins = {"letters": (lambda: [Word(letter) for letter in "abcdefghijklmnopqrst"], "letters")}
    return open_examples(spec, read, (".txt", ".tsv"), builtins, valid, test)


def folder(path: Path, **files: str) -> Path:
    for name, content in files.items():
        place = path / name.replace("__", "/").replace("_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    return path


def words(splits: Splits[Word], split: str) -> list[str]:
    return [each.word for each in splits.parts[split]]


def test_files_that_name_a_split_keep_it(tmp_path: Path):
    splits = opened(folder(tmp_path, train_txt="a b c", dev_txt="d", test_txt="e"))
    assert [words(splits, split) for split in ("train", "valid", "test")] == [["a", "b", "c"], ["d"], ["e"]]
    assert splits.split_rule == "splits as the files are named."
    assert splits.has_predefined_splits
    assert [each.word for each in splits.all_examples()] == ["a", "b", "c", "d", "e"]


def test_folders_name_splits_too_and_files_without_a_split_are_counted(tmp_path: Path):
    splits = opened(folder(tmp_path, train__1_txt="a", train__2_txt="b", valid__1_txt="c", test__1_txt="d", x_txt="e"))
    assert words(splits, "train") == ["a", "b"]
    assert splits.findings.warning_messages() == [
        f"1 files whose names tell no split, which are not read ({tmp_path / 'x.txt'})."
    ]


def test_a_missing_split_is_taken_from_the_training_examples(tmp_path: Path):
    splits = opened(folder(tmp_path, train_txt=" ".join(map(str, range(100))), test_txt="e"), valid=0.1)
    assert [len(splits.parts[split]) for split in ("train", "valid", "test")] == [90, 10, 1]
    assert splits.has_predefined_splits
    assert splits.split_rule == (
        "train, test as the files are named; "
        "examples are held out at random among 100, always the same (10% for valid)."
    )


def test_one_file_is_divided_into_exact_shares_each_example_once(tmp_path: Path):
    splits = opened(folder(tmp_path, all_txt=" ".join(map(str, range(200)))) / "all.txt", 0.05, 0.1)
    assert {split: len(part) for split, part in splits.parts.items()} == {"train": 170, "valid": 10, "test": 20}
    assert sorted(int(each.word) for each in splits.all_examples()) == list(range(200))
    assert words(splits, "train") == sorted(words(splits, "train"), key=int)  # their order is kept
    assert not splits.has_predefined_splits


def test_the_division_does_not_fall_in_step_with_labels_that_take_turns(tmp_path: Path):
    splits = split_examples(
        "x", {"train": [Word("ab"[i % 2]) for i in range(400)]}, {"valid": 0.05, "test": 0.05}, Findings()
    )
    for split in ("valid", "test"):
        counts = Counter(words(splits, split))
        assert min(counts["a"], counts["b"]) >= 5, split


def test_the_same_data_has_the_same_division_and_fingerprint_wherever_it_lies(tmp_path: Path):
    content = " ".join(map(str, range(50)))
    one = opened(folder(tmp_path / "one", a_txt=content) / "a.txt")
    two = opened(folder(tmp_path / "two", b_txt=content) / "b.txt")
    other = opened(folder(tmp_path / "three", c_txt=content.replace("17", "71")) / "c.txt")
    assert words(one, "test") == words(two, "test")
    assert one.fingerprint == two.fingerprint != other.fingerprint


def test_other_fractions_are_another_fingerprint(tmp_path: Path):
    path = folder(tmp_path, a_txt=" ".join(map(str, range(50)))) / "a.txt"
    assert opened(path).fingerprint != opened(path, valid=0.2).fingerprint


def test_builtin_data_is_divided_too():
    splits = opened("builtin:letters")
    assert {split: len(part) for split, part in splits.parts.items()} == {"train": 18, "valid": 1, "test": 1}
    assert splits.split_rule.startswith("letters; examples are held out")
    with pytest.raises(DataError, match=r"no built-in data 'leters'.*\n.*'letters'"):
        opened("builtin:leters")


def test_errors_of_all_files_come_together(tmp_path: Path):
    with pytest.raises(DataError) as caught:
        opened(folder(tmp_path, train_txt="a wrong", valid_txt="broken", test_txt="wrong b"))
    text = str(caught.value)
    assert "3 errors" in text
    assert all(
        part in text for part in ("train.txt:2: a wrong", "valid.txt: the file is broken", "test.txt:1: a wrong")
    )


def test_what_is_not_there_is_refused(tmp_path: Path):
    folder(tmp_path, train_txt="a", test_txt="")
    cases = [
        (tmp_path, "test.txt: no examples were found"),
        (tmp_path / "trian.txt", "Perhaps you meant 'train.txt'"),
        (folder(tmp_path / "pictures", a_png="x"), r"contains no .txt, .tsv \(1 other files\)"),
        (tmp_path / "pictures" / "a.png", "files ending in '.png' are not read"),
    ]
    for spec, part in cases:
        with pytest.raises(DataError, match=part):
            opened(spec)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="it is empty"):
        opened(tmp_path / "empty")


def test_too_few_examples_cannot_be_divided(tmp_path: Path):
    with pytest.raises(TooShortError, match="2 examples are too few"):
        opened(folder(tmp_path, a_txt="a b") / "a.txt")


def test_names_that_are_no_splits_make_one_training_set(tmp_path: Path):
    assert list(find_split_files(folder(tmp_path, monday_txt="a", tuesday_txt="b"), (".txt",))) == ["train"]


def test_files_whose_ending_is_a_split_fit_where_no_ending_is_asked_for():
    assert has_known_suffix(Path("eng.testa"), ("",))
    assert has_known_suffix(Path("eng.train.gz"), ("",))
    assert has_known_suffix(Path("train"), ("",))
    assert not has_known_suffix(Path("eng.pdf"), ("",))
    assert not has_known_suffix(Path("README"), ("",))
    assert not has_known_suffix(Path("eng.testa"), (".txt",))


def scored(spec: Path, split: str | None = None, trained_on: str = "") -> tuple[list[str], str]:
    _, examples, on = select_evaluation_examples(
        lambda valid, test: opened(spec, valid, test), (0.05, 0.05), split, trained_on
    )
    return [each.word for each in examples], on


def test_what_is_scored_without_a_wish(tmp_path: Path):
    named = folder(tmp_path / "named", train_txt="a b c", test_txt="d")
    single = folder(tmp_path / "single", a_txt=" ".join(map(str, range(20)))) / "a.txt"
    few = folder(tmp_path / "few", a_txt="a b") / "a.txt"
    assert scored(named) == (["d"], "the test split")
    assert scored(single)[1] == "all of it"
    assert len(scored(single, trained_on=opened(single).fingerprint)[0]) == 1
    assert scored(few) == (["a", "b"], "all of it")


def test_everything_is_scored_in_the_order_of_the_file_and_read_undivided(tmp_path: Path):
    content = [str(number) for number in range(60)]
    path = folder(tmp_path, a_txt=" ".join(content)) / "a.txt"
    asked: list[tuple[float, float]] = []

    def open_with(valid: float, test: float) -> Splits[Word]:
        asked.append((valid, test))
        return opened(path, valid, test)

    for split in (None, "all"):
        _, examples, on = select_evaluation_examples(open_with, (0.1, 0.1), split, "another run")
        assert ([each.word for each in examples], on) == (content, "all of it")
        assert asked[-1] == (0.0, 0.0)  # what is remarked comes from here


def test_what_is_scored_on_request(tmp_path: Path):
    named = folder(tmp_path / "named", train_txt="a b c", valid_txt="e", test_txt="d")
    assert scored(named, "valid") == (["e"], "the valid split")
    assert scored(named, "all") == (["a", "b", "c", "e", "d"], "all of it")
    with pytest.raises(DataError, match=r"no split 'vaild'.*\n.*'valid'"):
        scored(named, "vaild")
    with pytest.raises(TooShortError):
        scored(folder(tmp_path / "few", a_txt="a b") / "a.txt", "test")


def test_held_out_examples_that_training_has_seen_are_found(tmp_path: Path):
    splits = opened(folder(tmp_path, train_txt="a b c", valid_txt="x b", test_txt="c a"))
    found = [(split, each.word) for split, each in find_training_duplicates(splits, lambda each: each.word)]
    assert found == [("valid", "b"), ("test", "c"), ("test", "a")]
