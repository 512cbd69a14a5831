"""Writes predictions beside the expected values: JSON lines, CSV or TSV. The module knows nothing of tasks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqwise.files import write_text

TABLE_SUFFIXES = (".jsonl", ".csv", ".tsv")


def write_predictions(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows with the keys `input`, `expected`, `predicted` and others; the suffix of the path decides the format.

    `.jsonl` and `.json` have one object per line, `.csv` is separated by commas, anything else by tabs. In a table,
    lists are joined by spaces, or by " | " if their items contain spaces.
    """
    rows, suffix = list(rows), path.suffix.lower()
    if suffix in (".jsonl", ".json"):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_text(path, text.encode("utf-8", "replace").decode(), concurrent=True)
        return
    output, names = io.StringIO(), list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(output, delimiter="," if suffix == ".csv" else "\t", lineterminator="\n")
    writer.writerow(names or ["input", "expected", "predicted"])
    # A line break inside a cell is valid CSV, but one row per line is easier to read with other programs.
    writer.writerows([[" ".join(_format_cell(row.get(name)).split()) for name in names] for row in rows])
    write_text(path, output.getvalue().encode("utf-8", "replace").decode(), concurrent=True)


def _format_cell(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        cells = list(map(_format_cell, value))
        return (" | " if any(" " in cell for cell in cells) else " ").join(cells)
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
