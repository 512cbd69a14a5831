"""Reads text files, plain or gzip: checked bytes → documents. The module knows nothing of splits or tokens.

Text becomes UTF-8 while it is read. A byte order mark is dropped, CRLF becomes a line break, and a line break is added
at the end of a document that has none, so that documents stay separate. Every error names the file, the line and the
fix. Positions are bytes of the text, decompressed and in UTF-8.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from seqwise.data.encodings import (
    BOM,
    HEAD_BYTES,
    UTF8,
    InvalidUtf8Error,
    Utf8Stream,
    check_utf8,
    find_encoding,
    sniff_encoding,
)
from seqwise.data.json_objects import parse_json
from seqwise.data.limits import get_limits, read_lines
from seqwise.data.opening import is_gzip, open_binary, read_error
from seqwise.environment import get_cache_folder
from seqwise.errors import DataError, suggest_path
from seqwise.text.patterns import replace_surrogates

CHUNK_BYTES = 4 << 20  # of a text file that are read at once
SAVED_DATA = "data"  # folder in the cache for data passed from Python; see in_memory.py


@dataclass(frozen=True)
class Document:
    """Text with its location: a document, or one of the consecutive chunks in which a text file is read."""

    text: str
    file: str
    line: int = 1  # at which the text starts


class SourceSummary(NamedTuple):
    """Sizes and hash of a source, from reading it once."""

    sizes: tuple[int, ...]  # bytes of each document; one for a text file, none if the text is blank
    digest: str


class Source:
    """Documents that can be read any number of times, usually of a file."""

    def __init__(self, path: Path, encoding: str | None = None):
        self.path, self.name = path, str(path)
        self.encoding = encoding or ""  # detected when the file is first opened, unless set
        self.detects_encoding = not encoding
        self.limits = get_limits()  # which hold whenever the source is read

    def documents(self) -> Iterator[Document]:
        """Yields the documents, which are read again at each call."""
        raise NotImplementedError

    def summarize(self, progress: Callable[[int], None] = lambda num_bytes: None) -> SourceSummary:
        """Reads and checks everything; `progress` receives the bytes of each document or chunk."""
        try:
            return self._summarize(progress)
        except InvalidUtf8Error as error:
            if not self.detects_encoding:
                raise
            with open_binary(self.path, self.limits) as file:
                self.encoding = find_encoding(read_blocks(file), error)
            return self._summarize(progress)

    def _summarize(self, progress: Callable[[int], None]) -> SourceSummary:
        digest, sizes = hashlib.blake2b(digest_size=16), []
        for document in self.documents():
            data = document.text.encode("utf-8", "surrogatepass")
            digest.update(data + b"\0")
            sizes.append(len(data))
            progress(len(data))
        return SourceSummary(tuple(sizes), digest.hexdigest())

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Opens the file as a stream of UTF-8."""
        with open_binary(self.path, self.limits) as file:
            if not self.encoding:
                self.encoding = sniff_encoding(file.peek(HEAD_BYTES)[:HEAD_BYTES])  # type: ignore[attr-defined]
            if self.encoding == UTF8:
                yield file
            else:
                yield cast(BinaryIO, io.BufferedReader(Utf8Stream(file, self.encoding, self.path)))


