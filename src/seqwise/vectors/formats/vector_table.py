"""`VectorTable`, which collects vectors while a file is read, and other code of both text and binary formats.

It knows nothing of how a format encodes words and numbers.
"""

from __future__ import annotations

import gzip
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from seqwise.data.opening import is_gzip
from seqwise.errors import DataError, UsageError
from seqwise.files import replace_file
from seqwise.vectors.keyed import KeyedVectors

MAX_DIM = 100_000  # dimensions; a header with more is wrong
MAX_DIGITS = 18  # of a size in a header; int() refuses strings of some thousand digits
BLOCK_ROWS = 4096  # words written at once
MAX_EXAMPLES = 3  # words in a message
DAMAGED_FILE_FIX = "Copy or download it again; if it is complete, correct its first line."

# First bytes of other formats, a description, and a fix. Pickles of protocols 2 to 5 begin with \x80 and the number of
# the protocol; a word2vec file begins with a digit, and text seldom with this byte.
PICKLE = "a pickle (the format of gensim's save()), which is not read: a pickle can run code"
PICKLE_FIX = "Export it with gensim's wv.save_word2vec_format('vectors.bin', binary=True)"
OTHER_FORMATS = (
    (
        b"\xba\x16\x4f\x2f",
        "a fastText model, not a file of vectors",
        "Give the .vec file that fastText wrote with it.",
    ),
    (b"PK\x03\x04", "a zip archive (the format of PyTorch models)", "Unpack it and give the file of vectors inside."),
    (b"\x93NUMPY", "a NumPy array without words", "Give a file of words and vectors."),
    (b"\x1f\x8b", "a gzip file", "End its name in .gz, so that it is decompressed."),
    *((bytes([0x80, protocol]), PICKLE, PICKLE_FIX) for protocol in range(2, 6)),
)
# What a word in a text or binary file cannot contain: whitespace ends it, and half a surrogate pair has no UTF-8.
UNSUPPORTED_WORD = re.compile("^$|[ \t\n\r\0\ud800-\udfff]")


def reject_other_formats(path: Path, first_bytes: bytes, kind: str | None) -> None:
    """Raises `DataError` if the first bytes of a file show that it is in another format."""
    if not first_bytes:
        raise DataError("the file is empty.", fix="Give a file of words and vectors.", file=path)
    if first_bytes[8:10] == b'{"':  # after the length of the header, which may be any number
        if kind != "safetensors":
            raise DataError("this is a safetensors file.", fix="End its name in .safetensors.", file=path)
        return
    for magic, description, fix in OTHER_FORMATS:
        if first_bytes.startswith(magic):
            raise DataError(f"this is {description}.", fix=fix, file=path)


def parse_header(path: Path, line: bytes) -> tuple[int, int] | None:
    """Returns (number of words, dimensions) if the line is a header, otherwise None."""
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return None
    num_words, dim = (int(field) if len(field) <= MAX_DIGITS else None for field in fields)
    if not num_words or not dim or dim > MAX_DIM:
        sizes = ("too many" if size is None else f"{size:,}" for size in (num_words, dim))
        problem = "the first line declares {} words of {} numbers.".format(*sizes)
        raise DataError(problem, fix="Correct the first line, or write the file again.", file=path, line=1)
    return num_words, dim


class VectorTable:
    """Collects the words and vectors of a file. Repeated words and words that are not UTF-8 are left out.

    `num_declared` is the number of words in the header, None without a header.
    """

    def __init__(self, path: Path, dim: int, num_declared: int | None, capacity: int):
        self.path, self.dim, self.num_declared = path, dim, num_declared
        self.rows: dict[str, int] = {}  # word → row of the matrix
        self.repeated_words: dict[str, None] = {}  # the first few
        self.num_repeated = 0
        self.matrix = np.empty((max(1, capacity), dim), dtype=np.float32)
        self.num_read = 0  # words of the file so far, including those left out
        self.num_undecodable = 0

    def reserve(self, count: int) -> np.ndarray:
        """Returns the next `count` free rows.

        The matrix grows with what is read, because a wrong header could declare more than the memory holds.
        """
        used = len(self.rows)
        if used + count > len(self.matrix):
            self.matrix.resize((max(used + count, len(self.matrix) * 5 // 4), self.dim), refcheck=False)
        return self.matrix[used : used + count]

    def append(self, words: list[str], num_undecodable: int = 0) -> None:
        """Assigns the words to the rows that `reserve` returned last, closing the gaps that repeated words leave.

        Words that are not UTF-8 are only counted.
        """
        used = len(self.rows)
        self.num_read += len(words) + num_undecodable
        self.num_undecodable += num_undecodable
        for offset, word in enumerate(words):
            if word in self.rows:
                self.num_repeated += 1
                if len(self.repeated_words) < MAX_EXAMPLES:
                    self.repeated_words[word] = None
                continue
            row = len(self.rows)
            if row != used + offset:
                self.matrix[row] = self.matrix[used + offset]
            self.rows[word] = row

    def check_complete(self, line: int | None = None) -> None:
        """Raises `DataError` if the file ended before the declared number of words."""
        if self.num_declared is not None and self.num_read < self.num_declared:
            problem = f"the first line declares {self.num_declared:,} words, but the file ends after {self.num_read:,}."
            raise DataError(problem, fix=DAMAGED_FILE_FIX, file=self.path, line=line)

    def to_keyed_vectors(self, log: Callable[[str], None] | None) -> KeyedVectors:
        """Returns the words and vectors; reports the words that were left out to `log`, or as warnings."""
        messages = []
        if self.num_repeated:
            examples = ", ".join(map(repr, self.repeated_words))
            count = f"{self.num_repeated:,} of {self.num_read:,}"
            messages.append(f"{count} lines repeat a word, whose first vector is used: {examples}")
        if self.num_undecodable:
            count = f"{self.num_undecodable:,} of {self.num_read:,}"
            messages.append(f"{count} words are not UTF-8 text and were left out.")
        for message in messages:
            log(message) if log else warnings.warn(message, stacklevel=4)
        self.matrix.resize((len(self.rows), self.dim), refcheck=False)
        return KeyedVectors(tuple(self.rows), self.matrix)


def write_rows(
    path: Path, vectors: KeyedVectors, encode: Callable[[Sequence[str], np.ndarray], bytes], header: bool = True
) -> None:
    """Writes vectors block by block, each as `encode(words, rows)`, after a header line unless `header` is False."""
    for word in vectors.words:
        if match := UNSUPPORTED_WORD.search(word):
            reason = f"it contains {match[0]!r}" if word else "it is empty"
            problem = f"the word {word!r} cannot be written in this format: {reason}."
            raise UsageError(problem, fix="Write a .safetensors file, which can hold any word.", file=path)
    with open_for_writing(path) as file:
        if header:
            file.write(f"{len(vectors)} {vectors.dim}\n".encode())
        for start in range(0, len(vectors), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            file.write(encode(vectors.words[block], vectors.matrix[block]))


@contextmanager
def open_for_writing(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for bytes, compressed if its name ends in .gz; it appears once it is complete."""
    with replace_file(path, concurrent=True) as temporary, temporary.open("wb") as file:
        if is_gzip(path):
            # Neither time nor name inside, so that the same vectors give the same file.
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed:
                yield cast(BinaryIO, compressed)
        else:
            yield file
