"""Small image files for tests."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

RED, BLUE = (200, 10, 20), (20, 30, 220)


def make_image(colour=RED, size: tuple[int, int] = (16, 16), mode: str = "RGB", file_format: str = "PNG") -> bytes:
    """Returns the content of an image file of one colour; `size` is (width, height)."""
    file = io.BytesIO()
    Image.new(mode, size, colour).save(file, file_format)
    return file.getvalue()


def make_array(values: np.ndarray) -> bytes:
    """Returns the content of a `.npy` file."""
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()
