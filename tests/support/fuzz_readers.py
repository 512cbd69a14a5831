"""The readers that are fuzzed: for each a small valid folder, the formats of its files, and the call that reads it.

Each call is the one that a command makes: data through `read_and_check`, runs through `Run.open` and a prediction.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SENTENCES = [
    f"the {adjective} cat sat on {number} mats ." for number in range(8) for adjective in ("old", "red", "big")
]


@dataclass(frozen=True)
class Reader:
    """How valid files are written, which of them are damaged, and how they are read."""

    write: Callable[[Path], None]  # into an empty folder
    formats: Mapping[str, str]  # file → its format, for `fuzz_mutations.mutate`
    read: Callable[[Path], object]
    sign: Callable[[Path], None] | None = None  # makes digests match the damaged files, for half of the inputs
    is_changed: bool = False  # reading changes the folder, which is then copied for every input
    weight: float = 1.0  # share of the inputs, relative to the other readers


def check(name: str, task: str | None, **settings: Any) -> Callable[[Path], object]:
    """Returns a function that reads a file of a folder as `seqwise check` does."""

    def read(folder: Path) -> object:
        from seqwise.config import parse_settings
        from seqwise.errors import combine_errors
        from seqwise.training.check import read_and_check

        report = read_and_check(str(folder / name), parse_settings({"task": task, **settings}))
        if report.errors:
            raise combine_errors(report.errors)
        return str(report)

    return read


# Data


def write_files(**contents: bytes | str) -> Callable[[Path], None]:
    """Returns a function that writes files; `__` in a keyword is a dot, `_in_` a folder."""

    def write(folder: Path) -> None:
        for name, content in contents.items():
            path = folder / name.replace("_in_", "/").replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return write


CSV = "text,label\n" + "".join(f'"{text}",{"ab"[i % 2]}\n' for i, text in enumerate(SENTENCES))
JSONL = "".join(json.dumps({"text": text, "label": "ab"[i % 2]}) + "\n" for i, text in enumerate(SENTENCES))
JSON = json.dumps([json.loads(line) for line in JSONL.splitlines()])
CONLL = "\n".join(
    "".join(f"{word} {'B-PER' if word == 'cat' else 'O'}\n" for word in text.split()) for text in SENTENCES
)
SERIES = "time,sales,store\n" + "".join(
    f"2024-0{month}-{day:02} 00:00,{day * 1.5},{month}\n" for month in (1, 2, 3) for day in range(1, 29)
)
ALIGNED = {f"train__{language}": "\n".join(SENTENCES) + "\n" for language in ("de", "en")}
PAIRS = "source\ttarget\n" + "".join(f"{text}\t{text.upper()}\n" for text in SENTENCES)
TAGGED = "".join(json.dumps({"tokens": text.split(), "tags": ["O"] * 7 + ["B-X"]}) + "\n" for text in SENTENCES)
PAIR_OBJECTS = "".join(json.dumps({"source": text, "target": text.upper()}) + "\n" for text in SENTENCES)
CAPTIONS = "image,caption\n" + "".join(f"{i}.png,a cat {i}\n" for i in range(4))


def make_parquet() -> bytes:
    import pyarrow
    from pyarrow import parquet

    output = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": SENTENCES, "label": ["a", "b"] * (len(SENTENCES) // 2)}), output)
    return output.getvalue()


def make_workbook(text: str) -> bytes:
    import openpyxl

    workbook, output = openpyxl.Workbook(), io.BytesIO()
    for line in text.replace('"', "").splitlines()[:40]:
        workbook.active.append(line.split(","))
    workbook.save(output)
    return output.getvalue()


def make_image(index: int = 0, file_format: str = "PNG") -> bytes:
    from PIL import Image

    output = io.BytesIO()
    Image.new("RGB", (8, 8), (index * 40, 9, 90)).save(output, file_format)
    return output.getvalue()


def make_array(values: np.ndarray) -> bytes:
    output = io.BytesIO()
    np.save(output, values)
    return output.getvalue()


def make_archive(members: Mapping[str, bytes]) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return output.getvalue()


def write_captions(folder: Path, suffix: str = "png", archive: bool = False) -> None:
    """Writes a table of four images, as files or in an archive."""
    contents = {f"{i}.{suffix}": make_image(i, {"jpg": "JPEG"}.get(suffix, suffix.upper())) for i in range(4)
                if suffix != "npy"}  # fmt: skip
    if suffix == "npy":
        contents = {f"{i}.npy": make_array(np.full((2, 3), i, np.float32)) for i in range(4)}
    (folder / "captions.csv").write_text(CAPTIONS.replace(".png", f".{suffix}"), encoding="utf-8")
    if archive:
        (folder / "images.zip").write_bytes(make_archive(contents))
        return
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def write_features(folder: Path) -> None:
    """Writes one array for all images."""
    (folder / "captions.csv").write_text(CAPTIONS.replace(".png", ""), encoding="utf-8")
    (folder / "features.npy").write_bytes(make_array(np.ones((4, 2, 3), np.float32)))


def pack(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


TEXT = "\n".join(SENTENCES * 3) + "\n"
DATA_READERS = {
    "text": Reader(write_files(a__txt=TEXT), {"a.txt": "text"}, check("a.txt", "language")),
    "text-masked": Reader(write_files(a__txt=TEXT), {"a.txt": "text"}, check("a.txt", "masked"), weight=0.3),
    "text-gz": Reader(write_files(a__txt__gz=pack(TEXT)), {"a.txt.gz": "gz"}, check("a.txt.gz", "language")),
    "text-guess": Reader(write_files(a__txt=TEXT), {"a.txt": "text"}, check("a.txt", None), weight=0.5),
    "jsonl": Reader(write_files(a__jsonl=JSONL), {"a.jsonl": "jsonl"}, check("a.jsonl", "language")),
    "json": Reader(write_files(a__json=JSON), {"a.json": "json"}, check("a.json", "language")),
    "csv": Reader(write_files(a__csv=CSV), {"a.csv": "text"}, check("a.csv", "classify"), weight=2),
    "csv-guess": Reader(write_files(a__csv=CSV), {"a.csv": "text"}, check("a.csv", None), weight=0.5),
    "csv-gz": Reader(write_files(a__csv__gz=pack(CSV)), {"a.csv.gz": "gz"}, check("a.csv.gz", "classify")),
    "tsv-pairs": Reader(write_files(a__tsv=PAIRS), {"a.tsv": "text"}, check("a.tsv", "translate")),
    "jsonl-labels": Reader(write_files(a__jsonl=JSONL), {"a.jsonl": "jsonl"}, check("a.jsonl", "classify"), weight=2),
    "json-labels": Reader(write_files(a__json=JSON), {"a.json": "json"}, check("a.json", "classify")),
    "conll": Reader(write_files(a__conll=CONLL), {"a.conll": "text"}, check("a.conll", "tag"), weight=2),
    "tags-jsonl": Reader(write_files(a__jsonl=TAGGED), {"a.jsonl": "jsonl"}, check("a.jsonl", "tag")),
    "pairs-jsonl": Reader(write_files(a__jsonl=PAIR_OBJECTS), {"a.jsonl": "jsonl"}, check("a.jsonl", "translate")),
    "label-files": Reader(
        write_files(pos__txt=TEXT, neg__txt=TEXT.upper()),
        {"pos.txt": "text", "neg.txt": "text"},
        check("", "classify"),
        weight=0.5,
    ),
    "parallel": Reader(
        write_files(**ALIGNED), {"train.de": "text", "train.en": "text"}, check("", "translate", target="en"), weight=2
    ),
    "series": Reader(
        write_files(a__csv=SERIES), {"a.csv": "text"}, check("a.csv", "forecast", target="sales"), weight=2
    ),
    "series-xlsx": Reader(
        lambda folder: write_files(a__xlsx=make_workbook(SERIES))(folder),
        {"a.xlsx": "zip"},
        check("a.xlsx", "forecast", target="sales"),
        weight=0.5,
    ),
    "xlsx": Reader(
        lambda folder: write_files(a__xlsx=make_workbook(CSV))(folder), {"a.xlsx": "zip"}, check("a.xlsx", "classify")
    ),
    "parquet": Reader(
        lambda folder: write_files(a__parquet=make_parquet())(folder),
        {"a.parquet": "binary"},
        check("a.parquet", "classify"),
    ),
    "captions": Reader(write_captions, {"captions.csv": "text"}, check("", "caption"), weight=0.5),
    "images": Reader(write_captions, {"0.png": "binary"}, check("", "caption")),
    "images-jpg": Reader(
        lambda folder: write_captions(folder, "jpg"), {"0.jpg": "binary"}, check("", "caption"), weight=0.5
    ),
    "images-tiff": Reader(
        lambda folder: write_captions(folder, "tiff"), {"0.tiff": "binary"}, check("", "caption"), weight=0.5
    ),
    "images-gif": Reader(
        lambda folder: write_captions(folder, "gif"), {"0.gif": "binary"}, check("", "caption"), weight=0.5
    ),
    "npy": Reader(lambda folder: write_captions(folder, "npy"), {"0.npy": "npy"}, check("", "caption"), weight=2),
    "features": Reader(
        write_features, {"features.npy": "npy", "captions.csv": "text"}, check("", "caption"), weight=0.5
    ),
    "zip": Reader(
        lambda folder: write_captions(folder, archive=True), {"images.zip": "zip"}, check("", "caption"), weight=2
    ),
}


# Word vectors


def write_vectors(name: str, kind: str | None = None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        from seqwise.vectors.keyed import KeyedVectors

        matrix = np.random.default_rng(1).standard_normal((12, 5)).astype(np.float32)
        words = sorted({word for text in SENTENCES for word in text.split()})[:12]
        KeyedVectors(words, matrix, np.arange(12, 0, -1)).save(folder / name, kind)

    return write


def load_vectors(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from seqwise.vectors.formats import load_vectors

        vectors = load_vectors(folder / name, log=lambda text: None)
        return vectors.nearest(vectors.words[0], n=3)

    return read


def read_word_test(folder: Path) -> object:
    from seqwise.vectors.evaluation import read_test

    return read_test(folder / "test.txt")


VECTOR_READERS = {
    "word2vec-binary": Reader(write_vectors("v.bin"), {"v.bin": "binary"}, load_vectors("v.bin"), weight=2),
    "word2vec-text": Reader(write_vectors("v.txt"), {"v.txt": "text"}, load_vectors("v.txt"), weight=2),
    "fasttext-gz": Reader(write_vectors("v.vec.gz"), {"v.vec.gz": "gz"}, load_vectors("v.vec.gz")),
    "glove": Reader(write_vectors("v.txt", "glove"), {"v.txt": "text"}, load_vectors("v.txt")),
    "vectors-safetensors": Reader(
        write_vectors("v.safetensors"),
        {"v.safetensors": "safetensors"},
        load_vectors("v.safetensors"),
        weight=2,
    ),
    "word-pairs": Reader(
        write_files(test__txt="word1 word2 score\ncat dog 7.5\nsun moon 3\n"),
        {"test.txt": "text"},
        read_word_test,
        weight=0.5,
    ),
    "word-test": Reader(
        write_files(test__txt=": capitals\nParis France Rome Italy\n" * 5),
        {"test.txt": "text"},
        read_word_test,
    ),
}
