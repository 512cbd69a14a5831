"""Text formats with one word per line: word2vec and fastText, whose first line is a header, and GloVe.

It knows nothing of file suffixes. Numbers are counted from the right, since words of GloVe may contain spaces: ". . .".
Only spaces and tabs separate fields; other whitespace belongs to a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seqwise.data.encodings import BOM, check_utf8
from seqwise.data.opening import get_file_position, open_binary
from seqwise.errors import DataError
from seqwise.vectors.formats.vector_table import MAX_DIM, VectorTable, parse_header, write_rows
from seqwise.vectors.keyed import KeyedVectors

BLOCK_BYTES = 4 << 20  # bytes read at once
MIN_COMPILED_BYTES = 8 << 20  # size of a file from which the compiled parser is worth the 0.6 s that numba takes
MAX_LINE_BYTES = 4 << 20  # a longer line means that the file is not text: 40 bytes per number, with MAX_DIM
SAMPLE_LINES = 50  # lines from which the number of dimensions is estimated if there is no header
NUMBER_FORMAT = "%.9g"  # nine digits represent every float32 exactly
MAX_UNDECODABLE_SHARE = 0.01  # of a block's lines; with more of them the file is not UTF-8

BINARY_HINT = "If it is in the binary format of word2vec, end its name in .bin."

# Numbers that a file may contain. float() would also accept 1_0, and white space around a number.
_NUMBER = re.compile(rb"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
_SURROGATE = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8, decoded with surrogateescape
_NUMBER_PREFIX = re.compile(rb"[-+]?\.?\d")


def read_text(
    path: Path,
    header: bool | None,
    progress: Callable[[int, int], None] | None = None,
    log: Callable[[str], None] | None = None,
) -> KeyedVectors:
    """Reads a file; `header` says whether the first line is a header (number of words, dimensions); None detects it."""
    num_declared, dim = _read_header(path, header)
    with open_binary(path) as file:
        size = path.stat().st_size
        reader = _Reader(path, dim, num_declared, size)
        for data in _read_blocks(path, file):
            reader.add(data)
            if progress:
                progress(get_file_position(file), size)
    reader.table.check_complete(reader.line)
    return reader.table.to_keyed_vectors(log)


def write_text(path: Path, vectors: KeyedVectors, header: bool) -> None:
    """Writes one word with its numbers per line, after a header line if `header`."""
    line = "%s " + " ".join([NUMBER_FORMAT] * vectors.dim) + "\n"

    def encode(words: Sequence[str], rows: np.ndarray) -> bytes:
        return "".join([line % (word, *row) for word, row in zip(words, rows.tolist())]).encode()

    write_rows(path, vectors, encode, header)


class _Reader:
    """Parses blocks of lines into a table."""

    def __init__(self, path: Path, dim: int, num_declared: int | None, size: int):
        self.path, self.dim, self.num_declared = path, dim, num_declared
        self.is_compiled = size > MIN_COMPILED_BYTES
        capacity = min(num_declared or size, size // (8 * dim) + 16)  # about 8 bytes per number
        self.table = VectorTable(path, dim, num_declared, capacity)
        self.offset, self.line = 0, 1  # where the next block begins

    def add(self, data: bytes) -> None:
        """Adds the words of the next block, which consists of whole lines."""
        undecodable = self._find_undecodable(data)
        array = np.frombuffer(data, dtype=np.uint8)
        stops = np.flatnonzero(array == ord("\n"))
        starts = np.concatenate([[0], stops[:-1] + 1])
        lines = np.arange(self.line, self.line + len(stops))
        is_row = (stops - starts > 1) | ((stops > starts) & (array[starts] != ord("\r")))
        if self.offset == 0:
            starts[0] += len(BOM) if data.startswith(BOM) else 0
            is_row[0] &= self.num_declared is None  # otherwise it is the header
        is_row[undecodable] = False
        self.offset, self.line = self.offset + len(data), self.line + len(stops)
        starts, stops, lines = starts[is_row], stops[is_row], lines[is_row]
        num_left = (
            len(lines) if self.num_declared is None else self.num_declared - self.table.num_read - len(undecodable)
        )
        if num_left < len(lines):
            problem = f"the first line declares {self.num_declared:,} words, but more follow."
            raise DataError(problem, fix="Correct the first line.", file=self.path, line=int(lines[num_left]))
        too_short = np.flatnonzero(stops - starts < 2 * self.dim + 1)  # found before memory is reserved for it
        if len(too_short):
            row = int(too_short[0])
            self._parse_row(data[starts[row] : stops[row]], int(lines[row]))
        self.table.append(self._parse(data, array, starts, stops, lines), len(undecodable))

    def _parse(
        self, data: bytes, array: np.ndarray, starts: np.ndarray, stops: np.ndarray, lines: np.ndarray
    ) -> list[str]:
        """Writes the numbers into the next rows of the table; returns the words."""
        rows = self.table.reserve(len(lines))
        word_ends, is_parsed = starts.copy(), np.zeros(len(lines), dtype=np.bool_)
        if self.is_compiled:
            from seqwise.vectors.formats.number_parser import POWERS, parse_lines

            parse_lines(array, starts, stops, POWERS, rows, word_ends, is_parsed)
        words = [data[start:end].decode() for start, end in zip(starts.tolist(), word_ends.tolist())]
        for row in np.flatnonzero(~is_parsed):
            words[row], rows[row] = self._parse_row(data[starts[row] : stops[row]], int(lines[row]))
        return words

    def _parse_row(self, content: bytes, line: int) -> tuple[str, np.ndarray]:
        """Returns the word and the numbers of a line; raises `DataError` if it is not valid."""
        try:
            return _parse_line(content, self.dim)
        except ValueError as error:
            fix = f"Every line holds a word and {self.dim:,} numbers. If the file was cut off, copy it again."
            raise DataError(str(error), fix=fix, file=self.path, line=line) from None

    def _find_undecodable(self, data: bytes) -> list[int]:
        """Returns the indices of lines that are not UTF-8, such as words cut inside a character; raises `DataError` if
        there are many."""
        try:
            check_utf8(data, self.offset, self.line, self.path)
        except DataError as error:
            lines = [] if b"\0" in data else data.decode("utf-8", "surrogateescape").split("\n")
            undecodable = [index for index, line in enumerate(lines) if _SURROGATE.search(line)]
            if 0 < len(undecodable) <= MAX_UNDECODABLE_SHARE * data.count(b"\n"):
                return undecodable
            fix = f"{error.fix}\n{BINARY_HINT}"
            raise DataError(error.problem, fix=fix, file=self.path, line=error.line) from None
        return []


def _parse_line(content: bytes, dim: int) -> tuple[str, np.ndarray]:
    """Returns the word and the numbers of a line; raises ValueError if it is not valid."""
    fields = _split_fields(content)
    word, numbers = fields[:-dim], fields[-dim:]
    if not word or (len(word) > 1 and all(map(_NUMBER.fullmatch, word[1:]))):
        raise ValueError(f"expected {dim:,} numbers after the word; found {max(0, len(fields) - 1):,}.")
    # The last number and the next word may have merged.
    if sum(_NUMBER_PREFIX.match(field) is not None for field in word[1:]) >= dim:
        raise ValueError("expected one word with its numbers; found two: a line break is missing.")
    for field in numbers:
        if not _NUMBER.fullmatch(field):
            raise ValueError(f"{field[:40].decode('utf-8', 'replace')!r} is not a number.")
    with np.errstate(over="ignore"):
        row = np.array([float(field) for field in numbers], dtype=np.float32)
    if not np.isfinite(row).all():
        field = numbers[int(np.argmin(np.isfinite(row)))]
        raise ValueError(f"{field.decode()!r} is not a finite number of 32 bits.")
    return b" ".join(word).decode(), row


def _split_fields(line: bytes) -> list[bytes]:
    """Splits at spaces and tabs, not at other white space."""
    return [field for field in line.rstrip(b"\r\n").replace(b"\t", b" ").split(b" ") if field]


def _read_header(path: Path, header: bool | None) -> tuple[int | None, int]:
    """Returns (declared number of words, dimensions); the first is None if there is no header."""
    with open_binary(path) as file:
        first_line = file.readline(MAX_LINE_BYTES).removeprefix(BOM)
        sizes = None if header is False else parse_header(path, first_line)
        if sizes:
            return sizes
        if header:
            expected = "expected two whole numbers (words, numbers per word) in the first line"
            problem = f"{expected}; found {_quote_line(first_line)}."
            fix = "If the file has no such line it is GloVe text: end its name in .txt, or set the format glove."
            raise DataError(problem, fix=fix, file=path, line=1)
        # The most frequent width, so that a damaged line among them is reported as such.
        lines = chain([first_line], islice(iter(lambda: file.readline(MAX_LINE_BYTES), b""), SAMPLE_LINES))
        widths = Counter(len(fields) - 1 for fields in map(_split_fields, lines) if fields)
    dim = widths.most_common(1)[0][0] if widths else 0
    if dim > MAX_DIM:
        problem = f"found a word with {dim:,} numbers; expected at most {MAX_DIM:,}."
        raise DataError(problem, fix="Give a file of words and vectors.", file=path, line=1)
    if dim < 1:
        problem = f"expected a word and its numbers in every line; found {_quote_line(first_line)}."
        raise DataError(problem, fix="Give a file of words and vectors.", file=path, line=1)
    return None, dim


def _quote_line(line: bytes) -> str:
    """Returns the beginning of a line, for a message."""
    return repr(line[:40].decode("utf-8", "replace").strip())


def _read_blocks(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Yields blocks of whole lines; a missing line break at the end is added."""
    rest = b""
    while block := file.read(BLOCK_BYTES):
        rest += block
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > MAX_LINE_BYTES:
            raise DataError("found a line without an end: this is not text.", fix=BINARY_HINT, file=path)
    if rest:
        yield rest + b"\n"
