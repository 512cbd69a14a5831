"""Opens data files: plain or gzip, regular files only, with limits. Every error names the file.

A pipe, socket or device could block for ever or never end, so none is opened, except a pipe that the user names as
/dev/stdin or /dev/fd/N. The module knows nothing of what a file contains.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from seqwise.config import DataSettings
from seqwise.data.limits import check_expansion, get_limits
from seqwise.errors import DataError, SeqwiseError

BLOCK_BYTES = 1 << 20  # copied at once
MAX_PIPE_BYTES = 1_000_000_000  # read from a pipe, which may never end
FILE_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
PIPE_FOLDERS = (Path("/dev"), Path("/proc"))  # where the system names the pipes of a process


def is_gzip(path: Path) -> bool:
    """Returns whether a file is compressed, by its suffix."""
    return path.suffix.lower() == ".gz"


@contextmanager
def open_binary(path: Path, limits: DataSettings | None = None) -> Iterator[BinaryIO]:
    """Opens a file for reading, unpacking gzip. Errors inside the block are raised as a `DataError` about the file."""
    with blame_file(path), _open_regular(path) as file:
        if is_gzip(path):
            yield cast(BinaryIO, io.BufferedReader(_GzipStream(file, path, limits or get_limits()), BLOCK_BYTES))
        else:
            yield file


@contextmanager
def blame_file(path: str | Path) -> Iterator[None]:
    """Raises errors of the system, of damaged files, and of files that need too much memory as `DataError`."""
    try:
        yield
    except SeqwiseError:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        cause = "it ends too early" if isinstance(error, EOFError) else str(error)
        fix = f"Copy or download it again; `gzip -t {path}` checks it."
        raise DataError(f"the gzip file is damaged: {cause}.", fix=fix, file=path) from None
    except OSError as error:
        raise read_error(error, path) from None
    except MemoryError:
        problem = "reading this file needs more memory than there is."
        raise DataError(problem, fix="Give a smaller file, or use a machine with more memory.", file=path) from None
    except RecursionError:
        problem = "the content is nested too deeply."
        raise DataError(problem, fix="Give a file with lists and objects of a few levels.", file=path) from None
    except OverflowError as error:
        raise DataError(f"a number is too large: {error}.", fix="Correct it.", file=path) from None


def read_error(error: OSError, path: str | Path) -> DataError:
    """Returns the `DataError` for a file that the system cannot read."""
    problem = f"cannot be read: {error.strerror or error}."
    return DataError(problem, fix="Check the path and its permissions.", file=path)


@contextmanager
def _open_regular(path: Path) -> Iterator[BinaryIO]:
    """Opens a file; raises at once if it is a pipe, a socket or a device."""
    with open(path, "rb", opener=_open_without_blocking) as file:
        kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
        if kind == stat.S_IFREG:
            yield file
        elif kind == stat.S_IFIFO and any(folder in path.parents for folder in PIPE_FOLDERS):
            os.set_blocking(file.fileno(), True)
            with tempfile.TemporaryFile() as copy:
                copy_stream(file, copy, path)
                yield cast(BinaryIO, copy)
        else:
            problem = f"this is {FILE_KINDS.get(kind, 'not a regular file')}; expected a regular file."
            raise DataError(problem, fix="Copy what it delivers into a file, and give that.", file=path)


def _open_without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer would block


def copy_stream(source: BinaryIO, target: BinaryIO, path: Path, max_bytes: int = MAX_PIPE_BYTES) -> None:
    """Copies a stream to a temporary file, which is then at its beginning."""
    num_bytes = 0
    while block := source.read(BLOCK_BYTES):
        num_bytes += len(block)
        if num_bytes > max_bytes:
            problem = f"the pipe delivers more than {max_bytes // 1_000_000:,} MB."
            raise DataError(problem, fix="Write it to a file, and give that.", file=path)
        target.write(block)
    target.seek(0)


class _GzipStream(io.RawIOBase):
    """The content of a gzip file; raises if it becomes much larger than the file."""

    def __init__(self, file: BinaryIO, path: Path, limits: DataSettings):
        self.file, self.path, self.limits = file, path, limits
        self.content = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.content.seek(offset, whence)

    def readinto(self, buffer) -> int:
        count = self.content.readinto(buffer)
        check_expansion(self.content.tell(), self.file.tell(), self.path, self.limits)
        return count


def get_file_position(file: BinaryIO) -> int:
    """Returns how many bytes of the file on disk were read; of a gzip file, compressed bytes."""
    raw = getattr(file, "raw", None)
    return raw.file.tell() if isinstance(raw, _GzipStream) else file.tell()
