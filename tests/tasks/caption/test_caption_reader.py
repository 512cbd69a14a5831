"""Tables of captions: images are found, captions grouped, and no image is in two splits."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from image_files import make_array, make_image

from seqwise.config import DataSettings
from seqwise.errors import DataError
from seqwise.tasks.caption.reader import CaptionSplits, read_captions
from seqwise.tasks.caption.shapes import draw_shapes


def write_data(folder: Path, table: str, count: int = 40, name: str = "captions.csv") -> Path:
    """Writes a table, and images/ with 0.png, 1.png, …, each of its own colour; returns the folder."""
    (folder / "images").mkdir(exist_ok=True)
    for number in range(count):
        (folder / "images" / f"{number}.png").write_bytes(make_image((number, 0, 0), (8, 8)))
    (folder / name).write_text(table, encoding="utf-8")
    return folder


def read(spec: Path, **settings) -> CaptionSplits:
    return read_captions(spec, DataSettings(**settings))


def get_red(data: CaptionSplits, image: str) -> int:
    """Returns the red value of the image, which is its number in `write_data`."""
    (example,) = [each for each in data.all_examples() if each.image == image]
    return int(data.images.arrays[example.index][0, 0, 0])


ROWS = "image,caption\n" + "".join(f"{n}.png,picture {n}\n{n}.png,another text of {n}\n" for n in range(40))


def test_captions_of_one_image_stay_in_one_split(tmp_path: Path):
    data = read(write_data(tmp_path, ROWS))
    assert {split: len(examples) for split, examples in data.parts.items()} == {"train": 36, "valid": 2, "test": 2}
    assert "pictures are held out with all their captions" in data.split_rule
    assert all(len(example.captions) == 2 for example in data.all_examples())
    images = [example.image for example in data.all_examples()]
    assert len(images) == len(set(images)) == 40
    assert all(get_red(data, f"{n}.png") == n for n in (0, 17, 39))
    assert (data.image_size, data.images.kind) == (8, "images")


@pytest.mark.parametrize("spec", ["", "captions.csv"])
def test_the_folder_or_the_table_can_be_given(tmp_path: Path, spec: str):
    assert len(read(write_data(tmp_path, ROWS) / spec).images) == 40


def test_a_split_column_determines_the_splits(tmp_path: Path):
    table = "image,caption,split\n0.png,a,train\n0.png,b,train\n1.png,c,Val\n2.png,d,test\n"
    splits = read(write_data(tmp_path, table, 3))
    assert {split: [e.image for e in examples] for split, examples in splits.parts.items()} == {
        "train": ["0.png"],
        "valid": ["1.png"],
        "test": ["2.png"],
    }
    assert splits.has_predefined_splits
    assert splits.split_rule == "splits as the data says."


@pytest.mark.parametrize(
    ("keys", "columns", "has_splits"),
    [
        (("image", "caption", "split"), None, True),
        (("image", "caption", "Split"), None, False),  # JSON keys are case-sensitive
        (("1", "2", "split"), "1,2", True),  # "1" is a key, not the number of a column
    ],
)
def test_a_split_key_determines_the_splits(
    tmp_path: Path, keys: tuple[str, ...], columns: str | None, has_splits: bool
):
    names = {0: "train", 1: "valid", 2: "test"}
    rows = [dict(zip(keys, (f"{n}.png", "a text", names.get(n, "train")))) for n in range(40)]
    folder = write_data(tmp_path, "\n".join(map(json.dumps, rows)), name="captions.jsonl")
    assert read_captions(folder, DataSettings(), columns=columns).has_predefined_splits == has_splits


def test_tables_of_splits_share_their_images(tmp_path: Path):
    write_data(tmp_path, "image,caption\n0.png,a\n", 3, "train.csv")
    write_data(tmp_path, "image,caption\n1.png,b\n", 3, "valid.csv")
    write_data(tmp_path, "image,caption\n2.png,c\n", 3, "test.csv")
    data = read(tmp_path)
    assert [example.image for example in data.parts["test"]] == ["2.png"]
    assert get_red(data, "2.png") == 2


@pytest.mark.parametrize("suffix", ["tsv", "jsonl", "csv.gz"])
def test_other_formats_give_the_same_data(tmp_path: Path, suffix: str):
    reference = read(write_data(tmp_path, ROWS))
    pairs = [line.split(",") for line in ROWS.splitlines()[1:]]
    (tmp_path / "captions.csv").unlink()
    if suffix == "tsv":
        (tmp_path / "captions.tsv").write_text("image\tcaption\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    elif suffix == "jsonl":
        captions = {n: [f"picture {n}", f"another text of {n}"] for n in range(40)}
        lines = (json.dumps({"image": f"{n}.png", "caption": texts}) for n, texts in captions.items())
        (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    else:
        (tmp_path / "captions.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    assert read(tmp_path).fingerprint == reference.fingerprint


def test_columns_may_have_other_names(tmp_path: Path):
    write_data(tmp_path, ROWS.replace("image,caption", "file,text"))
    assert len(read_captions(tmp_path, DataSettings(), columns="file,text").images) == 40


def test_images_from_an_archive_equal_those_of_a_folder(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    from_folder = read(write_data(tmp_path / "a", ROWS))
    with zipfile.ZipFile(tmp_path / "b" / "images.zip", "w") as archive:
        for number in range(40):
            archive.writestr(f"{number}.png", make_image((number, 0, 0), (8, 8)))
    (tmp_path / "b" / "captions.csv").write_text(ROWS)
    from_archive = read(tmp_path / "b")
    assert np.array_equal(from_folder.images.arrays, from_archive.images.arrays)
    assert from_folder.fingerprint == from_archive.fingerprint


def test_the_fingerprint_depends_on_the_images(tmp_path: Path):
    before = read(write_data(tmp_path, ROWS)).fingerprint
    (tmp_path / "images" / "7.png").write_bytes(make_image((99, 9, 9), (8, 8)))
    assert read(tmp_path).fingerprint != before


def test_features_are_read_from_single_files_or_one_array(tmp_path: Path):
    values = np.random.RandomState(0).random_sample((40, 3, 5)).astype(np.float32)
    (tmp_path / "one").mkdir()
    (tmp_path / "each").mkdir()
    np.save(tmp_path / "one" / "features.npy", values)
    (tmp_path / "one" / "captions.csv").write_text("image,caption\n" + "".join(f"{n},text {n}\n" for n in range(40)))
    for number in range(40):
        (tmp_path / "each" / f"{number}.npy").write_bytes(make_array(values[number]))
    (tmp_path / "each" / "captions.csv").write_text(
        "image,caption\n" + "".join(f"{n}.jpg,text {n}\n" for n in range(40))
    )
    for folder in ("one", "each"):
        data = read(tmp_path / folder)
        assert (data.images.kind, data.images.width, data.images.max_length) == ("features", 5, 3)
        assert np.array_equal(np.stack(data.images.arrays), values)


def test_clips_are_folders_of_frames_or_arrays(tmp_path: Path):
    rows = []
    for clip in range(6):
        (tmp_path / "clips" / f"c{clip}").mkdir(parents=True)
        for frame in range(1 + clip % 3):
            (tmp_path / "clips" / f"c{clip}" / f"{frame}.png").write_bytes(make_image((clip, frame, 0), (8, 8)))
        rows.append(f"c{clip},clip {clip}")
    (tmp_path / "clips" / "c6.npy").write_bytes(make_array(np.full((4, 8, 8, 3), 6, np.uint8)))
    (tmp_path / "captions.csv").write_text("image,caption\n" + "\n".join([*rows, "c6,clip 6"]) + "\n")
    data = read(tmp_path)
    assert data.images.kind == "frames"
    lengths = {e.image: len(data.images.arrays[e.index]) for e in data.all_examples()}
    assert lengths == {"c0": 1, "c1": 2, "c2": 3, "c3": 1, "c4": 2, "c5": 3, "c6": 4}


def test_rows_without_a_caption_can_be_dropped(tmp_path: Path):
    write_data(tmp_path, ROWS + "5.png,\n,lost\n")
    data = read(tmp_path, on_empty="drop")
    assert len(data.images) == 40
    messages = " ".join(data.findings.warning_messages())
    assert "2 rows without an image or a caption, which are dropped" in messages


def test_quoted_newlines_become_spaces(tmp_path: Path):
    table = 'image,caption\n0.png,"two\nlines, and a ""quote"""\n1.png,b\n2.png,c\n'
    (example,) = [e for e in read(write_data(tmp_path, table, 3)).all_examples() if e.image == "0.png"]
    assert example.captions == ('two lines, and a "quote"',)


