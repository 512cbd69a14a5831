"""What a verdict says besides the order: baselines, costs, limits, failures, and what a larger budget would do.

Each function yields the sentences of one topic; `verdict.py` selects among them.
"""

from __future__ import annotations

from collections.abc import Iterator

from seqwise.compare.report.formatting import (
    DASH,
    format_gain,
    format_interval,
    format_metric,
    is_noticeable,
    join_names,
)
from seqwise.compare.report.phrases import format_mean, format_size, format_speed, shorten_reason
from seqwise.compare.report.schema import Family, Report
from seqwise.compare.statistics.ranking import Ranking, is_faster
from seqwise.compare.statistics.scales import is_optimal

MIN_TEST_EXAMPLES = 100  # below, only large differences can be told from chance
MUCH_FASTER = 2.0  # ratio of latencies from which a worse family is recommended for speed


def compare_with_baseline(ranking: Ranking, best: Family) -> Iterator[str]:
    """Yields a warning where the best family is not clearly better than a baseline."""
    baseline = ranking.best_baseline
    if baseline is None or baseline.value is None or best.mean is None:
        return
    value = format_metric(ranking.metric.key, baseline.value, best.half_width)
    if ranking.is_solved and is_optimal(ranking.metric.key, baseline.value):
        yield f"A baseline, the {baseline.name}, solves it as well ({value}): it does not need a sequence model."
        return
    lower = ranking.metric.lower_is_better
    is_ahead = best.mean < baseline.value if lower else best.mean > baseline.value
    low, high, _ = best.interval or (best.mean, best.mean, "")
    is_within_interval = baseline.value <= high if lower else baseline.value >= low
    if not is_ahead or is_within_interval:
        result = f"{best.name} is hardly better" if is_ahead else "No family is better"
        if ranking.has_better_seed(baseline.value):  # what is missing is not a larger budget
            yield f"{result} on average than a baseline, the {baseline.name} ({value})."
        else:
            advice = "the budget may be too small, or there may be little more to learn"
            yield f"{result} than a baseline, the {baseline.name} ({value}): {advice}."


def describe_divergence(ranking: Ranking) -> Iterator[str]:
    """Yields the families of which some seeds diverged, and what the other seeds have."""
    key, name = ranking.metric.key, ranking.metric.name
    for family in ranking.diverged:
        diverged = ranking.find_diverged_seeds(family)
        seeds = ("seed " if len(diverged) == 1 else "seeds ") + join_names([str(each.seed) for each in diverged])
        values = join_names([format_metric(key, each.value) for each in diverged])
        others = [each.value for each in family.values if each.value is not None and each not in diverged]
        interval = format_interval(key, min(others), max(others))
        result = format_metric(key, others[0]) if interval == DASH else interval
        others_have = "other seed has" if len(others) == 1 else f"other {len(others)} seeds have"
        yield (
            f"{family.name} diverged with {seeds} ({name} {values}, worse than every baseline), so its mean says "
            f"little: its {others_have} {result}. A lower learning rate may help."
        )


def describe_overfitting(ranking: Ranking) -> Iterator[str]:
    """Yields the families that got worse after their best point, and what helps against it."""
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


def compare_with_ngrams(ranking: Ranking) -> Iterator[str]:
    """Yields a sentence if no network beats an n-gram model."""
    baselines = [family for family in ranking.leaders if family.is_baseline]
    ranks = {ranking.get_rank(family) for family in ranking.ranked if not family.is_baseline}
    if baselines and ranks and not ranking.has_better_seed(baselines[0].mean or 0.0):
        no_network = "no network is as good as that"
        if ranks & {"best", "tied"}:
            no_network = "no network is certainly better than that"
        elif "unsure" in ranks:
            no_network = "probably no network is as good as that"
        cause = "either the data or the budget is too small for them, or there is little to learn beyond such counts"
        yield f"{baselines[0].name} only counts n-grams, and {no_network}: {cause}."


def name_cheapest(ranking: Ranking) -> Iterator[str]:
    """Yields which of the best costs least, where some of them are exactly equal."""
    fastest, smallest = ranking.fastest, ranking.smallest
    if not ranking.equal:
        return
    if fastest is not None:
        others = [family for family in ranking.recommendable if family is not fastest]
        next_fastest = min(others, key=lambda family: family.latency or 0.0)
        yield f"The cheapest of them is {fastest.name}: {format_speed(fastest, next_fastest)}."
    elif smallest is not None:
        yield f"The cheapest of them is {smallest.name}, the smallest: {format_size(ranking, smallest)}."
    else:
        yield "None of them is clearly cheaper: neither their latencies nor their sizes differ clearly."


