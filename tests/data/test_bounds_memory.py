"""Reading any file needs at most 300 MB beyond the examples: measured in a process, with bombs of 3 GB."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")]

MAX_MB = 300
NUM_BYTES = 3_000_000_000  # of a bomb
CHILD = Path(__file__).parents[1] / "support" / "read_child.py"


def write_bomb(path: Path, head: bytes, unit: bytes) -> None:
    """Writes a gzip file of some MB that repeats `unit` up to 3 GB; one part of it is compressed, and repeated."""
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
        ("vectors", "a.vec.gz", write_bomb, b"1000000000 2\n", b"a 0 0\n", "200 times"),
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
