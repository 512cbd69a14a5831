"""The ranking of a report's families: the best, those tied with it, those behind it, and how certain that is.

This module decides; `report/verdict.py` writes the sentences, and `significance.py` has tested the pairs before.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

from seqwise.compare.report.formatting import convert_to_progress_scale, is_noticeable
from seqwise.compare.report.schema import BaselineResult, Family, Pair, Rank, Report, SeedValue, Significance
from seqwise.compare.statistics.learning_curves import Overfitting, compute_last_doubling_gain, find_overfitting
from seqwise.compare.statistics.scales import GapSize, classify_gap, get_optimum, get_scale_kind, is_optimal
from seqwise.compare.statistics.significance import CONFIDENCE

MAX_EQUAL_RATIO = 1.07  # of the largest size to the smallest, up to which they count as equal; 1.03 if matched
# Of the perplexity or error of a diverged seed to that of the worst baseline. Seeds that learned little are near it.
MIN_DIVERGED_RATIO = 2.0
MIN_SPEEDUP = 1.2  # a smaller ratio of latencies is not reported, however certain it is


class Ranking:
    """The families with a mean, best first (`ranked`), those that `failed`, and how the others compare with the best.

    `worse` families are certainly worse, by however little. Of the others those close to the best are `tied` with it;
    the rest are `unsure`: behind, but not certainly. `leaders` are best or tied, `behind` are the rest. Of the tied,
    those with exactly the mean of the best are `equal` to it. Some seeds of `diverged` families diverged: such a
    family is ranked by its mean like the others, but that mean says little. `recommendable` are the leaders that may
    be recommended for their speed or size: those that did not diverge, and those in the first place in any case.
    """

    def __init__(self, report: Report):
        self.metric, self.baselines = report.metric, report.baselines
        self.pairs = {frozenset((pair.a, pair.b)): pair for pair in report.pairs}
        sign = 1 if self.metric.lower_is_better else -1
        self.ranked = tuple(sorted(filter(_has_mean, report.families), key=lambda family: sign * (family.mean or 0.0)))
        self.failed = tuple(family for family in report.families if not _has_mean(family))
        self.best = self.ranked[0] if self.ranked else None
        self.diverged = tuple(family for family in self.ranked if self.find_diverged_seeds(family))
        self.num_tests = sum(pair.p is not None for pair in report.pairs)  # for which p-values are adjusted
        self.tied, self.unsure, self.worse = (self._select_by_rank(rank) for rank in ("tied", "unsure", "worse"))
        self.leaders, self.behind = self._select_by_rank("best", "tied"), self._select_by_rank("unsure", "worse")
        best_mean = None if self.best is None else self.best.mean
        self.equal = tuple(
            family for family in self.tied if math.isclose(family.mean or 0.0, best_mean or 0.0, rel_tol=1e-12)
        )
        self.recommendable = tuple(
            family for family in self.leaders if family not in self.diverged or family in (self.best, *self.equal)
        )

    def _select_by_rank(self, *ranks: str) -> tuple[Family, ...]:
        return tuple(family for family in self.ranked if self.get_rank(family) in ranks)

    def get_rank(self, family: Family) -> Rank:
        """Returns the rank of a family. Where no pair could be tested, no family is called worse."""
        if not _has_mean(family):
            return "failed"
        if self.best is None or family.name == self.best.name:
            return "best"
        pair = self.get_pair(family)
        if pair is not None and pair.significant:
            return "worse"
        return "tied" if self.get_gap_size(family) == "close" else "unsure"

    def get_gap_size(self, family: Family) -> GapSize:
        """Returns whether a family is close to the best, behind, or far behind, however certain that is."""
        return classify_gap(self.metric.key, family.mean or 0.0, self.best.mean or 0.0 if self.best else 0.0)

    @property
    def is_solved(self) -> bool:
        """Whether the best family has the best possible value of the metric."""
        return self.best is not None and is_optimal(self.metric.key, self.best.mean)

    @property
    def best_baseline(self) -> BaselineResult | None:
        """The best of the baselines, which are neither ranked nor tested."""
        select = min if self.metric.lower_is_better else max
        measured = [each for each in self.baselines if each.value is not None]
        return select(measured, key=lambda each: each.value or 0.0, default=None)

    def find_diverged_seeds(self, family: Family) -> tuple[SeedValue, ...]:
        """Returns the seeds that are twice as bad as every baseline, if another seed is better than one.

        Where no seed is better, the budget may be too small to learn anything. Only perplexities and errors diverge: a
        rate and BLEU are bounded, and a model that collapses predicts about as well as a baseline.
        """
        baselines = [each.value for each in self.baselines if each.value is not None]
        if get_scale_kind(self.metric.key) != "log" or not baselines:
            return ()
        worst = max(baselines)
        measured = [(each, each.value) for each in family.values if each.value is not None]
        if not any(value < worst for _, value in measured):
            return ()
        return tuple(each for each, value in measured if value >= MIN_DIVERGED_RATIO * worst)

    def has_better_seed(self, value: float) -> bool:
        """Returns whether a family of which some seeds diverged has another seed noticeably better than this value."""
        seeds = [each.value for family in self.diverged for each in family.values if each.value is not None]
        gain = self._convert(value) - self._convert(min(seeds, default=value))
        return is_noticeable(self.metric.key, gain, value)

    # Pairs

    def get_pair(self, family: Family) -> Pair | None:
        """Returns the tested pair of a family and the best; None if there is none."""
        return None if self.best is None else self.pairs.get(frozenset((self.best.name, family.name)))

    def get_significance(self, pair: Pair) -> Significance:
        """Returns what a pair shows.

        Significant: p is below 0.05 after adjustment for all pairs. Probable: only before adjustment, or a family was
        trained only once, so that the noise of seeds is unknown.
        """
        if pair.significant:
            return "significant"
        return "probable" if pair.p is not None and pair.p < 1 - CONFIDENCE else "inconclusive"

    # Costs

    @property
    def lowest_latency_leader(self) -> Family | None:
        """The recommendable leader with the lowest median latency, however small the difference."""
        timed = [family for family in self.recommendable if family.latency]
        return min(timed, key=lambda family: family.latency or 0.0, default=None)

    @property
    def fastest(self) -> Family | None:
        """The recommendable leader that is certainly the fastest; None where the latencies overlap.

        None as well where all that are tied with the best diverged: the best is not compared with them.
        """
        fastest = self.lowest_latency_leader
        others = [family for family in self.recommendable if family is not fastest]
        if fastest is None or (self.tied and not others):
            return None
        return fastest if all(is_faster(fastest, other) for other in others) else None

    @property
    def size_key(self) -> Literal["parameters", "weights"] | None:
        """The field that is known of all recommendable leaders: `parameters`, or else `weights`, in bytes."""
        keys: tuple[Literal["parameters", "weights"], ...] = ("parameters", "weights")
        return next((key for key in keys if all(getattr(family, key) for family in self.recommendable)), None)

    @property
    def smallest(self) -> Family | None:
        """The smallest recommendable leader; None where sizes were matched or are not known, or all tied diverged."""
        key = self.size_key
        if key is None or not self.leaders:
            return None
        sizes = {family.name: getattr(family, key) for family in self.recommendable}
        smallest = min(self.recommendable, key=lambda family: sizes[family.name])
        is_smaller = max(sizes.values()) > MAX_EQUAL_RATIO * sizes[smallest.name]
        return smallest if len(self.leaders) == 1 or is_smaller else None

    # A larger budget

    def _convert(self, value: float | None) -> float:
        return convert_to_progress_scale(self.metric.key, value or 0.0)

    def compute_gap(self, family: Family) -> float:
        """Returns by how much a family is behind the best, on the progress scale of the metric."""
        return 0.0 if self.best is None else abs(self._convert(family.mean) - self._convert(self.best.mean))

    def compute_gain(self, family: Family) -> float | None:
        """Returns the gain of the last doubling of the training, on the progress scale; None without a usable curve.

        A family that overfits would gain nothing by training longer. The mean curve of a diverged one says nothing.
        """
        if family in self.diverged:
            return None
        if self.find_overfitting(family) is not None:
            return 0.0
        scale = partial(convert_to_progress_scale, self.metric.key)
        return compute_last_doubling_gain(family.curves, self.metric.lower_is_better, scale)

    def find_overfitting(self, family: Family) -> Overfitting | None:
        """Returns how the validation got worse after its best point, where that exceeds noise and is noticeable."""
        if family in self.diverged:
            return None
        key = self.metric.key
        overfitting = find_overfitting(
            family.curves, self.metric.lower_is_better, partial(convert_to_progress_scale, key)
        )
        return (
            overfitting
            if overfitting is not None and is_noticeable(key, overfitting.degradation, family.mean or 0.0)
            else None
        )

    def compute_possible_gain(self, family: Family) -> float:
        """Returns the gain of the last doubling, limited to what is left to the best possible value."""
        optimum = self._convert(get_optimum(self.metric.key))
        return min(self.compute_gain(family) or 0.0, abs(optimum - self._convert(family.mean)))

    @property
    def challengers(self) -> tuple[Family, ...]:
        """Families that would overtake the best if both gained as in their last doubling, as far as possible."""
        gain_of_best = 0.0 if self.best is None else self.compute_possible_gain(self.best)
        # Slightly more than the gap: where both reach the optimum, neither is ahead.
        return tuple(
            family
            for family in self.ranked[1:]
            if self.compute_possible_gain(family) - gain_of_best > self.compute_gap(family) * (1 + 1e-9)
        )


def is_faster(family: Family, other: Family, ratio: float = MIN_SPEEDUP) -> bool:
    """Returns whether a family is certainly faster by a ratio: its slowest round beats the fastest of the other.

    A single round does not show how much the latencies vary.
    """
    if min(len(family.latencies), len(other.latencies)) < 2 or family.latency is None or other.latency is None:
        return False
    return max(family.latencies) < min(other.latencies) and ratio * family.latency <= other.latency


def _has_mean(family: Family) -> bool:
    return family.status != "failed" and family.mean is not None and math.isfinite(family.mean)