def recommend_fast(ranking: Ranking, best: Family) -> Iterator[str]:
    """Yields the fastest family among the best, and a much faster one that is worse."""
    fastest, lowest = ranking.fastest, ranking.lowest_latency_leader
    if lowest is None:
        return
    if fastest is not None and fastest is not best and not ranking.equal:
        yield f"Of the best, {fastest.name} is fastest: {format_speed(fastest, best)}."
    timed_leaders = [leader for leader in ranking.recommendable if leader.latency]
    fast = [
        family
        for family in ranking.behind
        if family not in ranking.diverged and all(is_faster(family, leader, MUCH_FASTER) for leader in timed_leaders)
    ]
    if fast:
        quality = f"{ranking.metric.name} {format_mean(ranking, fast[0])}"
        yield f"Where speed matters more, {fast[0].name} has {quality} and needs {format_speed(fast[0], lowest)}."


def recommend_small(ranking: Ranking) -> Iterator[str]:
    """Yields the smallest of the best, unless sizes were matched."""
    smallest = ranking.smallest
    if len(ranking.leaders) > 1 and smallest is not None and not ranking.equal:
        yield f"{smallest.name} is the smallest of the best: {format_size(ranking, smallest)}."


def list_caveats(report: Report, ranking: Ranking) -> Iterator[str]:
    """Yields what limits the conclusions: few seeds, few examples."""
    trained = [family for family in ranking.ranked if not family.is_baseline]
    num_seeds = len(report.rules.seeds)
    if trained and num_seeds == 1:
        subject = "Each family was trained" if len(trained) > 1 else f"{trained[0].name} was trained"
        yield f"{subject} only once, so these numbers do not show the variation between seeds: try --seeds 3."
    elif trained and num_seeds == 2:
        yield "Two seeds show little of the variation between seeds: try --seeds 3 or more."
    split = report.metric.split
    count, unit = report.metric.num_examples, report.metric.example_unit or "examples"
    if count == 1:
        yield f"The {split} split is a single example, counted in {unit}: no difference can be tested on it."
    elif count is not None and count < MIN_TEST_EXAMPLES:
        yield f"The {split} split has only {count} {unit}: only large differences can be told from chance."


def describe_failures(ranking: Ranking) -> Iterator[str]:
    """Yields the families that failed, completely or for some seeds, and why."""
    failed: dict[str, list[str]] = {}  # reason → families
    others = []
    for family in (*ranking.failed, *ranking.ranked):
        reason = shorten_reason(family)
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


def judge_larger_budget(ranking: Ranking, best: Family) -> Iterator[str]:
    """Yields whether a larger budget would change the order, by the last doubling of every curve.

    Nothing if some seeds of the best diverged: neither its mean nor its curves say what others would have to reach.
    """
    if best in ranking.diverged:
        return
    metric, mean = ranking.metric.key, best.mean or 0.0
    gains = {family.name: ranking.compute_gain(family) for family in ranking.ranked}
    known_gains = {name: gain for name, gain in gains.items() if gain is not None}
    if not known_gains or all(is_optimal(metric, family.mean) for family in ranking.ranked):
        return
    texts = {name: format_gain(metric, gain) for name, gain in known_gains.items()}
    improving = [
        family.name for family in ranking.ranked if is_noticeable(metric, ranking.compute_possible_gain(family), mean)
    ]
    overtaking = [family for family in ranking.challengers if family.name in improving]
    if overtaking:
        first, *others = overtaking
        gain_of_best = f" ({best.name}: {texts[best.name]})" if best.name in known_gains else ""
        also = f"; the same holds for {join_names([family.name for family in others])}" if others else ""
        enough = "close its gap" if is_noticeable(metric, ranking.compute_gap(first), mean) else "get ahead"
        gain = f"{first.name} was still improving by {texts[first.name]} per doubling of the budget{gain_of_best}"
        yield f"What would change this: {gain}, enough to {enough}{also}. Try a larger budget."
    elif improving:
        name = max(improving, key=lambda name: known_gains[name])
        end = "; doubling it again would probably not change the order" if len(ranking.ranked) > 1 else ""
        gain = f"{name} gained {texts[name]} in the last doubling"
        yield f"A larger budget would still make better models: {gain}{end}."
    else:
        curves = "The curve has" if len(known_gains) == 1 else "The curves have"
        yield f"{curves} flattened: a larger budget is unlikely to change this."
