"""Baselines of the report, collected from the tests of trained models."""

from __future__ import annotations

import math

import pytest

from seqwise.compare.report.gather import collect_baselines
from seqwise.compare.report.schema import BaselineResult
from seqwise.compare.run.jobs import EvaluationResult
from seqwise.metrics.evaluation import Baseline

LABEL = ("most frequent label", 0.56, "It always answers 'a'.")


def evaluation(metrics: dict[str, float], *baselines: Baseline, **definitions: str) -> EvaluationResult:
    return EvaluationResult(metrics, definitions, "the test split", 1.0, 100, baselines=baselines)


def forecast(seasonal: float, naive: float) -> EvaluationResult:
    return evaluation(
        {"mse": 0.3, "seasonal_naive_mse": seasonal, "naive_mse": naive, "naive_mae": 0.1},
        seasonal_naive_mse="mse of the seasonal-naive forecast: the last 24 values again",
        naive_mse="mse of the naive forecast: the last value again",
    )


def test_the_baselines_are_those_of_the_first_test_that_has_some():
    tests = [evaluation({"accuracy": 0.8}), evaluation({"accuracy": 0.9}, Baseline(*LABEL))]
    assert collect_baselines(tests, "accuracy") == (BaselineResult(*LABEL),)
    assert collect_baselines(tests[:1], "accuracy") == collect_baselines([], "accuracy") == ()


def test_naive_forecasts_are_those_of_the_evaluation():
    assert collect_baselines([forecast(0.5, 1.3)], "mse") == (
        BaselineResult("seasonal-naive forecast", 0.5, "It predicts the last 24 values again."),
        BaselineResult("naive forecast", 1.3, "It predicts the last value again."),
    )


def test_without_a_season_there_is_one_naive_forecast():
    (baseline,) = collect_baselines([forecast(1.3, 1.3)], "mse")
    assert (baseline.name, baseline.about) == ("naive forecast", "It predicts the last value again.")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_baseline_without_a_finite_value_is_left_out(value: float):
    assert collect_baselines([evaluation({}, Baseline(LABEL[0], value, LABEL[2]))], "accuracy") == ()
