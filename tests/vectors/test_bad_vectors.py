"""Damaged files and files of other formats: one clear message with file, line and fix."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from seqwise.errors import DataError
from seqwise.vectors.formats import load_vectors, text

ROW = struct.pack("<2f", 1, 2)


def to_safetensors(tensors: dict, metadata: dict, folder: Path) -> bytes:
    save_file({name: np.asarray(value) for name, value in tensors.items()}, folder / "file", metadata)
    content = (folder / "file").read_bytes()
    (folder / "file").unlink()
    return content


CASES = {
    # name, content, line (None: the file as a whole), message
    "an empty file": ("v.txt", b"", None, "the file is empty"),
    "blank lines": ("v.txt", b"\n\n", 1, "expected a word and its numbers in every line"),
    "a header only": ("v.txt", b"3 2\n", 2, "declares 3 words, but the file ends after 0"),
    "fewer lines than declared": ("v.vec", b"3 2\na 1 2\nb 3 4\n", 4, "declares 3 words, but the file ends after 2"),
    "more lines than declared": ("v.vec", b"1 2\na 1 2\n\nb 3 4\n", 4, "declares 1 words, but more follow"),
    "a header with the wrong dimension": ("v.vec", b"1 3\na 1 2\n", 2, "expected 3 numbers after the word; found 2"),
    "a header with zero dimensions": ("v.vec", b"3 0\na\n", 1, "declares 3 words of 0 numbers"),
    "a header with a huge dimension": ("v.vec", b"3 99999999999\na 1\n", 1, "99,999,999,999 numbers"),
    "a header with thousands of digits": (
        "v.vec",
        b"1" * 5000 + b" 2\na 1 2\n",
        1,
        "declares too many words of 2 numbers",
    ),
    "a binary header with thousands of digits": (
        "v.bin",
        b"3 " + b"1" * 5000 + b"\n",
        1,
        "3 words of too many numbers",
    ),
    "a lost line break": ("v.txt", b"a 1 2\nb 3 4c 5 6\nd 7 8\n", 2, "a line break is missing"),
    "a line break that became a space": ("v.vec", b"4 2\na 1 2\nb 3 4 c 5 6\nd 7 8\n", 3, "a line break is missing"),
    "a number with an underscore": ("v.txt", b"a 1 2\nb 3 1_0\n", 2, "'1_0' is not a number"),
    "white space that is no separator": ("v.txt", b"a 1 2\nb 3\x0b4\nc 5 6\n", 2, "found 1"),
    "white space around a number": ("v.txt", b"a 1 2\nb 3\x0b 4\nc 5 6\n", 2, "is not a number"),
    "a huge declared size": ("v.vec", b"999999999999 2\na 1 2\n", 3, "ends after 1"),
    "no header": ("v.vec", b"a 1 2\nb 3 4\n", 1, "expected two whole numbers.*found 'a 1 2'"),
    "too few numbers": ("v.txt", b"a 1 2\nb 3\nc 5 6\n", 2, "expected 2 numbers after the word; found 1"),
    "too many numbers": ("v.txt", b"a 1 2\nb 3 4 5\nc 5 6\n", 2, "expected 2 numbers after the word; found 3"),
    "a line cut off": ("v.txt", b"a 1 2\nb 3 4\nc 5", 3, "expected 2 numbers after the word; found 1"),
    "a line of spaces": ("v.txt", b"a 1 2\n   \nb 3 4\n", 2, "found 0"),
    "a word in place of a number": ("v.txt", b"a 1 2\nb 3 four\n", 2, "'four' is not a number"),
    "a word in place of a number in the first line": ("v.txt", b"a 1 x\nb 3 4\n", 1, "'x' is not a number"),
    "half an exponent": ("v.txt", b"a 1 2\nb 3 4e\n", 2, "'4e' is not a number"),
    "nan": ("v.txt", b"a 1 2\nb nan 4\n", 2, "'nan' is not a finite number"),
    "infinite": ("v.txt", b"a 1 2\nb 3 -inf\n", 2, "'-inf' is not a finite number"),
    "too large for 32 bits": ("v.txt", b"a 1 2\nb 3 1e39\n", 2, "'1e39' is not a finite number of 32 bits"),
    "prose": ("v.txt", b"It was the best of times\nit was the worst of times\n", 1, "'was' is not a number"),
    "not UTF-8": ("v.txt", b"a 1 2\n\xe9t\xe9 3 4\n", 2, "byte 0xE9 at offset 6 .line 2. is not UTF-8"),
    "UTF-16": ("v.txt", "a 1 2\n".encode("utf-16"), 1, "UTF-16"),
    "binary called text": ("v.txt", b"1 2\nthe " + ROW, 2, "end its name in .bin"),
    "text called binary": ("v.bin", b"40 9\n" + b"the 1 2 3 4 5 6 7 8 9\n" * 40, 2, "this is text"),
    "binary cut off": ("v.bin", b"2 2\nthe " + ROW + b"of " + ROW[:5], None, "declares 2 words.*ends after 1"),
    "binary, header only": ("v.bin", b"2 2\n", None, "ends after 0"),
    "binary with an extra word": ("v.bin", b"1 2\nthe " + ROW + b"of " + ROW, None, "more bytes follow"),
    "binary with longer vectors": ("v.bin", b"1 1\nthe " + ROW, None, "1 words of 1 numbers, but more bytes follow"),
    "binary without header": ("v.bin", b"the " + ROW, 1, "expected two whole numbers"),
    "binary with nan": ("v.bin", b"1 2\nthe " + struct.pack("<2f", 1, np.nan), None, "vector of 'the' holds"),
    "binary, not UTF-8": ("v.bin", b"1 2\n\xe9 " + ROW, None, "word 1 is not UTF-8"),
    "binary without end of word": ("v.bin", b"1 2\n" + b"\1" * 70_000, None, "word 1 .* has no end"),
    "a fastText model": ("v.bin", struct.pack("<ii", 793712314, 12) + bytes(80), None, "fastText model.*\n.*\\.vec"),
    "a pickle": ("v.bin", pickle.dumps({"a": 1}), None, "pickle.*can run code.*\n.*save_word2vec_format"),
    "a PyTorch model": ("v.bin", b"PK\x03\x04" + bytes(80), None, "zip archive"),
    "a NumPy array": ("v.vec", b"\x93NUMPY" + bytes(80), None, "NumPy array without words"),
    "gzip by another name": ("v.txt", b"\x1f\x8b" + bytes(80), None, "End its name in .gz"),
    "damaged gzip": ("v.txt.gz", b"\x1f\x8b\x08\x00" + bytes(40), None, "gzip file is damaged"),
    "text called safetensors": ("v.safetensors", b"a 1 2\n" * 20, None, "safetensors file is damaged"),
}


def get_load_error(path: Path) -> DataError:
    with pytest.raises(DataError) as excinfo:
        load_vectors(path)
    return excinfo.value


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_a_damaged_file_raises_one_error_with_file_and_line(case: str, compiled: bool, tmp_path: Path, monkeypatch):
    name, content, line, message = CASES[case]
    if compiled:
        monkeypatch.setattr(text, "MIN_COMPILED_BYTES", -1)
    path = tmp_path / name
    path.write_bytes(content)
    error = get_load_error(path)
    assert error.line == line
    assert Path(str(error.file)) == path
    assert error.fix
    with pytest.raises(DataError, match=message):
        raise error


WORDS = list(json.dumps(["a", "b"]).encode())
METADATA = {"format": "seqwise-vectors", "about": "{}"}


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({"embed.weight": np.ones((2, 2))}, {}, "tensors of a model .embed.weight."),
        (
            {"vectors": np.ones((2, 2), np.float64), "words": np.array(WORDS, np.uint8)},
            METADATA,
            "float32; found float64",
        ),
        ({"vectors": np.ones((3, 2), np.float32), "words": np.array(WORDS, np.uint8)}, METADATA, "each of 2 words"),
        ({"vectors": np.ones((2, 2), np.float32), "words": np.array(WORDS[:-1], np.uint8)}, METADATA, "cannot be read"),
        (
            {"vectors": np.ones((2, 2), np.float32), "words": np.array(list(b'"ab"'), np.uint8)},
            METADATA,
            "not a list of strings",
        ),
        (
            {
                "vectors": np.ones((2, 2), np.float32),
                "words": np.array(WORDS, np.uint8),
                "subwords": np.ones((4, 2), np.float32),
            },
            METADATA,
            "cannot be read",
        ),
        (
            {"vectors": np.full((2, 2), np.inf, np.float32), "words": np.array(WORDS, np.uint8)},
            METADATA,
            "vector of 'a'",
        ),
    ],
)
def test_a_safetensors_file_without_word_vectors_raises_an_error(
    tensors: dict, metadata: dict, message: str, tmp_path: Path
):
    path = tmp_path / "v.safetensors"
    path.write_bytes(to_safetensors(tensors, metadata, tmp_path))
    with pytest.raises(DataError, match=message):
        load_vectors(path)
    path.write_bytes(path.read_bytes()[:-3])
    assert "damaged" in get_load_error(path).problem
    path.rename(tmp_path / "v.bin")
    assert "End its name in .safetensors." in get_load_error(tmp_path / "v.bin").fix


def test_a_missing_file_raises_an_error(tmp_path: Path):
    for name in ("v.txt", "v.bin", "v.safetensors"):
        assert "No such file" in get_load_error(tmp_path / name).problem
    assert "Is a directory" in get_load_error(tmp_path).problem
