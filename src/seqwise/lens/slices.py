"""Metrics of slices of the data with 95 % intervals, and tests whether a slice is worse than the rest.

Intervals: Wilson's (1927) of shares of independent items; otherwise percentiles of 1,000 bootstrap samples of units,
such as sentences, at the levels of Hesterberg (2015, §5.4), which make up for the too short intervals of few units.
Tests: two-sided, of a slice against all other items, as a z-test of two shares or a t-test with the standard deviation
of the bootstrapped difference. Holm's (1979) correction is over all slices of a view. The module knows nothing of
models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist

import numpy as np

from seqwise.compare.statistics.significance import bootstrap_metric
from seqwise.compare.statistics.student_t import compute_t_quantile, compute_two_sided_p
from seqwise.metrics.evaluation import compute_metric
from seqwise.tasks.error_report import ScoredItems, Slice, SliceGroup

CONFIDENCE = 0.95
NUM_DRAWS = 1_000
MIN_UNITS = 10  # of a slice and of the rest, for a test; of a slice, for a bootstrap interval
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class SliceScore:
    """The metric of a slice, and of all other items."""

    group: str
    name: str
    count: int  # items
    value: float
    low: float  # of the interval; NaN if there are too few units
    high: float
    rest: float  # the metric of all other items; NaN if there are none
    p: float = math.nan  # NaN: not tested
    adjusted_p: float = math.nan
    is_worse: bool = False  # significantly
    is_tested: bool = False  # False also for the second of two complementary slices, whose test is the same


def score_slices(items: ScoredItems, groups: Sequence[SliceGroup]) -> list[SliceScore]:
    """Returns the scores of all slices, with corrected tests."""
    total = items.select("all", np.ones(len(items.units), dtype=bool))
    pairs = [(group, each) for group in groups for each in group.slices]
    rests = [Slice(each.name, total.sums - each.sums, total.count - each.count) for _, each in pairs]
    tables = [*(each.sums for _, each in pairs), *(rest.sums for rest in rests)]
    metric = partial(compute_metric, items.metric.formula)
    draws = np.zeros((0, len(tables))) if items.is_binary else bootstrap_metric(metric, tables, NUM_DRAWS, 0)
    scores = []
    for index, ((group, each), rest) in enumerate(zip(pairs, rests)):
        own, other = draws[:, index], draws[:, len(pairs) + index]
        value = float(metric(each.sums.sum(0)))
        low, high = compute_interval(items, each, own)
        rest_value = float(metric(rest.sums.sum(0))) if rest.count else math.nan
        p = compute_p_value(items, each, rest, own - other) if group.is_tested else math.nan
        scores.append(SliceScore(group.name, each.name, each.count, value, low, high, rest_value, p))
    return mark_worse(scores, find_repeated(groups, total.count), items.metric.lower_is_better)


def score_all(items: ScoredItems) -> SliceScore:
    """Returns the metric of all items with its interval."""
    group = SliceGroup("all", [items.select(f"all {items.name}", np.ones(len(items.units), dtype=bool))])
    return score_slices(items, [group])[0]


def compute_interval(items: ScoredItems, part: Slice, draws: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % interval of the metric of a slice; NaN if it has too few units."""
    if items.is_binary:
        return compute_wilson_interval(float(part.sums[:, 0].sum()), part.count)
    num_units = count_units(part)
    if num_units < MIN_UNITS:
        return math.nan, math.nan
    # The normal quantile that a t-interval with standard deviations of n − 1 would have.
    t = compute_t_quantile(CONFIDENCE, num_units - 1) * math.sqrt(num_units / (num_units - 1))
    tail = NormalDist().cdf(-t)
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def compute_wilson_interval(successes: float, count: int) -> tuple[float, float]:
    """Returns Wilson's 95 % interval of a share."""
    if not count:
        return math.nan, math.nan
    share, shrink = successes / count, 1 + _Z**2 / count
    centre = (share + _Z**2 / (2 * count)) / shrink
    half = _Z / shrink * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def count_units(part: Slice) -> int:
    """Returns the number of units that have items in a slice."""
    return int((part.sums != 0).any(axis=1).sum())


def compute_p_value(items: ScoredItems, part: Slice, rest: Slice, draws: np.ndarray) -> float:
    """Returns the two-sided p of the difference between a slice and the rest; NaN if one has too few units."""
    smaller = min(count_units(part), count_units(rest))
    if smaller < MIN_UNITS:
        return math.nan
    difference = compute_metric(items.metric.formula, part.sums.sum(0)) - compute_metric(
        items.metric.formula, rest.sums.sum(0)
    )
    if items.is_binary:
        share = (part.sums[:, 0].sum() + rest.sums[:, 0].sum()) / (part.count + rest.count)
        deviation = math.sqrt(share * (1 - share) * (1 / part.count + 1 / rest.count))
        degrees = math.inf
    else:
        deviation, degrees = float(np.std(draws)), smaller - 1
    return compute_two_sided_p(float(difference) / deviation, degrees) if deviation > 0 else 1.0


def find_repeated(groups: Sequence[SliceGroup], total: int) -> list[bool]:
    """Returns for each slice whether its test repeats the one before: the second of two slices that are all items."""
    repeated: list[bool] = []
    for group in groups:
        is_pair = len(group.slices) == 2 and sum(each.count for each in group.slices) == total
        repeated += [is_pair and index == 1 for index in range(len(group.slices))]
    return repeated


def mark_worse(scores: Sequence[SliceScore], repeated: Sequence[bool], lower_is_better: bool) -> list[SliceScore]:
    """Returns the scores with adjusted p-values, and marks those that are significantly worse than the rest."""
    tested = [index for index, score in enumerate(scores) if not math.isnan(score.p) and not repeated[index]]
    adjusted = dict(zip(tested, adjust_holm([scores[index].p for index in tested])))
    marked = []
    for index, score in enumerate(scores):
        source = index - 1 if repeated[index] else index
        p = adjusted.get(source, math.nan) if not math.isnan(score.p) else math.nan
        is_inferior = score.value > score.rest if lower_is_better else score.value < score.rest
        is_worse = bool(p < 1 - CONFIDENCE and is_inferior)
        marked.append(replace(score, adjusted_p=p, is_worse=is_worse, is_tested=index in adjusted))
    return marked


def adjust_holm(values: Sequence[float]) -> list[float]:
    """Returns p-values adjusted by Holm's step-down method, which controls the family-wise error rate."""
    order = np.argsort(values, kind="stable")
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, values[index] * (len(values) - rank)))
        adjusted[index] = largest
    return adjusted
