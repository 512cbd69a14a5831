"""The expected calibration error of probabilities whose calibration is known."""

import numpy as np
import pytest

from seqwise.lens.calibration import measure_calibration


def test_bins_have_hand_computed_counts_and_error():
    probabilities = np.array([0.55, 0.6, 0.95, 0.95, 1.0])  # bins (0.5, 0.6] and (0.9, 1]
    is_correct = np.array([True, False, True, True, False])
    result = measure_calibration(probabilities, is_correct)
    assert result.counts.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 3]
    assert result.confidence[[5, 9]] == pytest.approx([0.575, 2.9 / 3])
    assert result.accuracy[[5, 9]] == pytest.approx([0.5, 2 / 3])
    assert result.error == pytest.approx(2 / 5 * 0.075 + 3 / 5 * 0.3)


def test_a_calibrated_model_has_an_error_near_zero():
    generator = np.random.default_rng(0)
    probabilities = generator.uniform(0.3, 1.0, 100_000)
    result = measure_calibration(probabilities, generator.random(100_000) < probabilities)
    assert result.error < 0.006
    assert result.error <= result.limit


def test_an_overconfident_model_has_the_distance_between_probability_and_accuracy():
    generator = np.random.default_rng(0)
    probabilities = generator.uniform(0.8, 1.0, 50_000)
    result = measure_calibration(probabilities, generator.random(50_000) < probabilities - 0.2)
    assert result.error == pytest.approx(0.2, abs=0.01)
    assert result.error > 10 * result.limit
    assert result.mean_confidence - result.mean_accuracy == pytest.approx(0.2, abs=0.01)


def test_the_error_of_few_predictions_is_compared_with_that_of_a_calibrated_model():
    generator = np.random.default_rng(1)
    exceeded, errors, expected = 0, [], []
    for _ in range(100):
        probabilities = generator.uniform(0.5, 1.0, 60)
        result = measure_calibration(probabilities, generator.random(60) < probabilities)
        exceeded += result.error > result.limit
        errors.append(result.error)
        expected.append(result.expected)
    assert exceeded <= 12  # about 5 of 100
    assert np.mean(errors) == pytest.approx(np.mean(expected), rel=0.1)
    assert np.mean(errors) > 0.05


def test_a_certain_prediction_is_in_the_last_bin_and_an_impossible_one_in_the_first():
    result = measure_calibration(np.array([0.0, 1.0]), np.array([False, True]))
    assert result.counts.tolist() == [1, *[0] * 8, 1]
    assert result.error == 0.0
