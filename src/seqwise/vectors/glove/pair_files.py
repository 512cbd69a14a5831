"""Co-occurrence counts on disk, between counting and training. This module knows nothing of windows or gradients.

A pair of words is hashed to a 64-bit key by a function that can be inverted. The keys are uniformly distributed, which
serves three purposes: they index a hash table; files sorted by key can be merged range by range; and the order by key
is a shuffled one, as training needs it.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqwise.errors import DataError, SaveError

# While counting: key of the pair and sum so far. A sum of zero marks an empty slot of the hash table.
ENTRY = np.dtype([("key", "<u8"), ("sum", "<f8")])
# The result: row ≤ column, because the matrix is symmetric.
PAIR = np.dtype([("row", "<i4"), ("column", "<i4"), ("count", "<f4")])

# Two odd multipliers with a shift between them. Odd numbers have an inverse modulo 2⁶⁴.
FIRST, SECOND = 0x9E3779B97F4A7C15, 0xB8AC0AC56F5B3A4D
FIRST_INVERSE, SECOND_INVERSE = pow(FIRST, -1, 1 << 64), pow(SECOND, -1, 1 << 64)

_TRAIN_AGAIN = "It is a temporary file; something else changed or removed it. Train again."
_OTHER_FOLDER = "Or choose another folder for temporary files; a smaller window or a higher min-count needs less."


def hash_pairs(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Returns the keys of pairs, uint64; `hash_table.hash_pair` is the same for one pair."""
    keys = (rows.astype(np.uint64) << np.uint64(32)) | columns.astype(np.uint64)
    keys = keys * np.uint64(FIRST)
    return (keys ^ (keys >> np.uint64(32))) * np.uint64(SECOND)


def invert_keys(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows and columns of the keys, int64."""
    keys = keys * np.uint64(SECOND_INVERSE)
    keys = (keys ^ (keys >> np.uint64(32))) * np.uint64(FIRST_INVERSE)
    return (keys >> np.uint64(32)).astype(np.int64), (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


@dataclass(frozen=True)
class PairCounts:
    """A file of `PAIR` records in a shuffled order that depends only on the pairs."""

    path: Path
    size: int  # number of pairs with row ≤ column, each once

    def read(self, start: int, count: int) -> np.ndarray:
        """Returns the pairs start … start+count-1."""
        try:
            pairs = np.fromfile(self.path, dtype=PAIR, count=count, offset=start * PAIR.itemsize)
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}.", repair=_TRAIN_AGAIN, file=self.path) from None
        if len(pairs) < count:
            raise DataError("the file of counted pairs ends too early.", repair=_TRAIN_AGAIN, file=self.path)
        return pairs


class SortedRuns:
    """Sorted runs of `ENTRY` records, one after the other in an unnamed temporary file."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bounds = [0]  # run i is the entries bounds[i] … bounds[i+1]-1
        with report_write_errors(folder, 0):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed when the block is left)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def num_entries(self) -> int:
        return self.bounds[-1]

    def append(self, entries: np.ndarray) -> None:
        """Writes a sorted run."""
        with report_write_errors(self.folder, self.num_entries * ENTRY.itemsize):
            self._file.write(entries.view(np.uint8).data)
            self._file.flush()
        self.bounds.append(self.bounds[-1] + len(entries))

    def read(self, start: int, buffer: np.ndarray, stop: int) -> np.ndarray:
        """Fills `buffer` with entries from `start` on and before `stop`; returns the part that is filled."""
        part = buffer[: max(0, min(len(buffer), stop - start))]
        view, offset = part.view(np.uint8).data, start * ENTRY.itemsize
        while view:
            count = os.preadv(self._file.fileno(), [view], offset)
            if not count:
                raise DataError("a temporary file ends too early.", repair=_TRAIN_AGAIN, file=self.folder)
            view, offset = view[count:], offset + count
        return part

    def __enter__(self) -> SortedRuns:
        return self

    def __exit__(self, *_: object) -> None:
        # After a full disk, closing flushes the buffer and fails again; the first error is the one to report.
        with suppress(OSError):
            self._file.close()


@contextmanager
def report_write_errors(folder: Path, bytes_written: int) -> Iterator[None]:
    """Turns failed writes inside the block into a `SaveError` that says how to continue."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise SaveError(f"cannot write: {error.strerror}.", repair=_OTHER_FOLDER, file=folder) from error
        raise SaveError(
            f"the disk is full after {bytes_written / 1e6:,.1f} MB of counted pairs.",
            repair=f"Make room there. {_OTHER_FOLDER}",
            file=folder,
        ) from error
