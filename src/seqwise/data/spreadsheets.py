"""Reads `.parquet` and `.xlsx`, plain or gzip, through the libraries of the extra `tables`.

They are imported when such a file is read. The module does not know what the columns mean.
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from seqwise.data.reading import get_format_suffix, open_binary
from seqwise.errors import DataError, Findings, UsageError

PARQUET, EXCEL = ".parquet", ".xlsx"
SUFFIXES = (PARQUET, EXCEL)
DAMAGED_FIX = "Copy or save it again."


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Returns an optional library; raises an error that says how to install it if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        problem = f"{purpose} needs the extra [{extra}]: {error}."
        raise UsageError(problem, fix=f"Install it: pip install 'seqwise[{extra}]'") from None


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (row number from 1, values by column) of a Parquet file."""
    parquet = import_extra("pyarrow.parquet", "tables", "reading .parquet")
    with open_binary(path) as file:
        data = file.read()
    try:
        batches = parquet.ParquetFile(io.BytesIO(data)).iter_batches()
        yield from enumerate((values for batch in batches for values in batch.to_pylist()), start=1)
    except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
        reason = str(error).partition(". ")[0].rstrip(".")
        raise DataError(f"the Parquet file is damaged: {reason}.", fix=DAMAGED_FIX, file=path) from None


def read_records(path: Path, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """Yields (row number, cells as text) of a Parquet file or the first sheet of a workbook.

    The first record has the names of the columns. Rows of a sheet without any value are skipped, as blank lines are.
    """
    if get_format_suffix(path) == PARQUET:
        yield from format_objects(read_objects(path))
        return
    for row_number, cells in enumerate(_read_sheet(path, findings), start=1):
        if any(cell is not None for cell in cells):
            yield row_number, [format_cell(cell) for cell in cells]


def format_objects(objects: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, list[str]]]:
    """Yields the names of the columns, then the values of each object as text; a missing one is empty."""
    header: list[str] = []
    for row_number, values in objects:
        if not isinstance(values, dict):
            continue
        if not header:
            header = list(values)
            yield row_number, header
        yield row_number, [format_cell(values.get(name)) for name in header]


def _read_sheet(path: Path, findings: Findings) -> list[tuple[Any, ...]]:
    """Returns the rows of the first sheet of a workbook, all as wide as the last column with a value."""
    openpyxl = import_extra("openpyxl", "tables", "reading .xlsx")
    with open_binary(path) as file:
        data = file.read()
    try:
        workbook = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        first, *others = workbook.worksheets
        rows = list(first.iter_rows(values_only=True))
    except Exception as error:  # of zipfile, the XML parser or openpyxl: KeyError, BadZipFile, ParseError …
        raise DataError(f"the Excel file is damaged: {error}.", fix=DAMAGED_FIX, file=path) from None
    if others:
        findings.warn(f"workbooks with several sheets, of which only the first is read ({first.title!r})", path)
    width = max((index for row in rows for index, cell in enumerate(row, start=1) if cell is not None), default=0)
    return [(*row[:width], *[None] * (width - len(row))) for row in rows]


def format_cell(value: Any) -> str:
    """Returns a value as a text file would contain it."""
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
