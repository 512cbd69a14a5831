"""Tables become series on a grid; missing and unordered rows are corrected as documented, and counted."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from seqwise.config import Settings
from seqwise.errors import DataError, UsageError
from seqwise.tasks.forecast.reader import SeriesData, fill_missing, read_series


def read(folder: Path, text: str, name: str = "t.csv", target: str | None = None, **forecast) -> SeriesData:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return read_series(str(path), Settings(target=target, forecast=forecast))


def test_a_wide_table_has_a_series_per_column_of_numbers(tmp_path):
    series = read(tmp_path, "date,a,place,b\n2024-01-01,1,x,4\n2024-01-02,2,x,5\n2024-01-03,3,y,6\n")
    assert series.names == ["a", "b"]
    assert series.values.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert series.describe_span() == "3 steps (step: day) from 2024-01-01 to 2024-01-03"
    assert any("column that holds no numbers, 'place'" in message for message in series.findings.warning_messages())


@pytest.mark.parametrize("name", ["t.csv.gz", "t.tsv", "t.tsv.gz", "T.CSV"])
def test_any_suffix_compression_separator_and_line_break_is_read(tmp_path, name: str):
    text = "\ufeffyear,a\r\n2001,1.5\r\n2002,-2e3\r\n"
    series = read(tmp_path, text.replace(",", "\t") if ".tsv" in name else text, name)
    assert series.values.tolist() == [[1.5], [-2000]]
    assert series.columns.time == "year"


def test_a_long_table_has_a_series_per_name(tmp_path):
    text = "shop,day,sold,left\nb,2024-01-02,5,50\na,2024-01-01,1,10\na,2024-01-02,2,20\nb,2024-01-03,6,60\n"
    series = read(tmp_path, text, series="shop")
    assert series.names == ["b/sold", "b/left", "a/sold", "a/left"]
    assert series.group.tolist() == [0, 0, 1, 1]
    assert np.nan_to_num(series.values, nan=-1).tolist() == [[-1, -1, 1, 10], [5, 50, 2, 20], [6, 60, -1, -1]]
    one_target = read(tmp_path, text, target="sold", series="shop")
    assert one_target.names == ["b", "a"]


def test_rows_out_of_order_are_sorted_and_counted(tmp_path):
    series = read(tmp_path, "t,a\n3,30\n1,10\n2,20\n")
    assert series.values[:, 0].tolist() == [10, 20, 30]
    assert series.findings.warning_messages() == [f"1 row out of order, which is sorted by time ({tmp_path}/t.csv:3)."]


def test_missing_timestamps_are_inserted_and_counted(tmp_path):
    series = read(tmp_path, "day,a\n2024-01-01,1\n2024-01-02,2\n2024-01-03,3\n2024-01-06,6\n")
    assert np.nan_to_num(series.values[:, 0], nan=-1).tolist() == [1, 2, 3, -1, -1, 6]
    (message,) = series.findings.warning_messages()
    assert message.startswith("2 missing timestamps (step: day), inserted with missing values")
    assert "t.csv:5" in message


def test_missing_values_are_counted_with_their_policy(tmp_path):
    text = "t,a,b\n1,,1\n2,2,NA\n3,,3\n4,4,\n5,,5\n6,,\n"
    series = read(tmp_path, text)
    assert series.end == 5  # the last row has no value
    assert series.findings.warning_messages() == [
        f"3 missing values, filled with a line between their neighbours; never a target (first: {tmp_path}/t.csv:4).",
        "2 values missing before the first or after the last one of their series, not used "
        f"(first: {tmp_path}/t.csv:2).",
    ]


def test_filled_gaps_equal_hand_computed_values():
    nan = np.nan
    gaps = np.array([[nan, 1], [2, 2], [nan, nan], [nan, nan], [8, nan], [nan, 7]])
    assert fill_missing(gaps, "interpolate").T.tolist() == [[2, 2, 4, 6, 8, 8], [1, 2, 3.25, 4.5, 5.75, 7]]
    assert fill_missing(gaps, "previous").T.tolist() == [[2, 2, 2, 2, 8, 8], [1, 2, 2, 2, 2, 7]]


def test_timestamps_slightly_off_the_grid_are_moved(tmp_path):
    hours = ("00:00", "01:00", "02:04", "03:00", "04:00")
    rows = [f"2024-01-01 {hour},{number}" for number, hour in enumerate(hours, start=1)]
    series = read(tmp_path, "\n".join(["time,a", *rows]))
    assert series.values[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert "1 timestamp a little off the grid (step: hour), moved" in series.findings.warning_messages()[0]


def test_values_known_in_advance_extend_beyond_the_last_value(tmp_path):
    series = read(tmp_path, "t,a,holiday\n1,1,0\n2,2,1\n3,,1\n4,,0\n", known_future="holiday")
    assert (series.names, series.end, len(series.values)) == (["a"], 2, 4)
    assert series.known[0, :, 0].tolist() == [0, 1, 1, 0]


def test_a_folder_keeps_its_splits(tmp_path):
    for number, split in enumerate(("train", "valid", "test")):
        rows = "".join(f"{5 * number + n},{n}\n" for n in range(5))
        (tmp_path / f"{split}.csv").write_text("t,a\n" + rows)
    series = read_series(str(tmp_path), Settings())
    assert series.split_ends == (5, 10, 15)
    assert len(series.values) == 15


def test_splits_of_a_folder_must_follow_each_other(tmp_path):
    for split, first in (("train", 5), ("valid", 0), ("test", 10)):
        (tmp_path / f"{split}.csv").write_text("t,a\n" + "".join(f"{first + n},1\n" for n in range(5)))
    with pytest.raises(DataError, match=r"valid.csv:2: the valid rows must be later"):
        read_series(str(tmp_path), Settings())


def test_the_text_of_a_table_is_read_as_from_standard_input():
    series = read_series("year,a\n2001,1\n2002,2\n", Settings())
    assert (series.source, series.values[:, 0].tolist()) == ("standard input", [1, 2])
    with pytest.raises(DataError, match="standard input:3: column 'a': expected a number"):
        read_series("year,a\n2001,1\n2002,x\n2003,2\n2004,2\n", Settings())


def test_sunspots_are_the_published_numbers():
    series = read_series("builtin:sunspots", Settings())
    assert series.describe_span() == "309 steps (step: year) from 1700 to 2008"
    values = series.values[:, 0]
    assert (values[0], values[57], values[257], values[-1]) == (5.0, 32.4, 190.2, 2.9)
    assert values.mean() == pytest.approx(49.7521, abs=1e-4)
    with pytest.raises(DataError, match="Perhaps you meant 'sunspots'"):
        read_series("builtin:sunspot", Settings())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "a", "known_future": "a"}, "'a' is to be read as known in advance and as a target"),
        ({"target": "a", "known_future": "b,b"}, "'b' is to be read twice as known in advance"),
        ({"target": "a,a"}, "'a' is to be read twice as a target"),
        ({"target": "t"}, "'t' is to be read as time and as a target"),
        ({"known_future": "t"}, "'t' is to be read as time and as known in advance"),
        ({"target": "a", "series": "a"}, "'a' is to be read as the name of the series and as a target"),
        ({"time": "t", "series": "t"}, "'t' is to be read as time and as the name of the series"),
    ],
)
def test_a_column_has_one_role(tmp_path, options: dict, message: str):
    with pytest.raises(UsageError, match=message):
        read(tmp_path, "t,a,b\n1,1,2\n2,3,4\n3,5,6\n", **options)


def test_the_option_columns_is_rejected(tmp_path):
    (tmp_path / "t.csv").write_text("t,a\n1,1\n2,3\n")
    with pytest.raises(UsageError, match=r"does not use --columns; received t,a.*\n.*--target, --forecast.time"):
        read_series(str(tmp_path / "t.csv"), Settings(columns="t,a"))


def test_tables_with_other_names_are_counted(tmp_path):
    for index, name in enumerate(("train", "valid", "test", "more")):
        (tmp_path / f"{name}.csv").write_text("t,a\n" + "".join(f"{4 * index + n},{n}\n" for n in range(4)))
    assert read_series(str(tmp_path), Settings()).findings.warning_messages() == [
        f"1 file whose name contains no split, which is not read ({tmp_path / 'more.csv'})."
    ]
