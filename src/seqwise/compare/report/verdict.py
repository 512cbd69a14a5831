"""The verdict: what a comparison found, in a few sentences that need no knowledge of statistics.

It reads the report and nothing else. Who is best is decided in `standing.py`, how numbers look in `numbers.py`.
"""

from __future__ import annotations

from typing import Any

from seqwise.compare.report.formatting import (
    NONE,
    digits_of_difference,
    is_perplexity,
    listed,
    noticeable,
    shown,
    shown_bytes,
    shown_count,
    shown_difference,
    shown_interval,
    shown_probability,
    shown_seconds,
    shown_step,
    shown_times,
)
from seqwise.compare.statistics.ranking import Family, Standing, faster, interval_of, spread

SENTENCES = 5  # more are not read; but what was found, what failed and what the numbers do not tell is always said
FEW = 100  # test examples: below, only large differences can be told from chance
NAMED = 4  # families that are surely worse: of more only the first are named
MUCH_FASTER = 2.0  # times: how much faster a worse family must answer to be named


def verdict(report: dict[str, Any]) -> dict[str, Any]:
    """Set each family's "rank" and each pair's "outcome" and "with_best", and return who is what, and the sentences.

    `tied` do not differ from the best; `unsure` probably do, but not certainly.

    `fastest` and `smallest` are of the best and those tied with it: what to use where time or memory is short. Nobody
    is `fastest` whose times overlap with those of another, and nobody `smallest` where sizes were matched.
    """
    standing = Standing.of(report)
    for family in report["families"]:
        family["rank"] = standing.ranks[family["name"]]
    for pair in report["pairs"]:
        pair |= {"with_best": standing.with_best(pair), "outcome": standing.outcome(pair)}
    best, fastest, smallest = standing.best, standing.fastest, standing.smallest
    return {
        "best": None if best is None else best["name"],
        "tied": [family["name"] for family in standing.tied],
        "unsure": [family["name"] for family in standing.unsure],
        "fastest": None if fastest is None else fastest["name"],
        "smallest": None if smallest is None else smallest["name"],
        "sentences": _sentences(report, standing),
        "shown": {
            "fastest": None if fastest is None else shown_seconds(fastest["answer"]),
            "smallest": None if smallest is None else _much(standing, smallest),
        },
    }


def _sentences(report: dict[str, Any], standing: Standing) -> list[str]:
    """In the order in which they are read; where there are too many, those with the largest number are left out."""
    if standing.best is None:
        return ["No family finished, so there is nothing to compare.", *_failures(standing)]
    found = [
        (0, [_result(standing)]),
        (0, _ties(standing)),
        (0, _doubts(standing)),
        (0, _yardstick(standing)),
        (2, _baseline(standing)),
        (3, _use(standing)),
        (4, _size(standing)),
        (0, _caveats(report, standing)),
        (0, _failures(standing)),
        (1, _declines(standing)),
        (1, _changes(standing)),
    ]
    ordered = [(weight, sentence) for weight, sentences in found for sentence in sentences]
    most = max(SENTENCES, sum(weight == 0 for weight, _ in ordered))
    kept = sorted(range(len(ordered)), key=lambda place: ordered[place][0])[:most]
    return [ordered[place][1] for place in sorted(kept)]


def _result(standing: Standing) -> str:
    """Who is best, how good that is, and by how much if that is certain."""
    best, metric = standing.best, standing.metric
    assert best is not None
    number = _value(standing, best) + _between(standing, best)
    value = f"{metric['name']} {number}"
    if len(standing.ranked) == 1:
        return f"{best['name']} is the only family that finished: {value}." if standing.failed else (
            f"{best['name']} reached {value}; no other family was tried."
        )  # fmt: skip
    if standing.tied:
        clear = "" if standing.behind else "There is no clear winner: "
        return f"{clear}{best['name']} has the best {metric['name']}, {number}."
    if standing.unsure:
        return f"{best['name']} is probably best: {value}{_others(standing)}."
    return f"{best['name']} is best: {value}, {_ahead(standing, standing.worse[0])}."


