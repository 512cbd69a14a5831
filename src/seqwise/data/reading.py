"""Reading files of text, plain or gzip: checked bytes → pieces of text. It knows nothing of splits or tokens.

Text must be UTF-8. A byte order mark is dropped, CRLF becomes a line break, and a line break is added at the end of a
document that has none, so that documents never run into each other. Every complaint names file, line and repair.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from seqwise.errors import DataError

CHUNK_BYTES = 4 << 20  # most bytes of text in memory at once
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """Some text with the place it came from. A file larger than a piece comes as several in a row."""

    text: str
    file: str
    line: int = 1


@dataclass(frozen=True)
class FileSummary:
    """What one look at a whole source tells."""

    sizes: tuple[int, ...]  # bytes of text of each document; one for a text file, none where all is blank
    digest: str


class TextFile:
    """One file of plain text: one document, read in pieces."""

    whole = False  # may be cut inside

    def __init__(self, path: Path):
        self.path, self.name = path, str(path)

    def summarize(self) -> FileSummary:
        """Read and check everything once."""
        digest, size, blank = hashlib.blake2b(digest_size=16), 0, True
        for data, offset, _ in self._pieces():
            digest.update(data)
            size += len(data)
            blank = blank and not data.removeprefix(BOM if offset == 0 else b"").strip()
        return FileSummary(() if blank else (size,), digest.hexdigest())

    def documents(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """The text of the bytes start … stop-1 (of the unpacked file) in pieces that end at line breaks."""
        ended = True
        for data, offset, line in self._pieces(start, stop):
            text = data.removeprefix(BOM if offset == 0 else b"").decode("utf-8").replace("\r\n", "\n")
            ended = text.endswith("\n")
            if text:
                yield Document(text, self.name, line)
        if not ended:
            yield Document("\n", self.name, line)

    def cut(self, target: int, reach: int) -> int:
        """The first place at or after `target` where a line ends; within reach a blank or any character will do."""
        with open_binary(self.path) as file:
            file.seek(target)
            data = file.read(min(reach, 1 << 20))
        for mark in (b"\n", b" "):
            place = data.find(mark)
            if place >= 0:
                return target + place + 1
        return target + next((i for i, byte in enumerate(data) if byte & 0xC0 != 0x80), 0)

    def _pieces(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[bytes, int, int]]:
        """(bytes, where they begin, line number) of pieces that were found to be UTF-8 text."""
        offset, line, rest = start, 1, b""
        with open_binary(self.path) as file:
            if start:
                line += _skip(file, start)
            for block in _blocks(file, None if stop is None else stop - start):
                rest += block
                end = _end_of_piece(rest)
                if end:
                    check_utf8(rest[:end], offset, line, self.path)
                    yield rest[:end], offset, line
                    line += rest.count(b"\n", 0, end)
                    offset, rest = offset + end, rest[end:]
        if rest:
            check_utf8(rest, offset, line, self.path)
            yield rest, offset, line


class JsonLines:
    """One object with a `text` per line: many documents."""

    whole = True

    def __init__(self, path: Path):
        self.path, self.name = path, str(path)

    def summarize(self) -> FileSummary:
        digest, sizes = hashlib.blake2b(digest_size=16), []
        for document in self.documents():
            data = document.text.encode("utf-8", "surrogatepass")
            digest.update(data + b"\0")
            sizes.append(len(data))
        return FileSummary(tuple(sizes), digest.hexdigest())

    def documents(self) -> Iterator[Document]:
        """Every document in turn, without those that are blank."""
        offset = 0
        with open_binary(self.path) as file:
            for number, data in enumerate(file, start=1):
                check_utf8(data, offset, number, self.path)
                text = self._text(data.removeprefix(BOM if not offset else b""), number)
                offset += len(data)
                if text.strip():
                    yield Document(text if text.endswith("\n") else text + "\n", self.name, number)

    def _text(self, data: bytes, line: int) -> str:
        if not data.strip():
            return ""
        try:
            content = json.loads(data)
        except ValueError as error:
            reason = getattr(error, "msg", str(error))
            raise DataError(
                f"not valid JSON: {reason}.",
                repair='Each line must be one object: {"text": "…"}',
                file=self.path,
                line=line,
            ) from None
        if not isinstance(content, dict) or not isinstance(content.get("text"), str):
            found = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
            raise DataError(
                f"expected an object with a string under `text`, found {found or 'an empty object'}.",
                repair='Rename the field that holds the text: {"text": "…"}',
                file=self.path,
                line=line,
            )
        text = str(content["text"]).replace("\r\n", "\n")
        # JSON can spell half a surrogate pair, which is no character and which no tokeniser takes.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """The unpacked bytes of a file. Whatever goes wrong until the block is left is a complaint about that file."""
    try:
        with cast(BinaryIO, gzip.open(path, "rb")) if is_gzip(path) else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        cause = "it ends too early" if isinstance(error, EOFError) else str(error)
        raise DataError(
            f"the gzip file is damaged: {cause}.",
            repair=f"Copy or download it again; `gzip -t {path}` checks it.",
            file=path,
        ) from None
    except OSError as error:
        raise read_error(error, path) from None


def read_error(error: OSError, path: str | Path) -> DataError:
    """What the system says when it refuses to read, as a complaint."""
    reason = error.strerror or str(error)
    return DataError(f"cannot be read: {reason}.", repair="Check the path and its permissions.", file=path)


def check_utf8(data: bytes, offset: int, line: int, path: Path) -> None:
    """Complain about bytes that are not UTF-8 text; `offset` and `line` say where they begin."""
    if offset == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError("the text is UTF-16, not UTF-8.", repair=_convert(path, "utf-16"), file=path, line=1)
    zero = data.find(b"\0")
    if zero >= 0:
        raise DataError(
            f"this is a binary file, not text: byte 0x00 at offset {offset + zero:,}.",
            repair="Give a text file; .txt, .jsonl and gzip of these are read.",
            file=path,
            line=line + data.count(b"\n", 0, zero),
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        row = line + data.count(b"\n", 0, error.start)
        raise DataError(
            f"byte 0x{data[error.start]:02X} at offset {offset + error.start} (line {row}) is not UTF-8.",
            repair=_convert(path, "latin1"),
            file=path,
            line=row,
        ) from None


def _convert(path: Path, encoding: str) -> str:
    source, target = (f"<(zcat {path})", path.with_suffix("")) if is_gzip(path) else (path, path)
    made = target.with_name(f"{target.stem}.utf8{target.suffix}")
    return f"If it is {encoding}, convert it: iconv -f {encoding} -t utf8 {source} > {made}"


def _blocks(file: BinaryIO, count: int | None) -> Iterator[bytes]:
    """The next `count` bytes (all if None) in blocks."""
    while count is None or count > 0:
        block = file.read(CHUNK_BYTES if count is None else min(CHUNK_BYTES, count))
        if not block:
            return
        count = None if count is None else count - len(block)
        yield block


def _skip(file: BinaryIO, count: int) -> int:
    """Pass over bytes; returns the number of line breaks among them."""
    lines = 0
    while count > 0:
        block = file.read(min(CHUNK_BYTES, count))
        if not block:
            break
        lines += block.count(b"\n")
        count -= len(block)
    return lines


def _end_of_piece(data: bytes) -> int:
    """Where to cut: after the last line break; in a line longer than a piece after a blank, or between characters."""
    end = data.rfind(b"\n") + 1
    if end or len(data) < CHUNK_BYTES:
        return end
    end = data.rfind(b" ") + 1
    if end:
        return end
    end = len(data) - (1 if data.endswith(b"\r") else 0)
    for back in range(1, 5):  # leave the bytes of an unfinished character for the next piece
        if data[end - back] & 0xC0 != 0x80:
            return end - back if data[end - back] >= 0xC0 else end
    return end
