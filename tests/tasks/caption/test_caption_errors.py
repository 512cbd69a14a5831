"""Invalid tables and images for captioning, and the errors and warnings about each: file, line, cause, fix."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from image_files import make_array, make_image

from seqwise.config import Settings
from seqwise.errors import DataError, UsageError
from seqwise.tasks.caption.reader import read_captions
from seqwise.tasks.caption.task import Caption

GOOD = "image,caption\n" + "".join(f"{n}.png,text {n}\n" for n in range(6))
PNG = {f"images/{n}.png": make_image((n, 9, 9)) for n in range(6)}
NPY = {f"features/{n}.npy": make_array(np.full((2, 4), n / 2)) for n in range(6)}
DROP_OPTION = "--data.on-empty drop"

# case → files, what the error must say
ERRORS = {
    "a missing image": ({**PNG, "captions.csv": GOOD + "9.png,nine\n"}, ["captions.csv:8", "no image '9.png'"]),
    "a misspelt image": (
        {**PNG, "images/lighthouse.png": make_image(), "captions.csv": GOOD + "lightouse.png,a\n"},
        ["captions.csv:8", "'lightouse.png'", "Perhaps you meant 'lighthouse.png'"],
    ),
    "no images at all": ({"captions.csv": GOOD}, ["6 errors", "captions.csv:2", "captions.csv:7", "images.zip"]),
    "an unreadable image": (
        {**PNG, "images/2.png": b"GIF or what", "captions.csv": GOOD},
        ["images/2.png", "the format is unknown", "captions.csv:4 names it", "PNG or JPEG"],
    ),
    "an image that ends too early": (
        {**PNG, "images/3.png": make_image(size=(99, 99))[:150], "captions.csv": GOOD},
        ["images/3.png", "not a readable image", "captions.csv:5 names it"],
    ),
    "an empty image": ({**PNG, "images/1.png": b"", "captions.csv": GOOD}, ["images/1.png", "the file is empty"]),
    "an empty caption": (
        {**PNG, "captions.csv": GOOD + "1.png,  \n"},
        ["captions.csv:8", "caption is empty", DROP_OPTION],
    ),
    "a row without the name of an image": (
        {**PNG, "captions.csv": GOOD + ",lost\n"},
        ["captions.csv:8", "no image is named", DROP_OPTION],
    ),
    "a number as caption": (
        {**PNG, "captions.jsonl": '{"image": "1.png", "caption": 7}\n'},
        ["captions.jsonl:1", "caption is empty"],
    ),
    "an unknown split": (
        {**PNG, "captions.csv": "image,caption,split\n1.png,a,train\n2.png,b,tets\n"},
        ["captions.csv:3", "no split 'tets'", "Perhaps you meant 'test"],
    ),
    "an image in two splits": (
        {**PNG, "captions.csv": "image,caption,split\n1.png,a,train\n2.png,b,test\n1.png,c,test\n"},
        ["captions.csv:4", "'1.png' is in test here, but in train in "],
    ),
    "an image in two tables": (
        {**PNG, "train.csv": "image,caption\n1.png,a\n", "test.csv": "image,caption\nimages/1.png,a\n"},
        ["test.csv:2", "'images/1.png' is in test here, but in train", "train.csv"],
    ),
    "only a test split": (
        {**PNG, "captions.csv": "image,caption,split\n1.png,a,test\n"},
        ["no image is for training"],
    ),
    "features of different width": (
        {**NPY, "features/3.npy": make_array(np.zeros((2, 5))), "captions.csv": GOOD},
        ["captions.csv:5", "3.png", "width 4 like the first, found 5"],
    ),
    "features that are not finite": (
        {**NPY, "features/3.npy": make_array(np.full((2, 4), np.nan)), "captions.csv": GOOD},
        ["features/3.npy", "not finite", "captions.csv:5 names it"],
    ),
    "an image among features": (
        {**NPY, "images/p.png": make_image(), "captions.csv": GOOD + "p.png,a\n"},
        ["captions.csv:8", "expected an array of features like the first one, found an image"],
    ),
    "an array of large numbers": (
        {**NPY, "features/0.npy": make_array(np.full((4, 4), 900)), "captions.csv": GOOD},
        ["features/0.npy", "int64 with shape (4, 4)", "0 to 255"],
    ),
    "a row beyond the array": (
        {"features.npy": make_array(np.zeros((3, 4))), "captions.csv": "image,caption\n0,a\n1,b\n3,c\n"},
        ["captions.csv:4", "row 3 is out of range: features.npy has rows 0 to 2"],
    ),
    "text that is called an array": (
        {"features.npy": b"1 2 3", "captions.csv": "image,caption\n0,a\n1,b\n"},
        ["features.npy", "not an array of numbers", "numpy.save"],
    ),
    "a comma without quotes": ({**PNG, "captions.csv": GOOD + "1.png,red, blue\n"}, ["captions.csv:8", "found 3"]),
    "an unclosed quote": ({**PNG, "captions.csv": GOOD + '1.png,"red\n'}, ["captions.csv:8", "never closed"]),
    "a column with another name": (
        {**PNG, "captions.csv": "image,text\n1.png,a\n"},
        ["captions.csv:1", "no column caption", "--columns"],
    ),
    "two encodings": (
        {**PNG, "captions.csv": f"{GOOD}1.png,café\n".encode() + b"1.png,caf\xe9\n"},
        ["captions.csv:9", "0xE9", "mixes encodings"],
    ),
    "an empty table": ({**PNG, "captions.csv": ""}, ["captions.csv", "empty"]),
    "a header alone": ({**PNG, "captions.csv": "image,caption\n"}, ["no captions were found"]),
    "too few images": ({**PNG, "captions.csv": "image,caption\n1.png,a b\n2.png,c d\n"}, ["too few"]),
    "two tables": (
        {**PNG, "cats.csv": GOOD, "dogs.csv": GOOD},
        ["there are several tables: cats.csv, dogs.csv", "captions.csv"],
    ),
    "no table": (PNG, ["the folder contains no data that this task reads", "Give .csv, .tsv, .jsonl"]),
    "a damaged archive": ({"images.zip": b"PK rubbish", "captions.csv": GOOD}, ["images.zip", "damaged", "unzip -t"]),
    "two images with one name": (
        {**PNG, "old/4.png": make_image(), "captions.csv": GOOD},
        ["captions.csv:6", "'4.png' is ambiguous: it may be images/4.png or old/4.png"],
    ),
}


def write_files(folder: Path, files: dict) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_names_file_line_cause_and_fix(tmp_path: Path, case: str):
    files, fragments = ERRORS[case]
    with pytest.raises((DataError, UsageError)) as caught:
        Caption.prepare(str(write_files(tmp_path, files)), Settings(task="caption"))
    assert [fragment for fragment in fragments if fragment not in str(caught.value)] == []


# case → files, what the warnings must say
WARNINGS = {
    "images without captions": (
        {**PNG, "images/x.png": make_image(), "images/y.png": make_image(), "captions.csv": GOOD},
        ["2 images without a caption, which are left out", "images/x.png"],
    ),
    "different sizes": (
        {
            **PNG,
            "images/2.png": make_image(size=(16, 8)),
            "images/3.png": make_image(size=(9, 9)),
            "captions.csv": GOOD,
        },
        ["2 images not 16 × 16: the longer side is scaled to 16 pixels, the rest is black (first: 2.png)"],
    ),
    "grey": ({**PNG, "images/2.png": make_image(90, mode="L"), "captions.csv": GOOD}, ["1 image in grey", "2.png"]),
    "transparent": (
        {**PNG, "images/2.png": make_image((1, 2, 3, 4), mode="RGBA"), "captions.csv": GOOD},
        ["1 image with transparent parts, which become white (2.png)"],
    ),
    "the same image twice": (
        {**{name: make_image() for name in PNG}, "captions.csv": GOOD},
        ["of valid", "in train as well", "memorised"],
    ),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_warnings_and_notes_are_counted(tmp_path: Path, case: str):
    files, fragments = WARNINGS[case]
    findings = read_captions(write_files(tmp_path, files), Settings().data).findings
    messages = " ".join(findings.warning_messages() + findings.note_messages())
    assert [fragment for fragment in fragments if fragment not in messages] == []


def test_long_captions_are_truncated_and_counted(tmp_path: Path):
    messages: list[str] = []
    write_files(tmp_path, {**PNG, "captions.csv": GOOD + "1.png,one two three four five six\n"})
    settings = Settings(task="caption", data={"max_length": 5})
    Caption.prepare(str(tmp_path), settings, log=messages.append)
    assert any("1 caption of 5 tokens or more, which is truncated (--data.max-length)" in line for line in messages)


def test_the_reader_names_a_damaged_image_in_an_archive(tmp_path: Path):
    write_files(tmp_path, {"captions.csv": GOOD})
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for name, content in PNG.items():
            archive.writestr(name, content)
    content_of_archive = bytearray((tmp_path / "images.zip").read_bytes())
    content_of_archive[60] ^= 255  # inside the first image
    (tmp_path / "images.zip").write_bytes(content_of_archive)
    with pytest.raises(DataError, match=r"images/0.png.*cannot be unpacked.*\n?.*"):
        read_captions(tmp_path, Settings().data)
