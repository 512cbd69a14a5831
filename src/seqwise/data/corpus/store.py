"""`TokenStore`: token ids in one flat file. `preparation.py` creates the stores of a corpus.

The ids are read with `pread`, at any position and without a shared file position.

A memory map would work too, but its pages count as resident until the kernel reclaims them, so a large file read in
random order fills the memory. `pread` copies only what is requested. NAME.json beside NAME.bin has the counts and the
digests; it is written last, so a store without it is incomplete.

Each block of BLOCK_BYTES has a digest, which is checked when something in the block is read for the first time: opening
a store reads none of it, and every process checks what it uses, once. A damaged store is created again from the text,
and the reader continues. Stores of versions without digests are used; only ids outside the vocabulary are found there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np

from seqwise.digests import add_digest, compute_digest, read_object
from seqwise.errors import DataError
from seqwise.files import AtomicFile, explain_write_errors, remove, write_text

FORMAT = 1
# A check takes 0.3 ms of CPU time, and all checks of a store 1.6 s per GB, once per process. The first batch of 64
# windows at random positions takes 20 ms instead of 0.2 ms; with blocks of 1 MB it would take 40 ms. The digests of a
# store of 2 GB take 0.3 MB in NAME.json. Measured with `benchmarks/reading.py --checks` on one core of an AMD EPYC.
BLOCK_BYTES = 1 << 18
DAMAGED = "the token store is damaged: "
CACHE_FIX = "Or set SEQWISE_CACHE to a folder on another disk."


@dataclass(frozen=True)
class StoreInfo:
    """Counts, fingerprints and digests of a store, saved as JSON.

    Words, characters and lines are those of the original text.
    """

    tokens: int
    words: int  # separated by whitespace, plus one per line end, as the Penn Treebank is counted
    characters: int  # line breaks included
    lines: int
    unknown: int  # tokens that are <unk>
    vocabulary: int  # number of ids
    tokenizer: str  # fingerprint
    corpus: str  # fingerprint
    split: str = ""
    format: int = FORMAT
    digests: tuple[str, ...] = ()  # of the blocks; none in stores of earlier versions

    @property
    def dtype(self) -> np.dtype:
        return choose_id_dtype(self.vocabulary)


def choose_id_dtype(vocabulary_size: int) -> np.dtype:
    """Returns the smallest type for all ids; little-endian on every machine."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<u4")


