"""Readers with limits: what is too large, never ends, is nested too deeply or is no file is refused with its name."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from seqwise.cli import inputs
from seqwise.cli.inputs import read_lines
from seqwise.config import Settings, parse_settings
from seqwise.data import json_objects
from seqwise.data.corpus.sources import open_corpus
from seqwise.data.limits import use_limits
from seqwise.data.opening import copy_stream
from seqwise.data.tables import read_objects, read_table
from seqwise.errors import MAX_COLLECTED_ERRORS, DataError, Findings
from seqwise.tasks.caption.images import read_paths
from seqwise.tasks.caption.reader import read_captions
from seqwise.tasks.classify.reader import read_labelled_data
from seqwise.tasks.forecast.reader import read_series
from seqwise.tasks.forecast.windows import RollingWindows, SeriesStatistics, Standardizer
from seqwise.tasks.guess import guess_task
from seqwise.tasks.tag.reader import read_tagged_data
from seqwise.text.tokenizer import Tokenizer, _batch_by_size
from seqwise.vectors.formats import load_vectors

NUM_BYTES = 20_000_000  # of decompressed data: more than is free of the limit on expansion


def read_as(task: str, path: Path, settings: Settings | None = None) -> object:
    """Reads a file as a task or a command does."""
    settings = settings or Settings()
    if task == "language":
        return "".join(open_corpus(path, 0, 0).texts("train"))
    readers: dict[str, Callable[[], object]] = {
        "classify": lambda: read_labelled_data(str(path), settings),
        "tag": lambda: read_tagged_data(path, settings),
        "caption": lambda: read_captions(path, settings.data),
        "forecast": lambda: read_series(str(path), settings),
        "vectors": lambda: load_vectors(path),
        "guess": lambda: guess_task(str(path)),
        "predict": lambda: inputs.read_lines(str(path)),
    }
    return readers[task]()


@pytest.fixture
def _alarm() -> Iterator[None]:
    """Ends a test that hangs."""

    def fail(*_: object) -> None:
        raise TimeoutError("the reader hangs")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


# Decompression


@pytest.mark.parametrize(
    ("task", "name", "head", "unit"),
    [
        ("classify", "a.csv.gz", b"text,label\n", b"a,b\n"),
        ("classify", "a.tsv.gz", b"", b"a\tb\n"),
        ("classify", "a.jsonl.gz", b"", b'{"text": "a", "label": "b"}\n'),
        ("classify", "a.json.gz", b"[", b'{"text": "a", "label": "b"},'),
        ("classify", "blank.csv.gz", b"text,label\n", b"\n"),
        ("language", "a.txt.gz", b"", b"a "),
        ("language", "a.jsonl.gz", b"", b'{"text": "' + b"a" * 1_000 + b'"}\n'),
        ("language", "a.json.gz", b"[", b'{"text": "a"},'),
        ("tag", "a.conll.gz", b"", b"a O\n"),
        ("forecast", "a.csv.gz", b"time,value\n", b"1,2\n"),
        ("vectors", "a.bin.gz", b"9999999 100\n", b"a " + bytes(400)),
        ("vectors", "b.txt.gz", b"", b"a"),
        ("predict", "a.txt.gz", b"", b"a\n"),
    ],
)
def test_a_decompression_bomb_is_refused_before_it_becomes_data(
    tmp_path: Path, task: str, name: str, head: bytes, unit: bytes
):
    path = tmp_path / name
    path.write_bytes(gzip.compress(head + unit * (NUM_BYTES // len(unit)), 9))
    with pytest.raises(DataError, match="more than 200 times as large as its compressed form") as error:
        read_as(task, path)
    assert "--data.max-expansion" in error.value.fix
    assert error.value.file == path


def test_the_limit_on_expansion_is_an_option(tmp_path: Path):
    path = tmp_path / "a.csv.gz"
    rows = "".join(f"{'a' * 900_000},{label}\n" for label in "xyxyxyxyxyxyxyxyxyxyxyxy")
    path.write_bytes(gzip.compress(f"text,label\n{rows}".encode(), 9))
    with pytest.raises(DataError, match="200 times"):
        read_as("classify", path)
    settings = parse_settings({"data": {"max_expansion": 2000}})
    assert len(read_labelled_data(str(path), settings).all_examples()) == 24


def test_a_small_file_may_be_as_repetitive_as_it_likes(tmp_path: Path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"text,label\n" + b"good,1\nbad,0\n" * 20_000, 9))
    assert path.stat().st_size * 200 < 13 * 20_000
    assert len(read_labelled_data(str(path), Settings()).all_examples()) == 40_000


def test_a_zip_archive_that_expands_too_much_is_refused(tmp_path: Path):
    (tmp_path / "captions.csv").write_text("image,caption\na.bmp,a dog\nb.bmp,a cat\n")
    with zipfile.ZipFile(tmp_path / "images.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.bmp", bytes(NUM_BYTES))
    with pytest.raises(DataError, match=r"images.zip: the data is more than 200 times"):
        read_as("caption", tmp_path)


def test_a_workbook_that_expands_too_much_is_refused(tmp_path: Path):
    openpyxl = pytest.importorskip("openpyxl")
    workbook, path = openpyxl.Workbook(), tmp_path / "a.xlsx"
    workbook.active.append(["text", "label"])
    workbook.save(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/a", bytes(NUM_BYTES))
    with pytest.raises(DataError, match="more than 200 times"):
        read_as("classify", path)


def test_rows_of_a_workbook_beyond_those_of_excel_are_refused(tmp_path: Path):
    openpyxl = pytest.importorskip("openpyxl")
    workbook, path = openpyxl.Workbook(), tmp_path / "a.xlsx"
    for row in (["text", "label"], ["good", "1"]):
        workbook.active.append(row)
    workbook.save(path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            data = re.sub(rb"<dimension [^>]*>", b"", data.replace(b'<row r="2"', b'<row r="999999999999"'))
            archive.writestr(name, data)
    with pytest.raises(DataError, match="more than 1,048,576 rows"):
        list(read_table(path, ("text", "label"), Findings()).rows)


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_parquet_file_that_repeats_one_long_text_is_refused(tmp_path: Path, is_nested: bool):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, text = tmp_path / "a.parquet", "a" * 1_000_000
    values = [[text] for _ in range(100)] if is_nested else [text] * 100
    parquet.write_table(arrow.table({"text": values, "label": ["x"] * 100}), path)
    assert path.stat().st_size < 500_000
    with pytest.raises(DataError, match=r"more than 200 times|has more than"):
        read_as("classify", path)


def test_rows_of_parquet_are_the_same_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"a": f"text {i}", "b": [str(i), "x"], "c": None if i % 3 else 1.5, "d": {"e": "f"}} for i in range(50)]
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.Table.from_pylist(rows), path, row_group_size=20)
    monkeypatch.setattr("seqwise.data.spreadsheets.MAX_BATCH_BYTES", 100)
    assert [values for _, values in read_objects(path, Findings())] == rows
    assert [values for _, values in read_objects(path, Findings(), None, ["c", "a"])] == [
        {"c": row["c"], "a": row["a"]} for row in rows
    ]


def test_a_parquet_file_with_a_damaged_description_of_a_column_is_refused(tmp_path: Path):
    """pyarrow ends the process when it is asked for such a description, so that the test needs another one."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": ["good", "bad"] * 20, "label": ["a", "b"] * 20}), path)
    content = path.read_bytes()
    name = content.rindex(b"text", 0, content.rindex(b"label"))  # in the schema, after its number of levels
    optional = content.rindex(b"\x25\x02", 0, name)
    path.write_bytes(content[: optional + 1] + b"\x00" + content[optional + 2 :])  # required: without levels
    code = (
        "import sys; from pathlib import Path; from seqwise.data.spreadsheets import read_objects; "
        "list(read_objects(Path(sys.argv[1])))"
    )
    result = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert result.returncode == 1, result
    assert "the Parquet file is damaged: Definition level histogram size mismatch" in result.stderr


