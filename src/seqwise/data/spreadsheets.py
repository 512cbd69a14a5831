"""Reads `.parquet` and `.xlsx`, plain or gzip, through the libraries of the extra `tables`.

They are imported when such a file is read, row by row. The module does not know what the columns mean.
"""

from __future__ import annotations

import datetime
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from seqwise.data.limits import MB, build_size_error, check_expansion, get_limits
from seqwise.data.opening import BLOCK_BYTES, is_gzip, open_binary
from seqwise.data.reading import get_format_suffix
from seqwise.errors import DataError, Findings, UsageError

PARQUET, EXCEL = ".parquet", ".xlsx"
SUFFIXES = (PARQUET, EXCEL)
MAX_BATCH_ROWS, MAX_BATCH_BYTES = 1024, 16 * MB  # of a Parquet file that are in memory at a time
MAX_DICTIONARY_BYTES = 64 * MB  # of a column whose texts are kept once; large texts hardly repeat
MAX_SHEET_ROWS, MAX_SHEET_COLUMNS = 1 << 20, 1 << 14  # of Excel
SAMPLE_ROWS = 100  # from which the width of a sheet is determined
DAMAGED_FIX = "Copy or save it again."


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Returns an optional library; raises an error that says how to install it if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        problem = f"{purpose} needs the extra [{extra}]: {error}."
        raise UsageError(problem, fix=f"Install it: pip install 'seqwise[{extra}]'") from None


