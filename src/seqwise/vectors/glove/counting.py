"""How often words stand near each other: blocks of ids → a file of pairs, in bounded memory.

Pennington, Socher and Manning (2014), section 3: a window on both sides, a word at distance d counts 1/d, and nothing
reaches over the end of a sentence. The matrix is symmetric, so one triangle is kept.

Pairs of frequent words, the most of what is met, have a cell each: all pairs with rank · rank below a bound that fills
half of the memory. The rest go into a hash table; when it is full it is written to disk, sorted, and begun anew. In the
end the sorted runs are joined range by range. This module knows nothing of text or of vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isqrt
from pathlib import Path

import numpy as np

from seqwise.errors import DataError
from seqwise.vectors.glove.entries import (
    PAIR,
    SUM,
    Counts,
    Runs,
    complaining,
    scrambled,
    unscrambled,
    unused_path,
)

MEMORY = 64 << 20  # bytes for cells and table
PART = 1 << 16  # ids counted, or entries read, between two looks at the keyboard
LOAD = 0.75  # how full the table gets; linear probing slows down beyond
AIM = 0.8  # of that, when runs are joined: how many entries a range of keys should have
SPARE = 4096  # places at the end of the table for keys that are pushed on

ProgressCallback = Callable[[int], None]  # takes the ids counted so far


def count_pairs(
    blocks: Iterable[np.ndarray],
    vocabulary: int,
    window: int,
    folder: Path,
    memory: int = MEMORY,
    progress: ProgressCallback | None = None,
) -> Counts:
    """Count the pairs in blocks of int32 ids, where -1 ends a sentence; a block ends one too.

    `memory` bounds the bytes of cells and table. Everything written goes to `folder`, and nothing stays there but the
    file of the result, which its own `with` block removes.
    """
    path = unused_path(Path(folder))
    with Runs(Path(folder)) as runs:
        table = _fill(blocks, vocabulary, window, memory, runs, progress)
        try:
            return _join(runs, table, path, progress)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _fill(
    blocks: Iterable, vocabulary: int, window: int, memory: int, runs: Runs, progress: ProgressCallback | None
) -> _Table:
    """Count everything into runs. The cells are given up on the way out; the table is kept for the joining."""
    from seqwise.vectors.glove.table import count_part

    starts = dense_rows(vocabulary, memory // 2 // 8)
    dense = np.zeros(starts[-1])
    table = _Table(memory - dense.nbytes, window)
    counted = 0
    for block in blocks:
        if len(block) and block.max() >= vocabulary:
            raise ValueError(f"id {block.max()} in a vocabulary of {vocabulary}")
        at = 0
        while at < len(block):
            stop = min(at + PART, len(block))
            there, table.used = count_part(
                block, at, stop, window, dense, starts, table.places, table.slots, table.used, table.limit
            )
            if there < stop:
                table.spill(runs)
            counted, at = counted + there - at, there
            table.counted = counted
            if progress is not None:
                progress(counted)
    for row in range(len(starts) - 1):
        cells = dense[starts[row] : starts[row + 1]]
        columns = np.flatnonzero(cells)
        entries = np.empty(len(columns), dtype=SUM)
        entries["key"], entries["sum"] = scrambled(np.full(len(columns), row), columns + row), cells[columns]
        while len(entries):
            entries = entries[table.absorb(entries) :]
            if len(entries):
                table.spill(runs)
    if table.used:
        table.spill(runs)
    return table


def dense_rows(vocabulary: int, cells: int) -> np.ndarray:
    """Where the cells of each row begin, and where the last ones end; row r has the columns r, r+1, …

    The pairs with (row + 1) · (column + 1) ≤ bound, for the largest bound that takes no more cells than that. Ranks
    are by frequency, so their product tells how often two words would meet by chance.
    """

    def widths(bound: int) -> np.ndarray:
        rows = np.arange(min(isqrt(bound), vocabulary))
        return np.minimum(bound // (rows + 1), vocabulary) - rows

    # The square of cells below √bound lies inside, half of it counts: no bound beyond this can fit.
    least, most = 0, min(vocabulary, isqrt(2 * cells) + 2) ** 2
    while least < most:
        middle = (least + most + 1) // 2
        if widths(middle).sum() <= cells:
            least = middle
        else:
            most = middle - 1
    return np.concatenate([[0], np.cumsum(widths(least))]).astype(np.int64)


class _Table:
    """The hash table with its measures; `table.py` has what is done inside it."""

    def __init__(self, memory: int, window: int):
        places = max(memory // SUM.itemsize, 8 * window + 64)
        # A key is pushed on by less than the table has entries, so a small table can be given all the spare it needs.
        self.slots = max(places - SPARE, int(places / (1 + LOAD)))
        self.limit = int(LOAD * self.slots)
        self.places = np.zeros(self.slots + min(SPARE, self.limit + 1), dtype=SUM)
        self.used = 0
        self.counted = 0  # ids that went into it and into the runs

    def absorb(self, entries: np.ndarray, shift: int = 0, prefix: int = 0) -> int:
        from seqwise.vectors.glove.table import absorb

        taken, self.used = absorb(entries, self.places, self.slots, shift, prefix, self.used, self.limit)
        return taken

    def gather(self) -> np.ndarray:
        """The entries, sorted. They are a part of the table: use them, then clear it."""
        from seqwise.vectors.glove.table import gather

        return self.places[: gather(self.places)]

    def clear(self) -> None:
        self.places[:] = 0
        self.used = 0

    def spill(self, runs: Runs) -> None:
        runs.append(self.gather())
        self.clear()


def _join(runs: Runs, table: _Table, path: Path, progress: ProgressCallback | None) -> Counts:
    """Join the runs, one range of keys after another: what has the same first `shift` bits fits into the table.

    Keys are spread evenly, so ranges of equal width hold about as many; where one does not fit, the ranges are halved.
    """
    if not runs.entries:
        raise DataError(
            "no two known words stand together in a line, so there is nothing to count.",
            repair="Give longer lines, or a lower min-count, so that fewer words are left out.",
        )
    shift = max(0, int(np.ceil(np.log2(runs.entries / (AIM * table.limit)))))
    places, prefix, entries, total = list(runs.bounds[:-1]), 0, 0, 0.0
    with complaining(path.parent, runs.entries * SUM.itemsize), path.open("wb") as out:
        while prefix < 1 << shift:
            table.clear()
            if progress is not None:
                progress(table.counted)  # nothing new, but who listens may want to stop
            reached = _take_range(runs, table, places, shift, prefix)
            if reached is None:
                shift, prefix = shift + 1, 2 * prefix
                continue
            places, prefix = reached, prefix + 1
            found = table.gather()
            for start in range(0, len(found), PART):
                pairs = _finished(found[start : start + PART])
                out.write(pairs.view(np.uint8).data)
                sides = np.where(pairs["row"] == pairs["column"], 1.0, 2.0)
                entries, total = entries + len(pairs), total + float(sides @ pairs["count"])
    return Counts(path, entries, total)


def _take_range(runs: Runs, table: _Table, places: list[int], shift: int, prefix: int) -> list[int] | None:
    """Put one range of keys of every run into the table; where the runs go on, or None if it does not fit."""
    expected = runs.entries // (len(runs) << shift)
    piece = np.empty(min(PART, expected + expected // 8 + 32), dtype=SUM)  # mostly one read for a run
    reached = list(places)
    for run in range(len(runs)):
        while len(part := runs.read(reached[run], piece, runs.bounds[run + 1])):
            taken = table.absorb(part, shift, prefix)
            reached[run] += taken
            if taken < len(part):
                break
        if table.used >= table.limit:
            return None
    return reached


def _finished(entries: np.ndarray) -> np.ndarray:
    pairs = np.empty(len(entries), dtype=PAIR)
    pairs["row"], pairs["column"] = unscrambled(entries["key"])
    pairs["count"] = entries["sum"]
    return pairs
