"""Tables as people have them: the time in several columns, in local formats, or nowhere."""

from __future__ import annotations

import csv
import io
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import seqwise
from seqwise.config import Settings
from seqwise.errors import DataError
from seqwise.tasks.forecast.reader import SeriesData, read_series
from seqwise.tasks.forecast.task import Forecast
from seqwise.tasks.forecast.time_columns import split_timestamp
from seqwise.tasks.guess import guess_task

HOURS = [datetime(2020, 12, 30, 12) + timedelta(hours=n) for n in range(60)]
DAYS = [datetime(2020, 12, 20) + timedelta(days=n) for n in range(60)]
MONTHS = [datetime(2018 + n // 12, n % 12 + 1, 1) for n in range(60)]


def read(header: str, rows: list[str], **forecast) -> SeriesData:
    return read_series("\n".join([header, *rows]) + "\n", Settings(forecast=forecast))


def create_rows(moments: list[datetime], pattern: str) -> list[str]:
    return [f"{moment.strftime(pattern)},{number % 7}.5" for number, moment in enumerate(moments)]


# pattern of the time columns → header, moments, span
SHAPES = {
    "%d/%m/%Y": ("date,a", DAYS, "60 steps (step: day) from 20/12/2020 to 17/02/2021"),
    "%m/%d/%Y": ("when,a", DAYS, "60 steps (step: day) from 12/20/2020 to 02/17/2021"),
    "%d.%m.%Y %H:%M": ("Datum,a", HOURS, "60 steps (step: hour) from 30.12.2020 12:00 to 01.01.2021 23:00"),
    "%m/%d/%y %I:%M %p": ("date,a", HOURS, "60 steps (step: hour) from 12/30/20 12:00 PM to 01/01/21 11:00 PM"),
    "%d %b %Y": ("day,a", DAYS, "60 steps (step: day) from 20 Dec 2020 to 17 Feb 2021"),
    "%b %Y": ("month,a", MONTHS, "60 steps (step: month) from Jan 2018 to Dec 2022"),
    "01/%m/%Y": ("date,a", MONTHS, "60 steps (step: month) from 01/01/2018 to 01/12/2022"),
    "%Y/%m/%d": ("date,a", DAYS, "60 steps (step: day) from 2020/12/20 to 2021/02/17"),
    "%Y,%m,%d,%H": (
        "year,month,day,hour,a",
        HOURS,
        "60 steps (step: hour) from 2020-12-30 12:00 to 2021-01-01 23:00",
    ),
    "%Y,%m,%d": ("Year,Month,Day,a", DAYS, "60 steps (step: day) from 2020-12-20 to 2021-02-17"),
    "%Y,%b": ("year,month,a", MONTHS, "60 steps (step: month) from 2018-01 to 2022-12"),
    "%d/%m/%Y,%H:%M:%S": (
        "Date,Time,a",
        HOURS,
        "60 steps (step: hour) from 30/12/2020 12:00:00 to 01/01/2021 23:00:00",
    ),
    "%Y-%m-%d,%H": ("date,hour,a", HOURS, "60 steps (step: hour) from 2020-12-30 12:00 to 2021-01-01 23:00"),
}


@pytest.mark.parametrize("pattern", SHAPES)
def test_dates_in_local_formats_and_several_columns_are_read(pattern: str):
    header, moments, span = SHAPES[pattern]
    series = read(header, create_rows(moments, pattern))
    assert series.describe_span() == span
    assert series.names == ["a"]
    assert series.values[:, 0].tolist() == [number % 7 + 0.5 for number in range(60)]
    assert series.columns.time == header.removesuffix(",a")
    assert series.findings.warning_messages() == []
    fields = split_timestamp(series.grid.format_timestamp(1), series.columns.time_columns)
    expected = moments[1].strftime(pattern).split(",")
    if pattern != "%Y,%b":  # a forecast writes the month as a number
        assert [field.lstrip("0") for field in fields] == [field.lstrip("0") for field in expected]


@pytest.mark.parametrize("pattern", [pattern for pattern in SHAPES if pattern != "%b %Y"])  # any word and number
def test_such_tables_are_recognised_as_forecasts(pattern: str, tmp_path: Path):
    header, moments, _ = SHAPES[pattern]
    (tmp_path / "t.csv").write_text("\n".join([header, *create_rows(moments, pattern)]) + "\n")
    assert guess_task(str(tmp_path / "t.csv"))[0] == "forecast"


def test_day_and_month_are_decided_by_all_timestamps():
    rows = create_rows([datetime(2020, 1, 1) + timedelta(days=n) for n in range(20)], "%d/%m/%Y")
    assert read("date,a", rows).grid.format_timestamp(12) == "13/01/2020"
    rows = create_rows([datetime(2020, 1, 1) + timedelta(days=n) for n in range(20)], "%m/%d/%Y")
    assert read("date,a", rows).grid.format_timestamp(12) == "01/13/2020"
    with pytest.raises(DataError, match=r"such as '01/01/2020', are ambiguous: day or month first"):
        read("date,a", [f"{n:02}/01/2020,1" for n in range(1, 12)])


def test_a_wrong_date_among_local_ones_is_an_error_with_its_line():
    rows = create_rows(DAYS, "%d/%m/%Y")
    rows[30] = "31/02/2021,1"
    with pytest.raises(DataError, match=r"standard input:32: column 'date': expected a timestamp.*'31/02/2021'"):
        read("date,a", rows)
    with pytest.raises(DataError, match=r"standard input:2: column 'year,month'.*found '2020 13'|2020-13"):
        read("year,month,a", ["2020,13,1", "2020,2,3"])


def test_named_columns_are_joined_whatever_they_are_called():
    rows = [f"{moment:%Y,%m,%d},{n}" for n, moment in enumerate(DAYS)]
    series = read("y,m,d,a", rows, time="y,m,d")
    assert series.describe_span() == "60 steps (step: day) from 2020-12-20 to 2021-02-17"
    with pytest.raises(DataError, match="no column 'x'"):
        read("y,m,d,a", rows, time="y,m,x")


def test_without_timestamps_rows_are_equal_steps():
    series = read("load,heat", [f"{(7 * n) % 5},{(3 * n) % 11}.5" for n in range(30)])
    assert series.names == ["load", "heat"]
    assert series.describe_span() == "30 steps (step: row) from 0 to 29"
    (warning,) = series.findings.warning_messages()
    assert "table without a column of timestamps, whose rows are read as equal steps (--forecast.time" in warning
    shops = read("shop,sold", [f"{'ab'[n % 2]},{(7 * n) % 5}" for n in range(30)], series="shop")
    assert shops.values.shape == (15, 2)


def test_a_plain_number_is_not_silently_time():
    population = [f"{300_000_000 + (n * 7919) % 1000},{n % 5}" for n in range(30)]
    assert read("population,sold", population).columns.time == ""
    counter = read("row,sold", [f"{n},{n % 5}" for n in range(30)])
    assert counter.columns.time == "row"
    assert "column of numbers that count, 'row', which is read as time" in counter.findings.warning_messages()[0]
    hours = read("hour,sold", [f"{n % 24},{n % 5}" for n in range(72)])
    assert hours.columns.time == ""
    assert read("t,sold", [f"{n},{n % 5}" for n in range(30)]).findings.warning_messages() == []


def test_equal_rows_are_dropped_and_counted(tmp_path: Path):
    rows = create_rows(DAYS, "%Y-%m-%d")
    series = read("date,a", [*rows[:20], rows[3], rows[19], *rows[20:]])
    assert len(series.values) == 60
    (warning,) = series.findings.warning_messages()
    assert warning == "2 rows equal to an earlier one, which are dropped (first: standard input:22)."
    with pytest.raises(DataError, match="2020-12-20 occurs twice"):
        read("date,a", [*rows, "2020-12-20,99"])


def test_missing_values_are_counted_the_same_everywhere(tmp_path: Path):
    rows = [f"{moment:%Y-%m-%d},{n % 5},{n % 3}" for n, moment in enumerate(DAYS)]
    for index in (0, 1, 2, 10, 11, 59):
        rows[index] = rows[index].rpartition(",")[0] + ","
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["date,a,b", *rows]) + "\n")
    task = Forecast.prepare(str(path), Settings(horizon=2, forecast={"lookback": 4}))
    messages = " ".join(task.warnings())
    assert "2 missing values, filled with a line" in messages
    assert "4 values missing before the first or after the last one of their series, not used" in messages
    assert sum(counts["missing"] for counts in task.count_data().values()) == 2 + 4


@pytest.mark.parametrize("header", ["year,month,day", "date,hour", ""])
def test_a_prediction_is_written_in_the_columns_of_the_table(tmp_path: Path, header: str):
    pattern = {"year,month,day": "%Y,%-m,%-d", "date,hour": "%d/%m/%Y,%-H", "": ""}[header]
    moments = HOURS if "hour" in header else DAYS
    start = f"{header}," if header else ""
    rows = [f"{moment.strftime(pattern)}{',' if header else ''}{np.sin(n):.3f}" for n, moment in enumerate(moments)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join([f"{start}a", *rows]) + "\n")
    settings = {"network": {"width": 4}, "horizon": 2, "forecast": {"lookback": 4}}
    run = seqwise.train(
        path, task="forecast", model="feedforward", budget="1-epochs", out=tmp_path / "run", settings=settings
    )
    (prediction,) = run.predict([str(path)])
    first, second, *_ = csv.reader(io.StringIO(prediction.text))
    times = header.split(",") if header else ["step"]
    assert first == [*times, "a", "a q0.1", "a q0.9"]
    expected = {"year,month,day": ["2021", "2", "18"], "date,hour": ["02/01/2021", "0"], "": ["60"]}[header]
    assert second[: len(times)] == expected
