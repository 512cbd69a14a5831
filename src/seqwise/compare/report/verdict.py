"""The verdict: the result of a comparison in a few sentences that need no knowledge of statistics.

It reads the report and nothing else. `statistics/ranking.py` decides who is best, `formatting.py` how numbers look.
This module writes the sentences about the order of the families, `advice.py` the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from seqwise.compare.report.advice import (
    compare_with_baseline,
    compare_with_ngrams,
    describe_divergence,
    describe_failures,
    describe_overfitting,
    judge_larger_budget,
    list_caveats,
    name_cheapest,
    recommend_fast,
    recommend_small,
)
from seqwise.compare.report.formatting import format_gaps, format_p, format_seconds
from seqwise.compare.report.phrases import (
    format_mean,
    format_mean_interval,
    format_size,
    join_family_names,
    join_with_means,
)
from seqwise.compare.report.schema import Family, Pair, Report, Verdict
from seqwise.compare.statistics.ranking import Ranking
from seqwise.compare.statistics.scales import GapSize
from seqwise.compare.statistics.significance import CONFIDENCE

MAX_SENTENCES = 6  # results, failures and caveats are always included


def add_verdict(report: Report) -> Report:
    """Returns the report with ranks of families, outcomes of pairs, and the verdict."""
    ranking = Ranking(report)
    best, fastest, smallest = ranking.best, ranking.fastest, ranking.smallest
    verdict = Verdict(
        best=None if best is None else best.name,
        tied=tuple(family.name for family in ranking.tied),
        unsure=tuple(family.name for family in ranking.unsure),
        fastest=None if fastest is None else fastest.name,
        smallest=None if smallest is None else smallest.name,
        sentences=tuple(_write_sentences(report, ranking)),
        fastest_text=None if fastest is None else format_seconds(fastest.latency),
        smallest_text=None if smallest is None else format_size(ranking, smallest),
        equal=tuple(family.name for family in ranking.equal),
        solved=ranking.is_solved,
    )
    pairs = tuple(replace(pair, outcome=ranking.get_significance(pair)) for pair in report.pairs)
    families = tuple(replace(family, rank=ranking.get_rank(family)) for family in report.families)
    return replace(report, families=families, pairs=pairs, verdict=verdict)


def _write_sentences(report: Report, ranking: Ranking) -> list[str]:
    """Returns the sentences in reading order: all of priority 0, then others by priority up to MAX_SENTENCES."""
    if ranking.best is None:
        return ["No family finished, so there is nothing to compare.", *describe_failures(ranking)]
    candidates = [
        (0, [_describe_best(ranking, ranking.best)]),
        (0, _describe_ties(ranking)),
        (0, name_cheapest(ranking)),
        (0, _describe_unsure(ranking)),
        (0, _describe_worse(ranking)),
        (0, describe_divergence(ranking)),
        (0, compare_with_baseline(ranking, ranking.best)),
        (2, compare_with_ngrams(ranking)),
        (3, recommend_fast(ranking, ranking.best)),
        (4, recommend_small(ranking)),
        (0, list_caveats(report, ranking)),
        (0, describe_failures(ranking)),
        (1, describe_overfitting(ranking)),
        (1, judge_larger_budget(ranking, ranking.best)),
    ]
    ordered = [(priority, sentence) for priority, sentences in candidates for sentence in sentences]
    limit = max(MAX_SENTENCES, sum(priority == 0 for priority, _ in ordered))
    included = sorted(range(len(ordered)), key=lambda index: ordered[index][0])[:limit]
    return [ordered[index][1] for index in sorted(included)]


def _describe_best(ranking: Ranking, best: Family) -> str:
    """Returns the best family and its metric; whether it is best for certain."""
    if ranking.equal:
        return _describe_equal(ranking, best)
    metric = ranking.metric
    number = format_mean(ranking, best) + format_mean_interval(ranking, best)
    value = f"{metric.name} {number}"
    if len(ranking.ranked) == 1 and ranking.failed:
        return f"{best.name} is the only family that finished: {value}."
    if len(ranking.ranked) == 1:
        return f"{best.name} reached {value}; no other family was tried."
    if ranking.tied or ranking.unsure:
        prefix = "" if ranking.behind else "There is no clear winner: "
        return f"{prefix}{best.name} has the best {metric.name}, {number}."
    return f"{best.name} is best: {value}."


def _describe_equal(ranking: Ranking, best: Family) -> str:
    """Returns which families have exactly the mean of the best, and what could separate them."""
    group = (best, *ranking.equal)
    names = join_family_names(group)
    if len(group) == len(ranking.ranked) > 2:
        names = f"All {len(group)} families"
    number, metric = format_mean(ranking, best), ranking.metric.name
    if ranking.is_solved:
        seeds = " with every seed" if len(best.values) > 1 else ""
        result = f"{names} solve this task: {metric} {number}{seeds}, the best possible result"
        return f"{result}. Only a harder or larger {ranking.metric.split} set can tell them apart."
    number += format_mean_interval(ranking, best)
    if len(best.values) > 1 and all(family.values == best.values for family in ranking.equal):
        result = f"{names} are identical on this {ranking.metric.split} split: {metric} {number}, equal for every seed"
        return f"{result}. Only a larger or harder {ranking.metric.split} set can tell them apart."
    more = _suggest_more(ranking, ranking.equal)
    advice = f": {more} needed to tell them apart" if more else ""
    return f"{names} have exactly the same {metric} on this {ranking.metric.split} split, {number}{advice}."


def _describe_ties(ranking: Ranking) -> Iterator[str]:
    """Yields the families that are close to the best, and what would separate them."""
    others = tuple(family for family in ranking.tied if family not in ranking.equal)
    pronoun = "them" if ranking.equal else "it"
    for _, group in _group_by_gap(ranking, others):
        more = _suggest_more(ranking, group)
        advice = f": {more} needed to tell them apart" if more and not ranking.behind else ""
        names, numbers = join_with_means(ranking, group), _format_numbers(ranking, group)
        yield f"{names} {_choose_verb(group)} tied with {pronoun} ({numbers}){advice}."


def _describe_unsure(ranking: Ranking) -> Iterator[str]:
    """Yields the families that are behind, but not certainly: by how much, and what would make it certain."""
    for size, group in _group_by_gap(ranking, ranking.unsure):
        names, gaps, p = join_with_means(ranking, group), _format_gaps(ranking, group), _format_p(ranking, group)
        more = _suggest_more(ranking, group)
        advice = f"; {more} needed to be certain" if more else ""
        if size == "far":
            numbers = f"({gaps}){advice} ({p})" if advice else f"({gaps}, {p})"
            yield f"{names} {_choose_verb(group)} far behind {numbers}."
        elif _is_probable(ranking, group[0]):
            yield f"{names} {_choose_verb(group)} probably worse ({gaps}, {p}){advice}."
        else:
            yield f"{names} {_choose_verb(group)} behind ({gaps}), but that may be chance ({p}){advice}."


def _describe_worse(ranking: Ranking) -> Iterator[str]:
    """Yields the families that are certainly worse, in one sentence, by how far they are behind."""
    words = {"close": "slightly but certainly worse", "moderate": "worse", "far": "far behind"}
    groups = [
        f"{join_with_means(ranking, group)} {_choose_verb(group)} {words[size]} ({_format_numbers(ranking, group)})"
        for size, group in _group_by_gap(ranking, ranking.worse)
    ]
    if groups:
        yield "; ".join(groups) + "."


def _group_by_gap(ranking: Ranking, families: tuple[Family, ...]) -> Iterator[tuple[GapSize, tuple[Family, ...]]]:
    """Yields neighbours whose gap to the best has the same size and is as certain.

    Families of which some seeds diverged are left out: `describe_divergence` has a sentence about each.
    """
    families = tuple(family for family in families if family not in ranking.diverged)

    def key(family: Family) -> tuple[GapSize, bool, bool]:
        loses_significance = _loses_significance(ranking.get_pair(family))
        return ranking.get_gap_size(family), loses_significance, _is_probable(ranking, family)

    for (size, _, _), group in groupby(families, key):
        yield size, tuple(group)


def _is_probable(ranking: Ranking, family: Family) -> bool:
    pair = ranking.get_pair(family)
    return pair is not None and ranking.get_significance(pair) == "probable"


def _loses_significance(pair: Pair | None) -> bool:
    """Returns whether a difference is significant by itself, but not adjusted for the number of pairs."""
    return pair is not None and pair.p is not None and pair.p < 1 - CONFIDENCE <= (pair.adjusted_p or 0.0)


def _format_numbers(ranking: Ranking, group: tuple[Family, ...]) -> str:
    """Returns "+6.7 %, p = 0.012"."""
    return f"{_format_gaps(ranking, group)}, {_format_p(ranking, group)}"


def _format_gaps(ranking: Ranking, group: tuple[Family, ...]) -> str:
    values = [family.mean or 0.0 for family in group]
    return format_gaps(ranking.metric.key, values, ranking.best.mean or 0.0 if ranking.best else 0.0)


def _format_p(ranking: Ranking, group: tuple[Family, ...]) -> str:
    """Returns the adjusted p of a group, as a limit if they are several; also the p before, if adjustment decides."""
    pairs = [pair for family in group if (pair := ranking.get_pair(family)) is not None and pair.p is not None]
    if len(pairs) < len(group):
        return "not tested"
    before, adjusted = ([getattr(pair, key) or 0.0 for pair in pairs] for key in ("p", "adjusted_p"))
    text = _limit_p(adjusted)
    if _loses_significance(pairs[0]):
        after = text.removeprefix("p ").removeprefix("= ")
        text = f"{_limit_p(before)}, but {after} adjusted for {ranking.num_tests} pairs"
    return text + (
        f", by the {ranking.metric.split} examples alone" if all(pair.covers == "examples" for pair in pairs) else ""
    )


def _limit_p(values: list[float]) -> str:
    """Returns "p = 0.012" of one value, "p ≤ 0.012" of several small ones, otherwise "p ≥ 0.4"."""
    are_small = max(values) < 1 - CONFIDENCE
    sign = "=" if len(values) == 1 else "≤" if are_small else "≥"
    return format_p(max(values) if are_small else min(values)).replace("=", sign)


def _choose_verb(group: tuple[Family, ...]) -> str:
    return "is" if len(group) == 1 else "are"


def _suggest_more(ranking: Ranking, families: tuple[Family, ...]) -> str | None:
    """Returns what would separate families from the best, by most of their pairs; None where one was not tested."""
    pairs = [ranking.get_pair(family) for family in families]
    sources = [pair.larger_noise for pair in pairs if pair is not None]
    if len(sources) < len(pairs):
        return None
    return (
        "more seeds are" if sources.count("seeds") * 2 > len(sources) else f"a larger {ranking.metric.split} split is"
    )
