"""The overfitting check: training runs that got worse are distinguished from those whose validations are only noisy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
import pytest

from seqwise.compare.report.schema import Curve, CurvePoint
from seqwise.compare.statistics.learning_curves import Overfitting, find_overfitting

RISING = [0.5, 0.6, 0.7, 0.76, 0.8]  # accuracies, of which the last is the best


def curve(values: Sequence[float | None], losses: Sequence[float] = (), seed: int = 0, tokens: int = 100) -> Curve:
    """A curve with a validation every `tokens` tokens."""
    pairs = enumerate(zip_longest(values, losses), start=1)
    points = [CurvePoint(tokens * index, index, value, training_loss=loss) for index, (value, loss) in pairs]
    return Curve(seed, tuple(points))


def test_a_degradation_after_the_best_point_is_found():
    overfitting = find_overfitting([curve([*RISING, 0.79, 0.78, 0.77, 0.76, 0.75])], lower_is_better=False)
    assert overfitting is not None
    assert overfitting.best_share == pytest.approx(0.5)
    assert overfitting.degradation == pytest.approx(0.8 - 0.76)  # to the mean of the last three
    assert overfitting.training_improved is None


def test_a_rise_where_lower_is_better_is_measured_on_the_scale():
    values = [900.0, 500.0, 300.0, 250.0, 200.0, 220.0, 242.0, 266.2, 292.82, 322.102]
    overfitting = find_overfitting([curve(values)], lower_is_better=True, scale=math.log)
    assert overfitting is not None
    assert (overfitting.best_share, overfitting.degradation) == (pytest.approx(0.5), pytest.approx(4 * math.log(1.1)))


@pytest.mark.parametrize(
    "values",
    [
        [*RISING, 0.82, 0.84, 0.85, 0.86, 0.87],  # still rises
        [*RISING, 0.8, 0.8, 0.8, 0.8, 0.8],  # has flattened
        [*RISING, 0.77, 0.80, 0.775, 0.79, 0.78],  # falls within its noise
        [*RISING, 0.81, 0.82, 0.83, 0.79, 0.78],  # two validations are too few
        [0.7, 0.8, 0.75, 0.7, 0.65],  # too few of them
        [],
    ],
)
def test_a_curve_without_a_certain_degradation_is_not_reported(values: list[float]):
    assert find_overfitting([curve(values)], lower_is_better=False) is None


def test_noise_alone_is_rarely_reported():
    generator = np.random.default_rng(3)
    flat = [curve((0.8 + 0.01 * generator.standard_normal(20)).tolist()) for _ in range(200)]
    assert sum(find_overfitting([each], lower_is_better=False) is not None for each in flat) <= 16


def test_seeds_are_aligned_by_their_share_of_training():
    falls = [*RISING, 0.79, 0.78, 0.77, 0.76, 0.75]
    twice = [curve(falls), curve(falls, seed=1, tokens=700)]
    assert find_overfitting(twice, lower_is_better=False) == find_overfitting(twice[:1], lower_is_better=False)
    rises = curve([*RISING, 0.81, 0.82, 0.83, 0.84, 0.85], seed=1)
    assert find_overfitting([curve(falls), rises], lower_is_better=False) is None  # on average the curve is flat


@pytest.mark.parametrize(("last", "improved"), [(0.05, True), (3.0, False)])
def test_the_training_loss_distinguishes_overfitting_from_instability(last: float, improved: bool):
    losses = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.4, 0.4, 0.4, last]
    overfitting = find_overfitting([curve([*RISING, 0.79, 0.78, 0.77, 0.76, 0.75], losses)], lower_is_better=False)
    assert isinstance(overfitting, Overfitting)
    assert overfitting.training_improved is improved


def test_values_that_are_missing_are_left_out():
    values = [*RISING[:2], None, math.inf, RISING[4], 0.79, 0.78, 0.77, 0.76, 0.75]
    assert find_overfitting([curve(values), curve([], seed=1)], lower_is_better=False) is not None
