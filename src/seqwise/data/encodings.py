"""Detects the encoding of text files and decodes them. The module knows nothing of documents or tables.

UTF-8 and UTF-16 (with or without a byte order mark), UTF-32 (with one), Windows-1252 and Latin-1 are detected. A file
is read as one of the latter two only if most of its bytes above 0x7F are not UTF-8 and most of its letters are below:
text in Cyrillic or Japanese encodings would otherwise be read as nonsense. Bytes that are not text are an error.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seqwise.errors import DataError, Findings

UTF8 = "utf-8"
BOM = b"\xef\xbb\xbf"
HEAD_BYTES = 64 * 1024  # of a file in which a byte order mark, zero bytes or another format are detected
ENCODING_NAMES = {"utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "utf-32": "UTF-32",
                  "cp1252": "Windows-1252", "latin-1": "Latin-1"}  # fmt: skip
SIGNATURES = {
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a zip archive or an Office document",
    b"\xd0\xcf\x11\xe0": "an old Office document",
    b"\x1f\x8b": "gzip without the suffix .gz",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"PAR1": "a Parquet table",
    b"SQLite format 3": "an SQLite database",
    b"\x7fELF": "a program",
    **dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "UTF-16"),
}  # the first bytes of what is not UTF-8 text
UNDEFINED_IN_CP1252 = (0x81, 0x8D, 0x8F, 0x90, 0x9D)
OTHER_ENCODINGS_FIX = "Set its encoding: --data.encoding, such as cp1251, shift_jis or gb18030."


class InvalidUtf8Error(DataError):
    """Bytes are not UTF-8; `ends_early` if the text ends inside a character."""

    ends_early = False


def sniff_encoding(head: bytes) -> str:
    """Returns the encoding of a file by its first bytes: UTF-16 or UTF-32, otherwise UTF-8."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) and len(head) % 4 == 0:
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # The upper bytes of Latin letters in UTF-16 are zero: those at even, or at odd positions.
    num_even, num_odd = (head[position::2].count(0) for position in (0, 1))
    if max(num_even, num_odd) > len(head) // 8 and min(num_even, num_odd) <= max(num_even, num_odd) // 100:
        return "utf-16-be" if num_even > num_odd else "utf-16-le"
    return UTF8


def find_encoding(blocks: Iterable[bytes], error: InvalidUtf8Error) -> str:
    """Returns the one-byte encoding of a whole text that is not UTF-8; raises if there is none, or if it is damaged."""
    if error.ends_early:
        problem = f"{error.problem} The text ends inside a character: the file is truncated."
        raise DataError(problem, fix="Copy or download it again.", file=error.file, line=error.line)
    decoder, histogram = codecs.getincrementaldecoder(UTF8)("replace"), np.zeros(256, dtype=np.int64)
    num_characters = num_invalid = 0
    for block in blocks:
        text = decoder.decode(block)
        num_characters += len(text)
        num_invalid += text.count("\ufffd")
        histogram += np.bincount(np.frombuffer(block, dtype=np.uint8), minlength=256)
    num_valid = num_characters - num_invalid - int(histogram[:128].sum())  # characters of several bytes
    if num_valid >= max(1, num_invalid):
        others = "1 other character is" if num_valid == 1 else f"{num_valid:,} other characters are"
        problem = f"{error.problem} {others}: the file is damaged or mixes encodings."
        fix = "Correct the place, or set one encoding for all of it: --data.encoding cp1252"
        raise DataError(problem, fix=fix, file=error.file, line=error.line)
    letters = histogram[ord("A") : ord("Z") + 1].sum() + histogram[ord("a") : ord("z") + 1].sum()
    if histogram[list(UNDEFINED_IN_CP1252)].any() or histogram[128:].sum() > letters:
        problem = f"{error.problem} Nor is it Windows-1252 or Latin-1: it has another encoding, or is no text at all."
        raise DataError(problem, fix=OTHER_ENCODINGS_FIX, file=error.file, line=error.line)
    return "cp1252" if histogram[0x80:0xA0].any() else "latin-1"


