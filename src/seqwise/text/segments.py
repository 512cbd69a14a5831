"""Splitting long texts into segments, of which each distinct one is tokenised only once.

A segment is a run of blanks with all that follows up to the next blank, or a line break. No token of any kind of
tokeniser crosses the border of two segments or depends on text beyond it, so the tokens of a text are those of its
segments in turn. In natural language a few hundredths of the segments are distinct. The loops are compiled by numba;
importing this module imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from seqwise.text.patterns import replace_surrogates

MAX_POOL = 1 << 26  # bytes of distinct segments in memory
BLANK, NEWLINE = ord(" "), ord("\n")
FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a, 64 bits


def compile_loop(function: Callable) -> Any:
    """Compile a function; the machine code is cached on disk where a folder can be written."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


@compile_loop
def find_segment_end(data, start):
    """Return where the segment ends that begins at `start`.

    Byte-level BPE joins a blank to the whitespace before it, so a segment ends only before a blank that follows
    another character than whitespace. Whitespace beyond ASCII has the lead bytes C2, E1, E2 or E3.
    """
    if data[start] == NEWLINE:
        return start + 1
    index, lead = start, 0
    while index < len(data) and data[index] == BLANK:
        index += 1
    while index < len(data):
        byte = data[index]
        if byte == NEWLINE:
            break
        if byte == BLANK:
            last = data[index - 1]
            if 0x20 < last < 0x7F or (last >= 0x80 and lead != 0xC2 and not 0xE1 <= lead <= 0xE3):
                break
            if last >= 0x80 and last not in (0x85, 0xA0, 0x8E, 0xA8, 0xA9, 0xAF, 0x9F) and not 0x80 <= last <= 0x8A:
                break
        if byte >= 0xC0:
            lead = byte
        index += 1
    return index


@compile_loop
def number_segments(data, start, numbers, slots, hashes, offsets, pool, count):
    """Write the number of each segment of `data` from `start` on; return (where it stopped, how many, new count).

    Segments are numbered in the order in which they first occur. `slots` is a hash table with open addressing, `pool`
    has the bytes of the distinct segments. It stops early where the table or the pool is full.
    """
    num_written, mask = 0, len(slots) - 1
    while start < len(data):
        end = find_segment_end(data, start)
        value = FNV_OFFSET
        for index in range(start, end):
            value = (value ^ np.uint64(data[index])) * FNV_PRIME
        slot = np.int64(value & np.uint64(mask))
        number = slots[slot]
        while number >= 0:
            first = offsets[number]
            if hashes[number] == value and offsets[number + 1] - first == end - start:
                is_equal = True
                for index in range(end - start):
                    if pool[first + index] != data[start + index]:
                        is_equal = False
                        break
                if is_equal:
                    break
            slot = (slot + 1) & mask
            number = slots[slot]
        if number < 0:
            if 2 * count >= len(slots) or offsets[count] + end - start > len(pool):
                break
            number = count
            slots[slot], hashes[number] = number, value
            for index in range(end - start):
                pool[offsets[number] + index] = data[start + index]
            offsets[number + 1] = offsets[number] + end - start
            count += 1
        numbers[num_written] = number
        num_written += 1
        start = end
    return start, num_written, count


@compile_loop
def fill_slots(slots, hashes, count):
    """Enter the hashes of the first `count` segments into an empty table."""
    mask = len(slots) - 1
    for number in range(count):
        slot = np.int64(hashes[number] & np.uint64(mask))
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = number


@compile_loop
def copy_ranges(numbers, starts, lengths, values, output):
    """Write values[starts[n] : starts[n] + lengths[n]] for each number n, one after the other."""
    position = 0
    for number in numbers:
        for index in range(starts[number], starts[number] + lengths[number]):
            output[position] = values[index]
            position += 1


class SegmentTable:
    """The distinct segments of a text, numbered in the order in which they first occur."""

    def __init__(self) -> None:
        self.count = 0
        self.slots = np.full(1 << 17, -1, dtype=np.int32)
        self.hashes = np.zeros(1 << 16, dtype=np.uint64)
        self.offsets = np.zeros((1 << 16) + 1, dtype=np.int64)
        self.pool = np.zeros(1 << 20, dtype=np.uint8)

    @property
    def num_bytes(self) -> int:
        return int(self.offsets[self.count])

    def number(self, *texts: str) -> np.ndarray:
        """Return the number of each segment of some texts, one after the other; new segments are added."""
        parts = []
        for text in texts:
            data, start = np.frombuffer(replace_surrogates(text).encode(), dtype=np.uint8), 0
            numbers = np.empty(len(data), dtype=np.int32)
            while start < len(data):
                arrays = self.slots, self.hashes, self.offsets, self.pool
                start, num_written, self.count = number_segments(data, start, numbers, *arrays, self.count)
                parts.append(numbers[:num_written].copy())
                if start < len(data):
                    self._grow(len(data))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)

    def _grow(self, num_new_bytes: int) -> None:
        if 2 * self.count >= len(self.slots):
            self.slots = np.full(4 * len(self.slots), -1, dtype=np.int32)
            self.hashes = np.resize(self.hashes, len(self.slots) // 2)
            self.offsets = np.resize(self.offsets, len(self.slots) // 2 + 1)
            fill_slots(self.slots, self.hashes, self.count)
        else:
            self.pool = np.resize(self.pool, 2 * len(self.pool) + num_new_bytes)

    def texts(self, start: int = 0) -> list[str]:
        """Return the segments from number `start` on."""
        borders = (self.offsets[start : self.count + 1] - self.offsets[start]).tolist()
        data = self.pool[self.offsets[start] : self.num_bytes].tobytes()
        return [data[first:stop].decode() for first, stop in pairwise(borders)]


def count_segments(batches: Iterable[Iterable[str]]) -> Iterator[tuple[list[str], list[int]]]:
    """Yield distinct segments and how often each occurs, in one list, or in several if there are very many."""
    table, counts = SegmentTable(), np.zeros(0, dtype=np.int64)
    for texts in batches:
        numbers = table.number(*texts)
        text_counts = np.bincount(numbers, minlength=table.count)
        text_counts[: len(counts)] += counts
        counts = text_counts
        if table.num_bytes > MAX_POOL:
            yield table.texts(), counts.tolist()
            table, counts = SegmentTable(), np.zeros(0, dtype=np.int64)
    if table.count:
        yield table.texts(), counts.tolist()
