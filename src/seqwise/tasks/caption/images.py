"""Files of pictures, clips and features → arrays of one size. It knows nothing of captions or splits.

Whole numbers are pixels, fractions are features:

| array | is |
|---|---|
| 0 … 255, (height, width) or (height, width, 1, 3 or 4) | a picture |
| 0 … 255, (frames, height, width[, 1, 3 or 4]) | a clip |
| fractions, (width), (regions, width) or (height, width, channels) | features, one vector per region |

Pictures are brought to one size: the longer side is scaled to it, the rest is black. Grey ones get three equal
channels, transparent parts become white, and the orientation that a camera wrote down is applied.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from seqwise.data.corpus.sources import missing_file_error
from seqwise.errors import DataError
from seqwise.tasks.caption.image_store import ARRAY, PICTURES, ImageLocation, Shelf, natural, read_file

LARGEST = 64  # pixels, unless set: small models see no more than that in the time they have
SAMPLE = 200  # pictures that are looked at to choose the size
CHANNELS = (1, 3, 4)
KINDS = {"pictures": "a picture", "frames": "a clip of frames", "features": "features"}

ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True)
class Picture:
    """One input: pixels (S, S, 3), frames (F, S, S, 3), both uint8, or features (R, W); and what was done to it."""

    kind: str
    array: np.ndarray
    digest: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pictures:
    """Inputs of one kind and size, in memory."""

    kind: str
    arrays: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def width(self) -> int:
        """Numbers per region of features."""
        return self.arrays[0].shape[-1] if len(self.arrays) else 0

    @property
    def longest(self) -> int:
        """Frames or regions of the longest one; 1 for pictures."""
        return 1 if self.kind == "pictures" else max((len(array) for array in self.arrays), default=1)

    def take(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Some of them as one array, and the length of each where they differ in kind of length; padding is 0."""
        arrays = [self.arrays[number] for number in numbers]
        if self.kind == "pictures":
            return np.stack(arrays), None
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        taken = np.zeros((len(arrays), lengths.max(), *arrays[0].shape[1:]), dtype=arrays[0].dtype)
        for row, array in zip(taken, arrays):
            row[: len(array)] = array
        return taken, lengths


