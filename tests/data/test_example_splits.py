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
    read_examples,
    select_evaluation_examples,
    split_examples,
    stratify,
)
from seqwise.errors import DataError, Findings


@dataclass(frozen=True)
class Word:
    word: str
    file: str = ""
    line: int = 0


def read_words(path: Path, findings: Findings) -> list[Word]:
    if path.read_text() == "broken":
        raise DataError("the file is broken.", file=path)
    words_read = [Word(word, str(path), line) for line, word in enumerate(path.read_text().split(), start=1)]
    for each in words_read:
        if each.word == "wrong":
            findings.error("a wrong word.", file=each.file, line=each.line)
    return [each for each in words_read if each.word != "wrong"]


def open_words(spec: Path | str, valid: float = 0.05, test: float = 0.05) -> Splits[Word]:
    builtins = {"letters": (lambda: [Word(letter) for letter in "abcdefghijklmnopqrst"], "letters")}
    return read_examples(spec, read_words, (".txt", ".tsv"), builtins, valid, test)


def write_files(path: Path, **files: str) -> Path:
    for name, content in files.items():
        file = path / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return path


def list_words(splits: Splits[Word], split: str) -> list[str]:
    return [each.word for each in splits.parts[split]]


def test_files_that_name_a_split_keep_it(tmp_path: Path):
    splits = open_words(write_files(tmp_path, train_txt="a b c", dev_txt="d", test_txt="e"))
    assert [list_words(splits, split) for split in ("train", "valid", "test")] == [["a", "b", "c"], ["d"], ["e"]]
    assert splits.split_rule == "splits as the files are named."
    assert splits.has_predefined_splits
    assert [each.word for each in splits.all_examples()] == ["a", "b", "c", "d", "e"]


def test_folders_name_splits_too_and_files_without_a_split_are_counted(tmp_path: Path):
    splits = open_words(
        write_files(tmp_path, train__1_txt="a", train__2_txt="b", valid__1_txt="c", test__1_txt="d", x_txt="e")
    )
    assert list_words(splits, "train") == ["a", "b"]
    assert splits.findings.warning_messages() == [
        f"1 file whose name contains no split, which is not read ({tmp_path / 'x.txt'})."
    ]


def test_a_missing_split_is_split_off_the_training_examples(tmp_path: Path):
    splits = open_words(write_files(tmp_path, train_txt=" ".join(map(str, range(100))), test_txt="e"), valid=0.1)
    assert [len(splits.parts[split]) for split in ("train", "valid", "test")] == [90, 10, 1]
    assert splits.has_predefined_splits
    assert splits.split_rule == (
        "train, test as the files are named; "
        "examples are held out at random among 100, always the same (10% for valid)."
    )


def test_one_file_is_split_by_exact_fractions_with_each_example_once(tmp_path: Path):
    splits = open_words(write_files(tmp_path, all_txt=" ".join(map(str, range(200)))) / "all.txt", 0.05, 0.1)
    assert {split: len(part) for split, part in splits.parts.items()} == {"train": 170, "valid": 10, "test": 20}
    assert sorted(int(each.word) for each in splits.all_examples()) == list(range(200))
    assert list_words(splits, "train") == sorted(list_words(splits, "train"), key=int)  # their order is kept
    assert not splits.has_predefined_splits


def test_splits_are_balanced_if_labels_alternate():
    splits = split_examples(
        "x", {"train": [Word("ab"[i % 2]) for i in range(400)]}, {"valid": 0.05, "test": 0.05}, Findings()
    )
    for split in ("valid", "test"):
        counts = Counter(list_words(splits, split))
        assert min(counts["a"], counts["b"]) >= 5, split


def split_labels(labels: str, valid: float = 0.05, test: float = 0.05) -> dict[str, Counter[str]]:
    examples = [Word(label) for label in labels]
    fractions = {"valid": valid, "test": test}
    splits = split_examples("x", {"train": examples}, fractions, Findings(), get_label=lambda example: example.word)
    assert splits.split_rule.startswith("examples of each label are held out at random")
    return {split: Counter(each.word for each in part) for split, part in splits.parts.items()}


