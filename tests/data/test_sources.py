"""Corpora from files, folders, JSON and built-in texts: splits, encodings, and the errors about invalid files."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from seqwise.data import reading
from seqwise.data.corpus.sources import Corpus, open_corpus, open_unsplit
from seqwise.errors import DataError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.corpus_task import select_split

LINES = "".join(f"line {number}\n" for number in range(100))


def join_texts(corpus: Corpus, split: str) -> str:
    return "".join(corpus.texts(split))


def write_files(folder: Path, **files: str) -> Path:
    """Files named like `train_txt` become `train.txt`."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def to_jsonl(*texts: str | list[str]) -> str:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


# ---- reading


def test_one_text_is_split_at_line_breaks_into_90_5_and_5_percent(tmp_path: Path) -> None:
    corpus = open_corpus(write_files(tmp_path, a_txt=LINES) / "a.txt")
    train, valid, test = (join_texts(corpus, split) for split in ("train", "valid", "test"))
    assert train + valid + test == LINES
    assert [part.count("\n") for part in (train, valid, test)] == [91, 5, 4]
    assert corpus.size("train") == len(train)
    assert corpus.split_rule == "the end of the text is held out, cut at line breaks (5% for valid and 5% for test)."


def test_a_gzip_file_is_the_same_corpus_as_the_plain_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(LINES.encode()))
    uncompressed, compressed = (
        open_corpus(write_files(tmp_path, b_txt=LINES) / "b.txt"),
        open_corpus(tmp_path / "a.txt.gz"),
    )
    assert compressed.fingerprint == uncompressed.fingerprint
    assert [list(compressed.texts(s)) for s in compressed.parts] == [
        list(uncompressed.texts(s)) for s in uncompressed.parts
    ]


def test_upper_case_suffixes_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "BOOK.TXT").write_text(LINES)
    (tmp_path / "BOOK.Txt.GZ").write_bytes(gzip.compress(LINES.encode()))
    (tmp_path / "POSTS.JSONL").write_text(to_jsonl("a b", "c d", "e f"))
    uncompressed, compressed = open_corpus(tmp_path / "BOOK.TXT"), open_corpus(tmp_path / "BOOK.Txt.GZ")
    assert (
        join_texts(compressed, "train")
        == join_texts(uncompressed, "train")
        == "".join(LINES.splitlines(keepends=True)[:91])
    )
    assert join_texts(open_corpus(tmp_path / "POSTS.JSONL", 0, 0), "train") == "a b\nc d\ne f\n"
    assert len(open_corpus(tmp_path).files) == 3


def test_a_file_is_streamed_in_chunks_that_end_at_line_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 50)
    corpus = open_corpus(write_files(tmp_path, a_txt=LINES) / "a.txt")
    documents = list(corpus.documents("train"))
    assert len(documents) > 10
    assert all(document.text.endswith("\n") and len(document.text) <= 100 for document in documents)
    assert documents[3].text.startswith(f"line {documents[3].line - 1}\n")
    assert "".join(join_texts(corpus, split) for split in corpus.parts) == LINES


@pytest.mark.parametrize("text", ["word " * 500, "é" * 1000, "日本語" * 500, "x\r\n" * 400])
def test_chunks_of_long_lines_joined_are_the_text(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 31)
    (tmp_path / "a.txt").write_bytes(text.encode())
    corpus = open_corpus(tmp_path / "a.txt", 0, 0)
    assert join_texts(corpus, "train").rstrip("\n") == text.replace("\r\n", "\n").rstrip("\n")
    assert corpus.split_rule == "all of it is one split."
    splits = open_corpus(tmp_path / "a.txt", 0.2, 0.2)
    text_of_splits = "".join(join_texts(splits, split).removesuffix("\n") for split in splits.parts)
    assert text_of_splits.replace("\n", "") == text.replace("\r\n", "")


def test_line_numbers_of_a_later_split_count_from_the_top_of_the_file(tmp_path: Path) -> None:
    corpus = open_corpus(write_files(tmp_path, a_txt=LINES) / "a.txt")
    document = next(corpus.documents("valid"))
    assert document.text.startswith(f"line {document.line - 1}\n")