def test_the_builtin_images_are_split(monkeypatch):
    monkeypatch.setattr("seqwise.tasks.caption.reader.draw_shapes", lambda: draw_shapes(400))
    data = read_captions("builtin:shapes", DataSettings())
    assert {split: len(examples) for split, examples in data.parts.items()} == {"train": 360, "valid": 20, "test": 20}
    assert data.images.arrays[0].shape == (32, 32, 3)
    with pytest.raises(DataError, match="no built-in data 'docs'"):
        read_captions("builtin:docs", DataSettings())


@pytest.mark.parametrize("columns", ["file,text", "1,2", "file,text,split"])
def test_a_split_column_is_used_with_named_columns(tmp_path: Path, columns: str):
    table = "0.png,a,train\n1.png,c,val\n2.png,d,test\n"
    header = "image,caption,split\n" if columns == "1,2" else "file,text,split\n"
    splits = read_captions(write_data(tmp_path, header + table, 3), DataSettings(), columns=columns)
    assert {split: [e.image for e in examples] for split, examples in splits.parts.items()} == {
        "train": ["0.png"],
        "valid": ["1.png"],
        "test": ["2.png"],
    }


def test_tables_with_other_names_are_counted(tmp_path: Path):
    for index, name in enumerate(("train", "valid", "test", "more")):
        write_data(tmp_path, f"image,caption\n{index}.png,a\n", 4, f"{name}.csv")
    (sentence,) = [line for line in read(tmp_path).findings.warning_messages() if "split" in line]
    assert sentence == f"1 file whose name contains no split, which is not read ({tmp_path / 'more.csv'})."


def test_broken_and_missing_images_can_be_dropped_and_are_counted(tmp_path: Path):
    write_data(tmp_path, "image,caption\n" + "".join(f"{n}.png,caption {n}\n" for n in range(40)) + "99.png,lost\n")
    for number in (3, 4):
        next(tmp_path.rglob(f"{number}.png")).write_bytes(b"not an image")
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    assert "3 errors" in str(caught.value)
    assert str(caught.value).count("--caption.on-broken drop") == 1
    data = read_captions(tmp_path, DataSettings(), on_broken="drop")
    assert len(data.images) == len(data.all_examples()) == 38
    (warning,) = [each for each in data.findings.warning_messages() if "dropped" in each]
    table = tmp_path / "captions.csv"
    assert warning == f"3 images that are missing, ambiguous or unreadable, which are dropped (first: {table}:42)."


def test_a_table_whose_images_are_all_broken_is_an_error(tmp_path: Path):
    write_data(tmp_path, "image,caption\n0.png,a\n1.png,b\n", 2)
    for path in tmp_path.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="no captions were found"):
        read_captions(tmp_path, DataSettings(), on_broken="drop")
