"""What lies on the disk between counting and training: pairs of words and how often they meet.

A pair is a number of 64 bits, scrambled in a way that can be undone. Scrambled numbers are spread evenly, which serves
three ends: they are their own hash; files sorted by them can be joined range by range; and the order they give is a
shuffled one, which is how training wants its entries. This module knows nothing of windows or of gradients.
"""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from seqwise.errors import DataError, SaveError

# While counting: the scrambled pair and the sum so far. A sum of zero marks an empty place.
SUM = np.dtype([("key", "<u8"), ("sum", "<f8")])
# When counted: row ≤ column, for the matrix is symmetric.
PAIR = np.dtype([("row", "<i4"), ("column", "<i4"), ("count", "<f4")])

# Two odd multipliers with a shift between them. Odd numbers have an inverse modulo 2⁶⁴, so the pair can be had back.
FIRST, SECOND = 0x9E3779B97F4A7C15, 0xB8AC0AC56F5B3A4D
UNDO_FIRST, UNDO_SECOND = pow(FIRST, -1, 1 << 64), pow(SECOND, -1, 1 << 64)


def scrambled(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The keys of pairs, as uint64; `table.scramble` is the same for one pair."""
    keys = (rows.astype(np.uint64) << np.uint64(32)) | columns.astype(np.uint64)
    keys = keys * np.uint64(FIRST)
    return (keys ^ (keys >> np.uint64(32))) * np.uint64(SECOND)


def unscrambled(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of keys, as int64."""
    keys = keys * np.uint64(UNDO_SECOND)
    keys = (keys ^ (keys >> np.uint64(32))) * np.uint64(UNDO_FIRST)
    return (keys >> np.uint64(32)).astype(np.int64), (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


@dataclass(frozen=True)
class Counts:
    """A file of `PAIR` entries in a shuffled order that depends on nothing else. Leaving the block removes it."""

    path: Path
    entries: int  # pairs in the file: row ≤ column, each once
    total: float  # the sum of the whole matrix, both triangles

    def read(self, start: int, count: int) -> np.ndarray:
        """The entries start … start+count-1."""
        try:
            found = np.fromfile(self.path, dtype=PAIR, count=count, offset=start * PAIR.itemsize)
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}.", repair=_AGAIN, file=self.path) from None
        if len(found) < count:
            raise DataError("the counted pairs end too early.", repair=_AGAIN, file=self.path)
        return found

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Counts:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


_AGAIN = "It is a temporary file; something else changed or removed it. Train again."


class Runs:
    """Sorted runs of `SUM` entries, one below the other in one file that has no name and so never stays behind."""

    def __init__(self, folder: Path):
        self.folder, self.bounds = folder, [0]
        with complaining(folder, 0):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed when the block is left)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def entries(self) -> int:
        return self.bounds[-1]

    def append(self, entries: np.ndarray) -> None:
        with complaining(self.folder, self.entries * SUM.itemsize):
            self._file.write(entries.view(np.uint8).data)
            self._file.flush()
        self.bounds.append(self.bounds[-1] + len(entries))

    def read(self, place: int, piece: np.ndarray, stop: int) -> np.ndarray:
        """The entries from `place` on, before `stop`, as many as `piece` holds; it is filled and a part returned."""
        part = piece[: max(0, min(len(piece), stop - place))]
        view, offset = part.view(np.uint8).data, place * SUM.itemsize
        while view:
            got = os.preadv(self._file.fileno(), [view], offset)
            if not got:
                raise DataError("a temporary file ends too early.", repair=_AGAIN, file=self.folder)
            view, offset = view[got:], offset + got
        return part

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A full disk shows again when the buffer is flushed; the first report stands.
        with suppress(OSError):
            self._file.close()


def unused_path(folder: Path) -> Path:
    return folder / f".pairs-{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp"


@contextmanager
def complaining(folder: Path, written: int) -> Iterator[None]:
    """Failed writes within the block become one sentence; `written` bytes lie there already."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise SaveError(f"cannot write: {error.strerror}.", repair=_FOLDER, file=folder) from error
        much = f" after {written / 1e6:,.1f} MB of counted pairs"
        raise SaveError(f"the disk is full{much}.", repair=f"Make room there. {_FOLDER}", file=folder) from error


_FOLDER = "Or choose another folder for temporary files; a smaller window or a higher min-count needs less."
