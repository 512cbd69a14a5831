"""Parses comma-, semicolon-, tab- and pipe-separated text into records, with the line of each.

The separator is detected. Reading continues after a malformed record, so that all errors are reported. The module knows
nothing of columns.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

from seqwise.data.json_objects import BLANK_LINES
from seqwise.data.limits import MB, build_size_error, get_limits, iterate_lines
from seqwise.data.reading import get_format_suffix
from seqwise.errors import Findings

csv.field_size_limit(1 << 30)  # a field may be a whole document; `_parse_csv` has the limit
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
MIN_CONSISTENCY = 0.9  # share of the first rows with equally many fields, for a separator that the suffix does not name
SAMPLE_ROWS, SAMPLE_CHARACTERS = 100, 1 << 20  # from which the separator is detected
QUOTE_FIX = 'A text that contains the separator must be quoted: "one{separator} two"{separator}label'
LARGE_RECORD = "the row that starts here"
LARGE_RECORD_FIX = "Look for a quote that is opened in this row and never closed, or divide the row"
OPEN_QUOTE_FIX = 'Close the quote, or double a quote that is part of the text: ""'
TAB_FIX = "Fields are separated by one tab each; remove tabs inside a text."
DECIMAL_COMMA = re.compile(r"^(\s*[-+]?\d+),(\d+\s*)$")


def parse_text(
    file: TextIO, path: Path, findings: Findings, ragged_row_fix: str = "", decimal_commas: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yields the records of the text of a table, whose separator is detected.

    With `decimal_commas`, numbers such as 1,5 get a decimal point where semicolons separate the fields, as
    spreadsheets write them in many countries.
    """
    lines = iterate_lines(file.read, path)
    first_lines: list[tuple[int, str]] = []  # from which the separator is detected
    num_characters = 0
    for line, text in lines:
        first_lines.append((line, text))
        num_characters += len(text) + 1
        if num_characters > SAMPLE_CHARACTERS:
            break
    separator = detect_separator("\n".join(text for _, text in first_lines), path, findings)
    fix = ragged_row_fix or (TAB_FIX if separator == "\t" else QUOTE_FIX.format(separator=separator))
    for line, fields in parse_records(chain(_drain(first_lines), lines), separator, path, findings, fix):
        if decimal_commas and separator == ";":
            fields = [DECIMAL_COMMA.sub(r"\1.\2", field) for field in fields]
        yield line, fields


def _drain(items: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields the items, which are removed."""
    items.reverse()
    while items:
        yield items.pop()


def detect_separator(text: str, path: Path, findings: Findings | None = None) -> str:
    """Returns the separator of the fields: that of the suffix, unless another fits the first rows better."""
    suffix = get_format_suffix(path)
    expected = "," if suffix == ".csv" else "\t"
    shares = {separator: _measure_consistency(text, separator) for separator in SEPARATOR_NAMES}
    best = max(shares, key=lambda separator: (shares[separator], separator == expected))
    has_expectation = suffix in (".csv", ".tsv", ".txt")
    if shares[best] <= shares[expected] or (has_expectation and shares[best] < MIN_CONSISTENCY):
        return expected
    if findings is not None and has_expectation:
        findings.note(f"files ({suffix}) with {SEPARATOR_NAMES[best]} between fields", path)
    return best


def _measure_consistency(text: str, separator: str) -> float:
    """Returns the share of the first rows that have as many fields as the first, if that has several; else 0."""
    reader = csv.reader(io.StringIO(text[:SAMPLE_CHARACTERS], newline=""), delimiter=separator)
    try:
        counts = [len(fields) for fields in islice(reader, SAMPLE_ROWS) if "".join(fields).strip()]
    except csv.Error:
        return 0.0
    return counts.count(counts[0]) / len(counts) if counts and counts[0] > 1 else 0.0


def parse_records(
    lines: Iterable[tuple[int, str]], separator: str, path: Path, findings: Findings, ragged_row_fix: str
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, fields) of each record that has as many fields as the first; others are errors.

    Tab-separated files have no quotes, unless they are called `.csv`.
    """
    if separator != "\t" or get_format_suffix(path) == ".csv":
        records = _parse_csv(lines, separator, path, findings)
    else:
        records = ((line, content.split("\t")) for line, content in lines)
    first_line = num_fields = num_blank = 0
    for line, fields in records:
        if len(fields) <= 1 and not "".join(fields).strip():
            num_blank += 1  # blank lines before the first record are noted once there is one
            if first_line:
                findings.note(BLANK_LINES, path, line)
            elif num_blank == 1:
                first_blank = line
            continue
        if not first_line:
            first_line, num_fields = line, len(fields)
            for index in range(num_blank):
                findings.note(BLANK_LINES, path, first_blank + index)
        if len(fields) == num_fields:
            yield line, fields
        else:
            problem = f"expected {num_fields} fields as in line {first_line}, found {len(fields)}."
            findings.error(problem, fix=ragged_row_fix, file=path, line=line)


def _parse_csv(
    lines: Iterable[tuple[int, str]], separator: str, path: Path, findings: Findings
) -> Iterator[tuple[int, list[str]]]:
    """Yields the records of a CSV file; reading continues after a malformed one."""
    max_characters, num_characters = get_limits().max_text_mb * MB, 0  # of the record that is being read

    def count_characters() -> Iterator[str]:
        nonlocal num_characters
        for _, text in lines:
            num_characters += len(text) + 1
            if num_characters > max_characters:
                raise build_size_error(LARGE_RECORD, path, line, fix=LARGE_RECORD_FIX)
            yield text + "\n"

    reader = csv.reader(count_characters(), delimiter=separator, strict=True)
    while True:
        line, num_characters = reader.line_num + 1, 0
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            until = f" (read up to line {reader.line_num})" if reader.line_num > line else ""
            is_unclosed = "unexpected end of data" in str(error)
            problem = "a quote is opened here and never closed." if is_unclosed else f"not valid CSV{until}: {error}."
            findings.error(problem, fix=OPEN_QUOTE_FIX, file=path, line=line)
            continue
        yield line, fields
