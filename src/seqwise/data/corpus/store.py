"""`TokenStore`: token ids in one flat file, read with `pread`.

A memory map would work too, but its pages count as resident until the kernel reclaims them, so a large file read in
random order fills the memory. `pread` copies only what is requested. NAME.json beside NAME.bin has the counts; it is
written last, so a store without it is incomplete. The store knows nothing of text or of batches.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from seqwise.errors import DataError
from seqwise.files import AtomicFile, explain_write_errors, write_text

FORMAT = 1
OTHER_CACHE = "Make room there, or set SEQWISE_CACHE to a folder on another disk."


@dataclass(frozen=True)
class StoreInfo:
    """Counts and fingerprints of a store. Words, characters and lines are those of the original text."""

    tokens: int
    words: int  # separated by blanks, plus one per line end, as the Penn Treebank is counted
    characters: int  # line breaks included
    lines: int
    unknown: int  # tokens that are <unk>
    vocabulary: int
    tokenizer: str  # fingerprints
    corpus: str
    split: str = ""
    format: int = FORMAT

    @property
    def dtype(self) -> np.dtype:
        return id_dtype(self.vocabulary)


def id_dtype(vocabulary: int) -> np.dtype:
    """Return the smallest type for all ids; little-endian on every machine."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


class TokenStore:
    """Token ids on disk. Threads and forked processes can share it: a read moves no file position."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.info = _read_info(self.path)
        self.dtype = self.info.dtype
        data = self.path.with_suffix(".bin")
        try:
            self._file = os.open(data, os.O_RDONLY)
        except OSError as error:
            raise _unreadable(data, error) from None
        expected, found = len(self) * self.dtype.itemsize, os.fstat(self._file).st_size
        if expected != found:
            self.close()
            raise _damaged(data, f"it has {found:,} bytes instead of {expected:,}")

    def __len__(self) -> int:
        return self.info.tokens

    def read(self, start: int, count: int) -> np.ndarray:
        """Return the ids start … start+count-1 as int64."""
        return self.read_rows([start], count)[0]

    def read_rows(self, starts: list[int] | np.ndarray, count: int) -> np.ndarray:
        """Return ids as int64, (len(starts), count), with one `pread` per row."""
        rows = np.empty((len(starts), count), dtype=self.dtype)
        size = count * self.dtype.itemsize
        view = rows.data.cast("B") if rows.size else memoryview(b"")
        for row, start in enumerate(np.asarray(starts).tolist()):
            if start < 0 or start + count > len(self):
                raise IndexError(f"tokens {start} … {start + count - 1} of a store of {len(self)}")
            self._fill(view[row * size : (row + 1) * size], start * self.dtype.itemsize)
        return rows.astype(np.int64)

    def counts(self, vocabulary: int, chunk: int = 1 << 22) -> np.ndarray:
        """Return how often each id occurs, (vocabulary,); reads the store in chunks."""
        total = np.zeros(vocabulary, dtype=np.int64)
        for start in range(0, len(self), chunk):
            total += np.bincount(self.read(start, min(chunk, len(self) - start)), minlength=vocabulary)
        return total

    def _fill(self, view: memoryview, offset: int) -> None:
        """Fill the view with the bytes from `offset` on."""
        while view:
            try:
                count = os.preadv(self._file, [view], offset)
            except OSError as error:
                raise _unreadable(self.path.with_suffix(".bin"), error) from None
            if not count:
                raise _damaged(self.path.with_suffix(".bin"), f"it ends at byte {offset:,}")
            view, offset = view[count:], offset + count

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()


class StoreWriter:
    """Appends ids to a temporary file that `finish` turns into the store; leaving the block earlier removes it."""

    def __init__(self, path: str | Path, vocabulary: int):
        self.path, self.vocabulary, self.tokens = Path(path), vocabulary, 0
        self.dtype = id_dtype(vocabulary)
        with explain_write_errors(self.path.parent, OTHER_CACHE):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._output = AtomicFile(self.path.with_suffix(".bin"), concurrent=True)
            self._file = self._output.temporary.open("wb")

    def append(self, ids: np.ndarray) -> None:
        with explain_write_errors(self.path.parent, OTHER_CACHE):
            self._file.write(ids.astype(self.dtype).tobytes())
        self.tokens += len(ids)

    def finish(self, info: StoreInfo) -> TokenStore:
        """Complete the store: rename the data file first, then write the file with the counts."""
        with explain_write_errors(self.path.parent, OTHER_CACHE):
            self._file.close()
            self._output.commit()
        content = json.dumps(asdict(info), indent=1)
        write_text(self.path.with_suffix(".json"), content, repair=OTHER_CACHE, concurrent=True)
        return TokenStore(self.path)

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._file.close()
        except OSError:  # on a full disk flushing fails once more; the first error is the one to report
            if error is None:
                raise
        finally:
            self._output.discard()


def _damaged(path: Path, cause: str) -> DataError:
    return DataError(f"the token store is damaged: {cause}.", repair="Delete it; it is created again.", file=path)


def _unreadable(path: Path, error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return _damaged(path, "it is missing")
    repair = "Check its permissions, or delete it; it is created again."
    return DataError(f"the token store cannot be read: {error.strerror}.", repair=repair, file=path)


def _read_info(path: Path) -> StoreInfo:
    file = path.with_suffix(".json")
    try:
        info = StoreInfo(**json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise _unreadable(file, error) from None
    except (ValueError, TypeError):
        raise _damaged(file, "it cannot be read") from None
    if info.format != FORMAT:
        raise _damaged(file, f"it has format {info.format}, not {FORMAT}")
    return info
