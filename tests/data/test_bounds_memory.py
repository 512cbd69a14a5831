"""Reading any file needs at most 300 MB beyond the examples: measured in a process, with bombs of 1 or 3 GB."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fault_counts import choose_count
from PIL import Image

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")]

MAX_MB = 300
NUM_BYTES = choose_count(1_000_000_000, 3_000_000_000)  # of a bomb
CHILD = Path(__file__).parents[1] / "support" / "read_child.py"


def write_bomb(path: Path, head: bytes, unit: bytes) -> None:
    """Writes a gzip file of some MB that repeats `unit`; one part of it is compressed, and repeated."""
    block = unit * (10_000_000 // len(unit))
    path.write_bytes(gzip.compress(head) + gzip.compress(block, 9) * (NUM_BYTES // len(block)))


def write_long_line(path: Path, head: bytes, unit: bytes) -> None:
    """Writes 400 MB without a line break, which are not compressed."""
    with path.open("wb") as file:
        file.write(head)
        for _ in range(40):
            file.write(unit * (10_000_000 // len(unit)))


def write_unused_column(path: Path, head: bytes, unit: bytes) -> None:
    """Writes 400 small examples beside a column of 1 MB each that is not read."""
    rows = ({"text": f"text {i}", "label": str(i % 2), "other": "x" * 1_000_000} for i in range(400))
    with path.open("w") as file:
        if path.suffix == ".csv":
            file.write("text,label,other\n")
            file.writelines(",".join(row.values()) + "\n" for row in rows)
        else:
            file.write("[")
            file.writelines((",\n" if row["text"] != "text 0" else "") + json.dumps(row) for row in rows)
            file.write("]")


def write_series(path: Path, head: bytes, unit: bytes) -> None:
    """Writes 1,200,000 rows of two numbers, of which 19 MB are kept."""
    with path.open("wb") as file:
        file.write(head)
        file.writelines(unit % (row, row % 997) for row in range(1_200_000))


def write_workbook(path: Path, head: bytes, unit: bytes) -> None:
    """Writes an .xlsx file whose sheet has 600 MB of equal rows."""
    workbook = openpyxl.Workbook()
    workbook.active.append(["text", "label"])
    workbook.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            with archive.open(name, "w", force_zip64=True) as member:
                before, tag, after = content.partition(b"</sheetData>")
                member.write(before)
                for _ in range(60 if tag else 0):
                    member.write(unit * (10_000_000 // len(unit)))
                member.write(tag + after)


def write_repeated_text(path: Path, head: bytes, unit: bytes) -> None:
    """Writes a .parquet file of some MB in which 1,000,000 rows have the same text of 5 MB."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000, pa.int32()), [unit.decode() * 5_000_000])
    pq.write_table(pa.table({"text": texts}), path)


def write_large_image(path: Path, head: bytes, unit: bytes) -> None:
    """Writes captions of one image that has 121 million pixels in some 100 kB."""
    Image.new("L", (11_000, 11_000)).save(path.with_suffix(".png"))
    path.write_bytes(head)


@pytest.mark.parametrize(
    ("reader", "name", "write", "head", "unit", "error"),
    [
        ("classify", "rows.csv.gz", write_bomb, b"text,label\n", b"a,b\n", "200 times"),
        ("classify", "field.csv.gz", write_bomb, b"text,label\n", b"a", "200 times"),
        ("classify", "blank.csv.gz", write_bomb, b"text,label\n", b"\n", "200 times"),
        ("classify", "a.jsonl.gz", write_bomb, b'{"text": "', b"a", "200 times"),
        ("classify", "a.json.gz", write_bomb, b'[{"text": "', b"a", "200 times"),
        ("language", "a.txt.gz", write_bomb, b"", b"a", "200 times"),
        ("language", "a.jsonl.gz", write_bomb, b"", b'{"text": "a"}\n', "200 times"),
        ("tag", "a.conll.gz", write_bomb, b"", b"a O\n", "200 times"),
        ("forecast", "a.csv.gz", write_bomb, b"time,value\n", b"1,2\n", "200 times"),
        ("vectors", "a.vec.gz", write_bomb, b"1000000000 2\n", b"a 0.000000 0.000000\n", "200 times"),
        ("vectors", "a.bin.gz", write_bomb, b"1000000000 2\n", b"a " + bytes(8), "200 times"),
        ("classify", "a.csv", write_long_line, b"text,label\n", b"a", "more than 10 MB"),
        ("classify", "a.jsonl", write_long_line, b'{"text": "', b"a", "more than 10 MB"),
        ("classify", "a.json", write_long_line, b'[{"text": "', b"a", "more than 10 MB"),
        ("classify", "b.jsonl", write_long_line, b'{"text": [', b"{},", "more than 10 MB"),
        ("language", "a.jsonl", write_long_line, b'{"text": "', b"a", "more than 10 MB"),
        ("language", "a.txt", write_long_line, b"", b"a", None),
        ("tag", "a.conll", write_long_line, b"", b"a", "more than 10 MB"),
        ("forecast", "a.csv", write_series, b"time,value\n", b"%d,0.%06d\n", None),
        ("classify", "unused.csv", write_unused_column, b"", b"", None),
        ("classify", "unused.json", write_unused_column, b"", b"", None),
        ("classify", "a.xlsx", write_workbook, b"", b"<row><c><v>1</v></c></row>", "200 times"),
        ("language", "a.parquet", write_repeated_text, b"", b"x", "200 times"),
        ("caption", "a.csv", write_large_image, b"image,caption\na.png,black\n", b"", "pixels"),
    ],
)
def test_reading_needs_little_memory_beyond_the_examples(
    tmp_path: Path,
    reader: str,
    name: str,
    write: Callable[[Path, bytes, bytes], None],
    head: bytes,
    unit: bytes,
    error: str | None,
):
    path = tmp_path / name
    write(path, head, unit)
    command, variables = [sys.executable, str(CHILD), reader, str(path)], {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables, check=False)
    path.unlink()
    assert result.returncode == 0, result.stderr[-2000:]
    measured = json.loads(result.stdout)
    assert measured["mb"] < MAX_MB
    assert measured["error"] is None if error is None else error in measured["error"]