def _ties(standing: Standing) -> list[str]:
    """Who is as good, who is not, and what would tell them apart."""
    if not standing.tied:
        return []
    names = listed([f"{family['name']} ({_value(standing, family)})" for family in standing.tied])
    verb = "is" if len(standing.tied) == 1 else "are"
    more = None if standing.behind else _remedy(standing, standing.tied)
    apart = f": {more} would be needed to tell them apart" if more else ""
    return [f"{names} {verb} not significantly different from it{_others(standing)}{apart}."]


def _doubts(standing: Standing) -> list[str]:
    """Who is probably worse, how probably, and what would make it certain."""
    unsure = standing.unsure
    if not unsure:
        return []
    names = listed([f"{family['name']} ({_value(standing, family)})" for family in unsure])
    pairs = [standing.pair(family) for family in unsure]
    chance = shown_probability(max(standing.with_best(pair) or 0.0 for pair in pairs))
    chance = chance.replace("=", "≤") if len(unsure) > 1 else chance
    if standing.tests > 1:
        chance += f" among the {standing.tests} pairs with the best"
    if all(pair.get("covers") == "examples" for pair in pairs):
        chance += ", by the test examples alone"
    more = _remedy(standing, unsure)
    certain = f": {more} would be needed to be certain" if more else ""
    return [f"{names} {'is' if len(unsure) == 1 else 'are'} probably worse ({chance}){certain}."]


def _others(standing: Standing) -> str:
    """Who is surely worse, as the end of a sentence about the others; empty if nobody."""
    worse = standing.worse
    if not worse:
        return ""
    p = shown_probability(max(standing.pair(family)["adjusted"] for family in worse))
    if len(worse) == 1:
        return f"; {worse[0]['name']} is significantly worse, by {_gap(standing, worse[0])} ({p})"
    names = [family["name"] for family in worse]
    if len(names) > NAMED:
        names[NAMED - 1 :] = [f"{len(names) - NAMED + 1} others"]
    return f"; {listed(names)} are significantly worse, by {_gap(standing, worse[0])} or more ({p.replace('=', '≤')})"


def _remedy(standing: Standing, families: tuple[Family, ...]) -> str | None:
    """What there should be more of to tell these from the best, by most of their pairs; None where no test says."""
    sources = [standing.pair(family).get("larger") for family in families]
    if None in sources:
        return None
    return "more seeds" if sources.count("seeds") * 2 > len(sources) else "a larger test split"


def _yardstick(standing: Standing) -> list[str]:
    """That the best is no better than what needs no model, where that is so."""
    best, simple = standing.best, standing.baseline
    if best is None or simple is None:
        return []
    lower = standing.metric["lower_is_better"]
    ahead = best["mean"] < simple["value"] if lower else best["mean"] > simple["value"]
    low, high, _ = interval_of(best) or (best["mean"], best["mean"], "")
    within = simple["value"] <= high if lower else simple["value"] >= low
    if ahead and not within:
        return []
    value = shown(standing.metric["key"], simple["value"], spread(best))
    who = f"{best['name']} is hardly better" if ahead else "No family is better"
    return [
        f"{who} than what needs no model, the {simple['name']} ({value}): the budget may be too small, or there may be "
        "little to learn."
    ]


def _declines(standing: Standing) -> list[str]:
    """Who got worse after its best point, and what that asks for."""
    found = {family["name"]: standing.decline(family) for family in standing.ranked}
    fallen = {name: each for name, each in found.items() if each is not None}
    overfits = {name: each.share for name, each in fallen.items() if each.overfits}
    unsteady = {name: each.share for name, each in fallen.items() if each.overfits is False}
    unknown = {name: each.share for name, each in fallen.items() if each.overfits is None}
    what = (
        (overfits, "overfits", "overfit", "more data or dropout would help, not more time"),
        (unsteady, "became unstable", "became unstable", "a lower learning rate would help, not more time"),
        (unknown, "", "", "more time would not help"),
    )
    return [_worse_after(*each) for each in what if each[0]]


