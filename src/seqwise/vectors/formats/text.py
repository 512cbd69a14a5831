"""Vectors as text, one word per line: word2vec and fastText (the first line says how many and how long), and GloVe.

It knows nothing of endings. Numbers are counted from the right, since words of GloVe may hold blanks (". . ."); only
blank and tab part them, so that other white space may stand inside a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seqwise.data.reading import BOM, check_utf8, open_binary
from seqwise.errors import DataError
from seqwise.vectors.formats.vector_table import Table, check_words, parse_header, place, written
from seqwise.vectors.keyed import KeyedVectors

BLOCK = 4 << 20  # bytes read at once
COMPILED = 8 << 20  # bytes from which the compiled reader is worth the 0.6 s that numba takes to start
LONGEST = 16 << 20  # bytes of a line; what is longer is no line of numbers
SAMPLE_LINES = 50  # lines that say how many numbers a line has where there is no header
ROWS = 4096  # words written at once
NUMBER = "%.9g"  # nine digits bring every float32 back exactly
MAX_BAD_SHARE = (
    0.01  # share of a block's lines that are left out where they are not UTF-8; where more are, the file is not
)

# As the compiled reader knows them. Python's float() would also take 1_0, and white space around a number.
_NUMBER = re.compile(rb"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
_BEGINS_LIKE_A_NUMBER = re.compile(rb"[-+]?\.?\d")


def read_text(
    path: Path,
    header: bool | None,
    progress: Callable[[int, int], None] | None = None,
    log: Callable[[str], None] | None = None,
) -> KeyedVectors:
    """`header` says whether the first line holds the sizes; None: see for yourself."""
    declared, dim = _read_header(path, header)
    with open_binary(path) as file:
        size = path.stat().st_size
        reader = _Reader(path, dim, declared, size)
        for data in _blocks(path, file):
            reader.add(data)
            if progress:
                progress(place(file), size)
    reader.check_number()
    return reader.table.keyed(log)


def write_text(path: Path, keyed: KeyedVectors, header: bool) -> None:
    check_words(path, keyed)
    line = "%s " + " ".join([NUMBER] * keyed.dim) + "\n"
    with written(path) as file:
        if header:
            file.write(f"{len(keyed)} {keyed.dim}\n".encode())
        for start in range(0, len(keyed), ROWS):
            rows = zip(keyed.words[start : start + ROWS], keyed.matrix[start : start + ROWS].tolist())
            file.write("".join([line % (word, *row) for word, row in rows]).encode())


class _Reader:
    """Lines → table."""

    def __init__(self, path: Path, dim: int, declared: int | None, size: int):
        self.path, self.dim, self.declared = path, dim, declared
        self.compiled = size > COMPILED
        self.table = Table(dim, min(declared or size, size // (8 * dim) + 16))  # about 8 bytes per number
        self.offset, self.line = 0, 1

    def add(self, data: bytes) -> None:
        """Take the next lines, whole ones."""
        bad = self._not_text(data)
        array = np.frombuffer(data, dtype=np.uint8)
        stops = np.flatnonzero(array == ord("\n"))
        starts = np.concatenate([[0], stops[:-1] + 1])
        lines = np.arange(self.line, self.line + len(stops))
        filled = (stops - starts > 1) | ((stops > starts) & (array[starts] != ord("\r")))
        if self.offset == 0:
            starts[0] += len(BOM) if data.startswith(BOM) else 0
            filled[0] &= self.declared is None  # else it is the header
        filled[bad] = False
        self.table.skip(len(bad))
        self.offset, self.line = self.offset + len(data), self.line + len(stops)
        starts, stops, lines = starts[filled], stops[filled], lines[filled]
        if self.declared is not None and self.table.read + len(lines) > self.declared:
            extra = int(lines[self.declared - self.table.read])
            problem = f"the first line promises {self.declared:,} words, but more follow."
            raise DataError(problem, repair="Correct the first line.", file=self.path, line=extra)
        self.table.take(self._parse(data, array, starts, stops, lines))

    def _parse(
        self, data: bytes, array: np.ndarray, starts: np.ndarray, stops: np.ndarray, lines: np.ndarray
    ) -> list[str]:
        """Write the numbers into the table's next rows; returns the words."""
        rows = self.table.room(len(lines))
        ends, usual = starts.copy(), np.zeros(len(lines), dtype=np.bool_)
        if self.compiled:
            from seqwise.vectors.formats.number_parser import POWERS, parse_lines

            parse_lines(array, starts, stops, POWERS, rows, ends, usual)
        names = [data[start:end].decode() for start, end in zip(starts.tolist(), ends.tolist())]
        for at in np.flatnonzero(~usual):
            content = data[starts[at] : stops[at]]
            try:
                names[at], rows[at] = _line(content, self.dim)
            except ValueError as error:
                raise DataError(
                    str(error),
                    repair=f"Every line holds a word and {self.dim:,} numbers. If the file was cut off, copy it again.",
                    file=self.path,
                    line=int(lines[at]),
                ) from None
        return names

    def _not_text(self, data: bytes) -> list[int]:
        """The lines that are not UTF-8, if they are few: words that somebody cut inside a letter. Else a complaint."""
        try:
            check_utf8(data, self.offset, self.line, self.path)
        except DataError as error:
            bad = [] if b"\0" in data else [at for at, line in enumerate(data.split(b"\n")) if not _is_text(line)]
            if 0 < len(bad) <= MAX_BAD_SHARE * data.count(b"\n"):
                return bad
            repair = f"{error.repair}\nIf it is word2vec's binary kind, end its name in .bin."
            raise DataError(error.problem, repair=repair, file=self.path, line=error.line) from None
        return []

    def check_number(self) -> None:
        """Complain about a file that is over before all words were there."""
        if self.declared is not None and self.table.read < self.declared:
            raise DataError(
                f"the first line promises {self.declared:,} words, but the file ends after {self.table.read:,}.",
                repair="Copy or download it again; if it is whole, correct its first line.",
                file=self.path,
                line=self.line,
            )