# Sizes

LONG = "a" * 1_100_000


@pytest.mark.parametrize(
    ("task", "name", "content", "line"),
    [
        ("classify", "a.csv", f"text,label\ngood,1\n{LONG},0\n", 3),
        ("classify", "a.csv", 'text,label\ngood,1\n"' + "a\n" * 600_000, 3),
        ("classify", "a.tsv", f"good\t1\n{LONG}\t0\n", 2),
        ("classify", "a.jsonl", '{"text": "a", "label": 1}\n{"text": "' + LONG + '", "label": 1}\n', 2),
        ("classify", "a.json", '[{"text": "a", "label": 1},\n{"text": "' + LONG + '", "label": 1}]', 2),
        ("tag", "a.conll", f"EU O\n{LONG} O\n", 2),
        ("forecast", "a.csv", f"time,value\n2020,1\n2021,{LONG}\n", 3),
    ],
)
def test_a_text_that_is_too_long_is_refused_with_its_line(
    tmp_path: Path, task: str, name: str, content: str, line: int
):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match="has more than 1 MB") as error:
        read_as(task, path, parse_settings({"data": {"max_text_mb": 1}}))
    assert (error.value.file, error.value.line) == (path, line)
    assert "--data.max-text-mb 10" in error.value.fix
    with pytest.raises(DataError) as other:  # of the content: the size is allowed
        read_as(task, path, parse_settings({"data": {"max_text_mb": 2}}))
    assert "MB" not in other.value.problem


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_corpus_has_the_limits_of_its_settings_whenever_it_is_read(tmp_path: Path, name: str):
    path, documents = tmp_path / name, [{"text": "a"}, {"text": LONG}, {"text": "b"}]
    path.write_text("\n".join(map(json.dumps, documents)) if name == "a.jsonl" else json.dumps(documents))
    with (
        use_limits(parse_settings({"data": {"max_text_mb": 1}}).data),
        pytest.raises(DataError, match="more than 1 MB"),
    ):
        open_corpus(path)
    path.write_text(path.read_text().replace(LONG, LONG * 10))
    with use_limits(parse_settings({"data": {"max_text_mb": 12}}).data):
        corpus = open_corpus(path, 0, 0)
    assert sum(map(len, corpus.texts("train"))) == 10 * len(LONG) + 5  # the default would be 10 MB


