"""Errors of forecasts by lead time, hour and series, computed by hand for a model with known errors."""

import types

import numpy as np
import pytest
import torch

import seqwise
from seqwise.lens.errors import errors
from seqwise.tasks.forecast.errors import WindowErrors, choose_windows, find_calendar_fields, find_worst
from seqwise.tasks.forecast.model import Forecasts
from seqwise.tasks.forecast.selection import read_windows, select_steps
from seqwise.tasks.forecast.timestamps import DAY, HOUR, TimeGrid


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A forecaster of two hourly series whose forecasts are replaced: 0 everywhere, with quantiles at −1 and 1."""
    folder = tmp_path_factory.mktemp("forecast")
    times = np.datetime64("2024-01-01T00") + np.arange(600).astype("timedelta64[h]")
    values = np.random.default_rng(0).normal(size=(600, 2))
    rows = "".join(f"{time},{a:.6f},{b:.6f}\n" for time, (a, b) in zip(times, values))
    (folder / "data.csv").write_text(f"time,a,b\n{rows}")
    settings = {"network.width": 8, "forecast.lookback": 24, "forecast.season": 24, "device": "cpu"}
    trained = seqwise.train(
        folder / "data.csv", task="forecast", model="gru", horizon=4, budget="200-tokens", settings=settings,
        out=folder / "run",
    )  # fmt: skip

    def forecast(self, batch):
        point = torch.zeros_like(batch.future)
        quantiles = torch.stack([point - 1, point + 1], dim=-1)
        return Forecasts(point, quantiles, torch.ones(len(point), 1))

    trained.model.forecast = types.MethodType(forecast, trained.model)
    trained.model.calibrate = lambda forecasts: forecasts
    return trained


def test_errors_by_lead_time_hour_and_series_are_the_means_of_absolute_values(run):
    data = errors(run).data
    rolling = read_windows(run.bundle, run.run.metadata.data)
    start, stop, _ = select_steps(rolling.series, run.bundle, "valid")
    values = rolling.values  # standardised; the forecast is 0
    origins = np.arange(start, stop - 3)
    slices = {each["name"]: each for each in data["slices"]}
    for lead in range(4):
        expected = np.abs(values[origins + lead]).mean()
        assert slices[f"lead time {lead + 1}"]["value"] == pytest.approx(expected, rel=1e-5)
    steps = (origins[:, None] + np.arange(4)).ravel()
    at_noon = steps[steps % 24 == 12]  # the first step is at midnight
    assert slices["hour 12"]["value"] == pytest.approx(np.abs(values[at_noon]).mean(), rel=1e-5)
    assert slices["series b"]["value"] == pytest.approx(np.abs(values[steps, 1]).mean(), rel=1e-5)
    below = [(values[steps] <= level).mean() for level in (-1, 1)]
    assert data["coverage"]["shares"][:, 0] == pytest.approx(below, abs=1e-6)
    assert data["metrics"]["mse"] == pytest.approx((values[steps] ** 2).mean(), rel=1e-5)


def test_the_worst_windows_do_not_overlap():
    windows = np.array([[0, 0], [1, 0], [2, 0], [2, 1], [4, 0]])
    values = np.array([[1.0, 3.0], [3.0, 4.0], [4.0, 0.0], [1.0, np.nan], [1.0, 1.0]])
    worst = find_worst(WindowErrors(windows, values, None), 2)
    assert worst == [1, 3, 4]  # means 3.5, 1 and 1; windows 0 and 2 overlap with window 1


def test_a_sample_of_windows_has_all_series_and_all_hours():
    windows = np.stack([np.repeat(np.arange(2400), 6), np.tile(np.arange(6), 2400)], axis=1)
    chosen = choose_windows(windows, 600)
    assert len(chosen) == 600
    assert np.bincount(chosen[:, 1]).tolist() == [100] * 6
    assert len(np.unique(chosen[:, 0] % 24)) > 20  # origins at equal distances of 24 would all have the same hour
    assert chosen[0, 0] < 24
    assert chosen[-1, 0] >= 2400 - 24
    assert choose_windows(windows, 10**6) is windows


def test_calendar_units_fit_the_step():
    hourly = TimeGrid("moment", HOUR, 0, "datetime")  # 1970 began on a Thursday
    units = {name: (names, values) for name, names, values in find_calendar_fields(hourly, np.array([0, 13, 25]))}
    assert units["hour of the day"][1].tolist() == [0, 13, 1]
    names, values = units["day of the week"]
    assert [names[value] for value in values] == ["Thursday", "Thursday", "Friday"]
    assert [name for name, *_ in find_calendar_fields(TimeGrid("moment", DAY, 0, "date"), np.arange(3))] == [
        "day of the week", "month",
    ]  # fmt: skip
    monthly = TimeGrid("month", 1, 1970 * 12 + 2, "month")
    ((name, names, values),) = find_calendar_fields(monthly, np.array([0, 11]))
    assert (name, [names[value] for value in values]) == ("month", ["March", "February"])
    assert find_calendar_fields(TimeGrid("number", 1, 0, "row"), np.arange(3)) == []
