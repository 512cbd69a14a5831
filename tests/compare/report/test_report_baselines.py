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


def test_the_baselines_are_those_of_the_first_test_that_has_some():
    tests = [evaluation({"accuracy": 0.8}), evaluation({"accuracy": 0.9}, Baseline(*LABEL))]
    assert collect_baselines(tests) == (BaselineResult(*LABEL),)
    assert collect_baselines(tests[:1]) == collect_baselines([]) == ()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_baseline_without_a_finite_value_is_left_out(value: float):
    assert collect_baselines([evaluation({}, Baseline(LABEL[0], value, LABEL[2]))]) == ()
