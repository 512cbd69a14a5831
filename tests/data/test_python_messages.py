"""Messages for callers from Python name rows of their data and arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.data.python_messages import explain_in_python, rewrite
from seqwise.environment import get_cache_folder
from seqwise.errors import DataError, Findings, UsageError, combine_errors, in_command


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("pass --data.on-empty drop to drop it", 'pass settings={"data.on_empty": "drop"} to drop it'),
        ("or pass --caption.on-broken drop.", 'or pass caption={"on_broken": "drop"}.'),
        ("Name them: --columns 2,1", "Name them: columns=[2, 1]"),
        ("--columns 'a review,stars'. Or not.", 'columns=["a review", "stars"]. Or not.'),
        ("such as --task classify --columns Text,Stars.", 'such as task="classify", columns=["Text", "Stars"].'),
        ("Set --task (tag), and --columns where names differ", "Set task (tag), and columns where names differ"),
        ("Choose: --target de or --target fr.", 'Choose: target=["de"] or target=["fr"].'),
        ("set --forecast.missing to previous.", "set forecast.missing to previous."),
        ("Pass --forecast.date-order day-first or", 'Pass forecast={"date_order": "day-first"} or'),
        ("For example --forecast.quantiles 0.1,0.9, or", 'For example forecast={"quantiles": "0.1,0.9"}, or'),
        ("(--data.encoding sets another)", "(data.encoding sets another)"),
        ("Set it: --data.encoding cp1252", 'Set it: settings={"data.encoding": "cp1252"}'),
        ("--tag.scheme says so", "tag.scheme says so"),
        ("because --vectors has vectors of words", "because vectors has vectors of words"),
        ("has an effect with --recurrent.bidirectional only.", "has an effect with recurrent.bidirectional only."),
        ("a smaller --network.width or --network.depth, or", "a smaller network.width or network.depth, or"),
        ("--network.width 128", 'network={"width": 128}'),
        ("--data.window 5 --data.order windows", 'settings={"data.window": 5, "data.order": "windows"}'),
        ("name another folder with --out.", "name another folder with out."),
        ("--columns: expected 2, received 1.", "columns: expected 2, received 1."),
        ("pip install --upgrade seqwise", "pip install --upgrade seqwise"),
        ("Train one: seqwise train DATA --task tag", "Train one: seqwise train DATA --task tag"),
    ],
)
def test_flags_of_settings_become_arguments(message: str, expected: str):
    assert rewrite(message) == expected


@pytest.mark.parametrize(
    ("data", "location", "expected"),
    [
        ([], "data.jsonl:6", "row 5 of the list"),
        ([], "data.jsonl:1501", "row 1,500 of the list"),
        ({"valid": []}, "valid.jsonl:1", 'row 0 of data["valid"]'),
        ({"valid": []}, "", "the dict"),
        ([], "data.txt:3", "line 3 of the list"),
        ([], "data.jsonl", "the list"),
        ([], "data-000004.png", "the image of row 4 of the list"),
    ],
)
def test_files_of_the_cache_become_rows(data: object, location: str, expected: str):
    path = get_cache_folder() / "data" / "0123456789abcdef" / location
    assert rewrite(f"2 empty texts (first: {path}).", data) == f"2 empty texts (first: {expected})."
    assert rewrite("2 empty texts (first: reviews.csv:6).", data) == "2 empty texts (first: reviews.csv:6)."


def test_an_error_about_several_rows_is_rewritten_with_its_parts():
    findings, file = Findings(), get_cache_folder() / "data" / "0123456789abcdef" / "data.jsonl"
    findings.error("the text is empty.", fix="Pass --data.on-empty drop.", file=file, line=3)
    findings.error("the label is empty.", fix="Pass --data.on-empty drop.", file=file, line=2)
    with pytest.raises(DataError) as excinfo, explain_in_python([]):
        findings.raise_errors()
    assert str(excinfo.value).splitlines() == [
        "2 errors in the data:",
        "row 1 of the list: the label is empty.",
        "row 2 of the list: the text is empty.",
        'Pass settings={"data.on_empty": "drop"}.',
    ]
    assert excinfo.value.args == (str(excinfo.value),)
    assert [error.file for error in excinfo.value.parts] == ["row 1 of the list", "row 2 of the list"]


def test_what_is_added_to_an_error_about_several_rows_is_kept():
    parts = [DataError(f"row {number} is empty.", fix="pass --data.on-empty drop") for number in (1, 2)]
    error = combine_errors(parts)
    error.fix += "\nThe recipe own sets --data.on-empty: pass --recipe COPY.yaml"
    with pytest.raises(DataError) as excinfo, explain_in_python([]):
        raise error
    first, second = excinfo.value.fix.split("\n")
    assert first == 'pass settings={"data.on_empty": "drop"}'
    assert second == 'The recipe own sets data.on_empty: pass recipe="COPY.yaml"'


def test_errors_of_commands_keep_their_flags():
    token = in_command.set(True)
    try:
        with pytest.raises(UsageError, match=r"--network\.width 64"), explain_in_python():
            raise UsageError("too wide.", fix="Pass --network.width 64.", file=Path("a.csv"))
    finally:
        in_command.reset(token)
