"""Invalid tables for forecasting, and the errors and warnings about each: file, line, cause, fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.config import Settings
from seqwise.errors import DataError, UsageError
from seqwise.tasks.forecast.task import Forecast

YEARS = "".join(f"{1900 + n},{n % 7}.5\n" for n in range(80))
GOOD = "year,a\n" + YEARS
HOURS = "".join(f"2024-01-{1 + n // 24:02} {n % 24:02}:00,{n % 7}\n" for n in range(200))

# case → files, what the error must say, settings
ERRORS: dict[str, tuple[dict[str, str | bytes], list[str], dict]] = {
    "a word among numbers": (
        {"t.csv": GOOD + "1980,many\n"},
        ["t.csv:82", "column 'a'", "found 'many'", "decimal point"],
        {},
    ),
    "several errors at once": (
        {"t.csv": GOOD + "1980,x\n1981,1\n1982,y\n"},
        ["2 errors", "t.csv:82", "'x'", "t.csv:84", "'y'"],
        {},
    ),
    "infinity": ({"t.csv": GOOD + "1980,inf\n"}, ["t.csv:82", "expected a number, found 'inf'"], {}),
    "decimal commas": (
        {"t.csv": GOOD + "1980,1,5\n"},
        ["t.csv:82", "expected 2 fields", "found 3", "decimal point"],
        {},
    ),
    "a repeated header": ({"t.csv": GOOD + GOOD[:7]}, ["t.csv:82", "the header of line 1 is repeated"], {}),
    "an unclosed quote": (
        {"t.csv": GOOD + '1980,"5\n1981,6\n'},
        ["t.csv:82", "quote is opened here and never closed"],
        {},
    ),
    "a repeated timestamp": ({"t.csv": GOOD + "1950,3\n"}, ["t.csv:82", "1950 occurs twice", "t.csv:52."], {}),
    "series that are not distinguished": (
        {"t.csv": "year,shop,a\n" + "".join(f"{1900 + n // 2},{'ab'[n % 2]},1\n" for n in range(40))},
        ["t.csv:3", "1900 occurs twice", "--forecast.series"],
        {},
    ),
    "an unreadable timestamp": ({"t.csv": GOOD + "in 1980,3\n"}, ["t.csv:82", "such as 1900", "found 'in 1980'"], {}),
    "day or month first": (
        {"t.csv": "date,a\n" + "".join(f"{n:02}/01/2024,1\n" for n in range(1, 12))},
        [
            "t.csv:1",
            "the timestamps of 'date', such as '01/01/2024'",
            "ambiguous",
            "--forecast.date-order day-first",
            "2020-01-31",
        ],
        {},
    ),
    "dates in another order than is set": (
        {"t.csv": "date,a\n" + "".join(f"{n:02}/01/2024,1\n" for n in range(1, 25))},
        ["t.csv:14", "column 'date': expected a timestamp", "'13/01/2024'", "--forecast.date-order month-first"],
        {"forecast": {"date_order": "month-first"}},
    ),
    "no date in the order that is set": (
        {"t.csv": "date,a\n" + "".join(f"{n:02}/01/2024,1\n" for n in range(13, 25))},
        ["t.csv:2", "column 'date': expected a timestamp", "--forecast.date-order month-first"],
        {"forecast": {"date_order": "month-first"}},
    ),
    "uneven timestamps": (
        {"t.csv": "time,a\n" + HOURS + "2024-01-20 00:31,1\n"},
        ["t.csv:202", "0.48 steps off the grid (step: hour)", "at even distances"],
        {},
    ),
    "a mistyped year": (
        {"t.csv": "time,a\n" + HOURS.replace("2024-01-05 08:00", "2042-01-05 08:00")},
        ["t.csv:106", "the longest gap ends here", "mistyped"],
        {},
    ),
    "a missing value with the policy stop": (
        {"t.csv": GOOD.replace("1910,3.5", "1910,")},
        ["t.csv:12", "the value of 'a' is missing", "--forecast.missing"],
        {"forecast": {"missing": "stop"}},
    ),
    "a missing timestamp with the policy stop": (
        {"t.csv": GOOD.replace("1910,3.5\n", "")},
        ["t.csv:12", "1 timestamp is missing before this row (step: year)"],
        {"forecast": {"missing": "stop"}},
    ),
    "a missing value that must be known in advance": (
        {"t.csv": "year,a,holiday\n" + YEARS.replace("\n", ",1\n").replace("1905,5.5,1", "1905,5.5,")},
        ["t.csv:7", "column 'holiday' is to be known in advance"],
        {"forecast": {"known_future": "holiday"}},
    ),
    "an unnamed series": (
        {"t.csv": "year,shop,a\n1900,x,1\n1901,,2\n"},
        ["t.csv:3", "column 'shop': the name of the series is empty"],
        {"forecast": {"series": "shop"}},
    ),
    "an unknown target": ({"t.csv": GOOD}, ["t.csv:1", "no column 'b'", "year, a"], {"target": "b"}),
    "an unknown time column": (
        {"t.csv": GOOD},
        ["t.csv:1", "no column 'yaer'", "Perhaps you meant 'year'"],
        {"forecast": {"time": "yaer"}},
    ),
    "no header": (
        {"t.csv": YEARS},
        ["t.csv:1", "expected the names of the columns in the first line", "time,value"],
        {},
    ),
    "two columns with one name": ({"t.csv": "year,a,a\n1900,1,2\n"}, ["t.csv:1", "two columns are called 'a'"], {}),
    "no numbers": ({"t.csv": "year,a\n1900,x\n1901,y\n"}, ["t.csv:1", "no column holds numbers", "--target"], {}),
    "only a header": ({"t.csv": "year,a\n"}, ["t.csv", "no row below it"], {}),
    "an empty file": ({"t.csv": ""}, ["t.csv", "the file is empty"], {}),
    "a series without values": (
        {"t.csv": "year,a,b\n" + YEARS.replace("\n", ",\n")},
        ["t.csv:2", "'b' has no value at all"],
        {"target": "a,b"},
    ),
    "Latin-1": (
        {"t.csv": GOOD.encode() + "1980,é\n".encode("latin1")},
        ["t.csv:82", "found 'é'"],
        {},
    ),
    "a damaged gzip file": ({"t.csv.gz": b"\x1f\x8b\x08\x00nothing"}, ["t.csv.gz", "gzip file is damaged"], {}),
    "another format": ({"t.xls": b"PK"}, ["t.xls", "(.xls) are not read", ".csv, .tsv"], {}),
    "too short": ({"t.csv": "year,a\n" + YEARS[:60]}, ["t.csv", "no window of", "more rows"], {"horizon": 5}),
    "several tables": ({"a.csv": GOOD, "b.csv": GOOD}, ["holds 2 tables", "train.csv, valid.csv and test.csv"], {}),
    "a series that begins too late": (
        {"t.csv": "year,a,b\n" + "".join(f"{1900 + n},1,{n if n > 70 else ''}\n" for n in range(80))},
        ["t.csv", "series 'b' has no value in the training split", "1955", "--forecast.splits"],
        {},
    ),
    "invalid splits": (
        {"t.csv": GOOD},
        ["--forecast.splits", "'half'", "8640,2880,2880"],
        {"forecast": {"splits": "half"}},
    ),
    "too many steps": ({"t.csv": GOOD}, ["asks for 90 steps", "has 80"], {"forecast": {"splits": "60,15,15"}}),
    "too large shares": ({"t.csv": GOOD}, ["add up to 1.2"], {"forecast": {"splits": "0.7,0.25,0.25"}}),
    "invalid quantiles": (
        {"t.csv": GOOD},
        ["--forecast.quantiles", "'10,90'", "0.1,0.9"],
        {"forecast": {"quantiles": "10,90"}},
    ),
}


def write_files(folder: Path, files: dict[str, str | bytes]) -> str:
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder / next(iter(files)) if len(files) == 1 else folder)


@pytest.mark.parametrize(("files", "fragments", "settings"), ERRORS.values(), ids=ERRORS)
def test_an_error_names_file_line_cause_and_fix(tmp_path, files, fragments, settings):
    data = write_files(tmp_path, files)
    with pytest.raises(UsageError) as caught:
        Forecast.prepare(data, Settings.model_validate(settings))
    for fragment in fragments:
        assert fragment in str(caught.value)


# case → table, what the warning must say
WARNINGS = {
    "rows out of order": (
        GOOD.replace("1910,3.5\n", "") + "1910,3.5\n",
        "1 row out of order, which is sorted by time",
    ),
    "missing timestamps": (
        GOOD.replace("1910,3.5\n1911,4.5\n", ""),
        "2 missing timestamps (step: year), inserted with",
    ),
    "missing values": (GOOD.replace("1910,3.5", "1910,n/a"), "1 missing value, filled with a line between"),
    "a column of words": ("year,a,who\n" + YEARS.replace("\n", ",x\n"), "column that holds no numbers, 'who'"),
    "rows after the last value": (GOOD + "1980,\n1981,\n", "2 rows after the last value, which are not used"),
    "a constant series": (
        "year,a,b\n" + YEARS.replace("\n", ",5\n"),
        "1 series never change in the training split (first: 'b')",
    ),
}


@pytest.mark.parametrize(("table", "fragment"), WARNINGS.values(), ids=WARNINGS)
def test_warnings_are_counted(tmp_path, table: str, fragment: str):
    messages: list[str] = []
    task = Forecast.prepare(write_files(tmp_path, {"t.csv": table}), Settings(), log=messages.append)
    assert any(fragment in message for message in messages), messages
    assert any(fragment in warning for warning in task.warnings())


def test_a_gap_shifts_no_value(tmp_path):
    """The value of each remaining year stays at its year."""
    complete = Forecast.prepare(write_files(tmp_path, {"t.csv": GOOD}), Settings()).series
    task = Forecast.prepare(write_files(tmp_path, {"u.csv": GOOD.replace("1910,3.5\n1911,4.5\n", "")}), Settings())
    for step in range(80):
        if step not in (10, 11):
            assert task.series.values[step, 0] == complete.values[step, 0] == step % 7 + 0.5


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv"):
        Forecast.prepare(str(tmp_path / "none.csv"), Settings())
