"""Timestamps of many styles: parsing, detection of the step, and formatting of later timestamps."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest

from seqwise.tasks.forecast.timestamps import TimeGrid, detect_style, get_parser, infer_grid


def create_grid(texts: list[str]) -> TimeGrid:
    style = detect_style(texts)
    assert style is not None
    ticks = np.array(sorted(get_parser(style)(text) for text in texts))
    return infer_grid(ticks, style)


DAYS = [f"{date(2024, 1, 1) + timedelta(days=n)}" for n in range(20)]
BUSINESS_DAYS = [f"{d}" for n in range(30) if (d := date(2024, 1, 1) + timedelta(days=n)).weekday() < 5]

# case → timestamps, step, season, the timestamp after the last
CASES = {
    "hours": (["2024-01-01 22:00:00", "2024-01-01 23:00:00"], "hour", 24, "2024-01-02 00:00:00"),
    "quarters of an hour, T": (["2024-01-01T23:30", "2024-01-01T23:45"], "15 minutes", 96, "2024-01-02T00:00"),
    "a zone": (["2024-01-01T00:00:00+02:00", "2024-01-01T01:00:00+02:00"], "hour", 24, "2024-01-01T00:00:00+00:00"),
    "fractions": (
        ["2024-01-01 00:00:00.5", "2024-01-01 00:00:01.0"],
        "0.5 seconds",
        172800,
        "2024-01-01 00:00:01.500000",
    ),
    "days": (DAYS, "day", 7, "2024-01-21"),
    "compact days": ([text.replace("-", "") for text in DAYS], "day", 7, "20240121"),
    "weeks": (["2024-01-01", "2024-01-08", "2024-01-15"], "week", 52, "2024-01-22"),
    "business days": (BUSINESS_DAYS, "business day", 5, "2024-01-31"),
    "months": (["2023-11", "2023-12"], "month", 12, "2024-01"),
    "first days of months": (["2024-01-01", "2024-02-01", "2024-03-01"], "month", 12, "2024-04-01"),
    "last days of months": (["2023-12-31", "2024-01-31", "2024-02-29"], "month", 12, "2024-03-31"),
    "quarters": (["2023-07-01", "2023-10-01", "2024-01-01"], "quarter", 4, "2024-04-01"),
    "years as dates": (["2022-01-01", "2023-01-01", "2024-01-01"], "year", None, "2025-01-01"),
    "years": (["2022", "2023", "2024"], "year", None, "2025"),
    "whole numbers": (["0", "5", "10"], "step of 5", None, "15"),
    "numbers": (["0.0", "0.1", "0.2"], "step of 0.1", None, "0.3"),
    "unix seconds": (["1700000000", "1700003600"], "hour", 24, "1700007200"),
    "unix milliseconds": (["1700000000000", "1700000060000"], "minute", 1440, "1700000120000"),
}


@pytest.mark.parametrize(("texts", "step_name", "season", "next_timestamp"), CASES.values(), ids=CASES)
def test_step_season_and_next_timestamp_are_inferred(
    texts: list[str], step_name: str, season: int | None, next_timestamp: str
):
    grid = create_grid(texts)
    assert (grid.step_name, grid.season) == (step_name, season)
    assert grid.format_timestamp(len(texts)) == next_timestamp
    if "+" not in texts[0] and "." not in texts[0]:
        assert [grid.format_timestamp(n) for n in range(len(texts))] == texts


def test_a_gap_does_not_change_the_step():
    grid = create_grid(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-09"])
    assert grid.step_name == "day"
    assert grid.find_positions(np.array([get_parser("date")("2024-01-09")])).tolist() == [8]


def test_jittered_timestamps_get_a_round_step():
    seconds = [0, 3601, 7198, 10803, 14400, 17995]
    grid = infer_grid(np.array([s * 10**6 for s in seconds]), "seconds ")
    assert grid.step_name == "hour"
    assert np.abs(grid.find_positions(np.array([s * 10**6 for s in seconds])) - np.arange(6)).max() < 0.01


@pytest.mark.parametrize(
    ("text", "date_order", "day"),
    [
        ("01/02/2024", "day-first", "2024-02-01"),
        ("01/02/2024", "month-first", "2024-01-02"),
        ("01-02-24 18:00", "day-first", "2024-02-01"),
        ("01.02.2024", "month-first", "2024-01-02"),
        ("24/01/02", "year-first", "2024-01-02"),
        ("99/12/31", "year-first", "1999-12-31"),
        ("2024/01/02", "day-first", "2024-01-02"),
    ],
)
def test_the_order_of_day_month_and_year_can_be_set(text: str, date_order: str, day: str):
    style = detect_style([text], date_order)
    assert style is not None
    assert str(np.datetime64(get_parser(style)(text), "us").astype("datetime64[D]")) == day


@pytest.mark.parametrize("text", ["32/01/2024", "yesterday", "2024-13-01", ""])
def test_text_that_is_not_a_timestamp_has_no_style(text: str):
    assert detect_style([text]) is None


def test_timestamps_with_and_without_a_zone_cannot_be_mixed():
    with pytest.raises(ValueError, match="time zone"):
        get_parser("seconds +")("2024-01-01 00:00:00")


def test_calendar_phases_equal_hand_computed_values():
    hours = create_grid(["2024-01-01 00:00", "2024-01-01 01:00"])  # a Monday
    calendar_phases = hours.compute_calendar_phases(np.array([0, 6, 24, 24 * 7]))
    assert calendar_phases["time of day"][0].tolist() == [0, 0.25, 0, 0]
    assert calendar_phases["day of week"][0] == pytest.approx([0, 0, 1 / 7, 0])
    assert calendar_phases["time of year"][0] == pytest.approx([0, 0, 1 / 366, 7 / 366])
    assert [length for _, length in calendar_phases.values()] == pytest.approx([24, 168, 8766])
    assert list(create_grid(["2024-01", "2024-02"]).compute_calendar_phases(np.arange(2))) == ["time of year"]
    assert create_grid(["1", "2"]).compute_calendar_phases(np.arange(2)) == {}


def test_a_grid_is_aligned_with_another_table():
    hours = create_grid(["2024-01-01 00:00", "2024-01-01 01:00"])
    later = np.array([get_parser(hours.style)(f"2024-02-01 0{n}:00") for n in range(3)])
    assert hours.align(later).format_timestamp(0) == "2024-02-01 00:00"
    shifted = later + 30 * 60 * 10**6
    assert hours.align(shifted).format_timestamp(0) == "2024-02-01 00:30"  # a grid of its own, not half a step off


def test_business_days_before_1970_are_consecutive_too():
    ticks = np.array([get_parser("date")(text) for text in ("1969-12-26", "1969-12-29", "1969-12-30")])
    days = TimeGrid("business day", 1, 0, "date")
    assert np.diff(days.find_positions(ticks)).tolist() == [1, 1]


def test_decimals_keep_one_digit_after_the_point():
    numbers = create_grid(["0.5", "1.0", "1.5"])
    assert [numbers.format_timestamp(number) for number in range(4)] == ["0.5", "1.0", "1.5", "2.0"]
