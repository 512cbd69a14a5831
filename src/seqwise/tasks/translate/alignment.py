"""Where two texts that should match line by line part, when one has more lines. It knows nothing of languages.

A line and its translation are long or short together, and the numbers in them are the same. So every way to pass over
lines of the longer text has a cost, and the cheapest one is found exactly (dynamic programming over the number of
lines passed over so far).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST = 16  # lines to pass over that are looked for; the first of them is what the user is told
SWITCH, EMPTY_SWITCH = 12.0, 2.0  # cost of passing over a line, and over an empty one
WORST = 8.0  # cost of a pair that cannot be one
OTHER_NUMBERS = 4.0  # cost of a pair with different numbers in it
LEAST_SPREAD = 0.15  # of the logarithm of the ratio of lengths

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Parting:
    """`surplus`: the lines of the longer text without a partner, from 0, as far as they were looked for.

    `ends` tells that the shorter text merely ends too early: all of its lines match.
    """

    surplus: tuple[int, ...]
    ends: bool = False

    @property
    def line(self) -> int:
        """The first line without a partner, from 1."""
        return self.surplus[0] + 1


def find_parting(longer: Sequence[str], shorter: Sequence[str]) -> Parting:
    """The likeliest lines of the longer text that have no partner in the shorter one."""
    missing, count = len(longer) - len(shorter), len(shorter)
    shifts = min(missing, MOST)
    sums = _summed_costs(longer, shorter, shifts)  # (shifts + 1, count + 1)
    empty = np.array([not line.strip() for line in longer])
    best = sums[0]
    taken: list[np.ndarray] = []
    ends = [best[-1] + SWITCH]
    for shift in range(1, shifts + 1):
        # At pair j the line j + shift - 1 of the longer text is passed over.
        passing = np.where(empty[shift - 1 : shift + count], EMPTY_SWITCH, SWITCH)
        entering = best + passing - sums[shift]
        cheapest = np.minimum.accumulate(entering)
        places = np.maximum.accumulate(np.where(entering == cheapest, np.arange(count + 1), 0))
        taken.append(places)
        best = cheapest + sums[shift]
        ends.append(best[-1] + (SWITCH if shift < missing else 0.0))
    shift, place = int(np.argmin(ends)), count
    surplus: list[int] = []
    while shift:
        place = int(taken[shift - 1][place])
        surplus.insert(0, place + shift - 1)
        shift -= 1
    return Parting(tuple(surplus)) if surplus else Parting(tuple(range(count, len(longer))), ends=True)


def _summed_costs(longer: Sequence[str], shorter: Sequence[str], shifts: int) -> np.ndarray:
    """[s, j]: the cost of matching the first j lines of the shorter text with those s further on in the longer one."""
    count = len(shorter)
    long, short = (np.array([len(line.strip()) for line in text], dtype=np.float64) for text in (longer, shorter))
    numbers = {text: hash(tuple(_NUMBER.findall(text))) for text in (*longer, *shorter)}
    marks, partners = (np.array([numbers[line] for line in text], dtype=np.int64) for text in (longer, shorter))
    ratios = np.stack([np.log((long[s : s + count] + 1) / (short + 1)) for s in range(shifts + 1)])
    usual = np.median(ratios)
    # Before the parting shift 0 fits, behind it the last one: the better of the two tells the usual spread.
    spread = max(LEAST_SPREAD, 1.5 * min(float(np.median(np.abs(ratios[s] - usual))) for s in (0, shifts)))
    costs = np.minimum(0.5 * ((ratios - usual) / spread) ** 2, WORST)
    for shift in range(shifts + 1):
        alone = (long[shift : shift + count] == 0) != (short == 0)
        costs[shift] += np.where(marks[shift : shift + count] != partners, OTHER_NUMBERS, 0.0)
        costs[shift] = np.where(alone, 2 * WORST, costs[shift])
    return np.concatenate([np.zeros((shifts + 1, 1)), np.cumsum(costs, axis=1)], axis=1)