def test_stratified_splits_have_the_same_share_of_every_label():
    splits = split_labels("a" * 600 + "b" * 300 + "c" * 100)
    assert splits["valid"] == splits["test"] == {"a": 30, "b": 15, "c": 5}
    assert splits["train"] == {"a": 540, "b": 270, "c": 90}


def test_a_rare_label_is_in_every_split_if_it_has_three_examples():
    splits = split_labels("a" * 190 + "b" * 3 + "c" * 2 + "d")
    assert [splits[split]["b"] for split in ("train", "valid", "test")] == [1, 1, 1]
    assert (splits["train"]["c"], splits["train"]["d"]) == (2, 1)
    assert [splits[split].total() for split in ("train", "valid", "test")] == [176, 10, 10]


def test_more_labels_than_held_out_examples_leave_the_frequent_ones():
    labels = [str(n) for n in range(40) for _ in range(3 if n else 20)]
    assigned = stratify(labels, range(len(labels)), {"valid": 0.05, "test": 0.05})
    assert Counter(assigned) == {"train": 123, "valid": 7, "test": 7}
    assert {"valid", "test"} <= {split for split, label in zip(assigned, labels) if label == "0"}
    in_training = {label for split, label in zip(assigned, labels) if split == "train"}
    assert in_training == set(labels)


def test_stratified_splits_are_always_the_same():
    labels = "abcab" * 40
    ranks = [(7 * n) % 200 for n in range(200)]
    assert stratify(labels, ranks, {"valid": 0.1, "test": 0.0}) == stratify(labels, ranks, {"valid": 0.1, "test": 0.0})
    held_out = [rank for rank, split in zip(ranks, stratify(labels, ranks, {"valid": 0.1})) if split == "valid"]
    assert len(held_out) == 20
    assert max(held_out) < 40  # those of the lowest ranks, of each label


def test_split_and_fingerprint_do_not_depend_on_the_path(tmp_path: Path):
    content = " ".join(map(str, range(50)))
    first = open_words(write_files(tmp_path / "one", a_txt=content) / "a.txt")
    second = open_words(write_files(tmp_path / "two", b_txt=content) / "b.txt")
    other_content = open_words(write_files(tmp_path / "three", c_txt=content.replace("17", "71")) / "c.txt")
    assert list_words(first, "test") == list_words(second, "test")
    assert first.fingerprint == second.fingerprint != other_content.fingerprint


def test_other_fractions_give_another_fingerprint(tmp_path: Path):
    path = write_files(tmp_path, a_txt=" ".join(map(str, range(50)))) / "a.txt"
    assert open_words(path).fingerprint != open_words(path, valid=0.2).fingerprint


def test_builtin_data_is_split():
    splits = open_words("builtin:letters")
    assert {split: len(part) for split, part in splits.parts.items()} == {"train": 18, "valid": 1, "test": 1}
    assert splits.split_rule.startswith("letters; examples are held out")
    with pytest.raises(DataError, match=r"no built-in data 'leters'.*\n.*'letters'"):
        open_words("builtin:leters")


def test_errors_of_all_files_are_reported_together(tmp_path: Path):
    with pytest.raises(DataError) as excinfo:
        open_words(write_files(tmp_path, train_txt="a wrong", valid_txt="broken", test_txt="wrong b"))
    text = str(excinfo.value)
    assert "3 errors" in text
    assert all(
        part in text for part in ("train.txt:2: a wrong", "valid.txt: the file is broken", "test.txt:1: a wrong")
    )


def test_missing_empty_and_unreadable_files_are_rejected(tmp_path: Path):
    write_files(tmp_path, train_txt="a", test_txt="")
    cases = [
        (tmp_path, "test.txt: no examples were found"),
        (tmp_path / "trian.txt", "Perhaps you meant 'train.txt'"),
        (
            write_files(tmp_path / "pictures", a_png="x"),
            r"contains no data that this task reads \(1 other file\)\.\nGive \.txt, \.tsv, gzip of these, or a folder",
        ),
        (tmp_path / "pictures" / "a.png", r"images without captions \(.png\) are not read"),
    ]
    for spec, part in cases:
        with pytest.raises(DataError, match=part):
            open_words(spec)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"the folder is empty\.\nGive \.txt, \.tsv, gzip"):
        open_words(tmp_path / "empty")


