"""Streams the text of a file, in any encoding, line by line; no more than one line is in memory.

A file is read twice: first to check it and to find its encoding, then to decode it. So an encoding that shows only at
the end is known from the beginning, and a decompression bomb is refused before anything is built from it. The module
knows nothing of tables.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from seqwise.data.encodings import (
    HEAD_BYTES,
    UTF8,
    InvalidUtf8Error,
    Utf8Stream,
    find_encoding,
    note_encoding,
    sniff_encoding,
)
from seqwise.data.limits import MB, build_size_error, get_limits, iterate_lines
from seqwise.data.opening import open_binary
from seqwise.data.reading import read_blocks, read_checked_chunks
from seqwise.errors import Findings


@contextmanager
def open_text(path: Path, findings: Findings | None = None, encoding: str | None = None) -> Iterator[TextIO]:
    """Opens a file as text with line breaks as \\n; a note in `findings` says if it is not UTF-8."""
    with open_binary(path) as file, decode_file(file, path, findings, encoding) as text:
        yield text


@contextmanager
def decode_file(
    file: BinaryIO,
    path: Path,
    findings: Findings | None = None,
    encoding: str | None = None,
    newline: str | None = None,
) -> Iterator[TextIO]:
    """Decodes a file that is open, and can be read again from its beginning; `newline` is that of `open`."""
    chosen = _find_encoding(file, path, encoding)
    if findings is not None:
        note_encoding(findings, path, chosen)
    file.seek(0)
    stream = io.BufferedReader(Utf8Stream(file, chosen, path)) if chosen != UTF8 else file
    text = io.TextIOWrapper(stream, "utf-8-sig", newline=newline)
    yield text
    if not file.closed:
        text.detach()  # the caller closes the file


def _find_encoding(file: BinaryIO, path: Path, encoding: str | None) -> str:
    """Returns the encoding of a file, which is detected unless it is set. Reads and checks all of it if it is UTF-8."""
    chosen = encoding or sniff_encoding(file.read(HEAD_BYTES))
    file.seek(0)
    try:
        for _ in read_checked_chunks(file, path) if chosen == UTF8 else read_blocks(file):
            pass  # reading checks the text, and the size of what is decompressed
    except InvalidUtf8Error as error:
        if encoding:
            raise
        file.seek(0)
        return find_encoding(read_blocks(file), error)
    return chosen


def read_lines(path: Path, findings: Findings | None = None, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """Yields (line number, text) of a file; empty lines at the end are left out."""
    with open_text(path, findings, encoding) as file:
        yield from iterate_lines(file.read, path)


def read_text(path: Path, findings: Findings | None = None, encoding: str | None = None) -> str:
    """Returns the whole text of a file with line breaks as \\n; a note in `findings` says if it is not UTF-8."""
    max_characters = get_limits().max_text_mb * MB
    with open_text(path, findings, encoding) as file:
        text = file.read(max_characters + 1)
    if len(text) > max_characters:
        raise build_size_error("the text", path)
    return text
