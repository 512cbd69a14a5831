"""Counts how often words occur together, from blocks of ids to a file of pairs, in bounded memory.

Pennington, Socher and Manning (2014), section 3: a window on both sides, a word at distance d counts 1/d, and windows
end with the sentence. The matrix is symmetric, so only one triangle is stored.

Pairs of frequent words, which make up most of the text, have a cell each in a dense array: all pairs with rank · rank
below a bound that fills half of the memory. The other pairs go to a hash table; when it is full, it is sorted, written
to disk as a sorted run, and cleared. In the end the sorted runs are merged range by range.

A pair of words is hashed to a 64-bit key by a function that can be inverted. The keys are uniformly distributed: the
slot of a key in the hash table is its leading bits, so that slots increase with keys and only neighbours can be out of
order (one pass of insertion sort makes a sorted run); runs can be merged range by range; and the order by key is a
shuffled one, as training needs it. This module knows nothing of text or vectors; it imports numba.
"""

from __future__ import annotations

import errno
import os
import tempfile
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import isqrt
from pathlib import Path

import numpy as np

from seqwise.errors import DataError, SaveError
from seqwise.files import explain_cause
from seqwise.vectors.jit import cached_njit, inline_njit

# While counting: key of the pair and sum so far. A sum of zero marks an empty slot of the hash table.
ENTRY = np.dtype([("key", "<u8"), ("sum", "<f8")])
# The result: row ≤ column, because the matrix is symmetric.
PAIR = np.dtype([("row", "<i4"), ("column", "<i4"), ("count", "<f4")])

# Two odd multipliers with a shift between them. Odd numbers have an inverse modulo 2⁶⁴.
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xB8AC0AC56F5B3A4D)
MULTIPLIER_1, MULTIPLIER_2 = map(np.uint64, MULTIPLIERS)
INVERSE_1, INVERSE_2 = (np.uint64(pow(multiplier, -1, 1 << 64)) for multiplier in MULTIPLIERS)
HALF_BITS = np.uint64(32)  # of a key

MEMORY = 64 << 20  # bytes for cells and hash table
PART_SIZE = 1 << 16  # ids counted, or entries merged, between two reports of progress
MAX_LOAD = 0.75  # share of the slots that may be filled; linear probing is slow beyond
MERGE_LOAD = 0.8  # share of this load that a range of keys should fill when runs are merged
SPARE_SLOTS = 4096  # after the last slot, for keys that linear probing moves there

_TRAIN_AGAIN = "It is a temporary file; something else changed or removed it. Train again."
_OTHER_FOLDER = "Set TMPDIR to another folder for temporary files."


def hash_pairs(rows, columns):
    """Returns the keys of pairs; rows, columns and keys are uint64."""
    keys = ((rows << HALF_BITS) | columns) * MULTIPLIER_1
    return (keys ^ (keys >> HALF_BITS)) * MULTIPLIER_2


hash_pair = inline_njit(hash_pairs)  # the same for one pair, compiled


