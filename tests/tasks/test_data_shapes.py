"""Data as people have it: a small file of each shape is read without preparation, by the task that is guessed."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqwise.config import Settings
from seqwise.data.spreadsheets import import_extra
from seqwise.errors import UsageError
from seqwise.tasks import get_task
from seqwise.tasks.guess import guess_task

FILMS = [(f"the {word} film, number {number}", word) for number in range(15) for word in ("schön", "naïve")]
ROWS = [{"text": text, "label": label} for text, label in FILMS]
PAIRS = [{"source": f"dog {number}", "target": [f"Hund {number}", f"der Hund {number}"]} for number in range(30)]
TAGGED = "".join(f"José B-PER\nsleeps O\n{number} O\n\n" for number in range(30))
SERIES = [(f"2020-01-{day:02}", day / 2) for day in range(1, 31)]


def delimit(separator: str, encoding: str = "utf-8") -> bytes:
    lines = [["text", "label"], *([f'"{text}"' if separator == "," else text, label] for text, label in FILMS)]
    return "".join(separator.join(line) + "\n" for line in lines).encode(encoding)


def write_parquet(rows: list[dict[str, Any]]) -> bytes:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def write_excel(rows: list[tuple[Any, ...]]) -> bytes:
    workbook = pytest.importorskip("openpyxl").Workbook()
    for row in rows:
        workbook.active.append(row)
    buffer = io.BytesIO()
    workbook.save(buffer)
    return buffer.getvalue()


def to_lines(rows: list[dict[str, Any]], encoding: str = "utf-8") -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(encoding)


def get_films(task: Any) -> list[tuple[str, str]]:
    return sorted((each.text, each.label) for each in task.splits.all_examples())


def get_pairs(task: Any) -> list[tuple[str, str]]:
    return sorted((pair.source, target) for pair in task.splits.all_examples() for target in pair.references[0])


def get_sentences(task: Any) -> list[tuple[str, str]]:
    return sorted((each.words[2], each.words[0]) for each in task.splits.all_examples())


def get_series(task: Any) -> list[tuple[str, float]]:
    return [
        (task.series.grid.format_timestamp(step)[:10], float(value))
        for step, value in enumerate(task.series.values[:, 0])
    ]


def get_text(task: Any) -> str:
    return "".join(sorted("".join("".join(task.corpus.texts(split)) for split in task.corpus.parts).splitlines(True)))


TEXT = "".join(sorted(f"the {word} film, number {number}\n" for number in range(100) for word in ("schön", "naïve")))
EXPECTED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "classify": (get_films, sorted(FILMS)),
    "translate": (get_pairs, sorted((row["source"], target) for row in PAIRS for target in row["target"])),
    "tag": (get_sentences, sorted((str(number), "José") for number in range(30))),
    "forecast": (get_series, SERIES),
    "language": (get_text, TEXT),
}
SHAPES: dict[str, tuple[str, Callable[[], bytes], str, str]] = {  # name → file, content, task, part of the notes
    "commas": ("a.csv", lambda: delimit(","), "classify", ""),
    "semicolons": ("a.csv", lambda: delimit(";"), "classify", "semicolons between fields"),
    "bars": ("a.csv", lambda: delimit("|"), "classify", "bars between fields"),
    "tabs called csv": ("a.csv", lambda: delimit("\t"), "classify", "tabs between fields"),
    "commas called tsv": ("a.tsv", lambda: delimit(","), "classify", "commas between fields"),
    "byte order mark": ("a.csv", lambda: delimit(",", "utf-8-sig"), "classify", ""),
    "table in UTF-16": ("a.tsv", lambda: delimit("\t", "utf-16"), "classify", "file in UTF-16"),
    "table in Latin-1": ("a.csv", lambda: delimit(";", "latin-1"), "classify", "file in Latin-1"),
    "JSON lines in Windows-1252": (
        "a.jsonl",
        lambda: to_lines([*ROWS[:-1], {**ROWS[-1], "note": "“ ”"}], "cp1252"),
        "classify",
        "file in Windows-1252",
    ),
    "JSON array": ("a.json", lambda: json.dumps(ROWS, indent=1).encode(), "classify", ""),
    "words as a JSON list": (
        "a.json",
        lambda: json.dumps([{**row, "text": row["text"].split(" ")} for row in ROWS]).encode(),
        "classify",
        "",
    ),
    "Parquet": ("a.parquet", lambda: write_parquet(ROWS), "classify", ""),
    "Excel": ("a.xlsx", lambda: write_excel([("text", "label"), *FILMS]), "classify", ""),
    "several references": ("a.jsonl", lambda: to_lines(PAIRS), "translate", ""),
    "several references in Parquet": ("a.parquet", lambda: write_parquet(PAIRS), "translate", ""),
    "CoNLL in Latin-1": ("a.conll", lambda: TAGGED.encode("latin-1"), "tag", "file in Latin-1"),
    "CoNLL in UTF-16": ("a.conll", lambda: TAGGED.encode("utf-16"), "tag", "file in UTF-16"),
    "decimal commas": (
        "a.csv",
        lambda: "".join(["day;value\n", *(f"{day};{value}\n".replace(".", ",") for day, value in SERIES)]).encode(),
        "forecast",
        "semicolons between fields",
    ),
    "series in Excel": ("a.xlsx", lambda: write_excel([("day", "value"), *SERIES]), "forecast", ""),
    "text in Latin-1": ("a.txt", lambda: TEXT.encode("latin-1"), "language", "file in Latin-1"),
    "text in UTF-16": ("a.txt", lambda: TEXT.encode("utf-16"), "language", "file in UTF-16"),
    "documents in Parquet": (
        "a.parquet", lambda: write_parquet([{"text": line} for line in TEXT.splitlines()]), "language", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_read_without_preparation(shape: str, packed: bool, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    name, build, expected_task, note = SHAPES[shape]
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(build()) if packed else build())
    task_name, _ = guess_task(str(path))
    assert task_name == expected_task
    task = get_task(task_name).prepare(str(path), Settings(task=task_name))
    read, expected = EXPECTED[task_name]
    assert read(task) == expected
    assert note in " ".join(task.notes())
    assert note or task.notes() == []


@pytest.mark.parametrize(("name", "module"), [("a.parquet", "pyarrow.parquet"), ("a.xlsx", "openpyxl")])
def test_without_the_extra_the_error_names_it(name: str, module: str, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UsageError, match=rf"reading {Path(name).suffix} needs the extra \[tables\]") as excinfo:
        guess_task(str(tmp_path / name))
    assert "pip install 'seqwise[tables]'" in excinfo.value.fix
    assert import_extra("json", "tables", "reading").loads("1") == 1
