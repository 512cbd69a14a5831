"""Errors are raised together, warnings are counted."""

from __future__ import annotations

import pytest

from seqwise.errors import MAX_ERRORS, DataError, Findings


def test_no_findings_raise_no_error():
    findings = Findings()
    findings.raise_errors()
    assert findings.warning_messages() == []


def test_a_single_error_is_raised_unchanged():
    findings = Findings()
    findings.error("the label is empty.", repair="Fill it in.", file="a.csv", line=3)
    with pytest.raises(DataError) as excinfo:
        findings.raise_errors()
    assert str(excinfo.value) == "a.csv:3: the label is empty.\nFill it in."
    assert excinfo.value.line == 3


def test_several_errors_are_raised_as_one_with_each_repair_once():
    findings = Findings()
    for line in (2, 5):
        findings.error("the label is empty.", repair="Fill it in.", file="a.csv", line=line)
    findings.error("not valid JSON.", repair="Correct it.", file="b.jsonl", line=1)
    with pytest.raises(DataError) as excinfo:
        findings.raise_errors()
    assert str(excinfo.value).splitlines() == [
        "3 errors in the data:",
        "a.csv:2: the label is empty.",
        "a.csv:5: the label is empty.",
        "b.jsonl:1: not valid JSON.",
        "Fill it in.",
        "Correct it.",
    ]


def test_the_first_of_many_errors_are_listed_and_the_rest_counted():
    findings = Findings()
    for line in range(1, MAX_ERRORS + 4):
        findings.error("empty.", file="a.csv", line=line)
    with pytest.raises(DataError) as excinfo:
        findings.raise_errors()
    lines = str(excinfo.value).splitlines()
    assert lines[0] == f"{MAX_ERRORS + 3} errors in the data:"
    assert lines[-2:] == [f"a.csv:{MAX_ERRORS}: empty.", "… and 3 more."]


def test_warnings_of_one_kind_are_one_sentence_with_count_and_first_location():
    findings = Findings()
    findings.warn("blank lines, which are skipped", "a.csv", 4)
    findings.warn("blank lines, which are skipped", "a.csv", 9)
    findings.warn("files whose names contain no split, which are not read", "notes.txt")
    findings.warn("rare label")
    assert findings.warning_messages() == [
        "2 blank lines, which are skipped (first: a.csv:4).",
        "1 file whose name contains no split, which is not read (notes.txt).",
        "1 rare label.",
    ]
