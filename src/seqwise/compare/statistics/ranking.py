"""Who is best, who is as good within the noise, who is probably worse, who surely: a report's families in their places.

This module decides; it writes no sentences (`verdict.py` does) and tests nothing (`statistics.py` did).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

from seqwise.compare.report.formatting import bounds, noticeable, on_scale
from seqwise.compare.statistics.overfitting import Decline, decline
from seqwise.compare.statistics.significance import CONFIDENCE, holm, still_improving

Family = dict[str, Any]  # one entry of the report's "families"
Pair = dict[str, Any]  # one entry of its "pairs"
Rank = Literal["best", "tied", "unsure", "worse"]
Outcome = Literal["significant", "probable", "level"]

SAME_SIZE = 1.07  # sizes matched within 3 % of one number differ among each other by no more than this ratio
FASTER = 1.2  # times: less is not worth a word, however sure it is


@dataclass(frozen=True)
class Standing:
    """The families that finished, best first, those that failed, and what was tested between them."""

    metric: dict[str, Any]
    ranked: tuple[Family, ...]
    failed: tuple[Family, ...]
    pairs: dict[frozenset[str], Pair]
    baselines: tuple[dict[str, Any], ...] = ()  # what needs no model: neither ranked nor tested

    @classmethod
    def of(cls, report: dict[str, Any]) -> Standing:
        """A family of which some trainings failed is judged by those that ended."""
        lower = report["metric"]["lower_is_better"]
        pairs = {frozenset((pair["a"], pair["b"])): pair for pair in report["pairs"]}
        ranked = [family for family in report["families"] if _has_mean(family)]
        ranked.sort(key=lambda family: family["mean"] if lower else -family["mean"])
        failed = tuple(family for family in report["families"] if not _has_mean(family))
        return cls(report["metric"], tuple(ranked), failed, pairs, tuple(report.get("baselines") or ()))

    @property
    def best(self) -> Family | None:
        return self.ranked[0] if self.ranked else None

    @property
    def baseline(self) -> dict[str, Any] | None:
        """The best of what needs no model."""
        best = min if self.metric["lower_is_better"] else max
        return best(self.baselines, key=lambda each: each["value"], default=None)

    @property
    def tied(self) -> tuple[Family, ...]:
        """Not significantly different from the best, not even where only the pairs with the best are minded."""
        return self._with("tied")

    @property
    def unsure(self) -> tuple[Family, ...]:
        """Probably worse than the best, but not certainly so."""
        return self._with("unsure")

    @property
    def worse(self) -> tuple[Family, ...]:
        return self._with("worse")

    @property
    def leaders(self) -> tuple[Family, ...]:
        """The best and those that are as good within the noise."""
        return (*self.ranked[:1], *self.tied)

    @property
    def behind(self) -> tuple[Family, ...]:
        """Those that are probably or surely worse, in their order."""
        return tuple(family for family in self.ranked if self.rank(family) in ("unsure", "worse"))

    @property
    def ranks(self) -> dict[str, str]:
        ranked = {family["name"]: self.rank(family) for family in self.ranked}
        return {**ranked, **{family["name"]: "failed" for family in self.failed}}

    def rank(self, family: Family) -> Rank:
        """The place of a family that finished. Where nothing could be tested, nobody is called worse."""
        if family is self.best:
            return "best"
        ranks: dict[Outcome, Rank] = {"significant": "worse", "probable": "unsure", "level": "tied"}
        return ranks[self.outcome(self.pair(family))]

    def _with(self, rank: Rank) -> tuple[Family, ...]:
        return tuple(family for family in self.ranked if self.rank(family) == rank)

    # Pairs

    def pair(self, family: Family) -> Pair:
        """What was tested between a family and the best; empty if nothing was."""
        return {} if self.best is None else self.pairs.get(frozenset((self.best["name"], family["name"])), {})

    def outcome(self, pair: Pair) -> Outcome:
        """What a pair shows.

        Significant: its p is below 0.05, adjusted for all pairs (Holm). Probable: that would be so if only the pairs
        with the best were minded, which nobody had named before; or it is so, but a family was trained only once, and
        another seed might have given anything.
        """
        if pair.get("significant"):
            return "significant"
        likely = (pair.get("adjusted"), self.with_best(pair))
        return "probable" if any(p is not None and p < 1 - CONFIDENCE for p in likely) else "level"

    def with_best(self, pair: Pair) -> float | None:
        """Its p, adjusted for the pairs with the best alone; None for a pair of others."""
        return self._with_best.get(frozenset((pair["a"], pair["b"]))) if pair else None

    @cached_property
    def _with_best(self) -> dict[frozenset[str], float | None]:
        if self.best is None:
            return {}
        names = [names for names in self.pairs if self.best["name"] in names]
        return dict(zip(names, holm([self.pairs[each].get("p") for each in names])))

    @property
    def tests(self) -> int:
        """How many pairs with the best could be tested: what `with_best` is adjusted for."""
        return sum(p is not None for p in self._with_best.values())

    # Costs

    @property
    def quickest(self) -> Family | None:
        """Of the leaders the one that answered in the least time, however little that is."""
        timed = [family for family in self.leaders if family.get("answer")]
        return min(timed, key=lambda family: family["answer"], default=None)

    @property
    def fastest(self) -> Family | None:
        """Of the leaders the one that surely answers in the least time; None where that is not certain."""
        quickest = self.quickest
        others = [family for family in self.leaders if family is not quickest]
        return quickest if quickest and all(faster(quickest, other) for other in others) else None

    @property
    def size(self) -> str | None:
        """What tells how large the leaders are: their parameters, or the bytes of their weights; None if neither."""
        known = (key for key in ("parameters", "weights") if all(family.get(key) for family in self.leaders))
        return next(known, None)

    @property
    def smallest(self) -> Family | None:
        """The smallest of the leaders; None where they were made to have the same size, or it is not known."""
        size = self.size
        if size is None or not self.leaders:
            return None
        least = min(self.leaders, key=lambda family: family[size])
        largest = max(family[size] for family in self.leaders)
        return least if len(self.leaders) == 1 or largest > SAME_SIZE * least[size] else None

    # A larger budget

    def gap(self, family: Family) -> float:
        """By how much a family is behind the best, on the scale of the metric."""
        place = partial(on_scale, self.metric["key"])
        return 0.0 if self.best is None else abs(place(family["mean"]) - place(self.best["mean"]))

    def gain(self, family: Family) -> float | None:
        """How much a family gained in the last doubling of its training, on that scale; None where no curve tells.

        What got worse before its end would gain nothing by more of the same.
        """
        if self.decline(family) is not None:
            return 0.0
        place = partial(on_scale, self.metric["key"])
        return still_improving(family.get("curves") or (), self.metric["lower_is_better"], place)

    def decline(self, family: Family) -> Decline | None:
        """How a family's validation got worse after its best point, where that is beyond noise and worth a word."""
        key = self.metric["key"]
        found = decline(family.get("curves") or (), self.metric["lower_is_better"], partial(on_scale, key))
        return found if found is not None and noticeable(key, found.fall, family["mean"]) else None

    @property
    def challengers(self) -> tuple[Family, ...]:
        """Who would overtake the best if both went on as they did in their last doubling, as far as there is room."""
        key = self.metric["key"]
        end = bounds(key)[0 if self.metric["lower_is_better"] else 1]

        def ahead(family: Family) -> float:
            return min(self.gain(family) or 0.0, abs(on_scale(key, end) - on_scale(key, family["mean"])))

        lead = 0.0 if self.best is None else ahead(self.best)
        # A hair more than the gap: where both reach what is possible, nobody is ahead.
        return tuple(family for family in self.ranked[1:] if ahead(family) - lead > self.gap(family) * (1 + 1e-9))


def faster(family: Family, other: Family, times: float = FASTER) -> bool:
    """Whether a family surely answers so many times as fast: even its slowest round beats the fastest of the other.

    A single round tells nothing of how much they vary.
    """
    mine, theirs = family.get("answers") or (), other.get("answers") or ()
    if min(len(mine), len(theirs)) < 2:
        return False
    return max(mine) < min(theirs) and times * family["answer"] <= other["answer"]


def interval_of(family: Family) -> tuple[float, float, Literal["seeds", "examples"]] | None:
    """The interval of a family's mean and what it is over: the seeds, or with a single one the examples."""
    if family.get("low") is not None and family.get("high") is not None:
        return family["low"], family["high"], "seeds"
    sampling = family.get("sampling") or {}
    if sampling.get("low") is None or sampling.get("high") is None:
        return None
    return sampling["low"], sampling["high"], "examples"


def spread(family: Family) -> float | None:
    """Half of the interval of a family's mean."""
    found = interval_of(family)
    return None if found is None else (found[1] - found[0]) / 2


def _has_mean(family: Family) -> bool:
    return family["status"] != "failed" and family["mean"] is not None and math.isfinite(family["mean"])