def _worse_after(shares: dict[str, float], one: str, several: str, advice: str) -> str:
    """ "gru was best after 60 % of its training and got worse after that: it overfits; more data …"."""
    parts = listed([f"{share:.0%}".replace("%", " %") for share in shares.values()])
    if len(shares) == 1:
        why = f"it {one}; " if one else ""
        return f"{next(iter(shares))} was best after {parts} of its training and got worse after that: {why}{advice}."
    why = f"they {several}; " if several else ""
    return f"{listed(list(shares))} were best after {parts} of their training and got worse after that: {why}{advice}."


def _baseline(standing: Standing) -> list[str]:
    """What it means that no network beats counting."""
    counted = [family for family in standing.leaders if family.get("baseline")]
    networks = {family["name"]: standing.rank(family) for family in standing.ranked if not family.get("baseline")}
    if not counted or not networks:
        return []
    ranks = set(networks.values())
    no_network = "no network is as good as that"
    if ranks & {"best", "tied"}:
        no_network = "no network is significantly better than that"
    elif "unsure" in ranks:
        no_network = "probably no network is as good as that"
    return [
        f"{counted[0]['name']} only counts what it has read, and {no_network}: either the data or the budget is too "
        "small for them, or there is little to learn beyond such counts."
    ]


def _use(standing: Standing) -> list[str]:
    """Who answers fastest, among the best and at a price."""
    best, fastest, quickest = standing.best, standing.fastest, standing.quickest
    if best is None or quickest is None:
        return []
    found = []
    if fastest is not None and fastest is not best:
        found = [f"Of the best, {fastest['name']} answers fastest: {_pace(fastest, best)}."]
    quick = [
        family
        for family in standing.behind
        if all(faster(family, leader, MUCH_FASTER) for leader in standing.leaders if leader.get("answer"))
    ]
    if quick:
        quality = f"{standing.metric['name']} {_value(standing, quick[0])}"
        measure_latency = _pace(quick[0], quickest)
        found.append(f"Where speed matters more, {quick[0]['name']} has {quality} and needs {measure_latency}.")
    return found


def _size(standing: Standing) -> list[str]:
    """Which of the best is the smallest, where that is a choice."""
    if len(standing.leaders) < 2 or standing.size is None:
        return []
    smallest = standing.smallest
    if smallest is None:  # sizes were matched, or nearly so
        return []
    return [f"{smallest['name']} is the smallest of the best: {_much(standing, smallest)}."]


def _much(standing: Standing, family: Family) -> str:
    """How large a family is, by what tells it of all leaders."""
    if standing.size == "parameters":
        return f"{shown_count(family['parameters'])} parameters"
    return f"{shown_bytes(family['weights'])} of weights"


def _caveats(report: dict[str, Any], standing: Standing) -> list[str]:
    """What the numbers do not tell."""
    found = [report["rules"]["disturbed"]] if report["rules"].get("disturbed") else []
    trained = [family for family in standing.ranked if not family.get("baseline")]
    if trained and len(report["rules"]["seeds"]) == 1:
        what = "Each family was trained" if len(trained) > 1 else f"{trained[0]['name']} was trained"
        found.append(f"{what} only once, so these numbers do not tell what another seed would give: try --seeds 3.")
    elif trained and len(report["rules"]["seeds"]) == 2:
        found.append("Two seeds say little about what others would give: try --seeds 3 or more.")
    count, unit = report["metric"].get("count"), report["metric"].get("examples") or "examples"
    if count == 1:
        found.append(f"The test split is a single example, counted in {unit}: no difference can be tested on it.")
    elif count is not None and count < FEW:
        found.append(f"The test split has only {count} {unit}: only large differences can be told from chance.")
    return found


def _failures(standing: Standing) -> list[str]:
    """Who failed and why; who finished only in part."""
    reasons: dict[str, list[str]] = {}
    for family in (family for family in standing.failed if family["status"] == "failed"):
        reasons.setdefault(_reason(family), []).append(family["name"])
    parts = [listed(names) + " failed" + (f" ({reason})" if reason else "") for reason, names in reasons.items()]
    endless = (family for family in standing.failed if family["status"] != "failed")
    parts += [f"{family['name']} cannot be ranked ({_reason(family)})" for family in endless]
    partly = [family for family in standing.ranked if family["status"] == "partly"]
    for family in partly:
        count = len(family["values"])
        trainings = "only training" if count == 1 else f"{count} trainings"
        why = f" ({_reason(family)})" if _reason(family) else ""
        parts.append(f"{family['name']} is judged by the {trainings} that ended, as others failed{why}")
    return ["; ".join(parts) + "."] if parts else []


