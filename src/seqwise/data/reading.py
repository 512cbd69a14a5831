"""Reading text files, plain or gzip: checked bytes → documents. It knows nothing of splits or tokens.

Text must be UTF-8. A byte order mark is dropped, CRLF becomes a line break, and a line break is added at the end of a
document that has none, so that documents stay separate. Every error names the file, the line and the fix.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from seqwise.errors import DataError, suggest_path
from seqwise.text.patterns import replace_surrogates

CHUNK_BYTES = 4 << 20  # maximum bytes of text in memory at once
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """Text with its origin. A file larger than CHUNK_BYTES is read as several consecutive documents."""

    text: str
    file: str
    line: int = 1


class SourceSummary(NamedTuple):
    """Sizes and hash of a source, from reading it once."""

    sizes: tuple[int, ...]  # bytes of each document; one for a text file, none if the text is blank
    digest: str


class Source:
    """Documents that can be read any number of times, usually of a file."""

    def __init__(self, path: Path):
        self.path, self.name = path, str(path)

    def documents(self) -> Iterator[Document]:
        raise NotImplementedError

    def summarize(self) -> SourceSummary:
        """Read and check everything."""
        digest, sizes = hashlib.blake2b(digest_size=16), []
        for document in self.documents():
            data = document.text.encode("utf-8", "surrogatepass")
            digest.update(data + b"\0")
            sizes.append(len(data))
        return SourceSummary(tuple(sizes), digest.hexdigest())


class TextFile(Source):
    """A plain text file: one document, read in chunks, of which a split may take a part."""

    def summarize(self) -> SourceSummary:
        digest, size, is_blank = hashlib.blake2b(digest_size=16), 0, True
        for data, offset, _ in self._chunks():
            digest.update(data)
            size += len(data)
            is_blank = is_blank and not data.removeprefix(BOM if offset == 0 else b"").strip()
        return SourceSummary(() if is_blank else (size,), digest.hexdigest())

    def documents(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Yield the text of the (unpacked) bytes start … stop-1 in chunks that end at line breaks."""
        ends_with_newline = True
        for data, offset, line in self._chunks(start, stop):
            text = data.removeprefix(BOM if offset == 0 else b"").decode("utf-8").replace("\r\n", "\n")
            ends_with_newline = text.endswith("\n")
            if text:
                yield Document(text, self.name, line)
        if not ends_with_newline:
            yield Document("\n", self.name, line)

    def find_cut(self, target: int, max_distance: int) -> int:
        """Return the first byte at or after `target`, within `max_distance`, that follows a line break.

        Without a line break it is the first that follows a blank, or else the first that begins a character.
        """
        with open_binary(self.path) as file:
            file.seek(target)
            data = file.read(min(max_distance, 1 << 20))
        for separator in (b"\n", b" "):
            index = data.find(separator)
            if index >= 0:
                return target + index + 1
        return target + next((i for i, byte in enumerate(data) if byte & 0xC0 != 0x80), 0)

    def _chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[bytes, int, int]]:
        """Yield (bytes, their offset, line number) of chunks of valid UTF-8."""
        offset, line, rest = start, 1, b""
        with open_binary(self.path) as file:
            if start:
                line += sum(block.count(b"\n") for block in _blocks(file, start))
            for block in _blocks(file, None if stop is None else stop - start):
                rest += block
                end = _chunk_end(rest)
                if end:
                    check_utf8(rest[:end], offset, line, self.path)
                    yield rest[:end], offset, line
                    line += rest.count(b"\n", 0, end)
                    offset, rest = offset + end, rest[end:]
        if rest:
            check_utf8(rest, offset, line, self.path)
            yield rest, offset, line


class JsonLines(Source):
    """One object with a `text` per line: many documents."""

    def documents(self) -> Iterator[Document]:
        """Yield every document that is not blank."""
        offset = 0
        with open_binary(self.path) as file:
            for line, data in enumerate(file, start=1):
                check_utf8(data, offset, line, self.path)
                text = self._parse(data.removeprefix(BOM if not offset else b""), line)
                offset += len(data)
                if text.strip():
                    yield Document(text if text.endswith("\n") else text + "\n", self.name, line)

    def _parse(self, data: bytes, line: int) -> str:
        if not data.strip():
            return ""
        try:
            content = json.loads(data)
        except ValueError as error:
            problem = f"not valid JSON: {getattr(error, 'msg', error)}."
            repair = 'Each line must be one object: {"text": "…"}'
            raise DataError(problem, repair=repair, file=self.path, line=line) from None
        if not isinstance(content, dict) or not isinstance(content.get("text"), str):
            found = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
            problem = f"expected an object with a string under `text`, found {found or 'an empty object'}."
            repair = 'Rename the field that holds the text: {"text": "…"}'
            raise DataError(problem, repair=repair, file=self.path, line=line)
        return replace_surrogates(content["text"].replace("\r\n", "\n"))


