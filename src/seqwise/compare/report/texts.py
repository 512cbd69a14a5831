"""Every number of a report as text, made in one place: the terminal, the page and the verdict print the same.

An entry that has numbers gets `shown`, with a text for each of them. It reads the report and decides nothing.
"""

from __future__ import annotations

from typing import Any

from seqwise.compare.report.formatting import (
    NONE,
    digits_of_difference,
    shown,
    shown_bytes,
    shown_count,
    shown_interval,
    shown_probability,
    shown_range,
    shown_rate,
    shown_seconds,
    shown_signed,
)
from seqwise.compare.statistics.ranking import interval_of, spread

Values = dict[str, Any]


def add_shown(report: Values) -> None:
    """Set `shown` in families, their tries, pairs, trials, answers to examples, baselines, and the rules."""
    metric = report["metric"]["key"]
    halves = {family["name"]: spread(family) for family in report["families"]}
    for family in report["families"]:
        family["shown"] = _family(metric, family)
        for each in family.get("tries") or ():
            each["shown"] = {
                "rate": shown_rate(each["rate"]),
                "validation": shown(metric, each["validation"], halves[family["name"]]),
            }
    for pair in report["pairs"]:
        pair["shown"] = _pair(metric, pair)
    for trial in report["trials"]:
        trial["shown"] = _trial(metric, trial, halves.get(trial["family"]))
    for example in report["examples"]:
        for answer in example["answers"].values():
            answer["shown"] = shown(metric, answer["value"])
    best = next(iter(report["families"]), None)
    for baseline in report.get("baselines") or ():
        baseline["shown"] = {"value": shown(metric, baseline["value"], best and halves[best["name"]])}
    report["rules"]["shown"] = {"parameters": shown_count(report["rules"]["parameters"])}


def _family(metric: str, family: Values) -> Values:
    training, answers = family["training"] or {}, family["answers"]
    sampling = family["sampling"] or {}
    found = interval_of(family)
    speed = training.get("tokens_per_second")
    return {
        "mean": shown(metric, family["mean"], spread(family)),
        "interval": NONE if found is None else _interval(metric, *found),
        "over": None if found is None else found[2],
        "over_seeds": _interval(metric, family["low"], family["high"], "seeds"),
        "over_examples": _interval(metric, sampling.get("low"), sampling.get("high"), "examples"),
        "metrics": {
            key: shown(key, value, spread(family) if key == metric else None)
            for key, value in (family["metrics"] or {}).items()
        },
        "parameters": shown_count(family["parameters"]),
        # What is counted is not trained: it has no speed that could be compared.
        "tokens_per_second": NONE if family["baseline"] else shown_count(speed),
        "seconds": shown_seconds(training.get("seconds")),
        "tokens": shown_count(training.get("tokens")),
        "memory": shown_bytes(family["memory"]),
        "weights": shown_bytes(family["weights"]),
        "answer": shown_seconds(family["answer"]),
        "answers": shown_range(min(answers), max(answers)) if answers else NONE,
        "evaluation": shown_seconds((family["evaluation"] or {}).get("seconds")),
        "learning_rate": shown_rate(family["learning_rate"]),
    }


def _interval(metric: str, low: float | None, high: float | None, over: str) -> str:
    """Ends that read the same say nothing as numbers."""
    if low is None or high is None:
        return NONE
    ends = shown_interval(metric, low, high)
    return f"all {over} alike" if ends == NONE else ends


def _pair(metric: str, pair: Values) -> Values:
    low, high, difference = pair["low"], pair["high"], pair["difference"]
    half = None if low is None or high is None else (high - low) / 2
    digits = None if difference is None else digits_of_difference(difference, half)
    return {
        "difference": shown_signed(metric, difference, digits),
        "low": shown_signed(metric, low, half),
        "high": shown_signed(metric, high, half),
        **{key: shown_probability(pair.get(key)).removeprefix("p = ").removeprefix("p ")
           for key in ("p", "adjusted", "with_best")},
    }  # fmt: skip


def _trial(metric: str, trial: Values, half: float | None) -> Values:
    return {
        "rate": shown_rate(trial["rate"]),
        "updates": shown_count(trial["updates"]),
        "tokens": shown_count(trial["tokens"]),
        "seconds": shown_seconds(trial["seconds"]),
        "validation": shown(metric, trial["validation"], half),
    }
