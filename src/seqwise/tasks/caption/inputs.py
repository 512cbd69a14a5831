"""The images that a user names for prediction: paths → decoded images of the kind that the model was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.data.reading import list_files
from seqwise.errors import DataError, UsageError
from seqwise.resolved_settings import ResolvedCaptionSettings
from seqwise.tasks.caption.image_store import ARRAY_SUFFIX, IMAGE_SUFFIXES, SUFFIXES, natural_sort_key
from seqwise.tasks.caption.images import KINDS, ImageSet, decode_array, read_paths
from seqwise.tasks.caption.reader import BUILTIN
from seqwise.tasks.caption.shapes import draw_shapes


def find_inputs(path: Path, settings: ResolvedCaptionSettings) -> list[str] | None:
    """Returns the inputs at a path: one image or array, or all of a folder; None if it is neither.

    For clips a folder of frames is one input, and a folder of such folders as many.
    """
    if path.is_file():
        return [str(path)] if path.suffix.lower() in SUFFIXES else None
    if not path.is_dir():
        return None
    suffixes = (ARRAY_SUFFIX,) if settings.encoder == "features" else IMAGE_SUFFIXES
    files = sorted(list_files(path), key=lambda file: natural_sort_key(str(file)))
    inputs = [str(file) for file in files if file.suffix.lower() in suffixes]
    if settings.frames:
        folders = dict.fromkeys(str(file.parent) for file in files if file.suffix.lower() in IMAGE_SUFFIXES)
        inputs = [*folders, *(str(file) for file in files if file.suffix.lower() == ARRAY_SUFFIX)]
    if not inputs:
        raise DataError(f"the folder holds no {', '.join(suffixes)}.", repair="Name another folder.", file=path)
    return inputs


def load_inputs(names: Sequence[str], image_size: int, facts: Mapping[str, Any]) -> ImageSet:
    """Returns the images, clips or arrays at these paths; `builtin:shapes/7` is the drawn image of that number."""
    kind = get_kind(facts)
    builtin = {name for name in names if name.startswith(f"{BUILTIN}/")}
    arrays = iter(read_paths([Path(name) for name in names if name not in builtin], image_size, kind))
    images = ImageSet(
        "images" if builtin else kind,
        [_load_builtin(name, image_size) if name in builtin else next(arrays) for name in names],
    )
    check_kind(images, facts)
    return images


def _load_builtin(name: str, image_size: int) -> np.ndarray:
    number, pixels = name.rpartition("/")[2], draw_shapes()[0]
    if not number.isdigit() or int(number) >= len(pixels):
        repair = f"They are {BUILTIN}/0 … {BUILTIN}/{len(pixels) - 1}."
        raise DataError(f"there is no image {name!r}.", repair=repair)
    return decode_array(pixels[int(number)], image_size).array


def get_kind(facts: Mapping[str, Any]) -> str:
    """Returns the kind of images a run was trained on; runs of version 0.1 call images "pictures"."""
    return "images" if facts["kind"] == "pictures" else facts["kind"]


def check_kind(images: ImageSet, facts: Mapping[str, Any]) -> None:
    """Refuses images of another kind than the model was trained on."""
    kind, width, max_regions = get_kind(facts), facts["width"], facts["regions"]
    if images.kind != kind:
        raise UsageError(f"this model was trained on {KINDS[kind]} per row; received {KINDS[images.kind]}.")
    if kind == "features" and (images.width != width or images.max_length > max_regions):
        raise UsageError(
            f"this model was trained on at most {max_regions:,} regions of width {width:,}; "
            f"received {images.max_length:,} of width {images.width:,}.",
            repair="Compute the features as for training.",
        )
