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
    findings.error("the label is empty.", fix="Fill it in.", file="a.csv", line=3)
    with pytest.raises(DataError) as excinfo:
        findings.raise_errors()
    assert str(excinfo.value) == "a.csv:3: the label is empty.\nFill it in."
    assert excinfo.value.line == 3


def test_several_errors_are_raised_as_one_sorted_by_line_with_the_errors_of_each_fix():
    findings = Findings()
    for line in (5, 2):
        findings.error("the label is empty.", fix="Fill it in.\nOr drop it.", file="a.csv", line=line)
    findings.error("not valid JSON.", fix="Correct it.\nOr drop it.", file="b.jsonl", line=1)
    findings.error("a quote is never closed.", fix="Close it.\nOr drop it.", file="a.csv", line=4)
    with pytest.raises(DataError) as excinfo:
        findings.raise_errors()
    assert str(excinfo.value).splitlines() == [
        "4 errors in the data:",
        "1. a.csv:2: the label is empty.",
        "2. a.csv:4: a quote is never closed.",
        "3. a.csv:5: the label is empty.",
        "4. b.jsonl:1: not valid JSON.",
        "For 1, 3: Fill it in.",
        "Or drop it.",
        "For 2: Close it.",
        "For 4: Correct it.",
    ]
    assert [(error.file, error.line) for error in excinfo.value.parts] == [
        ("a.csv", 2), ("a.csv", 4), ("a.csv", 5), ("b.jsonl", 1),
    ]  # fmt: skip


def test_one_fix_for_all_errors_is_written_once():
    findings = Findings()
    for line in (2, 5):
        findings.error("the label is empty.", fix="Fill it in.", file="a.csv", line=line)
    with pytest.raises(DataError) as excinfo:
        findings.raise_errors()
    assert str(excinfo.value).splitlines() == [
        "2 errors in the data:",
        "a.csv:2: the label is empty.",
        "a.csv:5: the label is empty.",
        "Fill it in.",
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


def test_notes_are_counted_apart_from_warnings_and_both_are_joined_with_those_of_other_data():
    findings, other = Findings(), Findings()
    findings.note("blank lines, which are skipped", "a.csv", 4)
    other.note("blank lines, which are skipped", "b.csv", 1)
    other.warn("empty texts, which are dropped", "b.csv", 2)
    findings.extend(other)
    assert findings.note_messages() == ["2 blank lines, which are skipped (first: a.csv:4)."]
    assert findings.warning_messages() == ["1 empty text, which is dropped (b.csv:2)."]


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
