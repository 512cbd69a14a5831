"""Finds the lines at which two parallel texts become misaligned, if one has more lines.

A line and its translation have similar lengths and contain the same numbers. So every choice of lines of the longer
text to skip has a cost, and dynamic programming over the number of skipped lines finds the cheapest choice. The module
knows nothing of languages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

MAX_SKIPPED = 16  # maximum number of lines without a counterpart that are searched for
SKIP_COST, EMPTY_SKIP_COST = 12.0, 2.0  # of skipping a line with text, and an empty line
MAX_LENGTH_COST = 8.0  # of a pair with different lengths
NUMBERS_COST = 4.0  # of a pair that contains different numbers
MIN_SPREAD = 0.15  # minimum standard deviation of log length ratios that is assumed

_NUMBER = re.compile(r"\d+")


def find_misalignment(longer: Sequence[str], shorter: Sequence[str]) -> list[int]:
    """Returns the indices of the lines of the longer text that most likely have no counterpart, at most MAX_SKIPPED.

    If the shorter text merely ends too early, these are all lines beyond its length.
    """
    num_missing, count = len(longer) - len(shorter), len(shorter)
    max_shift = min(num_missing, MAX_SKIPPED)
    sums = _compute_cumulative_costs(longer, shorter, max_shift)  # (max_shift + 1, count + 1)
    is_empty = np.array([not line.strip() for line in longer])
    best = sums[0]  # cost of the cheapest alignment of the first j lines with the current shift
    skips: list[np.ndarray] = []
    final_costs = [best[-1] + SKIP_COST]
    for shift in range(1, max_shift + 1):
        # Skipping before pair j skips line j + shift - 1 of the longer text.
        skip_costs = np.where(is_empty[shift - 1 : shift + count], EMPTY_SKIP_COST, SKIP_COST)
        entry_costs = best + skip_costs - sums[shift]
        cheapest = np.minimum.accumulate(entry_costs)
        skips.append(np.maximum.accumulate(np.where(entry_costs == cheapest, np.arange(count + 1), 0)))
        best = cheapest + sums[shift]
        final_costs.append(best[-1] + (SKIP_COST if shift < num_missing else 0.0))
    shift, pair = int(np.argmin(final_costs)), count
    unmatched: list[int] = []
    while shift:
        pair = int(skips[shift - 1][pair])
        unmatched.insert(0, pair + shift - 1)
        shift -= 1
    return unmatched or list(range(count, len(longer)))


def _compute_cumulative_costs(longer: Sequence[str], shorter: Sequence[str], max_shift: int) -> np.ndarray:
    """Returns costs[s, j]: of matching the first j lines of the shorter text with lines s … s + j - 1 of the longer."""
    count = len(shorter)
    longer_lengths, shorter_lengths = (
        np.array([len(line.strip()) for line in text], dtype=np.float64) for text in (longer, shorter)
    )
    hashes = {text: hash(tuple(_NUMBER.findall(text))) for text in (*longer, *shorter)}
    longer_numbers = np.array([hashes[line] for line in longer], dtype=np.int64)
    shorter_numbers = np.array([hashes[line] for line in shorter], dtype=np.int64)
    ratios = np.stack(
        [np.log((longer_lengths[s : s + count] + 1) / (shorter_lengths + 1)) for s in range(max_shift + 1)]
    )
    median = np.median(ratios)
    # Shift 0 is right before the misalignment and the largest shift after it: the better one gives the usual spread.
    spread = max(MIN_SPREAD, 1.5 * min(float(np.median(np.abs(ratios[s] - median))) for s in (0, max_shift)))
    costs = np.minimum(0.5 * ((ratios - median) / spread) ** 2, MAX_LENGTH_COST)
    for shift in range(max_shift + 1):
        is_one_empty = (longer_lengths[shift : shift + count] == 0) != (shorter_lengths == 0)
        costs[shift] += np.where(longer_numbers[shift : shift + count] != shorter_numbers, NUMBERS_COST, 0.0)
        costs[shift] = np.where(is_one_empty, 2 * MAX_LENGTH_COST, costs[shift])
    return np.concatenate([np.zeros((max_shift + 1, 1)), np.cumsum(costs, axis=1)], axis=1)
