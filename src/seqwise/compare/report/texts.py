"""Adds the numbers of a report as text, formatted in one place, so that the terminal and the page print the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seqwise.compare.report.formatting import (
    DASH,
    choose_difference_spread,
    format_bytes,
    format_count,
    format_interval,
    format_metric,
    format_p,
    format_rate,
    format_seconds,
    format_seconds_range,
    format_signed,
)
from seqwise.compare.report.schema import Family, NoiseSource, Pair, Report, TrialSummary


def add_texts(report: Report) -> Report:
    """Returns the report with its numbers as text: `text`, `rate_text`, `value_text`, …; not those of the verdict."""
    metric = report.metric.key
    spreads = {family.name: family.half_width for family in report.families}
    best_spread = next(iter(spreads.values()), None)

    families = []
    for family in report.families:
        lr_trials = tuple(
            replace(
                trial,
                rate_text=format_rate(trial.rate),
                validation_text=format_metric(metric, trial.validation, family.half_width),
            )
            for trial in family.lr_trials
        )
        families.append(replace(family, lr_trials=lr_trials, text=_format_family(metric, family)))
    examples = []
    for example in report.examples:
        answers = {
            name: replace(answer, value_text=format_metric(metric, answer.value))
            for name, answer in example.answers.items()
        }
        examples.append(replace(example, answers=answers))
    return replace(
        report,
        families=tuple(families),
        pairs=tuple(replace(pair, text=_format_pair(metric, pair)) for pair in report.pairs),
        trials=tuple(
            replace(trial, text=_format_trial(metric, trial, spreads.get(trial.family))) for trial in report.trials
        ),
        examples=tuple(examples),
        baselines=tuple(
            replace(each, value_text=format_metric(metric, each.value, best_spread)) for each in report.baselines
        ),
        rules=replace(report.rules, parameters_text=format_count(report.rules.parameters)),
    )


def _format_family(metric: str, family: Family) -> dict[str, Any]:
    sampling, training, latencies = family.sampling, family.training, family.latencies
    low, high, source = family.interval or (None, None, None)
    # A model that is fitted by counting has no training speed that could be compared.
    speed = None if training is None or family.is_baseline else training.tokens_per_second
    return {
        "mean": format_metric(metric, family.mean, family.half_width),
        "interval": _format_interval(metric, low, high, source),
        "interval_source": source,
        "seeds_interval": _format_interval(metric, family.low, family.high, "seeds"),
        "examples_interval": _format_interval(metric, sampling.low, sampling.high, "examples") if sampling else DASH,
        "metrics": {
            key: format_metric(key, value, family.half_width if key == metric else None)
            for key, value in family.metrics.items()
        },
        "parameters": format_count(family.parameters),
        "tokens_per_second": format_count(speed),
        "seconds": format_seconds(None if training is None else training.seconds),
        "tokens": format_count(None if training is None else training.tokens),
        "memory": format_bytes(family.memory),
        "weights": format_bytes(family.weights),
        "latency": format_seconds(family.latency),
        "latency_range": format_seconds_range(min(latencies), max(latencies)) if latencies else DASH,
        "evaluation_seconds": format_seconds(family.evaluation_seconds),
        "learning_rate": format_rate(family.learning_rate),
    }


def _format_interval(metric: str, low: float | None, high: float | None, source: NoiseSource | None) -> str:
    """Formats an interval; ends with the same text are described in words."""
    if low is None or high is None:
        return DASH
    ends = format_interval(metric, low, high)
    return f"the same for all {source}" if ends == DASH else ends


def _format_pair(metric: str, pair: Pair) -> dict[str, str]:
    spread = None if pair.difference is None else choose_difference_spread(pair.difference, pair.half_width)
    p_values = {
        key: format_p(getattr(pair, key)).removeprefix("p = ").removeprefix("p ") for key in ("p", "adjusted_p")
    }
    return {
        "difference": format_signed(metric, pair.difference, spread),
        "low": format_signed(metric, pair.low, pair.half_width),
        "high": format_signed(metric, pair.high, pair.half_width),
        **p_values,
    }


def _format_trial(metric: str, trial: TrialSummary, spread: float | None) -> dict[str, str]:
    return {
        "rate": format_rate(trial.rate),
        "updates": format_count(trial.updates),
        "tokens": format_count(trial.tokens),
        "seconds": format_seconds(trial.seconds),
        "validation": format_metric(metric, trial.validation, spread),
    }
