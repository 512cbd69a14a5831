"""The ranking: which seeds of a family count as diverged."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from sample_report import family, parse, report

from seqwise.compare.report.schema import BaselineResult, SeedValue
from seqwise.compare.statistics.ranking import MIN_DIVERGED_RATIO, Ranking

TASKS = {"perplexity": "language", "mse": "forecast", "accuracy": "classify", "bleu": "translate"}


def find_diverged_seeds(metric: str, values: list[float | None], *baselines: float | None) -> list[int]:
    """Returns the numbers of the diverged seeds of a family beside another one."""
    finished = [family("gru", metric, [0.5, 0.5]), family("rnn", metric, [0.4, 0.4])]
    sample = parse(report(TASKS[metric], metric, finished))
    seeds = tuple(SeedValue(seed, value) for seed, value in enumerate(values))
    sample = replace(sample, baselines=tuple(BaselineResult("unigram", value, "") for value in baselines))
    sample = replace(sample, families=(sample.families[0], replace(sample.families[1], values=seeds)))
    ranking = Ranking(sample)
    diverged = ranking.find_diverged_seeds(sample.families[1])
    assert ranking.diverged == ((sample.families[1],) if diverged else ())
    return [each.seed for each in diverged]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([4.1, 4.2, 7880.0, 4.0, 4.2], [2]),
        ([900.0, 7880.0, 4.1], [0, 1]),
        ([4.1, 7880.0], [1]),  # two seeds: the baseline decides which of them diverged
        ([4.1, 41.9, 42.0], [2]),  # twice the baseline
        ([4.1, 4.2, 25.0], []),  # worse than the baseline, but not by far
        ([20.9, 21.2, 22.0], []),  # too small a budget
        ([21.0, 60.0, 7880.0], []),  # no seed is better than the baseline
        ([7880.0], []),
        ([], []),
    ],
)
def test_a_seed_diverged_if_it_is_twice_as_bad_as_the_baseline_and_another_is_better(
    values: list[float | None], expected: list[int]
):
    assert MIN_DIVERGED_RATIO == 2.0
    assert find_diverged_seeds("perplexity", values, 21.0) == expected


def test_a_diverged_seed_is_compared_with_the_worst_baseline():
    values: list[float | None] = [0.8, 2.1, 0.9]
    assert find_diverged_seeds("mse", values, 1.0, 0.4) == find_diverged_seeds("mse", values, 0.4, 1.0) == [1]
    assert find_diverged_seeds("mse", values, 1.1, 0.4) == []


def test_without_a_baseline_no_seed_diverged():
    assert find_diverged_seeds("perplexity", [4.1, 7880.0, 4.2]) == []
    assert find_diverged_seeds("perplexity", [4.1, 7880.0, 4.2], None) == []
    assert find_diverged_seeds("perplexity", [4.1, 7880.0, 4.2], None, 21.0) == [1]


def test_a_baseline_without_errors_has_no_seed_below_it():
    assert find_diverged_seeds("mse", [0.0, 0.2, 0.1], 0.0) == []


def test_a_seed_without_a_value_is_left_out():
    assert find_diverged_seeds("perplexity", [4.1, None, 7880.0], 21.0) == [2]
    assert find_diverged_seeds("perplexity", [None, 7880.0], 21.0) == []


@pytest.mark.parametrize(
    ("metric", "values", "baseline"),
    [("accuracy", [0.9, 0.79, 0.91], 0.8), ("accuracy", [0.9, 0.02, 0.91], 0.8), ("bleu", [31.0, 0.1, 30.0], 2.0)],
)
def test_bounded_metrics_do_not_diverge(metric: str, values: list[float | None], baseline: float):
    assert find_diverged_seeds(metric, values, baseline) == []


def test_a_family_without_a_mean_is_not_among_the_diverged():
    sample = parse(report("language", "perplexity", [family("gru", "perplexity", [4.0, 4.1])]))
    seeds = (SeedValue(0, 4.0), SeedValue(1, 7880.0), SeedValue(2, math.inf))
    sample = replace(
        sample,
        baselines=(BaselineResult("unigram", 21.0, ""),),
        families=(sample.families[0], replace(sample.families[0], name="rnn", mean=None, values=seeds)),
    )
    ranking = Ranking(sample)
    assert [each.name for each in ranking.failed] == ["rnn"]
    assert ranking.diverged == ()
