"""Prediction intervals have the stated coverage: offsets against hand-computed values, coverage, old runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import seqwise
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.forecast.model import MIN_CALIBRATION_WINDOWS, ForecastModel, Forecasts, compute_offsets

SETTINGS = {"network": {"width": 8}, "horizon": 4, "forecast": {"lookback": 12}, "training": {"batch_size": 32}}


def build_model(quantiles: tuple[float, ...] = (0.1, 0.9)) -> ForecastModel:
    values = {"model": "feedforward", "horizon": 2, "forecast": {"lookback": 4}, "network": {"width": 4}}
    return ForecastModel(ResolvedSettings.model_validate(values), 0, quantiles)


def test_offsets_equal_hand_computed_values():
    """Of 119 errors the next one is below the k-th smallest with probability k / 120."""
    errors = np.stack([np.arange(119.0), 2 * np.arange(119.0)[::-1]], axis=1)
    assert compute_offsets(errors, 0.1).tolist() == [11, 22]
    assert compute_offsets(errors, 0.9).tolist() == [107, 214]


def test_few_windows_share_one_offset_and_unknown_values_do_not_count():
    errors = np.array([[1.0, 2.0, np.nan], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [9.0, np.nan, 10.0]])
    assert len(errors) < MIN_CALIBRATION_WINDOWS
    assert compute_offsets(errors, 0.9).tolist() == [10, 10, 10]
    assert compute_offsets(errors, 0.1).tolist() == [1, 1, 1]
    assert compute_offsets(np.full((3, 2), np.nan), 0.9).tolist() == [0, 0]


def test_calibrated_quantiles_are_moved_by_the_offset_in_deviations_of_the_window():
    model = build_model()
    model.fit_calibration(np.broadcast_to(np.array([0.5, -1.0]), (200, 2, 2)))  # truth 0.5 inside
    forecasts = Forecasts(torch.zeros(1, 2), torch.tensor([[[-1.0, 4.0], [-2.0, 5.0]]]), torch.tensor([[2.0]]))
    assert model.calibrate(forecasts).quantiles.tolist() == [[[0.0, 3.0], [-1.0, 4.0]]]
    model.fit_calibration(np.broadcast_to(np.array([3.5, 0.5]), (200, 2, 2)))  # truth 0.5 above the interval
    assert model.calibrate(forecasts).quantiles.tolist() == [[[-2.0, 5.0], [-3.0, 6.0]]]
    assert "calibration" in model.state_dict()


def test_a_quantile_without_a_partner_is_moved_by_itself():
    model = build_model((0.1, 0.5, 0.9))
    errors = np.broadcast_to(np.array([0.5, 0.25, -1.0]), (200, 2, 3))
    model.fit_calibration(errors)
    assert model.calibration.tolist() == [[0.5, 0.25, -0.5]] * 2


def test_calibrated_quantiles_cover_the_stated_share_of_errors_that_are_larger_than_in_training():
    rng = np.random.RandomState(0)
    model, truth = build_model(), 3 * rng.normal(size=(4000, 2))
    quantiles = np.broadcast_to(np.array([-1.28, 1.28]), (4000, 2, 2))
    model.fit_calibration((truth[..., None] - quantiles)[:2000])
    forecasts = Forecasts(torch.zeros(2000, 2), torch.tensor(quantiles[2000:].copy()), torch.ones(2000, 1))
    low, high = model.calibrate(forecasts).quantiles.numpy().transpose(2, 0, 1)
    test = truth[2000:]
    assert ((test > -1.28) & (test < 1.28)).mean() == pytest.approx(0.33, abs=0.02)
    assert ((test > low) & (test < high)).mean() == pytest.approx(0.8, abs=0.02)


@pytest.fixture(scope="module")
def run_and_table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibration")
    rng = np.random.RandomState(0)
    values = np.cumsum(rng.normal(size=800)) * np.linspace(1, 3, 800)
    table = folder / "walk.csv"
    table.write_text("\n".join(["t,a", *(f"{n},{value:.4f}" for n, value in enumerate(values))]) + "\n")
    run = seqwise.train(
        table, task="forecast", model="feedforward", budget="20-epochs", out=folder / "run", settings=SETTINGS
    )
    return run, table


def test_the_calibration_is_saved_with_the_best_weights_and_covers_the_validation_split(run_and_table):
    run, table = run_and_table
    assert load_file(run.run.folder / "model.safetensors")["calibration"].abs().sum() > 0
    metrics = run.evaluate(table, split="valid").metrics
    assert metrics["coverage"] == pytest.approx(0.8, abs=0.05)


def test_a_run_of_an_earlier_version_is_loaded_without_calibration(run_and_table, tmp_path: Path):
    run, table = run_and_table
    old_run = tmp_path / "old"
    old_run.mkdir()
    for file in run.run.folder.iterdir():
        if file.is_file():
            (old_run / file.name).write_bytes(file.read_bytes())
    weights = load_file(old_run / "model.safetensors")
    del weights["calibration"]
    save_file(weights, old_run / "model.safetensors")
    loaded = seqwise.load(old_run)
    assert loaded.model.calibration.tolist() == np.zeros((4, 2)).tolist()
    assert loaded.evaluate(table).metrics["mse"] == run.evaluate(table).metrics["mse"]
    weights.popitem()
    save_file(weights, old_run / "model.safetensors")
    with pytest.raises(seqwise.errors.RunError, match="is missing from the file"):
        seqwise.load(old_run).model  # noqa: B018
