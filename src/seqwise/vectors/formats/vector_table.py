"""What every kind of file shares: telling foreign files, growing a table row by row, words that a file cannot hold."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from seqwise.data.reading import is_gzip
from seqwise.errors import DataError, UsageError
from seqwise.files import replace_file
from seqwise.vectors.keyed import KeyedVectors

MAX_DIM = 100_000  # numbers per word; a header that promises more is no header
MAX_DIGITS = 18  # of a size in a header; more words than that lie in no file
SEPARATORS = " \t\n\r"  # no word in a text or binary file may hold one: there they end a word

# How a file begins that is something else, what it is, and what to do about it.
FOREIGN = (
    (
        b"\xba\x16\x4f\x2f",
        "this is a fastText model, not a file of vectors",
        "Give the .vec file that fastText wrote beside it.",
    ),
    (
        b"PK\x03\x04",
        "this is a zip archive (PyTorch saves models so), not a file of vectors",
        "Unpack it and give the file of vectors inside.",
    ),
    (b"\x93NUMPY", "this is a NumPy array without words", "Give a file of words and vectors."),
    (b"\x1f\x8b", "this is a gzip file", "End its name in .gz, so that it is unpacked."),
)
PICKLE = (
    "this is a pickle (gensim's save() writes such files), which is not read: a pickle can run code",
    "Write it again where it came from: gensim's wv.save_word2vec_format('vectors.bin', binary=True)",
)


def reject_foreign_file(path: Path, start: bytes, kind: str | None) -> None:
    """Complain about a file that is plainly something else, by its first bytes."""
    if not start:
        raise DataError("the file is empty.", repair="Give a file of words and vectors.", file=path)
    for mark, what, repair in FOREIGN:
        if start.startswith(mark):
            raise DataError(f"{what}.", repair=repair, file=path)
    # A safetensors file begins with the length of its header, which may be any number.
    if start[8:10] == b'{"':
        if kind != "safetensors":
            raise DataError("this is a safetensors file.", repair="End its name in .safetensors.", file=path)
        return
    # Protocols 2 to 5 begin like this; a word2vec file begins with a digit and text seldom with this byte.
    if start[0] == 0x80 and len(start) > 1 and 2 <= start[1] <= 5:
        raise DataError(f"{PICKLE[0]}.", repair=PICKLE[1], file=path)


def parse_header(path: Path, line: bytes) -> tuple[int, int] | None:
    """(words, numbers per word) if the line is a header, else None."""
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    # Python refuses to turn some thousand digits into a number.
    rows, dim = (int(part) if len(part) <= MAX_DIGITS else None for part in parts)
    if not rows or not dim or dim > MAX_DIM:
        shown = ("more" if count is None else f"{count:,}" for count in (rows, dim))
        problem = "the header promises {} words of {} numbers.".format(*shown)
        raise DataError(problem, repair="Write the file again: nothing can be read from it.", file=path, line=1)
    return rows, dim


class Table:
    """Words and vectors as they come from a file. The first of two equal words counts; what is no UTF-8 is left out."""

    def __init__(self, dim: int, rows: int):
        self.words: dict[str, int] = {}
        self.repeated: list[str] = []
        self.matrix = np.empty((max(1, rows), dim), dtype=np.float32)
        self.read = 0  # rows that came, with repetitions and those left out
        self.unreadable = 0

    def room(self, rows: int) -> np.ndarray:
        """The next so many free rows. What a header promises is never reserved: a lie would exhaust the memory."""
        used, dim = len(self.words), self.matrix.shape[1]
        if used + rows > len(self.matrix):
            self.matrix.resize((max(used + rows, len(self.matrix) * 5 // 4), dim), refcheck=False)
        return self.matrix[used : used + rows]

    def take(self, names: list[str]) -> None:
        """Keep the rows last given out, under these names."""
        used = len(self.words)
        self.read += len(names)
        for offset, name in enumerate(names):
            free = len(self.words)
            if name in self.words:
                self.repeated.append(name)
                continue
            if free != used + offset:
                self.matrix[free] = self.matrix[used + offset]
            self.words[name] = free

    def skip(self, count: int) -> None:
        """So many words came that are not UTF-8."""
        self.read += count
        self.unreadable += count

    def keyed(self, log: Callable[[str], None] | None) -> KeyedVectors:
        for remark in self._remarks():
            log(remark) if log else warnings.warn(remark, stacklevel=4)
        self.matrix.resize((len(self.words), self.matrix.shape[1]), refcheck=False)
        return KeyedVectors(tuple(self.words), self.matrix)

    def _remarks(self) -> Iterator[str]:
        if self.repeated:
            some = ", ".join(repr(word) for word in list(dict.fromkeys(self.repeated))[:3])
            yield f"{len(self.repeated):,} of {self.read:,} lines repeat a word; the first counts: {some}"
        if self.unreadable:
            yield f"{self.unreadable:,} of {self.read:,} words are not UTF-8 text and were left out."


def check_words(path: Path, keyed: KeyedVectors) -> None:
    """Complain about a word that a file of this kind cannot hold, before anything is written."""
    for word in keyed.words:
        if why := _unwritable(word):
            raise UsageError(
                f"the word {word!r} cannot be written into this kind of file: {why}.",
                repair="Write a .safetensors file, which holds any word.",
                file=path,
            )


def _unwritable(word: str) -> str:
    """Why a text or binary file cannot hold a word; empty where it can."""
    if not word:
        return "nothing would stand there before its numbers"
    if any(mark in word for mark in SEPARATORS):
        return "white space ends a word there"
    if "\0" in word:
        return "a zero byte is no text"
    if any("\ud800" <= mark <= "\udfff" for mark in word):
        return "half a surrogate pair is no character of UTF-8"
    return ""


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file to write bytes to, packed if its name ends in .gz; it appears when all is written."""
    with replace_file(path, concurrent=True) as temporary:
        if is_gzip(path):
            # No time and no name inside: the same vectors give the same file.
            with temporary.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
                yield cast(BinaryIO, file)
        else:
            with temporary.open("wb") as file:
                yield file


def place(file: BinaryIO) -> int:
    """How far a file is read, in bytes as they lie on the disk."""
    return int(getattr(file, "fileobj", file).tell())