def test_a_text_without_any_line_break_is_no_problem_for_a_corpus(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_text("word " * 2_400_000)
    assert len(str(read_as("language", path))) == 12_000_001


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path):
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    path, size = tmp_path / "a.png", 13_000
    header = struct.pack(">IIBBBBB", size, size, 8, 6, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    with pytest.raises(DataError, match=r"13,000 × 13,000 pixels. has more than 200 MB") as error:
        read_paths([path], 16, "images")
    assert "--data.max-text-mb" in error.value.fix


def test_a_photograph_of_many_pixels_is_decoded_at_a_fraction_of_its_size():
    from PIL import Image

    from seqwise.tasks.caption import decode

    contents = {}
    for is_progressive in (False, True):
        file = io.BytesIO()
        Image.new("L", (9_000, 6_000), 200).save(file, "JPEG", progressive=is_progressive)
        contents[is_progressive] = file.getvalue()
    assert decode.decode_image(contents[False], 16).array.max() == 200
    with pytest.raises(DataError, match=r"9,000 × 6,000 pixels. has more than 200 MB"):
        decode.decode_image(contents[True], 16)  # the decoder would keep all of it


def test_a_quote_that_is_never_closed_is_suspected_in_a_very_long_row(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\nfine,a\n"open,a\n' + "some words,b\n" * 900_000)
    with pytest.raises(DataError, match=r"a.csv:3: the row that starts here has more than 10 MB") as error:
        read_as("classify", path)
    assert "a quote that is opened in this row and never closed" in error.value.fix


def test_a_very_large_image_is_reduced_in_strips_to_almost_the_same_pixels(monkeypatch: pytest.MonkeyPatch):
    from PIL import Image

    from seqwise.tasks.caption import decode

    generator, file = np.random.default_rng(0), io.BytesIO()
    smooth = np.kron(generator.integers(0, 256, (8, 8, 4)), np.ones((40, 50, 1))).astype(np.uint8)
    smooth[..., 3] = 255
    Image.fromarray(smooth).save(file, "PNG")
    expected = decode.decode_image(file.getvalue(), 16).array.astype(int)
    monkeypatch.setattr(decode, "LARGE_PIXELS", 1_000)
    monkeypatch.setattr(decode, "STRIP_PIXELS", 5_000)
    reduced = decode.decode_image(file.getvalue(), 16).array.astype(int)
    assert 0 < np.abs(reduced - expected).max() < 60
    assert np.abs(reduced - expected).mean() < 6


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**4), (10**30,), (-1, 4), ()])
def test_the_header_of_an_array_may_declare_any_shape(tmp_path: Path, shape: tuple[int, ...]):
    (tmp_path / "captions.csv").write_text("image,caption\na.npy,a dog\nb.npy,a cat\n")
    content = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, header)
    for name in ("a.npy", "b.npy", "features.npy"):
        (tmp_path / name).write_bytes(content.getvalue() + bytes(4))
    with pytest.raises(DataError, match=r"a.npy: the file is not an array of numbers: its header declares"):
        read_as("caption", tmp_path)
    (tmp_path / "captions.csv").write_text("image,caption\n0,a dog\n1,a cat\n")
    with pytest.raises(DataError, match=r"features.npy"):
        read_as("caption", tmp_path)


