"""What needs no model, as the tests of trainings leave it behind."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seqwise.compare.report.baselines import yardsticks_of

LABEL = {"name": "most frequent label", "value": 0.56, "about": "It always answers 'a'."}


def forecast(seasonal: float, naive: float) -> dict[str, Any]:
    return {
        "metrics": {"mse": 0.3, "seasonal_naive_mse": seasonal, "naive_mse": naive, "naive_mae": 0.1},
        "definitions": {
            "seasonal_naive_mse": "the same of: the last 24 values again",
            "naive_mse": "the same of: the last value again",
        },
        "baselines": [],
    }


def test_the_first_test_that_knows_some_tells():
    tests = [{"metrics": {"accuracy": 0.8}}, {"metrics": {"accuracy": 0.9}, "baselines": [LABEL]}]
    assert yardsticks_of(tests, "accuracy") == [LABEL]
    assert yardsticks_of(tests[:1], "accuracy") == yardsticks_of([], "accuracy") == []


def test_simple_forecasts_are_those_of_the_evaluation():
    assert yardsticks_of([forecast(0.5, 1.3)], "mse") == [
        {"name": "seasonal-naive forecast", "value": 0.5, "about": "It says the last 24 values again."},
        {"name": "naive forecast", "value": 1.3, "about": "It says the last value again."},
    ]


def test_without_a_season_there_is_one_simple_forecast():
    (only,) = yardsticks_of([forecast(1.3, 1.3)], "mse")
    assert (only["name"], only["about"]) == ("naive forecast", "It says the last value again.")


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_no_number_is_no_yardstick(value: float | None):
    assert yardsticks_of([{"metrics": {}, "baselines": [{**LABEL, "value": value}]}], "accuracy") == []
