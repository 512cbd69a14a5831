"""Baselines beside the families: rules without a model, such as the most frequent label or repeating the last season.

The tests of trained models leave them behind, since they have read the test split. They are not ranked or tested.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from seqwise.compare.report.schema import BaselineResult
from seqwise.compare.run.jobs import EvaluationResult
from seqwise.tasks.forecast.evaluation import NAIVE, SEASONAL_NAIVE

FORECAST_NAMES = {SEASONAL_NAIVE: "seasonal-naive forecast", NAIVE: "naive forecast"}
DEFINITION_PREFIX = "the same of: "  # with which the definition of a naive forecast's error begins


def collect_baselines(tests: Iterable[EvaluationResult], metric: str) -> tuple[BaselineResult, ...]:
    """Returns the baselines of the first test that has some."""
    for test in tests:
        baselines = [*(BaselineResult(each.name, each.value, each.about) for each in test.baselines)]
        baselines += _collect_naive_forecasts(test, metric)
        finite = tuple(each for each in baselines if each.value is not None and math.isfinite(each.value))
        if finite:
            return finite
    return ()


def _collect_naive_forecasts(test: EvaluationResult, metric: str) -> list[BaselineResult]:
    """Returns the naive forecasts, which every evaluation of a forecast measures; without a season both are equal."""
    keys = {kind: f"{kind}_{metric}" for kind in FORECAST_NAMES if f"{kind}_{metric}" in test.metrics}
    if len(keys) == 2 and test.metrics[keys[SEASONAL_NAIVE]] == test.metrics[keys[NAIVE]]:
        del keys[SEASONAL_NAIVE]
    return [
        BaselineResult(
            FORECAST_NAMES[kind],
            test.metrics[key],
            f"It predicts {test.definitions.get(key, '').removeprefix(DEFINITION_PREFIX) or 'the value before'}.",
        )
        for kind, key in keys.items()
    ]