def test_the_header_of_a_file_of_vectors_reserves_no_memory_that_the_file_cannot_fill(tmp_path: Path):
    (tmp_path / "a.vec").write_text("1000000 100000\n" + "a\n" * 1_000_000)  # would be 400 GB
    with pytest.raises(DataError, match=r"a.vec:2: expected 100,000 numbers after the word; found 0"):
        load_vectors(tmp_path / "a.vec")
    (tmp_path / "b.txt").write_text("word" + " 1" * 100_001 + "\n")
    with pytest.raises(DataError, match="expected at most 100,000"):
        load_vectors(tmp_path / "b.txt")


def test_a_number_of_many_digits_is_parsed_in_linear_time(tmp_path: Path):
    (tmp_path / "a.vec").write_text("1 2\nword 1 " + "1" * 1_000_000 + "x\n")
    start = time.process_time()
    with pytest.raises(DataError, match="is not a number"):
        load_vectors(tmp_path / "a.vec")
    assert time.process_time() - start < 5  # 20 minutes if the regular expression backtracks


def test_repeated_words_are_counted_and_not_kept(tmp_path: Path):
    (tmp_path / "a.vec").write_text("5 2\n" + "a 1 2\n" * 5)
    messages: list[str] = []
    load_vectors(tmp_path / "a.vec", log=messages.append)
    assert messages == ["4 of 5 lines repeat a word, whose first vector is used: 'a'"]


# Files that are none


@pytest.mark.usefixtures("_alarm")
@pytest.mark.parametrize(
    ("task", "name"),
    [
        *(("language", name) for name in ("a.txt", "a.jsonl", "a.json", "a.txt.gz", "a.parquet")),
        *(("classify", name) for name in ("a.csv", "a.tsv.gz", "a.xlsx", "a.jsonl")),
        *(("guess", name) for name in ("a.txt", "a.csv", "a.json", "a.xlsx")),
        *(("vectors", name) for name in ("a.txt", "a.bin", "a.vec.gz", "a.safetensors")),
        ("tag", "a.conll"),
        ("forecast", "a.csv"),
    ],
)
def test_a_pipe_with_the_name_of_a_file_is_refused_at_once(tmp_path: Path, task: str, name: str):
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(DataError, match="this is a pipe; expected a regular file") as error:
        read_as(task, path)
    assert error.value.file == path