def is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def get_format_suffix(path: Path) -> str:
    """Return the suffix that determines the format, in lower case and without `.gz`."""
    return (Path(path.stem).suffix if is_gzip(path) else path.suffix).lower()


def list_files(folder: Path) -> Iterator[Path]:
    """Yield all files that are not hidden. An unreadable folder is an error; `rglob` would skip it."""

    def fail(error: OSError) -> None:
        raise error

    for root, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(root, name)
            if not name.startswith(".") and path.is_file():
                yield path


def list_data(path: Path) -> list[Path]:
    """Return the files of a folder that are not hidden, sorted, or the one file; raise unless all can be listed."""
    try:
        if not path.exists():
            raise missing_file_error(path)
        return sorted(list_files(path)) if path.is_dir() else [path]
    except OSError as error:  # a folder of the path is not readable, or a name is too long
        raise read_error(error, error.filename or path) from None


def missing_file_error(path: Path) -> DataError:
    """Return the `DataError` for a file that does not exist, with a similar name as the fix."""
    folder = path.parent
    if not folder.is_dir():
        return DataError("there is no such file, nor its folder.", repair="Check the path.", file=path)
    others = [Path(entry.name) for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    hint = suggest_path(path, others) if others else "Its folder is empty."
    return DataError("there is no such file or folder.", repair=hint or "Check the path.", file=path)


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacking gzip. Errors inside the block are raised as a `DataError` about the file."""
    try:
        with cast(BinaryIO, gzip.open(path, "rb")) if is_gzip(path) else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        cause = "it ends too early" if isinstance(error, EOFError) else str(error)
        repair = f"Copy or download it again; `gzip -t {path}` checks it."
        raise DataError(f"the gzip file is damaged: {cause}.", repair=repair, file=path) from None
    except OSError as error:
        raise read_error(error, path) from None


def read_error(error: OSError, path: str | Path) -> DataError:
    """Return the `DataError` for a file that the system cannot read."""
    problem = f"cannot be read: {error.strerror or error}."
    return DataError(problem, repair="Check the path and its permissions.", file=path)


def check_utf8(data: bytes, offset: int, line: int, path: Path) -> None:
    """Raise if bytes are not UTF-8 text; they begin at `offset` and in `line` of the file."""
    if offset == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError("the text is UTF-16, not UTF-8.", repair=_conversion_hint(path, "utf-16"), file=path, line=1)
    zero = data.find(b"\0")
    if zero >= 0:
        problem = f"this is a binary file, not text: byte 0x00 at offset {offset + zero:,}."
        repair = "Give a text file; .txt, .jsonl and gzip of these are read."
        raise DataError(problem, repair=repair, file=path, line=line + data.count(b"\n", 0, zero))
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        error_line = line + data.count(b"\n", 0, error.start)
        problem = f"byte 0x{data[error.start]:02X} at offset {offset + error.start} (line {error_line}) is not UTF-8."
        raise DataError(problem, repair=_conversion_hint(path, "latin1"), file=path, line=error_line) from None


def _conversion_hint(path: Path, encoding: str) -> str:
    if not path.is_file():  # standard input
        return f"If it is {encoding}, convert it: iconv -f {encoding} -t utf8"
    source, target = (f"<(zcat {path})", path.with_suffix("")) if is_gzip(path) else (path, path)
    converted = target.with_name(f"{target.stem}.utf8{target.suffix}")
    return f"If it is {encoding}, convert it: iconv -f {encoding} -t utf8 {source} > {converted}"


def _blocks(file: BinaryIO, count: int | None) -> Iterator[bytes]:
    """Yield the next `count` bytes (all if None) in blocks of CHUNK_BYTES."""
    while count is None or count > 0:
        block = file.read(CHUNK_BYTES if count is None else min(CHUNK_BYTES, count))
        if not block:
            return
        count = None if count is None else count - len(block)
        yield block


def _chunk_end(data: bytes) -> int:
    """Return where a chunk ends: after the last line break; in a very long line after a blank or a character."""
    end = data.rfind(b"\n") + 1
    if end or len(data) < CHUNK_BYTES:
        return end
    end = data.rfind(b" ") + 1
    if end:
        return end
    end = len(data) - (1 if data.endswith(b"\r") else 0)
    for back in range(1, 5):  # leave the bytes of an incomplete character for the next chunk
        if data[end - back] & 0xC0 != 0x80:
            return end - back if data[end - back] >= 0xC0 else end
    return end
