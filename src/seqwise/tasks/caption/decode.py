"""Decodes images, clips and arrays of features into arrays of one size. It knows nothing of where they are saved.

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
import math
import os
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, RLock

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from seqwise.data.limits import DECODED_FACTOR, MB, build_size_error, get_limits, release_memory
from seqwise.data.opening import open_binary
from seqwise.errors import DataError

CHANNELS = (1, 3, 4)
DECODED_BYTES = 4  # per pixel of a decoded image
LARGE_BYTES = 100 * MB // (os.cpu_count() or 1)  # of an image or its file; larger ones are decoded one at a time
LARGE_IMAGE = RLock()
HEADER_PARSER = Lock()  # NumPy parses a header as Python; two threads at once may raise a SystemError in Python 3.11
STRIP_PIXELS = 1_000_000  # of such an image that are reduced at once
LARGE_PIXELS = 8_000_000  # of an image that is reduced before anything else
MAX_FEATURE = 1e15  # larger numbers overflow when they are squared and added as 32-bit floats


@dataclass(frozen=True)
class DecodedImage:
    """One image, clip or array of features.

    `array` is pixels (S, S, 3) or frames (F, S, S, 3), both uint8, or features (R, W) float32.
    """

    kind: str  # a key of KINDS
    array: np.ndarray
    digest: str = ""  # of the content of its files
    conversions: tuple[str, ...] = ()  # descriptions, such as a change of size


def compute_digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def decode_image(data: bytes, size: int) -> DecodedImage:
    """Returns the image in the content of a PNG, JPEG or similar file."""
    with open_image(data) as image:  # reads the size only
        subject = f"the image ({image.width:,} × {image.height:,} pixels)"
        if "progressive" not in image.info:  # the decoder keeps all of a progressive JPEG
            _draft(image, size)
        num_bytes = image.width * image.height * DECODED_BYTES
    if num_bytes > DECODED_FACTOR * get_limits().max_text_mb * MB:
        raise build_size_error(subject, None, None, DECODED_FACTOR, fix="Save it with fewer pixels")
    if num_bytes <= LARGE_BYTES:
        return _decode_opened(data, size)
    with LARGE_IMAGE:
        decoded = _decode_opened(data, size)
        release_memory()
        return decoded


def _draft(image: Image.Image, size: int) -> None:
    """Lets a large JPEG be decoded at an eighth of its size, if that suffices."""
    image.draft(None, (2 * size, 2 * size))


def _decode_opened(data: bytes, size: int) -> DecodedImage:
    with open_image(data) as image:
        _draft(image, size)
        image = _reduce(image, size)
        return _fit_into_square(ImageOps.exif_transpose(image), size)


def _reduce(image: Image.Image, size: int) -> Image.Image:
    """Returns a very large image at a fraction of its size: what follows makes several copies."""
    factor = max(image.size) // (4 * size)
    if image.width * image.height <= LARGE_PIXELS or factor < 2:
        return image
    mode = "I" if image.mode.startswith("I;") else image.mode
    if image.mode in ("1", "P", "PA"):
        mode = "RGBA" if image.has_transparency_data else "RGB"
    width, height = (math.ceil(side / factor) for side in image.size)
    reduced = Image.new(mode, (width, height))
    num_rows = max(1, STRIP_PIXELS // (image.width * factor))  # of the result: strip by strip, each step is a copy
    for top in range(0, height, num_rows):
        box = (0, top * factor, image.width, min(image.height, (top + num_rows) * factor))
        reduced.paste(image.crop(box).convert(mode).reduce(factor), (0, top))
    if exif := image.getexif():
        reduced.info["exif"] = exif.tobytes()
    return reduced


def decode_array(array: np.ndarray, size: int) -> DecodedImage:
    """Returns an image, a clip or features, distinguished by dtype and shape; see the table at the top."""
    if np.issubdtype(array.dtype, np.floating):
        if array.ndim == 0 or array.size == 0 or not np.isfinite(array).all():
            content = "no numbers" if array.size == 0 else "numbers that are not finite"
            raise DataError(f"the array contains {content}.", fix="Compute the features again.")
        if max(-array.min(), array.max()) > MAX_FEATURE:
            problem = f"the array contains numbers beyond ±{MAX_FEATURE:g}, which training cannot represent."
            raise DataError(problem, fix="Compute the features again, or scale them.")
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
    return stack_frames([_fit_into_square(Image.fromarray(frame), size) for frame in array])


def load_array(data: bytes) -> np.ndarray:
    """Returns the array in a `.npy` file. Nothing in it is executed."""
    try:
        file = io.BytesIO(data)
        is_first_version = np.lib.format.read_magic(file) == (1, 0)
        read_header = np.lib.format.read_array_header_1_0 if is_first_version else np.lib.format.read_array_header_2_0
        with HEADER_PARSER:
            shape, is_fortran, dtype = read_header(file)
        count, num_bytes = math.prod(shape), len(data) - file.tell()
        if dtype.hasobject:
            raise ValueError("it contains Python objects")
        if min(shape, default=0) < 0 or count * dtype.itemsize > num_bytes:  # before memory is allocated
            raise ValueError(f"its header declares shape {shape} of {dtype}, but {num_bytes:,} bytes follow")
        array = np.frombuffer(data, dtype, count, file.tell()) if count else np.zeros(0, dtype)
        return array.reshape(shape, order="F" if is_fortran else "C")
    except Exception as error:
        raise _build_array_error(error) from None


def map_array(path: Path) -> np.ndarray:
    """Returns the array in a `.npy` file, of which only the rows that are used are read."""
    try:
        with open_binary(path):  # raises unless it is a regular file
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        raise _build_array_error(error, path) from None


def _build_array_error(error: Exception, path: Path | None = None) -> DataError:
    if isinstance(error, DataError):
        return error
    # The parser of the header raises TokenError, IndexError, OverflowError, MemoryError and others.
    reason = (str(error) or type(error).__name__).split(". ")[0].splitlines()[0].rstrip(".")
    return DataError(f"the file is not an array of numbers: {reason}.", fix="Write it with numpy.save.", file=path)


@contextmanager
def open_image(data: bytes) -> Iterator[Image.Image]:
    """Opens the content of an image file. Errors inside the block are raised as a `DataError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data))
        yield image
    except (OSError, ValueError, SyntaxError, struct.error, OverflowError, Image.DecompressionBombError) as error:
        cause = str(error).split("\n")[0].rstrip(".")
        if isinstance(error, UnidentifiedImageError):
            cause = "the format is unknown" if data else "the file is empty"
        problem = f"the file is not a readable image: {cause}."
        raise DataError(problem, fix="Save it again as PNG or JPEG, or remove its rows.") from None


def stack_frames(frames: Sequence[DecodedImage]) -> DecodedImage:
    """Returns images of one size as a clip."""
    conversions = dict.fromkeys(conversion for frame in frames for conversion in frame.conversions)
    return DecodedImage("frames", np.stack([frame.array for frame in frames]), conversions=tuple(conversions))


def _fit_into_square(image: Image.Image, size: int) -> DecodedImage:
    """Returns the image scaled and centred on a black square of `size` pixels."""
    conversions = []
    if "A" in image.mode or "a" in image.mode or "transparency" in image.info:
        image = image.convert("RGBA")
        lowest, _ = image.getchannel("A").getextrema()
        if lowest < 255:  # type: ignore[operator]
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