@pytest.mark.usefixtures("_alarm")
def test_pipes_among_images_and_in_folders_do_not_hang(tmp_path: Path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(DataError, match="this is a pipe"):
        read_paths([tmp_path / "a.png"], 16, "images")
    (tmp_path / "captions.csv").write_text("image,caption\n0,a dog\n1,a cat\n")
    os.mkfifo(tmp_path / "features.npy")
    with pytest.raises(DataError, match=r"features.npy: this is a pipe"):
        read_as("caption", tmp_path)
    folder = tmp_path / "texts"
    folder.mkdir()
    os.mkfifo(folder / "a.txt")
    (folder / "b.txt").write_text("some text\n")
    assert read_as("language", folder) == "some text\n"


@pytest.mark.usefixtures("_alarm")
def test_devices_sockets_folders_and_links_in_circles_are_refused(tmp_path: Path):
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"zero.csv: this is a device"):
        read_as("classify", tmp_path / "zero.csv")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.csv"))
        with pytest.raises(DataError, match=r"s.csv: cannot be read"):
            read_as("classify", tmp_path / "s.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    with pytest.raises(DataError, match=r"loop.csv"):
        read_as("classify", tmp_path / "loop.csv")
    (tmp_path / "folder.vec").mkdir()
    with pytest.raises(DataError, match=r"folder.vec: cannot be read: Is a directory"):
        read_as("vectors", tmp_path / "folder.vec")


@pytest.mark.usefixtures("_alarm")
def test_a_pipe_that_the_user_names_is_read(tmp_path: Path):
    reading, writing = os.pipe()
    os.write(writing, b"EU B-ORG\nrejects O\n\n" * 20)
    os.close(writing)
    splits = read_tagged_data(f"/dev/fd/{reading}", Settings())
    os.close(reading)
    assert len(splits.all_examples()) == 20


@pytest.mark.usefixtures("_alarm")
def test_predict_reads_a_pipe_that_the_user_names_and_refuses_others(tmp_path: Path):
    reading, writing = os.pipe()
    os.write(writing, "a text\nzwölf\n".encode())
    os.close(writing)
    assert read_lines(f"/dev/fd/{reading}") == ["a text", "zwölf"]
    os.close(reading)
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(DataError, match=r"a.txt: this is a pipe; expected a regular file"):
        read_lines(str(tmp_path / "a.txt"))


def test_a_short_standard_input_needs_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    for encoding in ("utf-8", "utf-16"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("a text\r\nzwölf\n".encode(encoding))))
        assert read_lines("-") == ["a text", "zwölf"]