class TokenStore:
    """Token ids on disk. Threads and forked processes can share it: a read moves no file position.

    `recreate` writes the files of a damaged store again; it receives what is damaged, as a part of a sentence.
    """

    recreate: Callable[[str], object] | None = None

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.info = _read_info(self.path)
        self.dtype = self.info.dtype
        self.data_path = self.path.with_suffix(".bin")
        self._file = -1
        self._file = self._open()
        size = len(self) * self.dtype.itemsize
        self._is_checked = bytearray(-(-size // BLOCK_BYTES))  # 1 for each block that was checked

    def _open(self) -> int:
        """Returns a file descriptor of the data, whose size is checked."""
        try:
            descriptor = os.open(self.data_path, os.O_RDONLY)
        except OSError as error:
            raise _unreadable_store_error(self.data_path, error) from None
        expected_size, size = len(self) * self.dtype.itemsize, os.fstat(descriptor).st_size
        if size != expected_size:
            os.close(descriptor)
            raise _damaged_store_error(self.data_path, f"it has {size:,} bytes instead of {expected_size:,}")
        return descriptor

    def __len__(self) -> int:
        return self.info.tokens

    def read(self, start: int, count: int) -> np.ndarray:
        """Returns the ids start … start+count-1 as int64."""
        return self.read_sequences([start], count)[0]

    def read_sequences(self, starts: list[int] | np.ndarray, length: int) -> np.ndarray:
        """Returns `length` ids from each of `starts` on as int64, (len(starts), length), with one `pread` for each."""
        sequences = np.empty((len(starts), length), dtype=self.dtype)
        size = length * self.dtype.itemsize
        view = sequences.data.cast("B") if sequences.size else memoryview(b"")
        for index, start in enumerate(np.asarray(starts).tolist()):
            if start < 0 or start + length > len(self):
                raise IndexError(f"tokens {start} … {start + length - 1} of a store of {len(self)}")
            offset = start * self.dtype.itemsize
            if size:
                self._check(offset, offset + size)
            self._fill(view[index * size : (index + 1) * size], offset)
        return sequences.astype(np.int64)

    def count_tokens(self, vocabulary_size: int, chunk_size: int = 1 << 22) -> np.ndarray:
        """Returns how often each id occurs, (V,); reads the store in chunks."""
        totals = np.zeros(vocabulary_size, dtype=np.int64)
        for start in range(0, len(self), chunk_size):
            totals += np.bincount(self.read(start, min(chunk_size, len(self) - start)), minlength=vocabulary_size)
        return totals

    def _check(self, start: int, stop: int) -> None:
        """Checks the blocks with the bytes from `start` to `stop`, unless they were checked before."""
        for block in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES)):
            if not self._is_checked[block]:
                damage = self._find_damage(block)
                if damage is not None:
                    self._replace_damaged(damage)
                    damage = self._find_damage(block)
                if damage is not None:
                    raise _damaged_store_error(self.data_path, damage)
                self._is_checked[block] = 1

    def _find_damage(self, block: int) -> str | None:
        """Returns what is wrong with a block, or None."""
        start = block * BLOCK_BYTES
        ids = np.empty(min(BLOCK_BYTES // self.dtype.itemsize, len(self) - start // self.dtype.itemsize), self.dtype)
        try:
            self._fill(ids.data.cast("B"), start)
        except DataError as error:
            return error.problem.removeprefix(DAMAGED).rstrip(".")
        if self.info.digests and compute_digest(ids.data.cast("B")) != self.info.digests[block]:
            return f"bytes {start:,} to {start + ids.nbytes:,} do not match their digest"
        if ids.max() >= self.info.vocabulary:
            return f"it has the id {ids.max():,}, but the vocabulary has {self.info.vocabulary:,}"
        return None

    def _replace_damaged(self, damage: str) -> None:
        """Creates the store again, and reads from the new file from here on."""
        if self.recreate is None:
            raise _damaged_store_error(self.data_path, damage)
        self.recreate(damage)
        info = _read_info(self.path)
        if info != self.info and replace(info, digests=()) != self.info:
            remove(self.path.with_suffix(".json"), self.path.parent)  # it is not the store of this text
            raise _damaged_store_error(self.data_path, f"{damage}; and the text has changed since it was opened")
        self.info, self._is_checked = info, bytearray(len(self._is_checked))
        descriptor = self._open()
        os.dup2(descriptor, self._file)  # in one step, for threads that are reading
        os.close(descriptor)

    def _fill(self, view: memoryview, offset: int) -> None:
        """Fills the view with the bytes from `offset` on."""
        while view:
            try:
                count = os.preadv(self._file, [view], offset)
            except OSError as error:
                raise _unreadable_store_error(self.data_path, error) from None
            if not count:
                raise _damaged_store_error(self.data_path, f"it ends at byte {offset:,}")
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

    def __init__(self, path: str | Path, vocabulary_size: int):
        self.path, self.num_tokens = Path(path), 0
        self.dtype = choose_id_dtype(vocabulary_size)
        self._digests, self._rest = list[str](), b""  # of complete blocks, and the bytes after them
        with explain_write_errors(self.path.parent, CACHE_FIX):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._output = AtomicFile(self.path.with_suffix(".bin"), concurrent=True)
            try:
                self._file = self._output.temporary.open("wb")
            except BaseException:  # also an interrupt
                self._output.discard()
                raise

    def append(self, ids: np.ndarray) -> None:
        data = ids.astype(self.dtype).tobytes()
        with explain_write_errors(self.path.parent, CACHE_FIX):
            self._file.write(data)
        self.num_tokens += len(ids)
        data = self._rest + data
        end = len(data) - len(data) % BLOCK_BYTES
        self._digests += _compute_digests(data[:end])
        self._rest = data[end:]

    def finish(self, info: StoreInfo) -> TokenStore:
        """Completes the store and opens it: renames the data file first, then writes the file with the counts."""
        with explain_write_errors(self.path.parent, CACHE_FIX):
            self._file.close()
            self._output.commit()
        info = replace(info, digests=(*self._digests, *_compute_digests(self._rest)))
        content = json.dumps(add_digest(asdict(info)), indent=1)
        write_text(self.path.with_suffix(".json"), content, fix=CACHE_FIX, concurrent=True)
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


def _compute_digests(data: bytes) -> list[str]:
    """Returns the digest of each block of the data."""
    view = memoryview(data)
    return [compute_digest(view[start : start + BLOCK_BYTES]) for start in range(0, len(data), BLOCK_BYTES)]


def _damaged_store_error(path: Path, cause: str) -> DataError:
    return DataError(f"{DAMAGED}{cause}.", fix="Delete it; it is created again.", file=path)


def _unreadable_store_error(path: Path, error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return _damaged_store_error(path, "it is missing")
    fix = "Check its permissions, or delete it; it is created again."
    return DataError(f"the token store cannot be read: {error.strerror}.", fix=fix, file=path)


def _read_info(path: Path) -> StoreInfo:
    file = path.with_suffix(".json")
    try:
        content = read_object(file)
        info = StoreInfo(**{**content, "digests": tuple(content.get("digests", ()))})
    except OSError as error:
        raise _unreadable_store_error(file, error) from None
    except (ValueError, TypeError) as error:
        raise _damaged_store_error(file, f"it cannot be read ({error})") from None
    if info.format != FORMAT:
        raise _damaged_store_error(file, f"it has format {info.format}, not {FORMAT}")
    for name in ("tokens", "words", "characters", "lines", "unknown", "vocabulary"):
        value = getattr(info, name)
        if type(value) is not int or not (name == "vocabulary") <= value <= sys.maxsize:
            raise _damaged_store_error(file, f"{name} is {str(value)[:40]}")
    num_blocks = -(-info.tokens * info.dtype.itemsize // BLOCK_BYTES)
    if info.digests and len(info.digests) != num_blocks:
        raise _damaged_store_error(file, f"it has {len(info.digests):,} digests instead of {num_blocks:,}")
    return info
