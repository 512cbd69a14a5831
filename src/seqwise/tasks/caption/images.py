"""Finds images, clips and features by name in folders and zip archives, and decodes them into arrays of one size.

A table may write `dog.jpg` for `images/dog.jpg`, or omit the suffix. The module knows nothing of captions or splits.

Integers are pixels, floating-point numbers are features:

| array | meaning |
|---|---|
| 0 … 255, (height, width) or (height, width, 1, 3 or 4) | an image |
| 0 … 255, (frames, height, width[, 1, 3 or 4]) | a clip |
| floats, (width), (regions, width) or (height, width, channels) | features, one vector per region |

All images get one size: the longer side is scaled to it, the rest is black. Grey images get three equal channels,
transparent parts become white, and the orientation in the metadata of a camera is applied.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import warnings
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from seqwise.callbacks import ProgressCallback
from seqwise.data.reading import list_files, missing_file_error, read_error
from seqwise.errors import DataError, suggest

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
ARRAY_SUFFIX = ".npy"
SUFFIXES = (*IMAGE_SUFFIXES, ARRAY_SUFFIX)
MAX_IMAGE_SIZE = 64  # pixels, unless set: larger images cost small models time and do not improve them
SIZE_SAMPLE = 200  # approximate number of images that are examined to choose the size
CHANNELS = (1, 3, 4)
KINDS = {"images": "an image", "frames": "a clip of frames", "features": "an array of features"}  # name → description


@dataclass(frozen=True)
class DecodedImage:
    """One image, clip or array of features.

    `array` is pixels (S, S, 3) or frames (F, S, S, 3), both uint8, or features (R, W) float32.
    """

    kind: str  # a key of KINDS
    array: np.ndarray
    digest: str = ""  # of the content of its files
    conversions: tuple[str, ...] = ()  # descriptions, such as a change of size


@dataclass(frozen=True)
class ImageSet:
    """Images, clips or features in memory, all of one kind and size."""

    kind: str  # a key of KINDS
    arrays: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def width(self) -> int:
        """The size of the last dimension, which is the width of a feature vector."""
        return self.arrays[0].shape[-1] if len(self.arrays) else 0

    @property
    def max_length(self) -> int:
        """The largest number of frames or regions of one input; 1 for images."""
        return 1 if self.kind == "images" else max((len(array) for array in self.arrays), default=1)

    def collate(self, indices: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns some inputs as one array padded with 0, and their lengths (None for images)."""
        arrays = [self.arrays[index] for index in indices]
        if self.kind == "images":
            return np.stack(arrays), None
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        padded = np.zeros((len(arrays), lengths.max(), *arrays[0].shape[1:]), dtype=arrays[0].dtype)
        for padded_array, array in zip(padded, arrays):
            padded_array[: len(array)] = array
        return padded, lengths


# Files


@dataclass(frozen=True)
class ImageLocation:
    """A file in a folder or an archive."""

    name: str  # path relative to the container
    container: Path  # the folder or archive

    @property
    def path(self) -> str:
        return str(self.container / self.name)