def _line(content: bytes, dim: int) -> tuple[str, np.ndarray]:
    """(word, numbers) of one line, read with care; ValueError says what is wrong with it."""
    parts = _fields(content)
    word, numbers = parts[:-dim], parts[-dim:]
    if not word or (len(word) > 1 and all(map(_NUMBER.fullmatch, word[1:]))):
        raise ValueError(f"expected {dim:,} numbers after the word; found {max(0, len(parts) - 1):,}.")
    # The last number and the next word may have grown together.
    if sum(_BEGINS_LIKE_A_NUMBER.match(part) is not None for part in word[1:]) >= dim:
        raise ValueError("here stand two words with their numbers: a line break is lost.")
    for part in numbers:
        if not _NUMBER.fullmatch(part):
            raise ValueError(f"{part.decode()!r} is not a number.")
    with np.errstate(over="ignore"):
        row = np.array([float(part) for part in numbers], dtype=np.float32)
    if not np.isfinite(row).all():
        bad = numbers[int(np.argmin(np.isfinite(row)))]
        raise ValueError(f"{bad.decode()!r} is not a finite number of 32 bits.")
    return b" ".join(word).decode(), row


def _fields(line: bytes) -> list[bytes]:
    """What blanks and tabs part; any other white space may stand in a word."""
    return [part for part in line.rstrip(b"\r\n").replace(b"\t", b" ").split(b" ") if part]


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_header(path: Path, header: bool | None) -> tuple[int | None, int]:
    """(how many words are promised, numbers per word); nothing is promised where there is no header."""
    with open_binary(path) as file:
        first = file.readline(LONGEST).removeprefix(BOM)
        found = None if header is False else parse_header(path, first)
        if found:
            return found
        if header:
            raise DataError(
                f"expected two whole numbers (words, numbers per word) in the first line; found {_quote(first)}.",
                repair="If the file has no such line it is GloVe text: end its name in .txt, or name the kind glove.",
                file=path,
                line=1,
            )
        # Most lines decide: a damaged one among them is then told apart.
        lines = [first, *islice(iter(lambda: file.readline(LONGEST), b""), SAMPLE_LINES)]
    widths = Counter(len(fields) - 1 for fields in map(_fields, lines) if fields)
    dim = widths.most_common(1)[0][0] if widths else 0
    if dim < 1:
        raise DataError(
            f"expected a word and its numbers in every line; found {_quote(first)}.",
            repair="Give a file of words and vectors.",
            file=path,
            line=1,
        )
    return None, dim


def _quote(line: bytes) -> str:
    return repr(line[:40].decode("utf-8", "replace").strip())


def _blocks(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """A file in pieces of whole lines; a line break is added at its end where it has none."""
    rest = b""
    while block := file.read(BLOCK):
        rest += block
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > LONGEST:
            raise DataError(
                "this is no text of words and numbers: a line has no end.",
                repair="If it is word2vec's binary kind, end its name in .bin.",
                file=path,
            )
    if rest:
        yield rest + b"\n"