@contextmanager
def _open_seekable(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that is read at many positions: a compressed one is unpacked into a temporary file first."""
    with open_binary(path) as file:
        if not is_gzip(path):
            yield file
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(file, copy, BLOCK_BYTES)
            copy.seek(0)
            yield cast(BinaryIO, copy)


def read_objects(path: Path, names: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (row number from 1, values by column) of a Parquet file, of which a few rows are in memory at a time.

    Only the columns `names` are read, if the file has all of them. A page, which is mostly 1 MB, is read as a whole.
    """
    parquet = import_extra("pyarrow.parquet", "tables", "reading .parquet")
    with _open_seekable(path) as file:
        try:
            plain = parquet.ParquetFile(file)
            schema = plain.schema_arrow
            if names and set(names) <= set(schema.names):
                schema = import_module("pyarrow").schema([schema.field(name) for name in dict.fromkeys(names)])
            columns = _select_columns(plain.schema, schema.names)
            # Read as a dictionary, a repeated text is in memory once, however many rows have it.
            texts = {i: column.path for i, column in columns.items() if column.physical_type == "BYTE_ARRAY"}
            options = {"metadata": plain.metadata, "buffer_size": BLOCK_BYTES, "pre_buffer": False}
            _check_groups(parquet.ParquetFile(file, read_dictionary=[*texts.values()], **options), schema.names, path)
            short = [name for i, name in texts.items() if _measure_column(plain.metadata, i) < MAX_DICTIONARY_BYTES]
            reader = parquet.ParquetFile(file, read_dictionary=short, **options)
            parts = (part.cast(schema) for part in _read_batches(reader, schema.names, columns, path))
            yield from enumerate((values for part in parts for values in part.to_pylist()), start=1)
        except (OSError, ValueError, import_module("pyarrow").ArrowException) as error:
            reason = str(error).partition(". ")[0].rstrip(".")
            raise DataError(f"the Parquet file is damaged: {reason}.", fix=DAMAGED_FIX, file=path) from None


def _select_columns(schema: Any, names: Sequence[str]) -> dict[int, Any]:
    """Returns the columns of a Parquet file that belong to fields, by their index; a nested field has several."""
    columns = {index: schema.column(index) for index in range(len(schema))}
    starts = tuple(f"{name}." for name in names)
    return {index: column for index, column in columns.items() if f"{column.path}.".startswith(starts)}


def _check_groups(reader: Any, names: Sequence[str], path: Path) -> None:
    """Reads one row of each group of rows, which raises an error if the description of a column is damaged.

    pyarrow ends the process if it is asked for such a description: `group.column(index)`.
    """
    metadata, groups = reader.metadata, range(reader.metadata.num_row_groups)
    check_expansion(sum(metadata.row_group(index).total_byte_size for index in groups), path.stat().st_size, path)
    for index in groups:
        next(reader.iter_batches(1, [index], list(names)), None)


def _measure_column(metadata: Any, index: int) -> int:
    """Returns the bytes of the largest part of a column, decompressed but encoded."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return max((group.column(index).total_uncompressed_size for group in groups), default=0)


def _read_batches(reader: Any, names: Sequence[str], columns: Mapping[int, Any], path: Path) -> Iterator[Any]:
    """Yields batches of rows with some fields, checking the size of each row and the expansion of the file."""
    limits, file_bytes, row_number, num_bytes = get_limits(), path.stat().st_size, 1, 0
    groups = [reader.metadata.row_group(index) for index in range(reader.metadata.num_row_groups)]
    max_length = max((column.length or 0 for column in columns.values()), default=0)  # of values of a fixed length
    for index, group in enumerate(groups):
        num_values = max((group.column(column).num_values for column in columns), default=0)
        row_bytes = max(group.total_byte_size, 8 * num_values) // max(group.num_rows, 1) + max_length + 1
        batch_size = max(1, min(MAX_BATCH_ROWS, MAX_BATCH_BYTES // row_bytes))
        for batch in reader.iter_batches(batch_size, [index], list(names)):
            for part, size in _divide(batch):
                if part.num_rows == 1 and size > limits.max_text_mb * MB:
                    raise build_size_error(f"row {row_number:,}", path)
                row_number, num_bytes = row_number + part.num_rows, num_bytes + size
                check_expansion(num_bytes, file_bytes, path)
                yield part


def _divide(batch: Any) -> Iterator[tuple[Any, int]]:
    """Yields parts of a batch with their size; only single rows are larger than MAX_BATCH_BYTES."""
    size = sum(map(_measure, batch.columns))
    if size <= MAX_BATCH_BYTES or batch.num_rows < 2:
        yield batch, size
        return
    half = batch.num_rows // 2
    yield from _divide(batch.slice(0, half))
    yield from _divide(batch.slice(half))


def _measure(array: Any) -> int:
    """Returns the bytes of the values of an Arrow array, in which a text of a dictionary counts wherever it occurs."""
    compute, types = import_module("pyarrow.compute"), import_module("pyarrow.types")
    if types.is_dictionary(array.type):
        lengths = compute.binary_length(array.dictionary)
        return int(compute.sum(compute.take(lengths, array.indices)).as_py() or 0) + 8 * len(array)
    if types.is_list(array.type) or types.is_large_list(array.type):
        return _measure(array.flatten()) + 8 * len(array)
    if types.is_struct(array.type):
        return sum(map(_measure, array.flatten()))
    return int(array.nbytes)


def read_records(path: Path, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """Yields (row number, cells as text) of a Parquet file or the first sheet of a workbook.

    The first record has the names of the columns. Rows of a sheet without any value are skipped, as blank lines are.
    """
    if get_format_suffix(path) == PARQUET:
        yield from format_objects(read_objects(path))
        return
    rows = _read_sheet(path, findings)
    first_rows = list(islice(rows, SAMPLE_ROWS))
    width = max((len(cells) for _, cells in first_rows), default=0)
    for row_number, cells in chain(first_rows, rows):
        if len(cells) > width:
            findings.warn(
                "rows with cells after the last column of the first rows, which are not read", path, row_number
            )
        yield row_number, [format_cell(cell) for cell in (*cells[:width], *[None] * (width - len(cells)))]


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


def _read_sheet(path: Path, findings: Findings) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yields (row number, cells up to the last with a value) of the first sheet of a workbook, without empty rows."""
    openpyxl = import_extra("openpyxl", "tables", "reading .xlsx")
    with _open_seekable(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                check_expansion(sum(info.file_size for info in archive.infolist()), path.stat().st_size, path)
            workbook = openpyxl.load_workbook(file, read_only=True, data_only=True)
            first, *others = workbook.worksheets
            if others:
                warning = f"workbooks with several sheets, of which only the first is read ({first.title!r})"
                findings.warn(warning, path)
            empty_row = None
            max_columns = min(first.max_column or MAX_SHEET_COLUMNS, MAX_SHEET_COLUMNS)
            for row_number, cells in enumerate(first.iter_rows(max_col=max_columns, values_only=True), start=1):
                if row_number > MAX_SHEET_ROWS:
                    problem = f"the sheet has more than {MAX_SHEET_ROWS:,} rows, which no workbook can have."
                    raise DataError(problem, fix=DAMAGED_FIX, file=path, line=row_number)
                if cells is empty_row:  # one object for all rows that the file leaves out
                    continue
                width = max((index for index, cell in enumerate(cells, start=1) if cell is not None), default=0)
                if width:
                    yield row_number, cells[:width]
                else:
                    empty_row = cells
        except DataError:
            raise
        except Exception as error:  # of zipfile, the XML parser or openpyxl: KeyError, BadZipFile, ParseError …
            raise DataError(f"the Excel file is damaged: {error}.", fix=DAMAGED_FIX, file=path) from None


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