def decode_text(data: bytes, path: Path, encoding: str | None = None) -> tuple[str, str]:
    """Returns the text of a whole file, and its encoding, which is detected unless it is set."""
    chosen = encoding or sniff_encoding(data[:HEAD_BYTES])
    if chosen == UTF8:
        try:
            check_utf8(data, 0, 1, path)
        except InvalidUtf8Error as error:
            if encoding:
                raise
            chosen = find_encoding([data], error)
    try:
        return data.decode(chosen).removeprefix("\ufeff"), chosen
    except UnicodeDecodeError as error:
        raise undecodable_error(error, 0, path) from None


def decode_head(head: bytes, path: Path, encoding: str | None = None) -> str:
    """Returns the text of the first bytes of a longer file, which may end inside a character."""
    chosen = encoding or sniff_encoding(head)
    decoder = codecs.getincrementaldecoder(chosen)()
    try:
        decoder.decode(head)
        head = head[: len(head) - len(decoder.getstate()[0])]
    except UnicodeDecodeError:
        pass
    return decode_text(head, path, encoding)[0]


def undecodable_error(error: UnicodeDecodeError, offset: int, path: Path) -> DataError:
    """Returns the error for bytes that are not text in an encoding other than UTF-8."""
    name = ENCODING_NAMES.get(error.encoding, error.encoding)
    byte = f"byte 0x{error.object[error.start]:02X} at offset {offset + error.start:,}"
    problem = f"the {name} text is damaged: {byte} cannot be decoded ({error.reason})."
    return DataError(problem, fix="Copy the file again, or set another --data.encoding.", file=path)


def note_encoding(findings: Findings, path: Path, encoding: str) -> None:
    """Adds a note if a file has another encoding than UTF-8."""
    if codecs.lookup(encoding).name not in (UTF8, "utf-8-sig"):
        name = ENCODING_NAMES.get(encoding, encoding)
        findings.note(f"files in {name}, converted to UTF-8 (--data.encoding sets another)", path)


class Utf8Stream(io.RawIOBase):
    """The text of a file in another encoding as a stream of UTF-8 bytes, without its byte order mark."""

    def __init__(self, file: BinaryIO, encoding: str, path: Path):
        self.file, self.path, self.offset, self.pending = file, path, 0, b""
        self.decoder = codecs.getincrementaldecoder(encoding)()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        is_at_end = False
        while not self.pending and not is_at_end:
            data = self.file.read(HEAD_BYTES)
            is_at_end = not data
            try:
                text = self.decoder.decode(data, final=is_at_end)
            except UnicodeDecodeError as error:
                raise undecodable_error(error, self.offset, self.path) from None
            self.pending = (text.removeprefix("\ufeff") if self.offset == 0 else text).encode("utf-8", "replace")
            self.offset += len(data)
        count = min(len(buffer), len(self.pending))
        buffer[:count], self.pending = self.pending[:count], self.pending[count:]
        return count


def check_utf8(data: bytes, offset: int, line: int, path: Path) -> None:
    """Raises if bytes are not UTF-8 text; `offset` and `line` are where they begin in the file."""
    if offset == 0:
        for signature, kind in SIGNATURES.items():
            if data.startswith(signature):
                raise DataError(
                    f"this is {kind}, not UTF-8 text.", fix="Give a text file or a table.", file=path, line=1
                )
    zero = data.find(b"\0")
    if zero >= 0:
        problem = f"this is a binary file, not text: byte 0x00 at offset {offset + zero:,}."
        fix = "Give a text file; .txt, .jsonl and gzip of these are read."
        raise DataError(problem, fix=fix, file=path, line=line + data.count(b"\n", 0, zero))
    try:
        data.decode(UTF8)
    except UnicodeDecodeError as error:
        error_line = line + data.count(b"\n", 0, error.start)
        problem = f"byte 0x{data[error.start]:02X} at offset {offset + error.start} (line {error_line}) is not UTF-8."
        invalid = InvalidUtf8Error(problem, fix=OTHER_ENCODINGS_FIX, file=path, line=error_line)
        # One byte at the end may be a letter of Latin-1.
        invalid.ends_early = error.reason == "unexpected end of data" and error.start < len(data) - 1
        raise invalid from None