def test_byte_order_mark_and_carriage_returns_are_removed_and_a_final_newline_is_added(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree")
    assert join_texts(open_corpus(tmp_path / "a.txt", 0, 0), "train") == "one\ntwo\rthree\n"


def test_named_splits_are_kept(tmp_path: Path) -> None:
    write_files(tmp_path, ptb_train_txt="a b\n", ptb_valid_txt="c d\n", notes_txt="not part of it\n")
    (tmp_path / "test_2016.txt").write_text("e f\n")
    corpus = open_corpus(tmp_path)
    assert [join_texts(corpus, split) for split in ("train", "valid", "test")] == ["a b\n", "c d\n", "e f\n"]
    assert corpus.split_rule == "splits as the files are named. 1 file whose name contains no split is not read."
    assert [Path(file).name for file in corpus.files] == ["ptb.train.txt", "ptb.valid.txt", "test_2016.txt"]


@pytest.mark.parametrize(
    ("train", "valid", "test"),
    [
        ("eng.train", "eng.dev", "eng.test"),
        ("train.txt", "val.txt", "test.txt"),
        ("train/a.txt", "dev/a.txt", "test/b.txt"),
    ],
)
def test_split_names_are_recognised(train: str, valid: str, test: str, tmp_path: Path) -> None:
    for name in (train, valid, test):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    corpus = open_corpus(tmp_path)
    assert [join_texts(corpus, split).strip() for split in ("train", "valid", "test")] == [train, valid, test]


def test_a_missing_validation_split_comes_from_the_end_of_the_training_text(tmp_path: Path) -> None:
    corpus = open_corpus(write_files(tmp_path, train_txt=LINES, test_txt="the test\n"))
    assert join_texts(corpus, "train") + join_texts(corpus, "valid") == LINES
    assert join_texts(corpus, "test") == "the test\n"
    assert corpus.split_rule == (
        "train, test as the files are named; the end of the text is held out, cut at line breaks (5% for valid)."
    )


def test_a_missing_test_split_comes_from_the_end_of_the_training_text(tmp_path: Path) -> None:
    corpus = open_corpus(write_files(tmp_path, train_txt=LINES, valid_txt="the validation\n"))
    assert join_texts(corpus, "train") + join_texts(corpus, "test") == LINES
    assert join_texts(corpus, "test").count("\n") == 4
    assert join_texts(corpus, "valid") == "the validation\n"


def test_a_very_short_file_of_a_folder_is_in_the_training_split(tmp_path: Path) -> None:
    corpus = open_corpus(write_files(tmp_path, a_txt=LINES, b_txt="hi\n"))
    assert join_texts(corpus, "train").endswith("hi\n")
    assert join_texts(corpus, "valid").count("\n") == 5


def test_a_corpus_can_be_opened_without_splits(tmp_path: Path) -> None:
    write_files(tmp_path, train_txt="a b\n", valid_txt="c d\n", test_txt="e f\n")
    assert join_texts(open_unsplit(tmp_path), "all") == "a b\nc d\ne f\n"
    assert (open_corpus(tmp_path).has_predefined_splits, open_corpus("builtin:docs").has_predefined_splits) == (
        True,
        False,
    )


def test_a_single_file_name_with_train_is_no_split(tmp_path: Path) -> None:
    (tmp_path / "train-journey.txt").write_text(LINES)
    assert len(open_corpus(write_files(tmp_path, b_txt=LINES)).files) == 2


def test_a_training_file_alone_is_split(tmp_path: Path) -> None:
    corpus = open_corpus(write_files(tmp_path, train_txt=LINES))
    assert [join_texts(corpus, split).count("\n") for split in ("train", "valid", "test")] == [91, 5, 4]


def test_a_file_name_with_test_is_no_split_without_a_training_file(tmp_path: Path) -> None:
    corpus = open_corpus(write_files(tmp_path, test_drive_txt=LINES, b_txt=LINES))
    assert len(corpus.files) == 2
    assert corpus.split_rule.startswith("the end of each file is held out")
    assert join_texts(corpus, "valid").count("\n") == 10


def test_a_folder_of_many_texts_holds_out_evenly_spaced_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for number in range(200):
        (tmp_path / "deep" / f"{number:03}.txt").write_text(f"{number}\n")
    corpus = open_corpus(tmp_path)
    parts = {split: [int(text) for text in corpus.texts(split)] for split in ("train", "valid", "test")}
    assert sorted(number for part in parts.values() for number in part) == list(range(200))
    assert [len(part) for part in parts.values()] == [180, 10, 10]
    assert 80 < sum(parts["valid"]) / 10 < 120
    assert "whole documents are held out at even distances among 200" in corpus.split_rule


def test_each_json_line_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(to_jsonl(*(f"text\n{number}" for number in range(40))) + "\n" + to_jsonl("  "))
    corpus = open_corpus(tmp_path / "a.jsonl")
    assert [sum(1 for _ in corpus.documents(split)) for split in corpus.parts] == [36, 2, 2]
    first = next(corpus.documents("train"))
    assert (first.text, first.line) == ("text\n0\n", 1)
    assert corpus.size("valid") == len(join_texts(corpus, "valid"))


def test_a_lone_surrogate_becomes_a_replacement_character(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a\\ud800b \\ud83d\\ude00"}\n')
    assert join_texts(open_corpus(tmp_path / "a.jsonl", 0, 0), "train") == "a�b 😀\n"


def test_three_documents_give_one_per_split(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(to_jsonl("a", "b", "c"))
    corpus = open_corpus(tmp_path / "a.jsonl")
    assert [sum(1 for _ in corpus.documents(split)) for split in corpus.parts] == [1, 1, 1]


def test_empty_files_of_a_folder_are_ignored(tmp_path: Path) -> None:
    assert len(open_corpus(write_files(tmp_path, a_txt=LINES, b_txt="\n")).files) == 1


def test_the_fingerprint_depends_on_content_and_split_rule(tmp_path: Path) -> None:
    write_files(tmp_path, a_txt=LINES, b_txt=LINES, c_txt=LINES + "x\n")
    a, b, c = (open_corpus(tmp_path / name).fingerprint for name in ("a.txt", "b.txt", "c.txt"))
    assert a == b != c
    assert open_corpus(tmp_path / "a.txt", 0.1, 0.1).fingerprint != a


@pytest.mark.parametrize(("name", "min_bytes"), [("docs", 250_000), ("code", 2_000_000)])
def test_built_in_texts_have_similar_splits(name: str, min_bytes: int) -> None:
    corpus = open_corpus(f"builtin:{name}")
    total = sum(corpus.size(split) for split in corpus.parts)
    assert min_bytes < total <= 4_000_000
    assert all(0.02 < corpus.size(split) / total < 0.1 for split in ("valid", "test"))
    assert open_corpus(f"builtin:{name}").fingerprint == corpus.fingerprint
    assert all(join_texts(corpus, split).endswith("\n") for split in corpus.parts)


def test_no_paragraph_of_the_reference_is_in_two_splits() -> None:
    corpus = open_corpus("builtin:docs")
    train, valid, test = ({p.strip() for p in join_texts(corpus, s).split("\n\n")} - {""} for s in corpus.parts)
    assert train.isdisjoint(valid | test)
    assert valid.isdisjoint(test)


# ---- errors


def assert_refused(spec: str | Path, message: str) -> DataError:
    with pytest.raises(DataError, match=message) as excinfo:
        open_corpus(spec)
    assert excinfo.value.exit_status == 2
    assert excinfo.value.fix
    return excinfo.value


def test_a_missing_file_suggests_the_nearest(tmp_path: Path) -> None:
    write_files(tmp_path, corpus_txt=LINES)
    error = assert_refused(tmp_path / "corpsu.txt", "no such file")
    assert error.fix == "Perhaps you meant 'corpus.txt'."
    assert_refused(tmp_path / "nowhere" / "a.txt", "nor its folder")


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_rejected(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    assert assert_refused(tmp_path / "a.txt", "the file is empty").file == str(tmp_path / "a.txt")


def test_an_empty_validation_file_is_rejected(tmp_path: Path) -> None:
    assert assert_refused(write_files(tmp_path, train_txt=LINES, valid_txt=""), "empty").file == str(
        tmp_path / "valid.txt"
    )


def test_a_folder_without_texts_is_rejected(tmp_path: Path) -> None:
    assert_refused(tmp_path, "the folder is empty")
    (tmp_path / "a.png").write_bytes(b"x")
    assert_refused(tmp_path, r"contains no text \(1 other file\)")


def test_a_binary_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"line\nELF\0\1\2")
    error = assert_refused(tmp_path / "a.txt", "binary file, not text: byte 0x00 at offset 8")
    assert error.line == 2


@pytest.mark.parametrize("chunk_bytes", [7, 1 << 20])
def test_damaged_utf_8_is_named_with_byte_offset_and_line(
    chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", chunk_bytes)
    (tmp_path / "a.txt").write_bytes("oné\n".encode() * 16 + b"caf\xe9\n")
    error = assert_refused(
        tmp_path / "a.txt", r"byte 0xE9 at offset 83 \(line 17\) is not UTF-8. 16 other characters are"
    )
    assert error.line == 17
    assert "--data.encoding cp1252" in error.fix


@pytest.mark.parametrize("chunk_bytes", [7, 1 << 20])
def test_latin_1_is_converted(chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", chunk_bytes)
    (tmp_path / "a.txt").write_bytes(b"one\n" * 16 + b"caf\xe9\n")
    corpus = open_corpus(tmp_path / "a.txt", 0, 0)
    assert join_texts(corpus, "train") == "one\n" * 16 + "café\n"
    assert corpus.size("train") == 70


def test_a_file_that_ends_inside_a_character_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo \xe6\x97")
    assert assert_refused(tmp_path / "a.txt", "byte 0xE6 at offset 8").line == 2


def test_a_bad_json_line_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(to_jsonl("a") + '{"text": \n')
    assert assert_refused(tmp_path / "a.jsonl", "not valid JSON: Expecting value").line == 2


@pytest.mark.parametrize(
    ("line", "received"),
    [('{"body": "a", "id": 1}', "body, id"), ("[1]", "list"), ('{"text": 3}', "text"), ("{}", "empty")],
)
def test_json_without_text_is_rejected(line: str, received: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(to_jsonl("a") + line)
    assert assert_refused(tmp_path / "a.jsonl", f"string under `text`, found .*{received}").line == 2


def test_json_in_another_encoding_is_converted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": "caf\xe9"}\n')
    assert join_texts(open_corpus(tmp_path / "a.jsonl", 0, 0), "train") == "a\ncafé\n"


def test_a_json_array_is_a_list_of_documents_and_a_list_as_text_is_joined(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"text": "a"},\n {"text": ["b", "c"]}]\n')
    (tmp_path / "b.jsonl").write_text(to_jsonl("a", ["b", "c"]))
    for name in ("a.json", "b.jsonl"):
        corpus = open_corpus(tmp_path / name, 0, 0)
        assert [(document.text, document.line) for document in corpus.documents("train")] == [("a\n", 1), ("b c\n", 2)]
    (tmp_path / "c.json").write_text('[{"text": "a"},\n {"txt": "b"}]\n')
    assert assert_refused(tmp_path / "c.json", "string under `text`, found txt").line == 2


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz"])
def test_a_truncated_gzip_file_is_rejected(name: str, tmp_path: Path) -> None:
    content = to_jsonl(*(os.urandom(50).hex() for _ in range(200)))
    (tmp_path / name).write_bytes(gzip.compress(content.encode())[:-100])
    assert "gzip -t" in assert_refused(tmp_path / name, "gzip file is damaged: it ends too early").fix


def test_a_file_with_a_gzip_suffix_that_is_not_gzip_is_rejected(tmp_path: Path) -> None:
    assert_refused(write_files(tmp_path, a_txt_gz="plain text") / "a.txt.gz", "gzip file is damaged")


def test_an_unknown_built_in_suggests_the_nearest() -> None:
    assert assert_refused("builtin:doc", "no built-in text 'doc'").fix == "Perhaps you meant 'docs'."


def test_an_unknown_suffix_is_rejected(tmp_path: Path) -> None:
    assert_refused(write_files(tmp_path, a_pdf="x") / "a.pdf", r"PDF documents \(.pdf\) are not read")


def test_a_text_too_short_to_split_is_rejected(tmp_path: Path) -> None:
    assert_refused(write_files(tmp_path, a_txt="hi") / "a.txt", "too short to split: 2 bytes")


def test_too_few_documents_are_rejected(tmp_path: Path) -> None:
    assert_refused(write_files(tmp_path, a_jsonl=to_jsonl("a", "b")) / "a.jsonl", "2 documents are too few")


def test_a_file_without_read_permission_is_rejected(tmp_path: Path) -> None:
    path = write_files(tmp_path, a_txt=LINES) / "a.txt"
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("the superuser may read anything")
    assert_refused(path, "cannot be read: Permission denied")


def test_a_folder_without_read_permission_is_rejected(tmp_path: Path) -> None:
    """It must not be treated as an empty one."""
    inner = tmp_path / "inner"
    inner.mkdir()
    write_files(tmp_path, a_txt=LINES)
    inner.chmod(0)
    if os.access(inner, os.R_OK):
        pytest.skip("the superuser may read anything")
    assert assert_refused(tmp_path, "cannot be read: Permission denied").file == str(inner)
    assert_refused(inner / "a.txt", "cannot be read: Permission denied")
    inner.chmod(0o700)


def test_an_invalid_file_name_is_rejected(tmp_path: Path) -> None:
    assert_refused(tmp_path / f"{'a' * 300}.txt", "cannot be read: File name too long")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that opens but cannot be read")
def test_a_read_error_in_the_middle_of_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to("/proc/self/mem")
    assert_refused(tmp_path / "a.txt", "cannot be read: Input/output error")


def test_a_folder_with_a_test_split_is_evaluated_on_it_even_if_validation_text_is_held_out(tmp_path: Path) -> None:
    write_files(tmp_path, train_txt=LINES, test_txt="e f\n")
    assert open_corpus(tmp_path).has_predefined_splits
    corpus, split = select_split(str(tmp_path), ResolvedSettings(), None, "another fingerprint")
    assert (split, join_texts(corpus, "test")) == ("test", "e f\n")