class TextFile(Source):
    """A plain text file: one document, read in chunks, of which a split may take a part."""

    def _summarize(self, progress: Callable[[int], None]) -> SourceSummary:
        digest, size, is_blank = hashlib.blake2b(digest_size=16), 0, True
        for data, offset, _ in self._read_chunks():
            digest.update(data)
            size += len(data)
            is_blank = is_blank and not data.removeprefix(BOM if offset == 0 else b"").strip()
            progress(len(data))
        return SourceSummary(() if is_blank else (size,), digest.hexdigest())

    def documents(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Yields the text of the bytes start … stop-1 in chunks that end at line breaks."""
        ends_with_newline = True
        for data, offset, line in self._read_chunks(start, stop):
            text = data.removeprefix(BOM if offset == 0 else b"").decode("utf-8").replace("\r\n", "\n")
            ends_with_newline = text.endswith("\n")
            if text:
                yield Document(text, self.name, line)
        if not ends_with_newline:
            yield Document("\n", self.name, line)

    def find_cut(self, target: int, max_distance: int) -> int:
        """Returns the first byte at or after `target`, within `max_distance`, that follows a line break.

        Without a line break it is the first that follows a space, or else the first that begins a character.
        """
        with self.open() as file:
            if file.seekable():
                file.seek(target)
            else:  # converted while it is read
                for _ in read_blocks(file, target):
                    pass
            data = file.read(min(max_distance, 1 << 20))
        for separator in (b"\n", b" "):
            index = data.find(separator)
            if index >= 0:
                return target + index + 1
        return target + next((i for i, byte in enumerate(data) if byte & 0xC0 != 0x80), 0)

    def _read_chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[bytes, int, int]]:
        """Yields (bytes, their offset, line number) of chunks of valid UTF-8."""
        with self.open() as file:
            line = 1 + sum(block.count(b"\n") for block in read_blocks(file, start))
            yield from read_checked_chunks(file, self.path, start, stop, line)


class JsonLines(Source):
    """One object with a `text` per line: many documents."""

    def documents(self) -> Iterator[Document]:
        """Yields every document that is not blank."""
        offset = 0
        with self.open() as file:
            for line, data in enumerate(read_lines(file, self.path, self.limits), start=1):
                check_utf8(data, offset, line, self.path)
                text = self._parse_text(data.removeprefix(BOM if not offset else b""), line)
                offset += len(data)
                if text.strip():
                    yield Document(text if text.endswith("\n") else text + "\n", self.name, line)

    def _parse_text(self, data: bytes, line: int) -> str:
        """Returns the text of the object in a line; "" for a blank line."""
        if not data.strip():
            return ""
        try:
            content = parse_json(data.decode())
        except ValueError as error:
            fix = 'Each line must be one object: {"text": "…"}'
            raise DataError(f"not valid JSON: {error}.", fix=fix, file=self.path, line=line) from None
        text = content.get("text") if isinstance(content, dict) else None
        if isinstance(text, list) and all(isinstance(each, str) for each in text):
            text = " ".join(text)
        if not isinstance(text, str):
            raise missing_text_error(content, self.path, line)
        return replace_surrogates(text.replace("\r\n", "\n"))


def missing_text_error(content: object, path: Path, line: int) -> DataError:
    """Returns the `DataError` for a JSON value or a row without a text."""
    found = ", ".join(map(str, content))[:200] if isinstance(content, dict) else type(content).__name__
    problem = f"expected an object with a string under `text`, found {found or 'an empty object'}."
    return DataError(problem, fix='Rename the field that holds the text: {"text": "…"}', file=path, line=line)


FILE_TYPES = {
    **dict.fromkeys((".pdf", ".ps"), "PDF documents"),
    **dict.fromkeys((".doc", ".docx", ".odt", ".rtf", ".pages"), "word processor documents"),
    **dict.fromkeys((".xls", ".xlsb", ".ods"), "spreadsheets other than .xlsx"),
    **dict.fromkeys((".ppt", ".pptx"), "presentations"),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff"), "images without captions"),
    **dict.fromkeys((".mp3", ".wav", ".flac", ".ogg", ".mp4", ".avi", ".mov"), "sound and video"),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst"), "archives"),
    **dict.fromkeys((".pkl", ".pickle", ".pt", ".pth", ".bin", ".safetensors", ".h5", ".hdf5"), "files of arrays"),
    **dict.fromkeys((".db", ".sqlite", ".feather", ".arrow", ".orc", ".avro"), "databases"),
    **dict.fromkeys((".html", ".htm", ".xml"), "web pages and XML"),
}  # suffix → what such files are; none of them is read as a text or a table


def name_file_type(path: Path) -> str:
    """Returns what kind of files have the suffix of a path, as the subject of a sentence."""
    suffix = get_format_suffix(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        return "pipes and devices"
    if suffix in FILE_TYPES:
        return f"{FILE_TYPES[suffix]} ({suffix})"
    return f"files ending in {suffix!r}" if suffix else "files without a suffix such as .txt"


def get_format_suffix(path: Path) -> str:
    """Returns the suffix that determines the format, in lower case and without `.gz`."""
    return (Path(path.stem).suffix if is_gzip(path) else path.suffix).lower()


def list_files(folder: Path) -> Iterator[Path]:
    """Yields all files that are not hidden. An unreadable folder is an error; `rglob` would skip it."""

    def fail(error: OSError) -> None:
        raise error

    for root, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(root, name)
            if not name.startswith(".") and path.is_file():
                yield path


def list_data(path: Path) -> list[Path]:
    """Returns the files of a folder that are not hidden, sorted, or the one file; raises unless all can be listed."""
    try:
        if not path.exists():
            raise missing_file_error(path)
        return sorted(list_files(path)) if path.is_dir() else [path]
    except OSError as error:  # a folder of the path is not readable, or a name is too long
        raise read_error(error, error.filename or path) from None


def missing_file_error(path: Path) -> DataError:
    """Returns the `DataError` for a file that does not exist, with a similar name as the fix."""
    folder = path.parent
    if get_cache_folder() / SAVED_DATA in path.parents:
        problem = "this copy of data that was passed from Python is no longer in the cache."
        return DataError(problem, fix="Pass the same data once more: its copy gets the same name.", file=path)
    if not folder.is_dir():
        return DataError("there is no such file, nor its folder.", fix="Check the path.", file=path)
    others = [Path(entry.name) for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    hint = suggest_path(path, others) if others else "Its folder is empty."
    return DataError("there is no such file or folder.", fix=hint or "Check the path.", file=path)


def read_checked_chunks(
    file: BinaryIO, path: Path, start: int = 0, stop: int | None = None, line: int = 1
) -> Iterator[tuple[bytes, int, int]]:
    """Yields (bytes, their offset, line number) of chunks of valid UTF-8 from the position of the file on.

    They end at line breaks where there are any. `start` is the offset of that position, `line` its line.
    """
    offset, rest = start, b""
    for block in read_blocks(file, None if stop is None else stop - start):
        rest += block
        end = _find_chunk_end(rest)
        if end:
            check_utf8(rest[:end], offset, line, path)
            yield rest[:end], offset, line
            line += rest.count(b"\n", 0, end)
            offset, rest = offset + end, rest[end:]
    if rest:
        check_utf8(rest, offset, line, path)
        yield rest, offset, line


def read_blocks(file: BinaryIO, count: int | None = None) -> Iterator[bytes]:
    """Yields the next `count` bytes (all if None) in blocks of CHUNK_BYTES."""
    while count is None or count > 0:
        block = file.read(CHUNK_BYTES if count is None else min(CHUNK_BYTES, count))
        if not block:
            return
        count = None if count is None else count - len(block)
        yield block


def _find_chunk_end(data: bytes) -> int:
    """Returns where a chunk ends: after the last line break; in a very long line after a space or a character."""
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
