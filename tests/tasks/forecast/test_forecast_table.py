"""The fields of a table are kept as text in little memory, and rows that repeat an earlier one are dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.errors import Findings
from seqwise.tasks.forecast.table import BLOCK_ROWS, TextColumn, read_table


@pytest.mark.parametrize("num_rows", [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS])
@pytest.mark.parametrize("special", ["", "ä", "\0", "a\0b", "\n"])
def test_a_column_has_the_texts_that_were_added(num_rows: int, special: str):
    texts = [special if row % 5 == 2 else str(row) for row in range(num_rows)]
    column = TextColumn(texts[:7])
    column.extend(texts[7:])
    assert len(column) == num_rows
    assert list(column) == texts
    assert [column[row] for row in range(0, num_rows, 97)] == texts[::97]
    assert all(column[row] == texts[row] for row in (-1, -num_rows) if num_rows)


def test_repeated_rows_are_dropped_with_their_lines(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("time,value\n1,5\n2,6\n1,5\n3,5\n2,6\n1,5\n")
    table = read_table(str(path), Findings()).drop_duplicates()
    assert {name: list(texts) for name, texts in table.columns.items()} == {
        "time": ["1", "2", "3"],
        "value": ["5", "6", "5"],
    }
    assert [table.get_location(row) for row in range(len(table))] == [(str(path), line) for line in (2, 3, 5)]
    assert table.findings.warning_messages() == [
        f"3 rows equal to an earlier one, which are dropped (first: {path}:4)."
    ]
