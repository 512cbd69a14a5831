"""Detecting and converting the encodings that people's files have."""

from __future__ import annotations

import gzip
from itertools import chain
from pathlib import Path

import pytest

from seqwise.config import Settings, parse_settings
from seqwise.data.corpus.sources import open_corpus
from seqwise.data.encodings import decode_head, decode_text
from seqwise.data.text_lines import read_text
from seqwise.errors import DataError, Findings, UsageError

GERMAN = "Die Straße über den Fluß ist schön.\n" * 40
QUOTES = "“It’s a café – really …”\n" * 40
CYRILLIC = "Все счастливые семьи похожи друг на друга.\n" * 40
NAMES = {
    "latin-1": "Latin-1",
    "cp1252": "Windows-1252",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "encoding"),
    [(GERMAN, "latin-1"), (QUOTES, "cp1252"), (GERMAN, "utf-16"), (GERMAN, "utf-16-le"), (CYRILLIC, "utf-16"),
     (GERMAN, "utf-16-be"), (GERMAN, "utf-8"), (CYRILLIC, "utf-8-sig")],
)  # fmt: skip
def test_a_text_in_any_common_encoding_is_the_same_corpus(tmp_path: Path, text: str, encoding: str, packed: bool):
    utf8_file, encoded_file = tmp_path / "plain.txt", tmp_path / ("other.txt.gz" if packed else "other.txt")
    utf8_file.write_text(text, encoding="utf-8")
    data = text.encode(encoding)
    encoded_file.write_bytes(gzip.compress(data) if packed else data)
    expected, corpus = open_corpus(utf8_file), open_corpus(encoded_file)
    splits, expected_splits = ([list(each.texts(split)) for split in each.parts] for each in (corpus, expected))
    if (
        encoding == "utf-8-sig"
    ):  # its byte order mark is part of the size and of the fingerprint, as in earlier versions
        assert "".join(chain(*splits)) == text
    else:
        assert (splits, corpus.fingerprint) == (expected_splits, expected.fingerprint)
    name = NAMES.get(encoding)
    note = f"1 file in {name}, converted to UTF-8 (--data.encoding sets another) ({encoded_file})."
    assert corpus.findings.note_messages() == ([note] if name else [])


def test_json_documents_in_another_encoding_are_reported_too(tmp_path: Path):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes('[{"text": "schön"}]'.encode("latin-1"))
    corpus = open_corpus(tmp_path, 0, 0)
    assert list(corpus.texts("train")) == ["schön\n", "schön\n"]
    note = "2 files in Latin-1, converted to UTF-8 (--data.encoding sets another)"
    assert corpus.findings.note_messages() == [f"{note} (first: {tmp_path / 'a.json'})."]


def test_an_encoding_may_be_set(tmp_path: Path):
    path, findings = tmp_path / "a.txt", Findings()
    path.write_bytes(CYRILLIC.encode("cp1251"))
    with pytest.raises(DataError, match=r"is not UTF-8. Nor is it Windows-1252 or Latin-1") as excinfo:
        open_corpus(path)
    assert "--data.encoding, such as cp1251" in excinfo.value.fix
    assert "".join(open_corpus(path, 0, 0, encoding="cp1251").texts("train")) == CYRILLIC
    assert read_text(path, findings, "cp1251") == CYRILLIC
    assert findings.note_messages() == [
        f"1 file in cp1251, converted to UTF-8 (--data.encoding sets another) ({path})."
    ]


def test_a_set_encoding_is_not_replaced_by_a_detected_one(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(GERMAN.encode("latin-1"))
    with pytest.raises(DataError, match="is not UTF-8"):
        open_corpus(tmp_path / "a.txt", encoding="utf-8")
    with pytest.raises(DataError, match="is not UTF-8"):
        read_text(tmp_path / "a.txt", encoding="utf-8")


def test_the_setting_accepts_the_encodings_of_python():
    assert parse_settings({"data": {"encoding": "Latin1"}}).data.encoding == "iso8859-1"
    assert Settings().data.encoding is None
    for name in ("utf-9", "rot13"):
        with pytest.raises(UsageError, match=f"no such text encoding.*received '{name}'"):
            parse_settings({"data": {"encoding": name}})


@pytest.mark.parametrize(
    ("data", "problem", "line"),
    [
        # Of a text with many characters of several bytes, a wrong byte is damage.
        (
            (GERMAN * 2).encode().replace(b"sch\xc3\xb6n", b"sch\xb6n", 1),
            "0xB6 at offset 35 .*: the file is damaged",
            1,
        ),
        (b"one\ntwo \xe6\x97", "0xE6 at offset 8 .* the file is truncated", 2),
        (GERMAN.encode("utf-16")[:-1], r"the UTF-16 text is damaged: byte 0x\w\w at offset 2,\d+ cannot", None),
        (b"%PDF-1.7\n\xe2\xe3\xcf\xd3", "a PDF document, not UTF-8 text", None),
        (gzip.compress(b"text", mtime=0), "gzip without the suffix .gz, not UTF-8 text", None),
        (b"\x89PNG\r\n\x1a\n", "a PNG image", None),
        (b"line\nELF\0\1\2", "a binary file, not text: byte 0x00 at offset 8", 2),
        (bytes(range(1, 256)) * 9, "or is no text at all", None),
    ],
)
def test_damaged_and_binary_files_are_reported_as_such(tmp_path: Path, data: bytes, problem: str, line: int | None):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    for read in (open_corpus, read_text):
        with pytest.raises(DataError, match=problem) as excinfo:
            read(path)
        assert excinfo.value.file == path
        assert line is None or excinfo.value.line == line


def test_the_last_letter_of_latin_1_is_no_truncated_character():
    assert decode_text(b"un caf\xe9", Path("a.txt")) == ("un café", "latin-1")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "latin-1"])
def test_the_beginning_of_a_file_may_end_inside_a_character(encoding: str):
    text = "schön " * 20
    data = text.encode(encoding)
    for size in range(len(data) - 6, len(data)):
        assert text.startswith(decode_head(data[:size], Path("a.txt")).rstrip("\ufffd"))
