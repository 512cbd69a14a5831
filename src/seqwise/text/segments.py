"""Splits long texts into segments, of which each distinct one is tokenised only once.

A segment is a run of spaces with all that follows up to the next space, or a line break. No token of any kind of
tokeniser crosses the border of two segments or depends on text beyond it, so the tokens of a text are those of its
segments, one after the other. In natural language a few per cent of the segments are distinct. The loops are compiled
by numba; importing this module imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from seqwise.text.patterns import replace_surrogates

MAX_POOL_BYTES = 1 << 26  # of distinct segments in memory
SPACE, NEWLINE = ord(" "), ord("\n")
FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a, 64 bits


def compile_loop(function: Callable) -> Any:
    """Compiles a function; the machine code is cached on disk where a folder can be written."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


@compile_loop
def find_segment_end(data, start):
    """Returns where the segment ends that begins at `start`.

    Byte-level BPE joins a space to the whitespace before it, so a segment ends only before a space that follows
    another character than whitespace. Whitespace beyond ASCII has the lead bytes C2, E1, E2 or E3.
    """
    if data[start] == NEWLINE:
        return start + 1
    index, lead = start, 0
    while index < len(data) and data[index] == SPACE:
        index += 1
    while index < len(data):
        byte = data[index]
        if byte == NEWLINE:
            break
        if byte == SPACE:
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
def index_segments(data, start, indices, slots, hashes, offsets, pool, num_segments):
    """Writes the index of each segment of `data` from `start` on into `indices`.

    Returns where it stopped, how many indices it wrote, and the new number of distinct segments. Segments are numbered
    in the order in which they first occur. `slots` is a hash table with open addressing, whose entries are indices;
    `pool` has the bytes of the distinct segments, the i-th from `offsets[i]` on, with the hash `hashes[i]`. It stops
    early where the table or the pool is full.
    """
    num_written, mask = 0, len(slots) - 1
    while start < len(data):
        end = find_segment_end(data, start)
        hash_value = FNV_OFFSET
        for position in range(start, end):
            hash_value = (hash_value ^ np.uint64(data[position])) * FNV_PRIME
        slot = np.int64(hash_value & np.uint64(mask))
        segment = slots[slot]
        while segment >= 0:
            first = offsets[segment]
            if hashes[segment] == hash_value and offsets[segment + 1] - first == end - start:
                is_equal = True
                for position in range(end - start):
                    if pool[first + position] != data[start + position]:
                        is_equal = False
                        break
                if is_equal:
                    break
            slot = (slot + 1) & mask
            segment = slots[slot]
        if segment < 0:
            if 2 * num_segments >= len(slots) or offsets[num_segments] + end - start > len(pool):
                break
            segment = num_segments
            slots[slot], hashes[segment] = segment, hash_value
            for position in range(end - start):
                pool[offsets[segment] + position] = data[start + position]
            offsets[segment + 1] = offsets[segment] + end - start
            num_segments += 1
        indices[num_written] = segment
        num_written += 1
        start = end
    return start, num_written, num_segments


@compile_loop
def fill_slots(slots, hashes, num_segments):
    """Enters the hashes of the distinct segments into an empty table."""
    mask = len(slots) - 1
    for segment in range(num_segments):
        slot = np.int64(hashes[segment] & np.uint64(mask))
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = segment


@compile_loop
def copy_ranges(indices, starts, lengths, values, output):
    """Writes values[starts[i] : starts[i] + lengths[i]] for each index i, one after the other."""
    position = 0
    for index in indices:
        for source in range(starts[index], starts[index] + lengths[index]):
            output[position] = values[source]
            position += 1


class SegmentTable:
    """The distinct segments of texts, numbered from 0 in the order in which they first occur."""

    def __init__(self) -> None:
        self.num_segments = 0
        self.slots = np.full(1 << 17, -1, dtype=np.int32)
        self.hashes = np.zeros(1 << 16, dtype=np.uint64)
        self.offsets = np.zeros((1 << 16) + 1, dtype=np.int64)
        self.pool = np.zeros(1 << 20, dtype=np.uint8)

    @property
    def num_bytes(self) -> int:
        return int(self.offsets[self.num_segments])

    def index_texts(self, *texts: str) -> np.ndarray:
        """Returns the index of each segment of some texts, one after the other; new segments are added."""
        parts = []
        for text in texts:
            data, start = np.frombuffer(replace_surrogates(text).encode(), dtype=np.uint8), 0
            indices = np.empty(len(data), dtype=np.int32)
            while start < len(data):
                arrays = self.slots, self.hashes, self.offsets, self.pool
                start, num_written, self.num_segments = index_segments(data, start, indices, *arrays, self.num_segments)
                parts.append(indices[:num_written].copy())
                if start < len(data):
                    self._grow(len(data))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)

    def _grow(self, num_new_bytes: int) -> None:
        """Makes room for more segments, in the hash table if that is full, otherwise in the pool."""
        if 2 * self.num_segments >= len(self.slots):
            self.slots = np.full(4 * len(self.slots), -1, dtype=np.int32)
            self.hashes = np.resize(self.hashes, len(self.slots) // 2)
            self.offsets = np.resize(self.offsets, len(self.slots) // 2 + 1)
            fill_slots(self.slots, self.hashes, self.num_segments)
        else:
            self.pool = np.resize(self.pool, 2 * len(self.pool) + num_new_bytes)

    def list_segments(self, start: int = 0) -> list[str]:
        """Returns the texts of the segments from index `start` on."""
        borders = (self.offsets[start : self.num_segments + 1] - self.offsets[start]).tolist()
        data = self.pool[self.offsets[start] : self.num_bytes].tobytes()
        return [data[first:stop].decode() for first, stop in pairwise(borders)]


def count_segments(batches: Iterable[Iterable[str]]) -> Iterator[tuple[list[str], list[int]]]:
    """Yields distinct segments and how often each occurs, in one list, or in several if there are very many."""
    table, counts = SegmentTable(), np.zeros(0, dtype=np.int64)
    for texts in batches:
        batch_counts = np.bincount(table.index_texts(*texts), minlength=table.num_segments)
        batch_counts[: len(counts)] += counts
        counts = batch_counts
        if table.num_bytes > MAX_POOL_BYTES:
            yield table.list_segments(), counts.tolist()
            table, counts = SegmentTable(), np.zeros(0, dtype=np.int64)
    if table.num_segments:
        yield table.list_segments(), counts.tolist()
