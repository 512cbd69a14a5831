"""Parts of the sentences of a verdict: families with their numbers, sizes, speeds, reasons of failures."""

from __future__ import annotations

from seqwise.compare.report.formatting import (
    DASH,
    format_bytes,
    format_count,
    format_factor,
    format_interval,
    format_metric,
    format_seconds,
    join_names,
)
from seqwise.compare.report.schema import Family
from seqwise.compare.statistics.ranking import Ranking

MAX_NAMES = 4  # of families in one clause


def format_mean(ranking: Ranking, family: Family) -> str:
    return format_metric(ranking.metric.key, family.mean, family.half_width)


def join_with_means(ranking: Ranking, families: tuple[Family, ...]) -> str:
    """Returns the names with their means; of more than MAX_NAMES families the first three and the number of others."""
    return _join_first([f"{family.name} ({format_mean(ranking, family)})" for family in families])


def join_family_names(families: tuple[Family, ...]) -> str:
    """Returns the names; of more than MAX_NAMES families the first three and the number of others."""
    return _join_first([family.name for family in families])


def _join_first(names: list[str]) -> str:
    if len(names) > MAX_NAMES:
        names = [*names[: MAX_NAMES - 1], f"{len(names) - MAX_NAMES + 1} others"]
    return join_names(names)


def format_mean_interval(ranking: Ranking, family: Family) -> str:
    """Returns the interval in brackets, with its source where that is not the seeds; empty if there is none."""
    interval = family.interval
    if interval is None:
        return ""
    low, high, source = interval
    ends = format_interval(ranking.metric.key, low, high)
    if source == "seeds":  # a dash: both ends have the same text
        return f" (the same for all {len(family.values)} seeds)" if ends == DASH else f" (95 % interval {ends})"
    return "" if ends == DASH else f" (95 % interval over the {ranking.metric.split} examples {ends})"


def format_size(ranking: Ranking, family: Family) -> str:
    """Returns the number of parameters, or the bytes of the weights where those are what is compared."""
    if ranking.size_key == "parameters":
        return f"{format_count(family.parameters)} parameters"
    return f"{format_bytes(family.weights)} of weights"


def format_speed(family: Family, other: Family) -> str:
    """Returns "0.50 ms per prediction, 4.2 times as fast as gru"."""
    ratio = format_factor((other.latency or 0.0) / (family.latency or 1.0))
    return f"{format_seconds(family.latency)} per prediction, {ratio} times as fast as {other.name}"


def shorten_reason(family: Family) -> str:
    """Returns the first line of the reason of a failure in brackets, at most 120 characters; empty without a reason."""
    first = family.reason.strip().partition("\n")[0].strip().rstrip(".")
    first = first if len(first) <= 120 else first[:117].rstrip() + "…"
    return f" ({first})" if first else ""
