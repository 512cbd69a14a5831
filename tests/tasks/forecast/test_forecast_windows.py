"""Rolling windows: splits by time, statistics of the training split, no value of the future."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqwise.config import Settings
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.forecast.reader import SeriesData, read_series
from seqwise.tasks.forecast.task import Forecast
from seqwise.tasks.forecast.windows import (
    RollingWindows,
    SeriesStatistics,
    Standardizer,
    compute_borders,
    compute_in_sample_error,
    describe_splits,
    detect_season,
    is_constant,
)


def create_series(*columns: list[float | str], header: str = "abcdefg", **forecast) -> SeriesData:
    rows = ["t," + ",".join(header[: len(columns)])]
    rows += [f"{step}," + ",".join(str(value) for value in row) for step, row in enumerate(zip(*columns))]
    return read_series("\n".join(rows) + "\n", Settings(forecast=forecast))


def create_windows(
    series: SeriesData,
    lookback: int,
    horizon: int,
    policy: str = "interpolate",
    train: int | None = None,
    season: int = 1,
) -> RollingWindows:
    statistics = SeriesStatistics.fit(series, train or series.end, season, True)
    return RollingWindows(series, statistics, lookback, horizon, policy)


def test_the_published_borders_give_the_published_number_of_windows():
    series = create_series(list(range(17420)))
    borders = compute_borders(series, "8640,2880,2880")
    assert borders == {"train": (0, 8640), "valid": (8640, 11520), "test": (11520, 14400)}
    rolling = create_windows(series, 336, 96)
    assert [len(rolling.find_windows(*border)) for border in borders.values()] == [8640 - 336 - 96 + 1, 2785, 2785]
    assert describe_splits(series, "8640,2880,2880").endswith(
        "train 8,640, valid 2,880, test 2,880; the last 3,020 are not used."
    )


def test_splits_follow_fractions_or_files(tmp_path: Path):
    series = create_series(list(range(50)))
    assert compute_borders(series, "0.7,0.1,0.2") == {"train": (0, 35), "valid": (35, 40), "test": (40, 50)}
    for split, first in (("train", 0), ("valid", 5), ("test", 9)):
        (tmp_path / f"{split}.csv").write_text("t,a\n" + "".join(f"{first + n},{n}\n" for n in range(4)))
    folder_series = read_series(str(tmp_path), Settings())
    assert compute_borders(folder_series, "0.7,0.1,0.2") == {"train": (0, 4), "valid": (4, 9), "test": (9, 13)}
    assert describe_splits(folder_series, "").startswith("steps are split as the files are named: train 4")


def test_a_window_is_the_past_and_the_future():
    rolling = create_windows(create_series([10.0 * n for n in range(8)], [float(n) for n in range(8)]), 3, 2)
    windows = rolling.find_windows(0, 8)
    assert windows.tolist() == [[o, c] for o in (3, 4, 5, 6) for c in (0, 1)]
    batch = rolling.collate(windows[[0, 3]])
    values = np.array([10.0 * n for n in range(8)])
    assert batch.past[0] * values.std() + values.mean() == pytest.approx([0, 10, 20], abs=1e-4)
    assert batch.future[1].numpy() * np.arange(8).std() + 3.5 == pytest.approx([4, 5], abs=1e-5)
    assert (batch.num_sequences, batch.length, batch.num_targets, batch.num_tokens) == (2, 3, 4, 4)
    assert batch.known.shape == (2, 5, 0)
    assert batch.positions.tolist() == [3, 4]


def test_a_later_split_looks_back_but_not_ahead():
    rolling = create_windows(create_series(list(range(20))), 4, 3)
    assert rolling.find_windows(10, 15)[:, 0].tolist() == [10, 11, 12]  # targets 10 … 14, past from 6 on
    assert rolling.find_windows(10, 12).tolist() == []
    with_season = create_windows(rolling.series, 4, 3, season=6)
    assert with_season.find_windows(0, 20)[0, 0] == 6  # a whole season precedes every window


def test_statistics_depend_on_the_training_split_only():
    series = create_series([1.0, 2, 3, 4, 1000, 2000])
    statistics = SeriesStatistics.fit(series, 4, 1, True)
    assert statistics.scaler.mean.tolist() == [2.5]
    assert statistics.scaler.deviation == pytest.approx([np.std([1, 2, 3, 4])])
    assert statistics.in_sample_error.tolist() == [1.0]


def test_a_constant_has_deviation_one_and_gaps_are_ignored():
    scaler = Standardizer.fit(np.array([[5.0, 1], [5, np.nan], [5, 3]]))
    assert scaler.deviation.tolist() == [1, 1]
    assert scaler.mean.tolist() == [5, 2]
    values = np.array([[7.0, 4.0]])
    assert scaler.inverse_transform(scaler.transform(values)) == pytest.approx(values)


@pytest.mark.parametrize("policy", ["interpolate", "previous"])
def test_no_window_contains_a_value_of_its_future(policy: str):
    """Changes everything from a step on: windows that end before it stay as they were."""
    values = [float(n % 5) for n in range(40)]
    gaps: list[float | str] = list(values)
    for step in (10, 11, 20, 27):
        gaps[step] = ""
    border = 21
    changed = [value if step < border or value == "" else value + 100.0 for step, value in enumerate(gaps)]
    first, second = (
        create_windows(create_series(each, missing=policy), 6, 2, policy, train=8) for each in (gaps, changed)
    )
    windows = first.find_windows(0, border)
    all_windows = first.find_windows(0, 40)
    assert len(windows) > 5
    for window in all_windows[all_windows[:, 0] <= border]:
        assert np.array_equal(first.collate(window[None]).past, second.collate(window[None]).past)


def test_missing_targets_do_not_count_and_no_past_ends_in_a_gap():
    values: list[float | str] = [float(n) for n in range(12)]
    values[6] = values[7] = ""
    rolling = create_windows(create_series(values), 3, 2)
    origins = rolling.find_windows(0, 12)[:, 0].tolist()
    assert 6 not in origins  # both targets are missing
    assert 7 not in origins  # its past would end in a gap, filled from the future
    assert origins == [3, 4, 5, 9, 10]
    batch = rolling.collate(np.array([[5, 0]]))
    assert batch.mask.tolist() == [[True, False]]
    assert batch.num_targets == 1
    previous = create_windows(create_series(values, missing="previous"), 3, 2, "previous")
    assert previous.find_windows(0, 12)[:, 0].tolist() == [3, 4, 5, 7, 8, 9, 10]


def test_a_series_that_starts_late_has_no_earlier_window():
    late: list[float | str] = ["", "", "", "", *map(float, range(8))]
    rolling = create_windows(create_series(list(range(12)), late), 3, 2)
    assert [window[0] for window in rolling.find_windows(0, 12).tolist() if window[1] == 1] == [7, 8, 9, 10]


def test_naive_forecasts_equal_hand_computed_values():
    rolling = create_windows(create_series([1.0, 2, 3, 4, 5, 6, 7, 8]), 4, 3)
    scaler = Standardizer.fit(np.arange(1.0, 9)[:, None])
    window = np.array([[5, 0]])
    assert scaler.inverse_transform(rolling.forecast_naively(window, 1)) == pytest.approx(np.array([[5, 5, 5]]))
    assert scaler.inverse_transform(rolling.forecast_naively(window, 2)) == pytest.approx(np.array([[4, 5, 4]]))


def test_known_values_cover_the_future():
    table = "time,a,holiday\n" + "".join(f"2024-01-{1 + n:02},{n},{n % 2}\n" for n in range(28))
    series = read_series(table, Settings(forecast={"known_future": "holiday"}))
    statistics = SeriesStatistics.fit(series, 28, 7, True)
    assert statistics.calendar == ["day of week"]  # a year is not seen twice
    rolling = RollingWindows(series, statistics, 7, 7, "interpolate")
    known = rolling.collate(rolling.find_windows(0, 28)[:1]).known
    assert known.shape == (1, 14, 3)
    assert known[0, :, 0].tolist() == pytest.approx([-1, 1] * 7)
    assert known[0, :7, 1:].numpy() == pytest.approx(known[0, 7:, 1:].numpy(), abs=1e-6)
    assert SeriesStatistics.fit(series, 28, 7, False).calendar == []


def test_every_window_is_in_one_batch_of_an_epoch():
    table = "t,a,b\n" + "".join(f"{n},{n},{n}\n" for n in range(60))
    settings = Settings(seed=3, horizon=3, forecast={"lookback": 4, "season": 1}, training={"batch_size": 16})
    task = Forecast.prepare(table, settings)
    batches = task.batches(ResolvedSettings.from_settings(settings))
    origins = [origin for batch in batches.epoch(0) for origin in batch.positions.tolist()]
    assert sorted(origins) == sorted(task.windows["train"][:, 0].tolist())
    assert origins != sorted(origins)
    assert batches.steps == len(list(batches.epoch(1)))


def test_seasons_are_detected_from_values():
    steps = np.arange(200)
    assert detect_season(np.sin(2 * np.pi * steps / 11)[:, None]) == 11
    assert detect_season(read_series("builtin:sunspots", Settings()).values[:216]) in (10, 11)
    assert detect_season(np.random.RandomState(0).normal(size=(300, 1))) is None
    assert detect_season(np.ones((50, 1))) is None


def test_the_in_sample_error_equals_a_hand_computed_value():
    values = np.array([[1.0], [4], [np.nan], [5], [6]])
    assert compute_in_sample_error(values, 1) == pytest.approx([2.0])  # |4 - 1|, |6 - 5|
    assert compute_in_sample_error(values, 2) == pytest.approx([1.0])  # |5 - 4|
    assert np.isnan(compute_in_sample_error(values, 9)).all()


def test_statistics_survive_serialisation():
    series = create_series([1.0, 2, 3, 5], [5.0, 5, 5, 5])
    statistics = SeriesStatistics.fit(series, 4, 2, True)
    restored = SeriesStatistics.from_attributes(statistics.to_attributes())
    assert restored.to_attributes() == statistics.to_attributes()
    assert (restored.columns, restored.grid, restored.names) == (statistics.columns, statistics.grid, statistics.names)


def test_a_new_series_is_scaled_by_its_own_values():
    statistics = SeriesStatistics.fit(create_series([1.0, 2, 3, 5]), 4, 1, True)
    with_new_series = create_series([1.0, 2, 3, 5], [10.0, 20, 30, 40])
    selected_statistics = statistics.select_series(with_new_series)
    assert selected_statistics.scaler.mean.tolist() == [2.75, 25]
    assert np.isnan(selected_statistics.in_sample_error[1])


@pytest.mark.parametrize("value", [0.0, 0.3, -0.1, 1e-9, 1e15])
def test_a_constant_is_detected_although_its_mean_is_rounded(value: float):
    values = np.full((420, 1), value)
    assert is_constant(values).all()
    assert Standardizer.fit(values).deviation.tolist() == [1.0]
    assert detect_season(values) is None


@pytest.mark.parametrize(("middle", "width"), [(0.0, 1e-9), (1.6e9, 1.0), (1e-12, 1e-13)])
def test_a_series_that_changes_little_is_not_constant(middle: float, width: float):
    values = middle + width * np.arange(50.0)[:, None]
    assert not is_constant(values).any()
    assert Standardizer.fit(values).deviation[0] == pytest.approx(width * np.arange(50.0).std(), rel=1e-6)


def test_a_column_without_values_is_constant():
    assert is_constant(np.array([[np.nan, 1.0], [np.nan, 2.0]])).tolist() == [True, False]


def test_a_season_that_repeats_up_to_rounding_has_no_in_sample_error():
    wave = np.tile([0.1 + 0.2, 1.0], 20)
    wave[::4] = 0.3
    assert compute_in_sample_error(wave[:, None], 2).tolist() == [0.0]