def test_a_pipe_that_never_ends_is_refused():
    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return b"y\n" * (size // 2)

    with pytest.raises(DataError, match=r"standard input: the pipe delivers more than 5 MB"):
        copy_stream(Endless(), io.BytesIO(), Path("standard input"), 5_000_000)  # type: ignore[arg-type]


# Content


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
@pytest.mark.parametrize(("task", "name"), [("language", "a.jsonl"), ("language", "a.json"), ("classify", "a.jsonl")])
def test_deeply_nested_json_is_an_error_with_its_line(tmp_path: Path, task: str, name: str, depth: int):
    path, is_array = tmp_path / name, name == "a.json"
    content = f'{{"text": "a", "label": 1}}\n{{"text": {"[" * depth}{"]" * depth}}}\n'
    path.write_text("[" + content.replace("}\n{", "},\n{") + "]" if is_array else content)
    with pytest.raises(DataError, match="nested too deeply") as error:
        read_as(task, path)
    assert (error.value.file, error.value.line) == (path, 2)


def test_a_number_of_thousands_of_digits_is_an_error_with_its_line(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": ' + "1" * 5_000 + "}\n")
    with pytest.raises(DataError, match=r"a.jsonl:1: not valid JSON: a number has thousands of digits"):
        read_as("classify", tmp_path / "a.jsonl")
    (tmp_path / "captions.csv").write_text(f"image,caption\n{'1' * 5_000},a dog\n²,a cat\n")
    np.save(tmp_path / "features.npy", np.ones((3, 4), dtype=np.float32))
    with pytest.raises(DataError, match="there is no image"):
        read_as("caption", tmp_path)


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_an_array_is_parsed_alike_whatever_is_read_at_once(chunk: int, monkeypatch: pytest.MonkeyPatch):
    values = [1, -25, 1e10, True, None, 'é\n"]', [], [[1], {"a": [2]}], {"b": "c" * 50}, 123456789]
    text = "\n [" + ",\n".join(f" {json.dumps(value)} " for value in values) + "]\n "
    monkeypatch.setattr(json_objects, "CHUNK_CHARACTERS", chunk)
    findings = Findings()
    found = list(json_objects.parse_objects(io.StringIO(text), Path("a.json"), findings))
    assert found == [(line, value) for line, value in enumerate(values, start=2)]
    for end in range(3, len(text.rstrip())):  # truncated anywhere
        findings = Findings()
        list(json_objects.parse_objects(io.StringIO(text[:end]), Path("a.json"), findings))
        assert len(findings.errors) == 1, text[:end]


def test_reading_stops_after_many_errors(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "a,b,c\n" * 5_000)
    with pytest.raises(DataError, match=r"1,000 errors in the data(.|\n)*and 990 more; reading stopped there") as error:
        read_as("classify", path)
    assert len(error.value.parts) == MAX_COLLECTED_ERRORS
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' * 5_000)
    with pytest.raises(DataError, match="there is no column label; there are text"):
        read_as("classify", path)


def test_findings_keep_a_count_and_the_first_location_only():
    findings = Findings()
    for line in range(1, 100_001):
        findings.note("blank lines, which are skipped", "a.csv", line)
    assert findings.note_messages() == ["100,000 blank lines, which are skipped (first: a.csv:1)."]
    assert len(vars(findings.notes["blank lines, which are skipped"])) == 2


# Numbers


@pytest.mark.parametrize("number", ["1e308", "-1e308", "1e39", "-9.9e37"])
def test_numbers_that_no_model_can_represent_are_errors_of_the_data(tmp_path: Path, number: str):
    path = tmp_path / "a.csv"
    path.write_text("time,value\n" + "".join(f"{1900 + i},{number if i == 50 else i}\n" for i in range(100)))
    with pytest.raises(DataError, match=f"column 'value': the number {number} is too large") as error:
        read_as("forecast", path)
    assert (str(error.value.file), error.value.line) == (str(path), 52)


def test_a_value_far_from_those_of_training_is_an_error_of_the_data(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("time,value\n" + "".join(f"{1900 + i},{1e25 if i == 80 else i % 7}\n" for i in range(100)))
    series = read_series(str(path), Settings())
    statistics = SeriesStatistics.fit(series, 70, 1, False)
    with pytest.raises(DataError, match=r"'value': the value 1e\+25 at 1980 is .* standard deviations from the mean"):
        RollingWindows(series, statistics, 5, 2, "interpolate")


@pytest.mark.parametrize("scale", [1e-300, 1e-320, 1.0, 1e29])
def test_series_of_any_scale_get_a_deviation_of_one(scale: float):
    values = np.sin(np.arange(100.0))[:, None] * scale
    scaled = Standardizer.fit(values).transform(values)
    assert np.isfinite(scaled).all()
    assert math.isclose(scaled.std(), 1, rel_tol=0.01 if scale > 1e-310 else 0.1)


def test_features_that_overflow_are_errors_of_the_data(tmp_path: Path):
    (tmp_path / "captions.csv").write_text("image,caption\na.npy,a dog\nb.npy,a cat\n")
    np.save(tmp_path / "a.npy", np.full((2, 3), 1e308))
    np.save(tmp_path / "b.npy", np.full((2, 3), 1.0))
    with pytest.raises(DataError, match=r"a.npy: the array contains numbers beyond"):
        read_as("caption", tmp_path)


def test_texts_are_encoded_alike_whatever_is_encoded_at_once(monkeypatch: pytest.MonkeyPatch):
    texts = ["the old model", "", "reads every word " * 5, "of the text"]
    tokenizer = Tokenizer.train("words", texts)
    expected = [ids.tolist() for ids in tokenizer.encode_many(texts)]
    monkeypatch.setattr("seqwise.text.tokenizer.MAX_BATCH_CHARACTERS", 20)
    assert [ids.tolist() for ids in tokenizer.encode_many(texts)] == expected
    assert [list(batch) for batch in _batch_by_size(texts)] == [texts[:2], texts[2:3], texts[3:]]
    assert tokenizer.encode_many([]) == []
