"""Forecast errors against hand-computed values."""

from __future__ import annotations

import numpy as np
import pytest

from seqwise.tasks.forecast.evaluation import BASELINES, MODEL, NAIVE, SEASONAL_NAIVE, ErrorSums, get_definitions

TRUTH = np.array([[1.0, 2.0], [3.0, 9.0]])
MASK = np.array([[True, True], [True, False]])  # the 9 is missing


def create_errors() -> ErrorSums:
    errors = ErrorSums(2, (0.1, 0.9))
    forecasts = {MODEL: np.array([[1.0, 4.0], [2.0, 0.0]]), NAIVE: np.zeros((2, 2)), SEASONAL_NAIVE: TRUTH}
    errors.add(np.array([0, 1]), TRUTH, MASK, forecasts)
    errors.add_quantiles(TRUTH, MASK, np.stack([TRUTH - 1, TRUTH + np.array([[1, -0.5], [1, 1]])], axis=-1))
    return errors


def test_metrics_are_means_over_all_windows_steps_and_series():
    metrics = create_errors().compute_metrics(np.ones(2), np.ones(2))
    assert metrics["mse"] == pytest.approx((0 + 4 + 1) / 3)
    assert metrics["mae"] == pytest.approx((0 + 2 + 1) / 3)
    assert metrics["naive_mse"] == pytest.approx((1 + 4 + 9) / 3)
    assert metrics["seasonal_naive_mae"] == 0
    assert metrics["windows"] == 2


def test_mase_is_a_mean_over_series_on_their_own_scale():
    """Series 0: MAE 1 · deviation 2 / 4. Series 1: MAE 1 · deviation 10 / 5."""
    metrics = create_errors().compute_metrics(np.array([2.0, 10.0]), np.array([4.0, 5.0]))
    assert metrics["mase"] == pytest.approx((0.5 + 2.0) / 2)


def test_a_series_that_never_changes_is_left_out_of_mase():
    assert create_errors().compute_metrics(np.ones(2), np.array([0.0, 5.0]))["mase"] == pytest.approx(1 / 5)
    assert np.isnan(create_errors().compute_metrics(np.ones(2), np.array([0.0, np.nan]))["mase"])


def test_quantile_loss_and_coverage_equal_hand_computed_values():
    metrics = create_errors().compute_metrics(np.ones(2), np.ones(2))
    low = 3 * 0.1  # 1 below the truth three times
    high = 0.1 + 0.9 * 0.5 + 0.1  # 1 above, 0.5 below, 1 above
    assert metrics["quantile_loss"] == pytest.approx((low + high) / 3 / 2)
    assert metrics["coverage"] == pytest.approx(2 / 3)


def test_metrics_of_batches_equal_those_of_all_windows():
    rng = np.random.RandomState(0)
    truth, forecast, series = rng.normal(size=(6, 3)), rng.normal(size=(6, 3)), np.array([0, 1, 0, 1, 1, 0])
    forecasts = {MODEL: forecast, NAIVE: forecast * 0, SEASONAL_NAIVE: forecast * 2}
    of_all_windows, of_batches = ErrorSums(2), ErrorSums(2)
    of_all_windows.add(series, truth, np.ones((6, 3), bool), forecasts)
    for batch in (slice(0, 4), slice(4, 6)):
        batch_forecasts = {name: each[batch] for name, each in forecasts.items()}
        of_batches.add(series[batch], truth[batch], np.ones((6, 3), bool)[batch], batch_forecasts)
    assert of_batches.compute_metrics(np.ones(2), np.ones(2)) == pytest.approx(
        of_all_windows.compute_metrics(np.ones(2), np.ones(2))
    )
    assert of_all_windows.compute_metrics(np.ones(2), np.ones(2))["mse"] == pytest.approx(
        ((truth - forecast) ** 2).mean()
    )


@pytest.mark.parametrize("quantiles", [(), (0.5,), (0.1, 0.9)])
def test_every_metric_has_a_definition(quantiles: tuple[float, ...]):
    metrics = ErrorSums(1, quantiles, (MODEL, *BASELINES)).compute_metrics(np.ones(1), np.ones(1))
    assert metrics.keys() == get_definitions(24, quantiles).keys()