def _changes(standing: Standing) -> list[str]:
    """Whether a larger budget would change the order, by the last doubling of every curve."""
    best, metric = standing.best, standing.metric
    assert best is not None
    gains = {family["name"]: standing.gain(family) for family in standing.ranked}
    known = {name: gain for name, gain in gains.items() if gain is not None}
    if not known:
        return []
    moving = {name for name, gain in known.items() if noticeable(metric["key"], gain, best["mean"])}
    rising = [family for family in standing.challengers if family["name"] in moving]
    if rising:
        first, *others = rising
        own = f" ({best['name']}: {_gained(standing, known[best['name']])})" if best["name"] in known else ""
        also = f"; the same holds for {listed([family['name'] for family in others])}" if others else ""
        gain, gap = _gained(standing, known[first["name"]]), standing.gap(first)
        size = _gained(standing, gap) if is_perplexity(metric["key"]) else _gap(standing, first)
        enough = f"close its gap of {size}" if noticeable(metric["key"], gap, best["mean"]) else "get ahead"
        return [
            f"What would change this: {first['name']} was still improving by {gain} per doubling of the budget{own}, "
            f"enough to {enough}{also}. Try a larger budget."
        ]
    if not moving:
        curves = "The curve has" if len(known) == 1 else "The curves have"
        return [f"{curves} flattened: a larger budget is unlikely to change this."]
    name = max(known, key=lambda name: known[name])
    gained = f"{name} gained {_gained(standing, known[name])} in the last doubling"
    end = "; doubling it again would probably not change the order" if len(standing.ranked) > 1 else ""
    return [f"A larger budget would still make better models: {gained}{end}."]


def _gained(standing: Standing, gain: float) -> str:
    return shown_step(standing.metric["key"], gain)


def _value(standing: Standing, family: Family) -> str:
    return shown(standing.metric["key"], family["mean"], spread(family))


def _between(standing: Standing, family: Family) -> str:
    """The interval in brackets, with its source where that is not the seeds; empty if there is none."""
    found = interval_of(family)
    if found is None:
        return ""
    low, high, over = found
    ends = shown_interval(standing.metric["key"], low, high)
    if over == "seeds":
        return f" (all {len(family['values'])} seeds alike)" if ends == NONE else f" (95 % interval {ends})"
    return "" if ends == NONE else f" (95 % interval over the test examples {ends})"


def _ahead(standing: Standing, family: Family) -> str:
    """ "0.21 better than lstm (p = 0.01)"."""
    p = shown_probability(standing.pair(family).get("adjusted"))
    return f"{_gap(standing, family)} better than {family['name']} ({p})"


def _gap(standing: Standing, family: Family) -> str:
    """By how much a family is behind the best, with as many digits as the list of pairs shows."""
    pair, best = standing.pair(family), standing.best
    assert best is not None
    known = pair.get("difference")
    gap = abs(family["mean"] - best["mean"] if known is None else known)
    certain = pair.get("low") is not None and pair.get("high") is not None
    width = (pair["high"] - pair["low"]) / 2 if certain else spread(family)
    return shown_difference(standing.metric["key"], gap, digits_of_difference(gap, width))


def _pace(family: Family, other: Family) -> str:
    """ "0.50 ms per prediction, 4.2 times as fast as gru"."""
    times = shown_times(other["answer"] / family["answer"])
    return f"{shown_seconds(family['answer'])} per prediction, {times} times as fast as {other['name']}"


def _reason(family: Family) -> str:
    """The first line of why a family failed, short enough for a sentence."""
    lines = (family.get("reason") or "").strip().splitlines()
    first = lines[0].strip().rstrip(".") if lines else ""
    return first if len(first) <= 120 else first[:117].rstrip() + "…"