class ImageStore:
    """The images and arrays below a folder and in the zip archives directly inside it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.archives: dict[Path, zipfile.ZipFile] = {}
        self.locations: dict[str, ImageLocation] = {}
        self.by_name: dict[str, list[ImageLocation]] = defaultdict(list)
        self.by_stem: dict[str, list[ImageLocation]] = defaultdict(list)
        self.by_folder: dict[str, list[ImageLocation]] = defaultdict(list)
        try:
            for path in sorted(list_files(folder)):
                if path.suffix.lower() in SUFFIXES:
                    self._add(ImageLocation(path.relative_to(folder).as_posix(), folder))
                elif path.suffix.lower() == ".zip" and path.parent == folder:
                    self._add_archive(path)
        except OSError as error:
            raise read_error(error, error.filename or folder) from None

    def _add_archive(self, path: Path) -> None:
        try:
            archive = self.archives[path] = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            fix = f"Copy or download it again; `unzip -t {path}` checks it."
            raise DataError(f"the zip archive is damaged: {error}.", fix=fix, file=path) from None
        for name in sorted(archive.namelist()):
            is_hidden = any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)
            if name.lower().endswith(SUFFIXES) and not is_hidden:
                self._add(ImageLocation(name, path))

    def _add(self, location: ImageLocation) -> None:
        path = PurePosixPath(location.name)
        self.locations.setdefault(location.name, location)
        self.by_name[path.name].append(location)
        self.by_stem[path.stem].append(location)
        self.by_folder[path.parent.as_posix()].append(location)

    def find(self, name: str) -> list[ImageLocation]:
        """Returns the file called `name` in a table, or the frames of the folder called so; raises if ambiguous."""
        path = PurePosixPath(name.replace("\\", "/"))
        if location := self.locations.get(path.as_posix()):
            return [location]
        candidates = [each for each in self.by_name.get(path.name, []) if _is_path_end(path, each.name)]
        if not candidates:  # the features of dog.jpg are in dog.npy; "dog" may be dog.jpg
            has_suffix = path.suffix.lower() in SUFFIXES
            same_stem = self.by_stem.get(path.stem if has_suffix else path.name, [])
            candidates = [each for each in same_stem if each.name.endswith(ARRAY_SUFFIX) or not has_suffix]
        if len(candidates) == 1:
            return candidates
        folders = [folder for folder in self.by_folder if _is_path_end(path, folder)]
        if not candidates and len(folders) == 1:
            return sorted(self.by_folder[folders[0]], key=lambda each: get_natural_sort_key(each.name))
        names = [each.name for each in candidates] or [f"{folder}/" for folder in folders]
        if names:
            problem = f"{name!r} is ambiguous: it may be {' or '.join(names[:3])}."
            raise DataError(problem, fix="Write the path relative to the folder of the table.")
        suggestion = suggest(path.name, self.by_name)
        if not self.locations:
            folder, archive = self.folder / "images", self.folder / "images.zip"
            suggestion = f"Put the images into {folder} or {archive}, or next to the table."
        elif not suggestion.startswith("Perhaps"):
            suggestion = f"It was searched for below {self.folder}."
        raise DataError(f"there is no image {name!r}.", fix=suggestion)


def read_location(location: ImageLocation, archives: Mapping[Path, zipfile.ZipFile]) -> bytes:
    """Returns the content of a file in a folder or in one of the archives."""
    try:
        if archive := archives.get(location.container):
            return archive.read(location.name)
        return (location.container / location.name).read_bytes()
    except OSError as error:
        raise read_error(error, location.path) from None
    except (RuntimeError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        # RuntimeError: a password or an unsupported compression; the others: a damaged archive
        cause = str(error) or "it ends too early"
        raise DataError(f"the file cannot be unpacked: {cause}.", fix="Pack it again.", file=location.path) from None


def get_natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Returns a sort key that puts frame 10 after frame 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _is_path_end(end: PurePosixPath, path: str) -> bool:
    return path == end.as_posix() or path.endswith(f"/{end.as_posix()}")


# Decoding


def choose_image_size(store: ImageStore, inputs: Sequence[Sequence[ImageLocation]]) -> int:
    """Returns the longer side of the largest image of a sample, at most MAX_IMAGE_SIZE."""
    largest = 8
    for locations in inputs[:: max(1, len(inputs) // SIZE_SAMPLE)]:
        try:
            data = read_location(locations[0], store.archives)
            if locations[0].name.endswith(ARRAY_SUFFIX):
                shape = load_array(data).shape
                largest = max(largest, *(shape[:2] if shape[-1] in CHANNELS and len(shape) == 3 else shape[1:3]))
            else:
                with _open_image(data) as image:
                    largest = max(largest, *image.size)
        except (DataError, TypeError):
            continue  # the error is reported when all images are read
    return min(MAX_IMAGE_SIZE, largest)


def read_images(
    store: ImageStore, inputs: Sequence[Sequence[ImageLocation]], size: int, progress: ProgressCallback | None = None
) -> list[DecodedImage | DataError]:
    """Returns each image, clip or array, or the error if it cannot be read; in order, decoded on all cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # Pillow releases the interpreter lock while it decodes
        results = []
        for result in pool.map(lambda locations: _decode_input(locations, size, store.archives), inputs):
            results.append(result)
            if progress:
                progress(len(results), len(inputs))
        return results


