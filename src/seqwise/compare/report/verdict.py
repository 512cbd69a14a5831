"""The verdict: the result of a comparison in a few sentences that need no knowledge of statistics.

It reads the report and nothing else. `statistics/ranking.py` decides who is best, `formatting.py` how numbers look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from seqwise.compare.report.formatting import (
    DASH,
    difference_precision,
    format_bytes,
    format_count,
    format_difference,
    format_gain,
    format_gaps,
    format_interval,
    format_metric,
    format_p,
    format_ratio,
    format_seconds,
    is_noticeable,
    is_perplexity,
    join_names,
)
from seqwise.compare.report.schema import Family, Pair, Report, Verdict
from seqwise.compare.statistics.ranking import Ranking, is_faster
from seqwise.compare.statistics.scales import GapSize
from seqwise.compare.statistics.significance import CONFIDENCE

MAX_SENTENCES = 6  # results, failures and caveats are always included
MIN_TEST_EXAMPLES = 100  # below, only large differences can be told from chance
MAX_NAMES = 4  # of families in one clause
MUCH_FASTER = 2.0  # ratio of latencies from which a worse family is recommended for speed


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
        smallest_text=None if smallest is None else _format_size(ranking, smallest),
    )
    pairs = tuple(replace(pair, outcome=ranking.get_outcome(pair)) for pair in report.pairs)
    families = tuple(replace(family, rank=ranking.get_rank(family)) for family in report.families)
    return replace(report, families=families, pairs=pairs, verdict=verdict)


def _write_sentences(report: Report, ranking: Ranking) -> list[str]:
    """Returns the sentences in reading order; beyond MAX_SENTENCES the highest numbers are dropped first."""
    if ranking.best is None:
        return ["No family finished, so there is nothing to compare.", *_describe_failures(ranking)]
    candidates = [
        (0, [_describe_best(ranking, ranking.best)]),
        (0, _describe_ties(ranking)),
        (0, _describe_unsure(ranking)),
        (0, _describe_worse(ranking)),
        (0, _compare_with_baseline(ranking, ranking.best)),
        (2, _compare_with_ngrams(ranking)),
        (3, _recommend_fast(ranking, ranking.best)),
        (4, _recommend_small(ranking)),
        (0, _list_caveats(report, ranking)),
        (0, _describe_failures(ranking)),
        (1, _describe_overfitting(ranking)),
        (1, _judge_larger_budget(ranking, ranking.best)),
    ]
    ordered = [(priority, sentence) for priority, sentences in candidates for sentence in sentences]
    limit = max(MAX_SENTENCES, sum(priority == 0 for priority, _ in ordered))
    included = sorted(range(len(ordered)), key=lambda index: ordered[index][0])[:limit]
    return [ordered[index][1] for index in sorted(included)]


def _describe_best(ranking: Ranking, best: Family) -> str:
    """The best family and its metric; whether it is best for certain."""
    metric = ranking.metric
    number = _format_mean(ranking, best) + _format_interval(ranking, best)
    value = f"{metric.name} {number}"
    if len(ranking.ranked) == 1 and ranking.failed:
        return f"{best.name} is the only family that finished: {value}."
    if len(ranking.ranked) == 1:
        return f"{best.name} reached {value}; no other family was tried."
    if ranking.tied or ranking.unsure:
        prefix = "" if ranking.behind else "There is no clear winner: "
        return f"{prefix}{best.name} has the best {metric.name}, {number}."
    return f"{best.name} is best: {value}."


def _describe_ties(ranking: Ranking) -> Iterator[str]:
    """The families that are close to the best, and what would separate them."""
    for _, group in _group(ranking, ranking.tied):
        more = _suggest_more(ranking, group)
        advice = f": {more} needed to tell them apart" if more and not ranking.behind else ""
        names, numbers = _join_with_means(ranking, group), _format_numbers(ranking, group)
        yield f"{names} {_be(group)} tied with it ({numbers}){advice}."


def _describe_unsure(ranking: Ranking) -> Iterator[str]:
    """The families that are behind, but not certainly: by how much, and what would make it certain."""
    for size, group in _group(ranking, ranking.unsure):
        names, gaps, p = _join_with_means(ranking, group), _format_gaps(ranking, group), _format_p(ranking, group)
        more = _suggest_more(ranking, group)
        advice = f"; {more} needed to be certain" if more else ""
        if size == "far":
            numbers = f"({gaps}){advice} ({p})" if advice else f"({gaps}, {p})"
            yield f"{names} {_be(group)} far behind {numbers}."
        elif _is_probable(ranking, group[0]):
            yield f"{names} {_be(group)} probably worse ({gaps}, {p}){advice}."
        else:
            yield f"{names} {_be(group)} behind ({gaps}), but that may be chance ({p}){advice}."


def _describe_worse(ranking: Ranking) -> Iterator[str]:
    """The families that are certainly worse, in one sentence, by how far they are behind."""
    words = {"close": "slightly but certainly worse", "moderate": "worse", "far": "far behind"}
    groups = [
        f"{_join_with_means(ranking, group)} {_be(group)} {words[size]} ({_format_numbers(ranking, group)})"
        for size, group in _group(ranking, ranking.worse)
    ]
    if groups:
        yield "; ".join(groups) + "."


def _group(ranking: Ranking, families: tuple[Family, ...]) -> Iterator[tuple[GapSize, tuple[Family, ...]]]:
    """Yields neighbours whose gap to the best has the same size and is as certain."""

    def key(family: Family) -> tuple[GapSize, bool, bool]:
        is_decided = _is_decided_by_adjustment(ranking.get_pair(family))
        return ranking.get_gap_size(family), is_decided, _is_probable(ranking, family)

    for (size, _, _), group in groupby(families, key):
        yield size, tuple(group)


def _is_probable(ranking: Ranking, family: Family) -> bool:
    pair = ranking.get_pair(family)
    return pair is not None and ranking.get_outcome(pair) == "probable"


def _is_decided_by_adjustment(pair: Pair | None) -> bool:
    """Returns whether a difference would be significant if no other pair were tested."""
    return pair is not None and pair.p is not None and pair.p < 1 - CONFIDENCE <= (pair.adjusted_p or 0.0)


def _format_numbers(ranking: Ranking, group: tuple[Family, ...]) -> str:
    """ "+6.7 %, p = 0.012"."""
    return f"{_format_gaps(ranking, group)}, {_format_p(ranking, group)}"


def _format_gaps(ranking: Ranking, group: tuple[Family, ...]) -> str:
    values = [family.mean or 0.0 for family in group]
    return format_gaps(ranking.metric.key, values, ranking.best.mean or 0.0 if ranking.best else 0.0)


def _format_p(ranking: Ranking, group: tuple[Family, ...]) -> str:
    """The largest adjusted p of a group; where the adjustment decides, also the p before."""
    pairs = [pair for family in group if (pair := ranking.get_pair(family)) is not None and pair.p is not None]
    if len(pairs) < len(group):
        return "not tested"
    raw, adjusted = (max(getattr(pair, key) or 0.0 for pair in pairs) for key in ("p", "adjusted_p"))
    sign = "=" if len(group) == 1 else "≤"
    text = format_p(adjusted).replace("=", sign)
    if _is_decided_by_adjustment(pairs[0]):
        before, after = (format_p(p).replace("=", sign) for p in (raw, adjusted))
        text = f"{before}, but {after.removeprefix('p ').removeprefix('= ')} adjusted for {ranking.num_tests} pairs"
    return text + (", by the test examples alone" if all(pair.covers == "examples" for pair in pairs) else "")


def _be(group: tuple[Family, ...]) -> str:
    return "is" if len(group) == 1 else "are"


def _suggest_more(ranking: Ranking, families: tuple[Family, ...]) -> str | None:
    """What would separate these families from the best, by most of their pairs; None where a pair was not tested."""
    pairs = [ranking.get_pair(family) for family in families]
    sources = [pair.larger_noise for pair in pairs if pair is not None]
    if len(sources) < len(pairs):
        return None
    return "more seeds are" if sources.count("seeds") * 2 > len(sources) else "a larger test split is"


def _compare_with_baseline(ranking: Ranking, best: Family) -> Iterator[str]:
    """A warning where the best family is not clearly better than a baseline."""
    baseline = ranking.best_baseline
    if baseline is None or baseline.value is None or best.mean is None:
        return
    lower = ranking.metric.lower_is_better
    is_ahead = best.mean < baseline.value if lower else best.mean > baseline.value
    low, high, _ = best.interval or (best.mean, best.mean, "")
    is_within_interval = baseline.value <= high if lower else baseline.value >= low
    if not is_ahead or is_within_interval:
        value = format_metric(ranking.metric.key, baseline.value, best.half_width)
        result = f"{best.name} is hardly better" if is_ahead else "No family is better"
        advice = "the budget may be too small, or there may be little more to learn"
        yield f"{result} than a baseline, the {baseline.name} ({value}): {advice}."


def _describe_overfitting(ranking: Ranking) -> Iterator[str]:
    """The families that got worse after their best point, and what helps against it."""
    checks = {family.name: ranking.find_overfitting(family) for family in ranking.ranked}
    cases = {
        True: ("overfits", "overfit", "more data or dropout would help, not more time"),
        False: ("became unstable", "became unstable", "a lower learning rate would help, not more time"),
        None: ("", "", "more time would not help"),
    }
    for training_improved, (singular, plural, advice) in cases.items():
        shares = {
            name: f"{check.best_share:.0%}".replace("%", " %")
            for name, check in checks.items()
            if check is not None and check.training_improved is training_improved
        }
        if shares:
            is_one = len(shares) == 1
            verb, its, cause = ("was", "its", f"it {singular}; ") if is_one else ("were", "their", f"they {plural}; ")
            best = f"{join_names(list(shares))} {verb} best after {join_names(list(shares.values()))} of {its} training"
            yield f"{best} and got worse after that: {cause if singular else ''}{advice}."


def _compare_with_ngrams(ranking: Ranking) -> Iterator[str]:
    """A sentence if no network beats an n-gram model."""
    baselines = [family for family in ranking.leaders if family.is_baseline]
    ranks = {ranking.get_rank(family) for family in ranking.ranked if not family.is_baseline}
    if baselines and ranks:
        no_network = "no network is as good as that"
        if ranks & {"best", "tied"}:
            no_network = "no network is certainly better than that"
        elif "unsure" in ranks:
            no_network = "probably no network is as good as that"
        cause = "either the data or the budget is too small for them, or there is little to learn beyond such counts"
        yield f"{baselines[0].name} only counts n-grams, and {no_network}: {cause}."


def _recommend_fast(ranking: Ranking, best: Family) -> Iterator[str]:
    """The fastest family among the best, and a much faster one that is worse."""
    fastest, lowest = ranking.fastest, ranking.lowest_latency
    if lowest is None:
        return
    if fastest is not None and fastest is not best:
        yield f"Of the best, {fastest.name} is fastest: {_format_speed(fastest, best)}."
    timed_leaders = [leader for leader in ranking.leaders if leader.latency]
    fast = [
        family for family in ranking.behind if all(is_faster(family, leader, MUCH_FASTER) for leader in timed_leaders)
    ]
    if fast:
        quality = f"{ranking.metric.name} {_format_mean(ranking, fast[0])}"
        yield f"Where speed matters more, {fast[0].name} has {quality} and needs {_format_speed(fast[0], lowest)}."


def _recommend_small(ranking: Ranking) -> Iterator[str]:
    """The smallest of the best, unless sizes were matched."""
    smallest = ranking.smallest
    if len(ranking.leaders) > 1 and smallest is not None:
        yield f"{smallest.name} is the smallest of the best: {_format_size(ranking, smallest)}."


def _list_caveats(report: Report, ranking: Ranking) -> Iterator[str]:
    """What limits the conclusions: few seeds, few test examples."""
    trained = [family for family in ranking.ranked if not family.is_baseline]
    num_seeds = len(report.rules.seeds)
    if trained and num_seeds == 1:
        subject = "Each family was trained" if len(trained) > 1 else f"{trained[0].name} was trained"
        yield f"{subject} only once, so these numbers do not show the variation between seeds: try --seeds 3."
    elif trained and num_seeds == 2:
        yield "Two seeds show little of the variation between seeds: try --seeds 3 or more."
    count, unit = report.metric.num_examples, report.metric.example_unit or "examples"
    if count == 1:
        yield f"The test split is a single example, counted in {unit}: no difference can be tested on it."
    elif count is not None and count < MIN_TEST_EXAMPLES:
        yield f"The test split has only {count} {unit}: only large differences can be told from chance."


def _describe_failures(ranking: Ranking) -> Iterator[str]:
    """The families that failed, completely or for some seeds, and why."""
    failed: dict[str, list[str]] = {}  # reason → families
    others = []
    for family in (*ranking.failed, *ranking.ranked):
        reason = _shorten_reason(family)
        if family.status == "failed":
            failed.setdefault(reason, []).append(family.name)
        elif family in ranking.failed:
            others.append(f"{family.name} cannot be ranked{reason}")
        elif family.status == "partly":
            count = len(family.values)
            runs = "only training run" if count == 1 else f"{count} training runs"
            others.append(f"{family.name} is judged by the {runs} that finished, as others failed{reason}")
    parts = [*(f"{join_names(names)} failed{reason}" for reason, names in failed.items()), *others]
    if parts:
        yield "; ".join(parts) + "."


def _judge_larger_budget(ranking: Ranking, best: Family) -> Iterator[str]:
    """Whether a larger budget would change the order, by the last doubling of every curve."""
    metric, mean = ranking.metric.key, best.mean or 0.0
    gains = {family.name: ranking.compute_gain(family) for family in ranking.ranked}
    known_gains = {name: gain for name, gain in gains.items() if gain is not None}
    if not known_gains:
        return
    texts = {name: format_gain(metric, gain) for name, gain in known_gains.items()}
    improving = {name for name, gain in known_gains.items() if is_noticeable(metric, gain, mean)}
    overtaking = [family for family in ranking.challengers if family.name in improving]
    if overtaking:
        first, *others = overtaking
        gain_of_best = f" ({best.name}: {texts[best.name]})" if best.name in known_gains else ""
        also = f"; the same holds for {join_names([family.name for family in others])}" if others else ""
        gap = ranking.compute_gap(first)
        gap_text = format_gain(metric, gap) if is_perplexity(metric) else _format_gap(ranking, first)
        enough = f"close its gap of {gap_text}" if is_noticeable(metric, gap, mean) else "get ahead"
        gain = f"{first.name} was still improving by {texts[first.name]} per doubling of the budget{gain_of_best}"
        yield f"What would change this: {gain}, enough to {enough}{also}. Try a larger budget."
    elif improving:
        name = max(known_gains, key=lambda name: known_gains[name])
        end = "; doubling it again would probably not change the order" if len(ranking.ranked) > 1 else ""
        gain = f"{name} gained {texts[name]} in the last doubling"
        yield f"A larger budget would still make better models: {gain}{end}."
    else:
        curves = "The curve has" if len(known_gains) == 1 else "The curves have"
        yield f"{curves} flattened: a larger budget is unlikely to change this."


# Parts of sentences


def _format_mean(ranking: Ranking, family: Family) -> str:
    return format_metric(ranking.metric.key, family.mean, family.half_width)


def _join_with_means(ranking: Ranking, families: tuple[Family, ...]) -> str:
    """The names with their means; of many families the first."""
    names = [f"{family.name} ({_format_mean(ranking, family)})" for family in families]
    if len(names) > MAX_NAMES:
        names[MAX_NAMES - 1 :] = [f"{len(names) - MAX_NAMES + 1} others"]
    return join_names(names)


def _format_interval(ranking: Ranking, family: Family) -> str:
    """The interval in brackets, with its source where that is not the seeds; empty if there is none."""
    interval = family.interval
    if interval is None:
        return ""
    low, high, source = interval
    ends = format_interval(ranking.metric.key, low, high)
    if source == "seeds":
        return f" (all {len(family.values)} seeds alike)" if ends == DASH else f" (95 % interval {ends})"
    return "" if ends == DASH else f" (95 % interval over the test examples {ends})"


def _format_gap(ranking: Ranking, family: Family) -> str:
    """The difference to the best family, with as many digits as in the list of pairs."""
    pair, best = ranking.get_pair(family), ranking.best
    if pair is not None and pair.difference is not None:
        gap = abs(pair.difference)
    else:
        gap = abs((family.mean or 0.0) - (best.mean or 0.0 if best else 0.0))
    half = pair.half_width if pair is not None and pair.half_width is not None else family.half_width
    return format_difference(ranking.metric.key, gap, difference_precision(gap, half))


def _format_size(ranking: Ranking, family: Family) -> str:
    """The parameters or the bytes of the weights, whichever is known of all leaders."""
    if ranking.size_key == "parameters":
        return f"{format_count(family.parameters)} parameters"
    return f"{format_bytes(family.weights)} of weights"


def _format_speed(family: Family, other: Family) -> str:
    """ "0.50 ms per prediction, 4.2 times as fast as gru"."""
    ratio = format_ratio((other.latency or 0.0) / (family.latency or 1.0))
    return f"{format_seconds(family.latency)} per prediction, {ratio} times as fast as {other.name}"


def _shorten_reason(family: Family) -> str:
    """The first line of the reason of a failure in brackets, at most 120 characters; empty without a reason."""
    first = family.reason.strip().partition("\n")[0].strip().rstrip(".")
    first = first if len(first) <= 120 else first[:117].rstrip() + "…"
    return f" ({first})" if first else ""
