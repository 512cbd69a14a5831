"""What needs no model, beside the families: the most frequent label, the season before once more.

Tests of trainings leave it behind, since they have the test split open. It is neither ranked nor tested against anyone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from seqwise.tasks.forecast.metrics import NAIVE, SEASONAL_NAIVE

FORECASTS = {SEASONAL_NAIVE: "seasonal-naive forecast", NAIVE: "naive forecast"}
SAME_OF = "the same of: "  # how the definition of a simple forecast's error begins


def yardsticks_of(tests: Iterable[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """The report's "baselines", out of the first test that knows some; `tests` are values of outcomes."""
    for values in tests:
        found = [*values.get("baselines", ()), *_forecasts(values, metric)]
        known = [each for each in found if each["value"] is not None and math.isfinite(each["value"])]
        if known:
            return known
    return []


def _forecasts(values: Mapping[str, Any], metric: str) -> list[dict[str, Any]]:
    """The simple forecasts, which every evaluation of a forecast measures. Without a season both are the same one."""
    metrics, definitions = values.get("metrics", {}), values.get("definitions", {})
    keys = {who: f"{who}_{metric}" for who in FORECASTS if f"{who}_{metric}" in metrics}
    if len(keys) == 2 and metrics[keys[SEASONAL_NAIVE]] == metrics[keys[NAIVE]]:
        del keys[SEASONAL_NAIVE]
    return [
        {
            "name": FORECASTS[who],
            "value": metrics[key],
            "about": f"It says {definitions.get(key, '').removeprefix(SAME_OF) or 'what was before'}.",
        }
        for who, key in keys.items()
    ]