def read_paths(paths: Sequence[Path], size: int, kind: str) -> list[np.ndarray]:
    """Returns the images, clips (folders of frames) or arrays at these paths, for a model trained on `kind`."""
    arrays = []
    for path in paths:
        if not path.exists():
            raise missing_file_error(path)
        files = [path]
        if path.is_dir():
            frames = (file for file in path.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
            files = sorted(frames, key=lambda file: get_natural_sort_key(file.name))
        if not files:
            raise DataError("the folder contains no frames.", fix="Name a folder of images.", file=path)
        image = _decode_input([ImageLocation(file.name, file.parent) for file in files], size, {})
        if isinstance(image, DataError):
            raise image
        is_single_frame = image.kind == "images" and kind == "frames"
        if image.kind != kind and not is_single_frame:
            problem = f"each input of this model is {KINDS[kind]}; received {KINDS[image.kind]}."
            raise DataError(problem, file=path)
        arrays.append(image.array[None] if is_single_frame else image.array)
    return arrays


def _decode_input(
    locations: Sequence[ImageLocation], size: int, archives: Mapping[Path, zipfile.ZipFile]
) -> DecodedImage | DataError:
    """Decodes one file, or several as the frames of a clip."""
    images, contents = [], []
    for location in locations:
        try:
            data = read_location(location, archives)
            is_array = location.name.endswith(ARRAY_SUFFIX) and len(locations) == 1
            images.append(decode_array(load_array(data), size) if is_array else decode_image(data, size))
            contents.append(data)
        except DataError as error:
            return DataError(error.problem, fix=error.fix, file=error.file or location.path)
    image = images[0] if len(images) == 1 else _stack_frames(images)
    return replace(image, digest=compute_digest(b"".join(contents)))


def compute_digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def decode_image(data: bytes, size: int) -> DecodedImage:
    """Returns the image in the content of a PNG, JPEG or similar file."""
    with _open_image(data) as image:
        image.draft(None, (2 * size, 2 * size))  # a large JPEG is decoded at an eighth of its size if that suffices
        return _fit_into_square(ImageOps.exif_transpose(image), size)


def decode_array(array: np.ndarray, size: int) -> DecodedImage:
    """Returns an image, a clip or features, distinguished by dtype and shape; see the table at the top."""
    if np.issubdtype(array.dtype, np.floating):
        if array.ndim == 0 or array.size == 0 or not np.isfinite(array).all():
            content = "no numbers" if array.size == 0 else "numbers that are not finite"
            raise DataError(f"the array contains {content}.", fix="Compute the features again.")
        return DecodedImage("features", np.ascontiguousarray(array.reshape(-1, array.shape[-1]), dtype=np.float32))
    is_pixels = np.issubdtype(array.dtype, np.integer) and array.size and array.min() >= 0 and array.max() <= 255
    has_channels = array.ndim > 2 and array.shape[-1] in CHANNELS
    if not is_pixels or array.ndim - has_channels not in (2, 3):
        raise DataError(
            f"an array of {array.dtype} with shape {array.shape} is neither pixels nor features.",
            fix="Pixels are integers from 0 to 255: (height, width, 3) or (frames, height, width, 3); "
            "features are floating-point numbers: (regions, width).",
        )
    array = array.astype(np.uint8)
    if has_channels and array.shape[-1] == 1:
        array = array[..., 0]
        has_channels = False
    if array.ndim - has_channels == 2:
        return _fit_into_square(Image.fromarray(array), size)
    return _stack_frames([_fit_into_square(Image.fromarray(frame), size) for frame in array])


def load_array(data: bytes) -> np.ndarray:
    """Returns the array in a `.npy` file. Nothing in it is executed."""
    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        problem = f"the file is not an array of numbers: {str(error).split('.')[0].splitlines()[0]}."
        raise DataError(problem, fix="Write it with numpy.save.") from None


@contextmanager
def _open_image(data: bytes) -> Iterator[Image.Image]:
    """Opens the content of an image file. Errors inside the block are raised as a `DataError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data))
        yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        cause = str(error).split("\n")[0].rstrip(".")
        if isinstance(error, UnidentifiedImageError):
            cause = "the format is unknown" if data else "the file is empty"
        problem = f"the file is not a readable image: {cause}."
        raise DataError(problem, fix="Save it again as PNG or JPEG, or remove its rows.") from None


def _stack_frames(frames: Sequence[DecodedImage]) -> DecodedImage:
    conversions = dict.fromkeys(conversion for frame in frames for conversion in frame.conversions)
    return DecodedImage("frames", np.stack([frame.array for frame in frames]), conversions=tuple(conversions))


def _fit_into_square(image: Image.Image, size: int) -> DecodedImage:
    """Returns the image scaled and centred on a black square of `size` pixels."""
    conversions = []
    if "A" in image.mode or "a" in image.mode or "transparency" in image.info:
        image = image.convert("RGBA")
        if np.asarray(image)[..., 3].min() < 255:
            conversions.append("with transparent parts, which become white")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    elif image.mode in ("1", "L", "F") or image.mode.startswith("I"):
        conversions.append("in grey, which get three equal channels")
        if image.mode not in ("1", "L"):  # 16 bits or more: keep the upper eight
            values = np.asarray(image, dtype=np.float64)
            image = Image.fromarray(np.clip(values / (256 if values.max() > 255 else 1), 0, 255).astype(np.uint8))
    image = image.convert("RGB")
    if image.size != (size, size):
        conversions.append(f"not {size} × {size}: the longer side is scaled to {size} pixels, the rest is black")
        scale = size / max(image.size)
        width, height = (max(1, round(side * scale)) for side in image.size)
        scaled = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)
        image = Image.new("RGB", (size, size))
        image.paste(scaled, ((size - width) // 2, (size - height) // 2))
    return DecodedImage("images", np.asarray(image), conversions=tuple(conversions))
