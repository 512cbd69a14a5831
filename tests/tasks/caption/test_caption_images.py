"""Decoding of images, clips and features into arrays of one size, and the conversions it reports."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from image_files import BLUE, RED, make_array, make_image
from PIL import Image

from seqwise.errors import DataError
from seqwise.tasks.caption.decode import decode_array, decode_image, load_array
from seqwise.tasks.caption.images import (
    ImageSet,
    ImageStore,
    choose_image_size,
    get_natural_sort_key,
    read_images,
    read_location,
    read_paths,
)


def test_an_image_of_the_right_size_is_unchanged():
    image = decode_image(make_image(RED), 16)
    assert (image.kind, image.array.shape, image.array.dtype, image.conversions) == (
        "images",
        (16, 16, 3),
        np.uint8,
        (),
    )
    assert (image.array == RED).all()


def test_a_wide_image_is_scaled_and_centred_on_black():
    image = decode_image(make_image(BLUE, (32, 16)), 16)
    assert image.array.shape == (16, 16, 3)
    assert (image.array[4:12] == BLUE).all()
    assert (image.array[:4] == 0).all()
    assert (image.array[12:] == 0).all()
    assert image.conversions == ("not 16 × 16: the longer side is scaled to 16 pixels, the rest is black",)


def test_a_small_image_is_scaled_up():
    assert (decode_image(make_image(BLUE, (4, 4)), 16).array == BLUE).all()


@pytest.mark.parametrize(("mode", "colour"), [("L", 90), ("1", 1), ("I;16", 90 * 256), ("LA", (90, 255))])
def test_grey_gets_three_equal_channels(mode: str, colour):
    image = decode_image(make_image(colour, mode=mode), 16)
    assert (image.array == (255 if mode == "1" else 90)).all()
    assert mode == "LA" or image.conversions == ("in grey, which get three equal channels",)


def test_transparent_parts_become_white():
    image = decode_image(make_image((200, 0, 0, 0), mode="RGBA"), 16)
    assert (image.array == 255).all()
    assert image.conversions == ("with transparent parts, which become white",)
    assert decode_image(make_image((200, 0, 0, 255), mode="RGBA"), 16).conversions == ()


def test_the_exif_orientation_is_applied():
    image = Image.new("RGB", (16, 16), BLUE)
    image.paste(RED, (0, 0, 16, 8))  # red above
    exif = image.getexif()
    exif[0x0112] = 3  # rotated by 180 degrees
    file = io.BytesIO()
    image.save(file, "PNG", exif=exif)
    pixels = decode_image(file.getvalue(), 16).array
    assert (pixels[:8] == BLUE).all()
    assert (pixels[8:] == RED).all()


def test_large_cmyk_and_palette_images_are_read():
    assert (
        np.abs(decode_image(make_image(RED, (640, 480), file_format="JPEG"), 16).array[8].astype(int) - RED).max() < 8
    )
    assert decode_image(make_image((0, 255, 255, 0), (40, 40), "CMYK", "JPEG"), 16).array[8, 8, 0] > 200
    assert (decode_image(make_image(RED, mode="P"), 16).array == RED).all()


@pytest.mark.parametrize(
    ("shape", "kind", "expected_shape"),
    [
        ((8, 8), "images", (16, 16, 3)),
        ((8, 8, 1), "images", (16, 16, 3)),
        ((8, 8, 3), "images", (16, 16, 3)),
        ((5, 8, 8), "frames", (5, 16, 16, 3)),
        ((5, 8, 8, 3), "frames", (5, 16, 16, 3)),
    ],
)
def test_integer_arrays_are_pixels(shape: tuple, kind: str, expected_shape: tuple):
    image = decode_array(np.full(shape, 7), 16)
    assert (image.kind, image.array.shape) == (kind, expected_shape)
    assert (image.array == 7).all()


@pytest.mark.parametrize(
    ("shape", "expected_shape"), [((6,), (1, 6)), ((4, 6), (4, 6)), ((2, 3, 6), (6, 6)), ((2, 2, 3, 6), (12, 6))]
)
def test_float_arrays_are_features_with_one_vector_per_region(shape: tuple, expected_shape: tuple):
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    image = decode_array(values, 16)
    assert (image.kind, image.array.shape, image.array.dtype) == ("features", expected_shape, np.float32)
    assert np.array_equal(image.array.ravel(), values.ravel())


@pytest.mark.parametrize(
    "values",
    [np.array([300]), np.full((8, 8), -1), np.full((8, 8), 256), np.zeros((0, 4)), np.array([np.nan]), np.array("a")],
)
def test_other_arrays_are_rejected(values: np.ndarray):
    with pytest.raises(DataError, match="array"):
        decode_array(values, 16)


def test_a_pickled_array_is_rejected():
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="not an array of numbers"):
        load_array(file.getvalue())


def test_clips_of_unequal_length_are_padded_with_zeros():
    clips = ImageSet("frames", [np.full((n, 2, 2, 3), n, np.uint8) for n in (3, 1)])
    batch, lengths = clips.collate(np.array([1, 0]))
    assert batch.shape == (2, 3, 2, 2, 3)
    assert lengths is not None
    assert lengths.tolist() == [1, 3]
    assert batch[0].reshape(3, -1).max(1).tolist() == [1, 0, 0]
    assert (clips.max_length, clips.width) == (3, 3)


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(make_image(RED, (40, 20)))
    (tmp_path / "images" / "b.jpg").write_bytes(make_image(BLUE, file_format="JPEG"))
    (tmp_path / "clip").mkdir()
    for number in (1, 2, 10):
        (tmp_path / "clip" / f"f{number}.png").write_bytes(make_image((number, 0, 0)))
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("deep/c.png", make_image(BLUE))
        archive.writestr("__MACOSX/._c.png", b"rubbish")
    return ImageStore(tmp_path)


@pytest.mark.parametrize("name", ["a.png", "images/a.png", "a", "images\\a.png"])
def test_an_image_is_found_by_path_name_or_stem(store: ImageStore, name: str):
    assert [location.name for location in store.find(name)] == ["images/a.png"]


def test_an_image_in_an_archive_is_found_and_read(store: ImageStore):
    (location,) = store.find("c.png")
    assert location.container.name == "more.zip"
    assert read_location(location, store.archives) == make_image(BLUE)


def test_a_folder_of_frames_is_a_clip_in_natural_order(store: ImageStore):
    (clip,) = read_images(store, [store.find("clip")], 16)
    assert not isinstance(clip, DataError)
    assert clip.kind == "frames"
    assert clip.array[:, 0, 0, 0].tolist() == [1, 2, 10]
    assert sorted(["f10", "f9"], key=get_natural_sort_key) == ["f9", "f10"]


def test_missing_and_ambiguous_images_are_errors(store: ImageStore, tmp_path: Path):
    with pytest.raises(DataError, match=r"there is no image 'b.png'.*\n.*Perhaps you meant"):
        store.find("b.png")
    (tmp_path / "thumbs").mkdir()
    (tmp_path / "thumbs" / "a.png").write_bytes(make_image())
    with pytest.raises(DataError, match=r"'a.png' is ambiguous: it may be images/a.png or thumbs/a.png"):
        ImageStore(tmp_path).find("a.png")


def test_the_size_is_the_longest_side_but_at_most_64(store: ImageStore, tmp_path: Path):
    assert choose_image_size(store, [store.find(name) for name in "ab"]) == 40
    (tmp_path / "images" / "large.png").write_bytes(make_image(RED, (20, 300)))
    larger_store = ImageStore(tmp_path)
    assert choose_image_size(larger_store, [larger_store.find(name) for name in ("a", "large")]) == 64


def test_reading_reports_progress_and_continues_after_a_bad_file(store: ImageStore, tmp_path: Path):
    (tmp_path / "images" / "bad.png").write_bytes(b"no image")
    store, progress = ImageStore(tmp_path), []
    results = read_images(
        store, [store.find(n) for n in ("a", "bad", "b")], 16, lambda done, total: progress.append((done, total))
    )
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert [isinstance(each, DataError) for each in results] == [False, True, False]
    assert "bad.png: the file is not a readable image: the format is unknown." in str(results[1])


def test_paths_must_match_the_kind_of_the_model(store: ImageStore, tmp_path: Path):
    (clip,) = read_paths([tmp_path / "clip"], 16, "frames")
    assert clip.shape == (3, 16, 16, 3)
    (clip_of_one_frame,) = read_paths([tmp_path / "images" / "a.png"], 16, "frames")
    assert clip_of_one_frame.shape == (1, 16, 16, 3)
    with pytest.raises(DataError, match="each input of this model is an array of features; received an image"):
        read_paths([tmp_path / "images" / "a.png"], 16, "features")
    with pytest.raises(DataError, match="no such file"):
        read_paths([tmp_path / "images" / "z.png"], 16, "images")
    (tmp_path / "x.npy").write_bytes(make_array(np.zeros((2, 5))))
    assert read_paths([tmp_path / "x.npy"], 16, "features")[0].shape == (2, 5)


def test_a_damaged_member_of_an_archive_is_an_error_with_its_name(tmp_path: Path):
    content = make_image(RED, (8, 8)) * 20
    with zipfile.ZipFile(tmp_path / "images.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("red.png", content)
    data = bytearray((tmp_path / "images.zip").read_bytes())
    begin = 30 + len("red.png")  # after the header of the member
    data[begin : begin + 20] = b"\xff" * 20
    (tmp_path / "images.zip").write_bytes(data)
    store = ImageStore(tmp_path)
    with pytest.raises(DataError, match=r"red\.png.*cannot be unpacked"):
        read_location(store.find("red.png")[0], store.archives)
