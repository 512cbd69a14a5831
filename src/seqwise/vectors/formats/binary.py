"""The binary format of word2vec: a line with both sizes, then each word, a space, and its numbers as 32-bit floats.

It knows nothing of file suffixes. The C program ends each vector with a line break and gensim does not; both are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from seqwise.data.reading import is_gzip, open_binary
from seqwise.errors import DataError
from seqwise.vectors.formats.vector_table import (
    BLOCK_ROWS,
    REPAIR,
    VectorTable,
    get_file_position,
    parse_header,
    write_rows,
)
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.search import find_nonfinite_row

BLOCK_BYTES = 4 << 20  # bytes read at once
MAX_WORD_BYTES = 1 << 16  # a longer word means that the file is not in this format
CONTROL_CHARACTERS = bytes(set(range(32)) - set(b"\t\n\r"))  # frequent in binary numbers, absent from text
SAMPLE_BYTES = 512  # bytes that are enough to tell text from binary numbers


def read_binary(
    path: Path, progress: Callable[[int, int], None] | None = None, log: Callable[[str], None] | None = None
) -> KeyedVectors:
    with open_binary(path) as file:
        size = path.stat().st_size
        declared, dim = _read_header(path, file.readline(MAX_WORD_BYTES))
        capacity = BLOCK_ROWS if is_gzip(path) else size // (4 * dim + 2) + 1
        table, rest = VectorTable(path, dim, declared, min(declared, capacity)), b""
        while table.num_read < declared:
            block = file.read(max(BLOCK_BYTES, 8 * dim))
            if not block:
                table.check_complete()
            if not table.num_read:
                _reject_text(path, block[:SAMPLE_BYTES])
            rest = _parse_block(rest + block, table, declared)
            if progress:
                progress(get_file_position(file), size)
        if (rest + file.read(64)).strip(b"\n"):
            problem = f"the first line declares {declared:,} words of {dim:,} numbers, but more bytes follow."
            raise DataError(problem, repair=REPAIR, file=path)
    if not table.rows:
        raise _word_error(path, 0)
    return table.to_keyed_vectors(log)


def write_binary(path: Path, keyed: KeyedVectors) -> None:
    def encode(words: Sequence[str], rows: np.ndarray) -> bytes:
        rows = rows.astype("<f4", copy=False)
        return b"".join([word.encode() + b" " + row.tobytes() for word, row in zip(words, rows)])

    write_rows(path, keyed, encode)


def _parse_block(data: bytes, table: VectorTable, declared: int) -> bytes:
    """Adds the complete words of `data` to the table; returns the bytes of an incomplete one at its end."""
    dim = table.matrix.shape[1]
    words: list[str] = []
    width, start, skipped = 4 * dim, 0, 0
    rows = table.reserve(min(len(data) // (width + 1) + 1, declared - table.num_read))
    while len(words) + skipped < len(rows):
        space = data.find(b" ", start, start + MAX_WORD_BYTES)
        stop = space + 1 + width
        if space < 0 and len(data) - start > MAX_WORD_BYTES:
            raise _word_error(table.path, table.num_read + len(words) + skipped)
        if space < 0 or stop > len(data):
            break
        try:
            words.append(data[start:space].lstrip(b"\n").decode())
            rows[len(words) - 1] = np.frombuffer(data, "<f4", dim, space + 1)
        except UnicodeDecodeError:  # such as a word that was cut inside a character; its numbers are skipped
            skipped += 1
        start = stop
    row = find_nonfinite_row(rows[: len(words)])
    if row is not None:
        problem = f"the vector of {words[row]!r} holds an infinite number or nan."
        raise DataError(problem, repair=REPAIR, file=table.path)
    table.append(words)
    table.skip_undecodable(skipped)
    return data[start:]


def _reject_text(path: Path, sample: bytes) -> None:
    if len(sample) == SAMPLE_BYTES and sample.translate(None, CONTROL_CHARACTERS) == sample:
        raise DataError(
            "this is text, not the binary format of word2vec.",
            repair="End its name in .txt or .vec.",
            file=path,
            line=2,
        )


def _word_error(path: Path, index: int) -> DataError:
    return DataError(f"word {index + 1:,} is not UTF-8 text, or has no end.", repair=REPAIR, file=path)


def _read_header(path: Path, line: bytes) -> tuple[int, int]:
    header = parse_header(path, line)
    if header is None:
        raise DataError(
            "expected two whole numbers (words, numbers per word) in the first line, as in the binary format of "
            "word2vec.",
            repair="If it is text, end its name in .txt or .vec.",
            file=path,
            line=1,
        )
    return header
