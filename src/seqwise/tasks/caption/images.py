"""Finds images, clips and features by name in folders and zip archives, and reads them as arrays of one size.

A table may write `dog.jpg` for `images/dog.jpg`, or omit the suffix. `decode.py` decodes them.
The module knows nothing of captions or splits.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.config import DataSettings
from seqwise.data.limits import IMAGE_FACTOR, MB, build_size_error, check_expansion, get_limits, use_limits
from seqwise.data.opening import blame_file, open_binary, read_error
from seqwise.data.reading import list_files, missing_file_error
from seqwise.errors import DataError, suggest
from seqwise.tasks.caption.decode import (
    CHANNELS,
    LARGE_BYTES,
    LARGE_IMAGE,
    DecodedImage,
    decode_array,
    decode_image,
    load_array,
    open_image,
    stack_frames,
)

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
ARRAY_SUFFIX = ".npy"
SUFFIXES = (*IMAGE_SUFFIXES, ARRAY_SUFFIX)
MAX_IMAGE_SIZE = 64  # pixels, unless set: larger images cost small models time and do not improve them
SIZE_SAMPLE = 200  # approximate number of images that are examined to choose the size
KINDS = {"images": "an image", "frames": "a clip of frames", "features": "an array of features"}  # name → description


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
        except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
            fix = f"Copy or download it again; `unzip -t {path}` checks it."
            raise DataError(f"the zip archive is damaged: {error}.", fix=fix, file=path) from None
        # An archive never yields more than the sizes that it declares.
        check_expansion(sum(info.file_size for info in archive.infolist()), path.stat().st_size, path)
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
    max_bytes = IMAGE_FACTOR * get_limits().max_text_mb * MB
    try:
        if archive := archives.get(location.container):
            with archive.open(location.name) as member:
                data = member.read(max_bytes + 1)
        else:
            with open_binary(location.container / location.name) as file:
                data = file.read(max_bytes + 1)
    except OSError as error:
        raise read_error(error, location.path) from None
    except (RuntimeError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, EOFError, struct.error) as error:
        # RuntimeError: a password or an unsupported compression; the others: a damaged archive
        cause = str(error) or "it ends too early"
        raise DataError(f"the file cannot be unpacked: {cause}.", fix="Pack it again.", file=location.path) from None
    if len(data) > max_bytes:
        raise build_size_error("the file", location.path, factor=IMAGE_FACTOR)
    return data


def _measure_location(location: ImageLocation, archives: Mapping[Path, zipfile.ZipFile]) -> int:
    """Returns the size of a file in bytes; 0 if it cannot be read."""
    try:
        if archive := archives.get(location.container):
            return archive.getinfo(location.name).file_size
        return (location.container / location.name).stat().st_size
    except (OSError, KeyError):
        return 0  # the error is reported when it is read


def get_natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Returns a sort key that puts frame 10 after frame 9."""
    parts = re.split(r"([0-9]{1,18})", name)  # int() refuses thousands of digits
    return [(int(part), "") if index % 2 else (-1, part) for index, part in enumerate(parts)]


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
                with open_image(data) as image:
                    largest = max(largest, *image.size)
        except (DataError, TypeError, IndexError):
            continue  # the error is reported when all images are read
    return min(MAX_IMAGE_SIZE, largest)


def read_images(
    store: ImageStore, inputs: Sequence[Sequence[ImageLocation]], size: int, progress: ProgressCallback | None = None
) -> list[DecodedImage | DataError]:
    """Returns each image, clip or array, or the error if it cannot be read; in order, decoded on all cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # Pillow releases the interpreter lock while it decodes
        results = []
        decode = partial(_decode_input, size=size, archives=store.archives, limits=get_limits())
        for result in pool.map(decode, inputs):
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
    locations: Sequence[ImageLocation],
    size: int,
    archives: Mapping[Path, zipfile.ZipFile],
    limits: DataSettings | None = None,
) -> DecodedImage | DataError:
    """Decodes one file, or several as the frames of a clip. `limits` are passed on to another thread."""
    images, digest = [], hashlib.blake2b(digest_size=8)
    for location in locations:
        try:
            lock = LARGE_IMAGE if _measure_location(location, archives) > LARGE_BYTES else nullcontext()
            with lock, use_limits(limits or get_limits()), blame_file(location.path):
                data = read_location(location, archives)
                is_array = location.name.endswith(ARRAY_SUFFIX) and len(locations) == 1
                images.append(decode_array(load_array(data), size) if is_array else decode_image(data, size))
            digest.update(data)
        except DataError as error:
            return DataError(error.problem, fix=error.fix, file=error.file or location.path)
    image = images[0] if len(images) == 1 else stack_frames(images)
    return replace(image, digest=digest.hexdigest())
