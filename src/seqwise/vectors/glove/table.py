"""Counting, compiled: a hash table that keeps its entries almost sorted. It knows nothing of files.

The place of a key is its leading bits, so places rise with keys and only neighbours can be out of order: one pass of
insertion sort makes a run. Importing this module imports numba; do so when the work starts.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.compiled import compiled, inlined
from seqwise.vectors.glove.entries import FIRST, SECOND

_FIRST, _SECOND = np.uint64(FIRST), np.uint64(SECOND)
_HALF = np.uint64(32)


@inlined
def scramble(row, column):
    key = ((np.uint64(row) << _HALF) | np.uint64(column)) * _FIRST
    return (key ^ (key >> _HALF)) * _SECOND


@compiled
def add(table, slots, shift, key, amount):
    """Add to the sum of a key; 1 if it is new, else 0. The first `shift` bits are alike in all keys of this table."""
    place = np.int64((((key << shift) >> _HALF) * slots) >> _HALF)
    while place < len(table):
        if table[place].sum == 0.0:
            table[place].key = key
            table[place].sum = amount
            return 1
        if table[place].key == key:
            table[place].sum += amount
            return 0
        place += 1
    raise RuntimeError("the table of word pairs has no free place at its end")


@compiled
def count_part(ids, start, stop, window, dense, starts, table, slots, used, limit):
    """Count the pairs whose later word is at start … stop-1. Stops early when the table might overflow.

    Returns how far it came and how many entries the table has.
    """
    rows = len(starts) - 1
    free = np.uint64(slots)
    for here in range(start, stop):
        if used + window > limit:
            return here, used
        word = ids[here]
        if word < 0:
            continue
        for distance in range(1, min(window, here) + 1):
            other = ids[here - distance]
            if other < 0:
                break
            row, column = min(word, other), max(word, other)
            # A word beside itself sees one from the left and one from the right.
            amount = (2.0 if row == column else 1.0) / distance
            if row < rows and column - row < starts[row + 1] - starts[row]:
                dense[starts[row] + column - row] += amount
            else:
                used += add(table, free, np.uint64(0), scramble(row, column), amount)
    return stop, used


@compiled
def absorb(entries, table, slots, shift, prefix, used, limit):
    """Add sorted entries as long as their first `shift` bits are `prefix` and the table has room.

    Returns how many were taken and how many entries the table has.
    """
    free, bits, wanted = np.uint64(slots), np.uint64(shift), np.uint64(prefix)
    for at in range(len(entries)):
        key = entries[at].key
        if used >= limit or (shift > 0 and key >> (np.uint64(64) - bits) != wanted):
            return at, used
        used += add(table, free, bits, key, entries[at].sum)
    return len(entries), used


@compiled
def gather(table):
    """Move the entries to the front, sorted by key, and return their number. What lies behind them is stale."""
    count = 0
    for place in range(len(table)):
        if table[place].sum == 0.0:
            continue
        key, total = table[place].key, table[place].sum
        at = count
        while at > 0 and table[at - 1].key > key:
            table[at].key = table[at - 1].key
            table[at].sum = table[at - 1].sum
            at -= 1
        table[at].key = key
        table[at].sum = total
        count += 1
    return count
