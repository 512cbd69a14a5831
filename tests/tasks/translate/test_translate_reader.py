"""Reading pairs: parallel files, tables, gzip, several targets; splits and languages by name."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from seqwise.config import DataSettings, Settings
from seqwise.data.examples import Splits
from seqwise.errors import DataError, Findings, UsageError
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.reader import Pair, join_lines, read_pairs, read_table_pairs, warn_about_suspicious_pairs


def write_files(folder: Path, **files: str) -> Path:
    """Writes files by name, with `__` for the dot."""
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return folder


def number_lines(word: str, count: int = 40) -> str:
    return "".join(f"{word} {number}\n" for number in range(count))


def read_data(spec: Path | str, **settings):
    splits = read_pairs(str(spec), Settings(**settings))
    return splits, splits.languages


def test_suffixes_are_languages_and_stems_are_splits(tmp_path):
    write_files(tmp_path, train__en="a\nb\n", train__de="A\nB\n", val__en="c\n", val__de="C\n")
    write_files(
        tmp_path, test_2016__en="d\n", test_2016__de="D\n", test_2017__en="e\n", test_2017__de="E\n", README__md="x"
    )
    splits, languages = read_data(tmp_path, target="de")
    assert languages == Languages("en", ("de",))
    pairs = {split: [(pair.source, *pair.targets) for pair in part] for split, part in splits.parts.items()}
    assert pairs == {"train": [("a", "A"), ("b", "B")], "valid": [("c", "C")], "test": [("d", "D"), ("e", "E")]}
    assert splits.split_rule == "splits as the files are named; test is test_2016 and test_2017."
    assert splits.has_predefined_splits
    pair = splits.parts["test"][1]
    assert (pair.file, pair.line) == (str(tmp_path / "test_2017.en"), 1)


@pytest.mark.parametrize("name", ["train.en", "train"])
def test_parallel_files_can_be_named_by_one_file_or_their_stem(tmp_path, name: str):
    write_files(
        tmp_path, train__en=number_lines("one"), train__de=number_lines("eins"), other__en="x\n", other__de="X\n"
    )
    splits, languages = read_data(tmp_path / name, target=None if name == "train.en" else "de")
    assert str(languages) == "en → de"
    assert sum(map(len, splits.parts.values())) == 40


def test_suffixes_can_be_source_and_target(tmp_path):
    write_files(tmp_path, train__src=number_lines("one"), train__tgt=number_lines("eins"))
    assert read_data(tmp_path)[1] == Languages("src", ("tgt",))


def test_a_source_can_have_several_targets(tmp_path):
    write_files(tmp_path, train__en=number_lines("one"), train__de=number_lines("eins"), train__fr=number_lines("un"))
    splits, languages = read_data(tmp_path, target="fr,de")
    assert languages == Languages("en", ("fr", "de"))
    assert splits.parts["train"][0].targets == ("un 0", "eins 0")
    _, languages = read_data(tmp_path, columns="de,fr")
    assert languages == Languages("de", ("fr",))


def test_gzip_crlf_and_byte_order_mark_change_nothing(tmp_path):
    write_files(tmp_path / "plain", train__en=number_lines("one"), train__de=number_lines("eins"))
    write_files(
        tmp_path / "other",
        train__en__gz="\ufeff" + number_lines("one").replace("\n", "\r\n"),
        train__de=number_lines("eins"),
    )
    lf_files, crlf_files = (read_data(tmp_path / name, target="de")[0] for name in ("plain", "other"))
    assert lf_files.parts == {
        split: [
            type(pair)(pair.source, pair.targets, lf_files.parts[split][index].file, pair.line)
            for index, pair in enumerate(part)
        ]
        for split, part in crlf_files.parts.items()
    }
    assert lf_files.fingerprint == crlf_files.fingerprint


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_tables_have_source_and_target(tmp_path, suffix: str):
    rows = [(f"one, {number}", f"eins {number}") for number in range(30)]
    text = {
        "csv": "target,source\n" + "".join(f'{b},"{a}"\n' for a, b in rows),
        "tsv": "".join(f"{a}\t{b}\n" for a, b in rows),
        "jsonl": "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in rows),
    }[suffix]
    path = write_files(tmp_path, **{f"pairs__{suffix}": text}) / f"pairs.{suffix}"
    splits, languages = read_data(path)
    assert languages == Languages()
    assert sorted((pair.source, pair.targets[0]) for pair in splits.all_examples()) == sorted(rows)


def test_columns_are_found_by_name_by_number_and_by_target(tmp_path):
    path = (
        write_files(tmp_path, t__csv="id,en,de,fr\n" + "".join(f"{n},one {n},eins {n},un {n}\n" for n in range(30)))
        / "t.csv"
    )
    splits, languages = read_data(path, columns="en,de,fr")
    assert (languages, splits.parts["train"][0].targets) == (Languages("en", ("de", "fr")), ("eins 0", "un 0"))
    splits, languages = read_data(path, columns="en,fr", target="fr")
    assert (languages, splits.parts["train"][0].targets) == (Languages("en", ("fr",)), ("un 0",))
    without_header = write_files(tmp_path, h__tsv="".join(f"{n}\tone {n}\teins {n}\n" for n in range(30))) / "h.tsv"
    splits, languages = read_data(without_header, columns="2,3")
    assert (languages, splits.parts["train"][0].source) == (Languages(), "one 0")


def test_columns_source_and_target_are_read_for_a_run_with_languages(tmp_path):
    path = write_files(tmp_path, t__csv="source,target\n" + "".join(f"one {n},eins {n}\n" for n in range(30))) / "t.csv"
    splits, languages = read_data(path, columns="en,de", target="de")
    assert (languages, splits.parts["train"][0].targets) == (Languages("en", ("de",)), ("eins 0",))


def test_the_source_of_a_table_is_the_other_column(tmp_path):
    path = write_files(tmp_path, t__csv="en,de\n" + "".join(f"one {n},eins {n}\n" for n in range(30))) / "t.csv"
    assert read_data(path, target="de")[1] == Languages("en", ("de",))


def test_line_breaks_become_spaces_and_are_counted(tmp_path):
    rows = [{"source": f"a\n\nb {n}", "target": f"t {n}"} for n in range(30)]
    path = write_files(tmp_path, t__jsonl="".join(json.dumps(row) + "\n" for row in rows)) / "t.jsonl"
    splits, _ = read_data(path)
    assert splits.parts["train"][0].source == "a b 0"
    assert "30 texts with line breaks inside, which are read as spaces" in splits.findings.warning_messages()[0]


def test_a_text_becomes_one_line_and_keeps_its_spaces():
    assert join_lines("  a  b\t") == "a  b"
    assert join_lines("a \n  b\r\nc ") == "a b c"


def test_likely_mistakes_are_counted(tmp_path):
    long_line = "a very long line that has no business here " * 5
    write_files(
        tmp_path,
        train__en=number_lines("one") + f"same\n{long_line}\n",
        train__de=number_lines("eins") + "same\nkurz\n",
    )
    write_files(tmp_path, test__en="one 3\nnew\n", test__de="eins 3\nneu\n")
    splits, _ = read_data(tmp_path, target="de")
    warn_about_suspicious_pairs(splits)
    messages = splits.findings.warning_messages()
    assert any(
        "1 pair whose target equals the source; it is kept" in text and "train.en:41" in text for text in messages
    )
    assert any("by more than a factor of 5" in text and "train.en:42" in text for text in messages)
    assert any("1 pair of test is in train too" in text and "test.en:1" in text for text in messages)


@pytest.mark.parametrize("name", ["text", "en/de"])
def test_a_target_name_must_be_valid_for_its_vocabulary_file(tmp_path, name: str):
    """The vocabulary of the source is called text, and the name of a target is part of a file name."""
    path = write_files(tmp_path, pairs__csv=f"en,{name}\n" + "".join(f"a {n},b {n}\n" for n in range(40)))
    with pytest.raises(UsageError, match=f"cannot be called '{name}'(?s:.*)--columns en,{name} --target NAME"):
        read_data(path / "pairs.csv", columns=f"en,{name}")
    assert read_data(path / "pairs.csv", columns=f"en,{name}", target="german")[1] == Languages("en", ("german",))


def test_a_language_cannot_be_both_source_and_target(tmp_path):
    write_files(tmp_path, train__en=number_lines("one"), train__de=number_lines("eins"))
    with pytest.raises(UsageError, match="de cannot be both source and target"):
        read_data(tmp_path, columns="de,en", target="de")
    with pytest.raises(DataError, match="there is no text in 'fr'; there are de and en"):
        read_data(tmp_path, target="fr")


def test_files_whose_names_contain_no_split_are_counted(tmp_path):
    write_files(tmp_path, train__en=number_lines("one"), train__de=number_lines("eins"), test__en="d\n", test__de="D\n")
    write_files(tmp_path, news__en="x\n", news__de="X\n")
    splits, _ = read_data(tmp_path, target="de")
    assert splits.findings.warning_messages() == [
        f"2 files whose names contain no split, which are not read (first: {tmp_path / 'news.de'})."
    ]


def test_several_references_are_kept_together_and_expanded_for_training(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    rows = [{"source": ["the", "dog"], "target": ["der Hund", "ein Hund", ""]}, {"source": "a", "target": "b"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = read_table_pairs(path, Languages(), None, DataSettings(), Findings())
    assert (first.source, first.targets, first.references) == ("the dog", ("der Hund",), (("der Hund", "ein Hund"),))
    assert [pair.targets for pair in first.expand()] == [("der Hund",), ("ein Hund",)]
    assert (second.references, second.expand()) == ((("b",),), [second])


def test_the_fingerprint_of_pairs_with_one_reference_is_that_of_earlier_versions():
    pair, earlier = Pair("a", ("b",), "file", 1), "744c6bc4276daabf1f7d24e6d1b83861"
    assert Splits("", "rule", {"train": [pair]}).fingerprint == earlier
    several = replace(pair, alternatives=(("b", "c"),))
    assert Splits("", "rule", {"train": [several]}).fingerprint != earlier