def choose_size(shelf: Shelf, found: Sequence[Sequence[ImageLocation]]) -> int:
    """The longer side of the largest picture of a sample, at most 64."""
    largest = 8
    for places in found[:: max(1, len(found) // SAMPLE)]:
        try:
            data = shelf.read(places[0])
            if places[0].name.endswith(ARRAY):
                shape = load_array(data).shape
                largest = max(largest, *(shape[:2] if shape[-1] in CHANNELS and len(shape) == 3 else shape[1:3]))
            else:
                largest = max(largest, *_opened(data).size)
        except (DataError, TypeError):
            continue  # is complained about when it is read
    return min(LARGEST, largest)


def read_many(
    shelf: Shelf, found: Sequence[Sequence[ImageLocation]], size: int, progress: ProgressCallback | None = None
) -> list[Picture | DataError]:
    """Each picture, clip or array; or why it cannot be read. In order, on all cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # Pillow decodes without holding the interpreter
        results = []
        for result in pool.map(lambda places: _attempt(shelf.read, places, size), found):
            results.append(result)
            if progress:
                progress(len(results), len(found))
        return results


def read_paths(paths: Sequence[Path], size: int, kind: str) -> list[np.ndarray]:
    """Pictures, clips (folders of frames) or arrays that a user names, for a model that was trained on `kind`."""
    arrays = []
    for path in paths:
        if not path.exists():
            raise missing_file_error(path)
        files = [path]
        if path.is_dir():
            files = sorted((f for f in path.iterdir() if f.suffix.lower() in PICTURES), key=lambda f: natural(f.name))
        if not files:
            raise DataError("the folder holds no frames.", repair="Name a folder of pictures.", file=path)
        picture = _attempt(read_file, [ImageLocation(file.name, file.parent) for file in files], size)
        if isinstance(picture, DataError):
            raise picture
        clip = picture.kind == "pictures" and kind == "frames"
        if picture.kind != kind and not clip:
            problem = f"this model was trained on {KINDS[kind]} per row; received {KINDS[picture.kind]}."
            raise DataError(problem, file=path)
        arrays.append(picture.array[None] if clip else picture.array)
    return arrays


def _attempt(read: Callable[[ImageLocation], bytes], places: Sequence[ImageLocation], size: int) -> Picture | DataError:
    place = places[0]
    try:
        files = [read(place) for place in places]
        if len(places) == 1 and place.name.endswith(ARRAY):
            picture = from_array(load_array(files[0]), size)
        elif len(places) == 1:
            picture = from_bytes(files[0], size)
        else:
            frames = []
            for place, data in zip(places, files):  # noqa: B007 - `place` says below which frame is wrong
                frames.append(from_bytes(data, size))
            picture = _clip(frames)
    except DataError as error:
        return DataError(error.problem, repair=error.repair, file=error.file or place.shown)
    return replace(picture, digest=digest_of(b"".join(files)))


def digest_of(data: bytes) -> str:
    """Equal for equal content."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def from_bytes(data: bytes, size: int) -> Picture:
    """A picture from the content of a PNG, JPEG or similar file."""
    image = _opened(data)
    try:
        image.draft(None, (2 * size, 2 * size))  # a JPEG is decoded at an eighth where that suffices
        return _square(ImageOps.exif_transpose(image), size)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _not_a_picture(str(error).split("\n")[0]) from None


def from_array(array: np.ndarray, size: int) -> Picture:
    """A picture, a clip or features, told by numbers and shape; see the table at the top."""
    if np.issubdtype(array.dtype, np.floating):
        if array.ndim == 0 or array.size == 0 or not np.isfinite(array).all():
            what = "holds no numbers" if array.size == 0 else "holds numbers that are not finite"
            raise DataError(f"the array {what}.", repair="Compute the features again.")
        return Picture("features", np.ascontiguousarray(array.reshape(-1, array.shape[-1]), dtype=np.float32))
    pixels = np.issubdtype(array.dtype, np.integer) and array.size and array.min() >= 0 and array.max() <= 255
    coloured = array.ndim > 2 and array.shape[-1] in CHANNELS
    if not pixels or array.ndim - coloured not in (2, 3):
        raise DataError(
            f"an array of {array.dtype} with shape {array.shape} is neither pixels nor features.",
            repair="Pixels are whole numbers from 0 to 255: (height, width, 3) or (frames, height, width, 3); "
            "features are fractions: (regions, width).",
        )
    array = array.astype(np.uint8)
    if array.ndim - coloured == 2:
        return _square(_as_image(array), size)
    return _clip([_square(_as_image(frame), size) for frame in array])


def load_array(data: bytes) -> np.ndarray:
    """The content of a `.npy` file. Nothing in it is executed."""
    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        problem = f"not an array of numbers: {str(error).split('.')[0].splitlines()[0]}."
        raise DataError(problem, repair="Write it with numpy.save.") from None


def _opened(data: bytes) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        raise _not_a_picture("the file is empty" if not data else "the format is unknown") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _not_a_picture(str(error).split("\n")[0]) from None


def _not_a_picture(why: str) -> DataError:
    return DataError(
        f"not a picture that can be read: {why.rstrip('.')}.",
        repair="Save it again as PNG or JPEG, or remove its rows.",
    )


def _as_image(array: np.ndarray) -> Image.Image:
    return Image.fromarray(array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array)


def _clip(frames: Sequence[Picture]) -> Picture:
    remarks = dict.fromkeys(remark for frame in frames for remark in frame.remarks)
    return Picture("frames", np.stack([frame.array for frame in frames]), remarks=tuple(remarks))


def _square(image: Image.Image, size: int) -> Picture:
    """The picture in the middle of a black square."""
    remarks = []
    if "A" in image.mode or "a" in image.mode or "transparency" in image.info:
        image = image.convert("RGBA")
        if np.asarray(image)[..., 3].min() < 255:
            remarks.append("with transparent parts, which become white")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    elif image.mode in ("1", "L", "F") or image.mode.startswith("I"):
        remarks.append("in grey, which get three equal channels")
        if image.mode not in ("1", "L"):  # 16 bits or more: keep the upper eight
            values = np.asarray(image, dtype=np.float64)
            image = Image.fromarray(np.clip(values / (256 if values.max() > 255 else 1), 0, 255).astype(np.uint8))
    image = image.convert("RGB")
    if image.size != (size, size):
        remarks.append(f"not {size} × {size}: the longer side is scaled to {size} pixels, the rest is black")
        scale = size / max(image.size)
        width, height = (max(1, round(side * scale)) for side in image.size)
        small = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)
        image = Image.new("RGB", (size, size))
        image.paste(small, ((size - width) // 2, (size - height) // 2))
    return Picture("pictures", np.asarray(image), remarks=tuple(remarks))