def invert_keys(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows and columns of the keys."""
    keys = keys * INVERSE_2
    keys = (keys ^ (keys >> HALF_BITS)) * INVERSE_1
    return keys >> HALF_BITS, keys & np.uint64(0xFFFFFFFF)


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
            raise DataError(f"cannot be read: {error.strerror}.", fix=_TRAIN_AGAIN, file=self.path) from None
        if len(pairs) < count:
            raise DataError("the file of counted pairs ends too early.", fix=_TRAIN_AGAIN, file=self.path)
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
                raise DataError("a temporary file ends too early.", fix=_TRAIN_AGAIN, file=self.folder)
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
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "Or train with a smaller window or a higher min-count. " if is_full else ""
        cause, fix = explain_cause(error, f"{advice}{_OTHER_FOLDER}")
        problem = f"{cause} after {bytes_written / 1e6:,.1f} MB of counted pairs."
        raise SaveError(problem, fix=fix, file=folder) from error


@cached_njit
def add_to_table(table, num_slots, prefix_bits, key, amount):
    """Adds to the sum of a key; returns 1 if it is new, else 0. All keys of the table share the first `prefix_bits`."""
    slot = np.int64((((key << prefix_bits) >> HALF_BITS) * num_slots) >> HALF_BITS)
    while slot < len(table):
        if table[slot].sum == 0.0:
            table[slot].key = key
            table[slot].sum = amount
            return 1
        if table[slot].key == key:
            table[slot].sum += amount
            return 0
        slot += 1
    raise RuntimeError("the table of word pairs has no free slot at its end")


@cached_njit
def count_ids(ids, start, stop, window, dense, row_starts, table, num_slots, num_entries, max_entries):
    """Counts the pairs whose later word is at start … stop-1; stops early when the table might overflow.

    Returns (first position that is not counted, number of entries in the table).
    """
    dense_rows = len(row_starts) - 1
    slots = np.uint64(num_slots)
    for position in range(start, stop):
        if num_entries + window > max_entries:
            return position, num_entries
        word = ids[position]
        if word < 0:
            continue
        for distance in range(1, min(window, position) + 1):
            other = ids[position - distance]
            if other < 0:
                break
            row, column = min(word, other), max(word, other)
            # On the diagonal one pair counts for both orders.
            amount = (2.0 if row == column else 1.0) / distance
            if row < dense_rows and column - row < row_starts[row + 1] - row_starts[row]:
                dense[row_starts[row] + column - row] += amount
            else:
                num_entries += add_to_table(
                    table, slots, np.uint64(0), hash_pair(np.uint64(row), np.uint64(column)), amount
                )
    return stop, num_entries


@cached_njit
def add_entries(entries, table, num_slots, prefix_bits, prefix, num_entries, max_entries):
    """Adds sorted entries as long as their first `prefix_bits` equal `prefix` and the table has room.

    Returns (number of entries added, number of entries in the table).
    """
    slots, bits, expected_prefix = np.uint64(num_slots), np.uint64(prefix_bits), np.uint64(prefix)
    for index in range(len(entries)):
        key = entries[index].key
        if num_entries >= max_entries or (prefix_bits > 0 and key >> (np.uint64(64) - bits) != expected_prefix):
            return index, num_entries
        num_entries += add_to_table(table, slots, bits, key, entries[index].sum)
    return len(entries), num_entries


@cached_njit
def sort_table(table):
    """Moves the entries to the front, sorted by key; returns their number. The slots behind them are stale."""
    count = 0
    for slot in range(len(table)):
        if table[slot].sum == 0.0:
            continue
        key, total = table[slot].key, table[slot].sum
        index = count
        while index > 0 and table[index - 1].key > key:
            table[index].key = table[index - 1].key
            table[index].sum = table[index - 1].sum
            index -= 1
        table[index].key = key
        table[index].sum = total
        count += 1
    return count


class PairCounter:
    """Counts the pairs of a corpus. Iterate over `count(blocks)`; then `counts` is set."""

    counts: PairCounts

    def __init__(self, vocabulary_size: int, window: int, folder: Path, memory: int = MEMORY):
        self.vocabulary_size, self.window, self.folder, self.memory = vocabulary_size, window, folder, memory

    def count(self, blocks: Iterable[np.ndarray]) -> Iterator[int]:
        """Counts blocks of int32 ids, where -1 or the end of a block ends a line; yields the number of ids so far.

        All files are in `folder`, which the caller removes.
        """
        with SortedRuns(self.folder) as runs:
            table = yield from self._count_blocks(blocks, runs)
            yield from self._merge(runs, table, self.folder / "pairs")

    def _count_blocks(self, blocks: Iterable[np.ndarray], runs: SortedRuns) -> Generator[int, None, HashTable]:
        """Writes all counts to sorted runs; returns the empty table, whose memory the merge uses again."""
        row_starts = choose_dense_rows(self.vocabulary_size, self.memory // 2 // 8)
        dense = np.zeros(row_starts[-1])
        table = HashTable(self.memory - dense.nbytes, self.window)
        num_counted = 0
        for block in blocks:
            if len(block) and block.max() >= self.vocabulary_size:
                raise ValueError(f"id {block.max()} in a vocabulary of {self.vocabulary_size}")
            start = 0
            while start < len(block):
                stop = min(start + PART_SIZE, len(block))
                next_position, table.num_entries = count_ids(
                    block, start, stop, self.window, dense, row_starts,
                    table.slots, table.num_slots, table.num_entries, table.max_entries,
                )  # fmt: skip
                if next_position < stop:
                    table.spill(runs)
                num_counted, start = num_counted + next_position - start, next_position
                yield num_counted
        for row in range(len(row_starts) - 1):
            cells = dense[row_starts[row] : row_starts[row + 1]]
            columns = np.flatnonzero(cells)
            entries = np.empty(len(columns), dtype=ENTRY)
            entries["key"] = hash_pairs(np.uint64(row), (columns + row).astype(np.uint64))
            entries["sum"] = cells[columns]
            while len(entries):
                entries = entries[table.add(entries) :]
                if len(entries):
                    table.spill(runs)
        if table.num_entries:
            table.spill(runs)
        self._num_ids = num_counted
        return table

    def _merge(self, runs: SortedRuns, table: HashTable, path: Path) -> Iterator[int]:
        """Merges the runs, one range of keys after another: the keys with the same first `prefix_bits` fit the table.

        Keys are uniformly distributed, so ranges of equal width hold about as many; if one does not fit, the ranges are
        halved.
        """
        if not runs.num_entries:
            fix = "Use longer lines, or a lower min-count, so that fewer words are left out."
            raise DataError("no line has two words of the vocabulary, so there is nothing to count.", fix=fix)
        prefix_bits = max(0, int(np.ceil(np.log2(runs.num_entries / (MERGE_LOAD * table.max_entries)))))
        positions, prefix, size = list(runs.bounds[:-1]), 0, 0
        with report_write_errors(path.parent, runs.num_entries * ENTRY.itemsize), path.open("wb") as file:
            while prefix < 1 << prefix_bits:
                yield self._num_ids
                table.clear()
                next_positions = _merge_range(runs, table, positions, prefix_bits, prefix)
                if next_positions is None:
                    prefix_bits, prefix = prefix_bits + 1, 2 * prefix
                    continue
                positions, prefix = next_positions, prefix + 1
                entries = table.sort()
                for start in range(0, len(entries), PART_SIZE):
                    part = entries[start : start + PART_SIZE]
                    pairs = np.empty(len(part), dtype=PAIR)
                    pairs["row"], pairs["column"] = invert_keys(part["key"])
                    pairs["count"] = part["sum"]
                    file.write(pairs.view(np.uint8).data)
                size += len(entries)
        self.counts = PairCounts(path, size)


def choose_dense_rows(vocabulary_size: int, max_cells: int) -> np.ndarray:
    """Returns where the cells of each row start, and where the last ones end; row r has the columns r, r+1, …

    These are the pairs with (row + 1) · (column + 1) ≤ bound, for the largest bound that needs at most `max_cells`. Ids
    are ranks by frequency, so the product says how often two words would meet by chance.
    """

    def compute_row_widths(bound: int) -> np.ndarray:
        rows = np.arange(min(isqrt(bound), vocabulary_size))
        return np.minimum(bound // (rows + 1), vocabulary_size) - rows

    # The triangle of pairs below √bound is inside: no larger bound can fit.
    bounds = range(min(vocabulary_size, isqrt(2 * max_cells) + 2) ** 2 + 1)
    best = bisect_right(bounds, max_cells, key=lambda bound: int(compute_row_widths(bound).sum())) - 1
    return np.concatenate([[0], np.cumsum(compute_row_widths(best))]).astype(np.int64)


class HashTable:
    """Sums per key, with linear probing."""

    def __init__(self, memory: int, window: int):
        size = max(memory // ENTRY.itemsize, 8 * window + 64)
        # A key moves by less than the number of entries, so that a small table can have all the spare slots it needs.
        self.num_slots = max(size - SPARE_SLOTS, int(size / (1 + MAX_LOAD)))
        self.max_entries = int(MAX_LOAD * self.num_slots)
        self.slots = np.zeros(self.num_slots + min(SPARE_SLOTS, self.max_entries + 1), dtype=ENTRY)
        self.num_entries = 0

    def add(self, entries: np.ndarray, prefix_bits: int = 0, prefix: int = 0) -> int:
        """Adds entries whose keys start with `prefix`, while there is room; returns how many."""
        count, self.num_entries = add_entries(
            entries, self.slots, self.num_slots, prefix_bits, prefix, self.num_entries, self.max_entries
        )
        return count

    def sort(self) -> np.ndarray:
        """Returns the entries sorted by key, as a view of the table, which must be cleared before it is used again."""
        return self.slots[: sort_table(self.slots)]

    def clear(self) -> None:
        self.slots[:] = 0
        self.num_entries = 0

    def spill(self, runs: SortedRuns) -> None:
        """Writes the entries as a sorted run and clears the table."""
        runs.append(self.sort())
        self.clear()


def _merge_range(
    runs: SortedRuns, table: HashTable, positions: list[int], prefix_bits: int, prefix: int
) -> list[int] | None:
    """Adds one range of keys of every run to the table; returns the next position in each run, None if it is full."""
    expected_entries = runs.num_entries // (len(runs) << prefix_bits)
    buffer = np.empty(
        min(PART_SIZE, expected_entries + expected_entries // 8 + 32), dtype=ENTRY
    )  # mostly one read per run
    next_positions = list(positions)
    for run in range(len(runs)):
        while len(part := runs.read(next_positions[run], buffer, runs.bounds[run + 1])):
            count = table.add(part, prefix_bits, prefix)
            next_positions[run] += count
            if count < len(part):
                break
        if table.num_entries >= table.max_entries:
            return None
    return next_positions
