"""Counting pairs in a hash table that is almost sorted, compiled. This module knows nothing of files.

The slot of a key is its leading bits, so that slots rise with keys and only neighbours can be out of order: one pass of
insertion sort makes a sorted run. Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.glove.pair_files import FIRST, SECOND
from seqwise.vectors.jit import cached_njit, inline_njit

_FIRST, _SECOND = np.uint64(FIRST), np.uint64(SECOND)
_HALF = np.uint64(32)


@inline_njit
def hash_pair(row, column):
    """Returns the key of a pair; `pair_files.hash_pairs` is the same for arrays."""
    key = ((np.uint64(row) << _HALF) | np.uint64(column)) * _FIRST
    return (key ^ (key >> _HALF)) * _SECOND


@cached_njit
def add_to_table(table, num_slots, prefix_bits, key, amount):
    """Adds to the sum of a key; returns 1 if it is new, else 0. All keys of the table share the first `prefix_bits`."""
    slot = np.int64((((key << prefix_bits) >> _HALF) * num_slots) >> _HALF)
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
def count_ids(ids, start, stop, window, dense, row_starts, table, num_slots, used, max_used):
    """Counts the pairs whose later word is at start … stop-1; stops early when the table might overflow.

    Returns (first position that is not counted, number of entries in the table).
    """
    dense_rows = len(row_starts) - 1
    slots = np.uint64(num_slots)
    for position in range(start, stop):
        if used + window > max_used:
            return position, used
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
                used += add_to_table(table, slots, np.uint64(0), hash_pair(row, column), amount)
    return stop, used


@cached_njit
def add_entries(entries, table, num_slots, prefix_bits, prefix, used, max_used):
    """Adds sorted entries as long as their first `prefix_bits` equal `prefix` and the table has room.

    Returns (number of entries added, number of entries in the table).
    """
    slots, bits, expected = np.uint64(num_slots), np.uint64(prefix_bits), np.uint64(prefix)
    for index in range(len(entries)):
        key = entries[index].key
        if used >= max_used or (prefix_bits > 0 and key >> (np.uint64(64) - bits) != expected):
            return index, used
        used += add_to_table(table, slots, bits, key, entries[index].sum)
    return len(entries), used


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