def test_too_few_examples_to_split_are_rejected(tmp_path: Path):
    with pytest.raises(TooShortError, match="2 examples are too few"):
        open_words(write_files(tmp_path, a_txt="a b") / "a.txt")


def test_files_without_split_names_are_one_training_set(tmp_path: Path):
    assert list(find_split_files(write_files(tmp_path, monday_txt="a", tuesday_txt="b"), (".txt",))) == ["train"]


def test_a_split_name_as_suffix_is_accepted_if_no_suffix_is_required():
    assert has_known_suffix(Path("eng.testa"), ("",))
    assert has_known_suffix(Path("eng.train.gz"), ("",))
    assert has_known_suffix(Path("train"), ("",))
    assert not has_known_suffix(Path("eng.pdf"), ("",))
    assert not has_known_suffix(Path("README"), ("",))
    assert not has_known_suffix(Path("eng.testa"), (".txt",))


def select_words(spec: Path, split: str | None = None, training_fingerprint: str = "") -> tuple[list[str], str]:
    _, examples, on = select_evaluation_examples(
        lambda valid, test: open_words(spec, valid, test), (0.05, 0.05), split, training_fingerprint
    )
    return [each.word for each in examples], on


def test_evaluation_uses_the_test_split_if_there_is_one_or_the_data_is_that_of_training(tmp_path: Path):
    split_folder = write_files(tmp_path / "named", train_txt="a b c", test_txt="d")
    single_file = write_files(tmp_path / "single", a_txt=" ".join(map(str, range(20)))) / "a.txt"
    too_few = write_files(tmp_path / "few", a_txt="a b") / "a.txt"
    assert select_words(split_folder) == (["d"], "the test split")
    assert select_words(single_file)[1] == "all of it"
    assert len(select_words(single_file, training_fingerprint=open_words(single_file).fingerprint)[0]) == 1
    assert select_words(too_few) == (["a", "b"], "all of it")


def test_split_all_evaluates_every_example_in_file_order(tmp_path: Path):
    content = [str(number) for number in range(60)]
    path = write_files(tmp_path, a_txt=" ".join(content)) / "a.txt"
    fractions: list[tuple[float, float]] = []

    def open_splits(valid: float, test: float) -> Splits[Word]:
        fractions.append((valid, test))
        return open_words(path, valid, test)

    for split in (None, "all"):
        _, examples, on = select_evaluation_examples(open_splits, (0.1, 0.1), split, "another run")
        assert ([each.word for each in examples], on) == (content, "all of it")
        assert fractions[-1] == (0.0, 0.0)  # warnings come from this call


def test_a_requested_split_is_evaluated(tmp_path: Path):
    split_folder = write_files(tmp_path / "named", train_txt="a b c", valid_txt="e", test_txt="d")
    assert select_words(split_folder, "valid") == (["e"], "the valid split")
    assert select_words(split_folder, "all") == (["a", "b", "c", "e", "d"], "all of it")
    with pytest.raises(DataError, match=r"no split 'vaild'.*\n.*'valid'"):
        select_words(split_folder, "vaild")
    with pytest.raises(TooShortError):
        select_words(write_files(tmp_path / "few", a_txt="a b") / "a.txt", "test")


def test_held_out_examples_that_are_in_the_training_set_are_found(tmp_path: Path):
    splits = open_words(write_files(tmp_path, train_txt="a b c", valid_txt="x b", test_txt="c a"))
    duplicates = [(split, each.word) for split, each in find_training_duplicates(splits, lambda each: each.word)]
    assert duplicates == [("valid", "b"), ("test", "c"), ("test", "a")]
