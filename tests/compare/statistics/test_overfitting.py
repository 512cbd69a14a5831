"""Trainings that went on too long, told from those whose last validations are only noisy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from seqwise.compare.statistics.overfitting import Decline, decline

RISES = [0.5, 0.6, 0.7, 0.76, 0.8]  # accuracies, of which the last is the best


def curve(values: list[float], trained: list[float] | None = None, seed: int = 0) -> dict[str, Any]:
    points = [{"tokens": 100 * at, "seconds": at, "value": value} for at, value in enumerate(values, start=1)]
    for point, loss in zip(points, trained or ()):
        point["trained"] = loss
    return {"seed": seed, "points": points}


def test_what_falls_after_its_best_point_declines():
    found = decline([curve([*RISES, 0.79, 0.78, 0.77, 0.76, 0.75])], lower_is_better=False)
    assert found is not None
    assert found.share == pytest.approx(0.5)
    assert found.fall == pytest.approx(0.8 - 0.76)  # to the mean of the last three
    assert found.overfits is None


def test_where_less_is_better_a_rise_is_the_fall_and_the_scale_counts():
    values = [900.0, 500.0, 300.0, 250.0, 200.0, 220.0, 242.0, 266.2, 292.82, 322.102]
    found = decline([curve(values)], lower_is_better=True, scale=math.log)
    assert found is not None
    assert (found.share, found.fall) == (pytest.approx(0.5), pytest.approx(4 * math.log(1.1)))


@pytest.mark.parametrize(
    "values",
    [
        [*RISES, 0.82, 0.84, 0.85, 0.86, 0.87],  # still rises
        [*RISES, 0.8, 0.8, 0.8, 0.8, 0.8],  # has flattened
        [*RISES, 0.77, 0.80, 0.775, 0.79, 0.78],  # falls within its noise
        [*RISES, 0.81, 0.82, 0.83, 0.79, 0.78],  # two validations are an accident
        [0.7, 0.8, 0.75, 0.7, 0.65],  # too few of them
        [],
    ],
)
def test_what_does_not_surely_fall_is_no_decline(values: list[float]):
    assert decline([curve(values)], lower_is_better=False) is None


def test_noise_alone_is_seldom_a_decline():
    draw = np.random.default_rng(3)
    flat = [curve((0.8 + 0.01 * draw.standard_normal(20)).tolist()) for _ in range(200)]
    assert sum(decline([each], lower_is_better=False) is not None for each in flat) <= 16


def test_seeds_are_taken_together_by_their_share_of_training():
    falls = [*RISES, 0.79, 0.78, 0.77, 0.76, 0.75]
    twice = [curve(falls), {"seed": 1, "points": [{**p, "tokens": 7 * p["tokens"]} for p in curve(falls)["points"]]}]
    assert decline(twice, lower_is_better=False) == decline(twice[:1], lower_is_better=False)
    rises = curve([*RISES, 0.81, 0.82, 0.83, 0.84, 0.85], seed=1)
    assert decline([curve(falls), rises], lower_is_better=False) is None  # on average it stays where it is


@pytest.mark.parametrize(("last", "overfits"), [(0.05, True), (3.0, False)])
def test_the_training_loss_tells_overfitting_from_a_training_that_broke(last: float, overfits: bool):
    trained = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.4, 0.4, 0.4, last]
    found = decline([curve([*RISES, 0.79, 0.78, 0.77, 0.76, 0.75], trained)], lower_is_better=False)
    assert isinstance(found, Decline)
    assert found.overfits is overfits


def test_values_that_are_missing_are_left_out():
    made = curve([*RISES, 0.79, 0.78, 0.77, 0.76, 0.75])
    made["points"][2]["value"] = None
    made["points"][3]["value"] = math.inf
    assert decline([made, {"seed": 1, "points": []}], lower_is_better=False) is not None
