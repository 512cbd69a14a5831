"""word2vec's binary kind: a line with both sizes, then each word, a blank, and its numbers as 32-bit floats.

It knows nothing of endings. The C program ends each vector with a line break and gensim does not; both are read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from seqwise.data.reading import is_gzip, open_binary
from seqwise.errors import DataError
from seqwise.vectors.formats.vector_table import Table, check_words, parse_header, place, written
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.search import find_nonfinite_row

BLOCK = 4 << 20  # bytes read at once
LONGEST = 1 << 16  # bytes of a word; what is longer comes from reading at the wrong place
ROWS = 4096  # words written at once, and reserved first where the size of the file tells nothing
CONTROLS = bytes(set(range(32)) - set(b"\t\n\r"))  # among numbers as bytes they are everywhere, in text nowhere
SAMPLE_BYTES = 512  # bytes that are enough to say so
AGAIN = "Copy or download it again; if it is whole, its first line is wrong."


def read_binary(
    path: Path, progress: Callable[[int, int], None] | None = None, log: Callable[[str], None] | None = None
) -> KeyedVectors:
    with open_binary(path) as file:
        size = path.stat().st_size
        declared, dim = _read_header(path, file.readline(LONGEST))
        reserved = ROWS if is_gzip(path) else size // (4 * dim + 2) + 1
        table, rest = Table(dim, min(declared, reserved)), b""
        while table.read < declared:
            block = file.read(max(BLOCK, 8 * dim))
            if not block:
                raise DataError(
                    f"the first line promises {declared:,} words, but the file ends after {table.read:,}.",
                    repair=AGAIN,
                    file=path,
                )
            if not table.read:
                _reject_text(path, block[:SAMPLE_BYTES])
            rest = _take(path, rest + block, table, declared)
            if progress:
                progress(place(file), size)
        if (rest + file.read(64)).strip(b"\n"):
            problem = f"the first line promises {declared:,} words of {dim:,} numbers, but more bytes follow."
            raise DataError(problem, repair=AGAIN, file=path)
    if not table.words:
        raise _word_error(path, 0)
    return table.keyed(log)


def write_binary(path: Path, keyed: KeyedVectors) -> None:
    check_words(path, keyed)
    with written(path) as file:
        file.write(f"{len(keyed)} {keyed.dim}\n".encode())
        for start in range(0, len(keyed), ROWS):
            rows = keyed.matrix[start : start + ROWS].astype("<f4", copy=False)
            words = keyed.words[start : start + ROWS]
            file.write(b"".join([word.encode() + b" " + row.tobytes() for word, row in zip(words, rows)]))


def _take(path: Path, data: bytes, table: Table, declared: int) -> bytes:
    """Move whole words from the bytes into the table; returns what is left."""
    dim = table.matrix.shape[1]
    names: list[str] = []
    width, at, skipped = 4 * dim, 0, 0
    rows = table.room(min(len(data) // (width + 1) + 1, declared - table.read))
    while len(names) + skipped < len(rows):
        blank = data.find(b" ", at, at + LONGEST)
        stop = blank + 1 + width
        if blank < 0 and len(data) - at > LONGEST:
            raise _word_error(path, table.read + len(names) + skipped)
        if blank < 0 or stop > len(data):
            break
        try:
            names.append(data[at:blank].lstrip(b"\n").decode())
            rows[len(names) - 1] = np.frombuffer(data, "<f4", dim, blank + 1)
        except UnicodeDecodeError:  # a word that was cut inside a letter; its length is known all the same
            skipped += 1
        at = stop
    bad = find_nonfinite_row(rows[: len(names)])
    if bad is not None:
        problem = f"the vector of {names[bad]!r} holds a number that is infinite or none."
        raise DataError(problem, repair=AGAIN, file=path)
    table.take(names)
    table.skip(skipped)
    return data[at:]


def _reject_text(path: Path, start: bytes) -> None:
    if len(start) == SAMPLE_BYTES and start.translate(None, CONTROLS) == start:
        raise DataError(
            "this is text, not word2vec's binary kind.", repair="End its name in .txt or .vec.", file=path, line=2
        )


def _word_error(path: Path, number: int) -> DataError:
    """Reading went astray, or the words are in another encoding."""
    return DataError(f"word {number + 1:,} is not UTF-8 text, or has no end.", repair=AGAIN, file=path)


def _read_header(path: Path, line: bytes) -> tuple[int, int]:
    found = parse_header(path, line)
    if found is None:
        raise DataError(
            "expected two whole numbers (words, numbers per word) in the first line, as word2vec's binary kind has.",
            repair="If it is text, end its name in .txt or .vec.",
            file=path,
            line=1,
        )
    return found
