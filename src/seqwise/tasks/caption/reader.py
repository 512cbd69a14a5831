"""`read_captions`: a table of images and captions → decoded images, and examples in three splits.

An example is an image with all of its captions, so the captions of one image are never in two splits. The table is
`captions.csv` (`image,caption[,split]`), `.tsv` or `.jsonl`; the images are in its folder, in subfolders or in a zip
archive next to it. Images may also be clips of frames, or precomputed features. Errors of all rows are raised together.
The module knows nothing of tokens or models.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.config import DataSettings
from seqwise.data.examples import (
    SPLIT_NAMES,
    SPLITS,
    Splits,
    TooShortError,
    find_split_files,
    find_training_duplicates,
    split_examples,
)
from seqwise.data.limits import limited
from seqwise.data.reading import get_format_suffix
from seqwise.data.tables import OBJECT_SUFFIXES, SUFFIXES, Row, read_header, read_table, split_commas
from seqwise.errors import DataError, Findings, format_location, suggest
from seqwise.tasks.caption.decode import DecodedImage, compute_digest, decode_array, map_array
from seqwise.tasks.caption.images import (
    KINDS,
    MAX_IMAGE_SIZE,
    ImageLocation,
    ImageSet,
    ImageStore,
    choose_image_size,
    read_images,
)
from seqwise.tasks.caption.shapes import IMAGE_SIZE, draw_shapes

COLUMNS = ("image", "caption")
SPLIT_COLUMN = "split"
FEATURES_FILE = "features.npy"  # one array for all images; the column `image` then holds row indices, from 0
BUILTIN = "builtin:shapes"
# The description, and "pictures" in the split rules below, are part of the fingerprint of the data: they cannot change.
BUILTIN_DESCRIPTION = "drawn pictures with the caption that each determines"
ROW_NUMBER, MAX_DIGITS = re.compile("[0-9]+"), 18  # of a row; int() refuses thousands of digits
ONE_SPLIT_FIX = "All captions of an image belong to one split."
DROP_BROKEN_FIX = "Or pass --caption.on-broken drop to leave such images out and count them."


@dataclass(frozen=True)
class CaptionedImage:
    """An image and its captions."""

    image: str  # its name in the table
    captions: tuple[str, ...]
    digest: str = ""  # of the image; "" for built-in data
    index: int = field(default=0, repr=False)  # in the `ImageSet`
    split: str | None = field(default=None, repr=False)  # None if the table names one that does not exist
    locations: tuple[ImageLocation, ...] = field(default=(), repr=False)  # files of the image, or of the frames
    file: str = field(default="", repr=False)  # the table, and the line of its first row
    line: int = field(default=0, repr=False)


@dataclass
class CaptionSplits(Splits[CaptionedImage]):
    """Captioned images in three splits, and the decoded images of all of them."""

    images: ImageSet = field(default_factory=lambda: ImageSet("images", []), repr=False)
    image_size: int = 0  # pixels of a side; 0 for features


@limited
def read_captions(
    spec: str | Path,
    settings: DataSettings,
    image_size: int | None = None,
    columns: str | None = None,
    progress: ProgressCallback | None = None,
    on_broken: str = "stop",
) -> CaptionSplits:
    """Reads and checks all images and captions, and divides them into splits."""
    fractions = {"valid": settings.valid_fraction, "test": settings.test_fraction}
    if str(spec).startswith("builtin:"):
        return _read_builtin(str(spec), image_size or IMAGE_SIZE, fractions)
    reader = _TableReader(settings, columns, image_size, progress, on_broken == "drop")
    examples = [
        example
        for split, paths in _find_tables(Path(spec), reader.findings).items()
        for path in paths
        for example in reader.read(path, split)
    ]
    _check_splits(examples, reader.findings)
    reader.findings.raise_errors()
    if not examples:
        raise DataError("no captions were found.", fix="Give a table with captions.", file=spec)
    splits = _split_examples(str(spec), examples, fractions, reader.findings)
    for split, example in find_training_duplicates(splits, lambda example: example.digest):
        warning = f"images of {split} are in train as well: memorised captions count as correct there"
        reader.findings.warn(warning, example.image)
    kind = reader.images[0].kind
    images = ImageSet(kind, [image.array for image in reader.images])
    size = 0 if kind == "features" else reader.image_size or MAX_IMAGE_SIZE
    return CaptionSplits(**vars(splits), images=images, image_size=size)


def _read_builtin(spec: str, image_size: int, fractions: Mapping[str, float]) -> CaptionSplits:
    if spec != BUILTIN:
        name = spec.removeprefix("builtin:")
        raise DataError(f"this task has no built-in data {name!r}.", fix=suggest(name, ["shapes"]))
    pixels, captions = draw_shapes()
    examples = [CaptionedImage(f"{BUILTIN}/{i}", (caption,), "", i) for i, caption in enumerate(captions)]
    splits = split_examples(spec, {"train": examples}, fractions, Findings(), f"{BUILTIN_DESCRIPTION}; ")
    splits.split_rule = splits.split_rule.replace("examples are", "pictures are")
    arrays = list(pixels)
    if image_size != IMAGE_SIZE:
        arrays = [decode_array(array, image_size).array for array in pixels]
    return CaptionSplits(**vars(splits), images=ImageSet("images", arrays), image_size=image_size)


# Tables


def _find_tables(path: Path, findings: Findings) -> dict[str, list[Path]]:
    """Returns the tables of each split; if a folder has one `captions.*`, only that."""
    if path.is_dir():
        tables = sorted(file for file in path.glob("captions.*") if get_format_suffix(file) in SUFFIXES)
        if len(tables) == 1:
            return {"train": tables}
    groups = find_split_files(path, SUFFIXES, findings)
    if len(groups) == 1 and len(groups["train"]) > 1:
        names = ", ".join(file.name for file in groups["train"][:4])
        fix = "Pass one of them, rename one to captions.csv, or name them train, valid and test."
        raise DataError(f"there are several tables: {names}.", fix=fix, file=path)
    return groups


@dataclass
class _TableReader:
    """Reads tables one after the other and collects their images, errors and warnings."""

    settings: DataSettings
    columns: str | None
    image_size: int | None  # chosen by the first table, unless set
    progress: ProgressCallback | None
    drop_broken: bool
    findings: Findings = field(default_factory=Findings)
    images: list[DecodedImage] = field(default_factory=list)

    def read(self, path: Path, split: str) -> list[CaptionedImage]:
        """Returns the examples of one table."""
        findings = self.findings
        rows = _read_rows(path, self.columns, findings, self.settings.encoding)
        examples = _group_by_image(rows, split, self.settings.on_empty == "drop", findings)
        features_file = path.parent / FEATURES_FILE
        if features_file.exists() and all(map(ROW_NUMBER.fullmatch, (example.image for example in examples))):
            return self._add_images(examples, _read_array_rows(features_file, examples, self.image_size))
        store = ImageStore(path.parent)
        located_examples = []
        for example in examples:
            try:
                located_examples.append(replace(example, locations=tuple(store.find(example.image))))
            except DataError as error:
                self._report_broken(example, error)
        inputs = [example.locations for example in located_examples]
        self.image_size = self.image_size or choose_image_size(store, inputs)
        used_locations = {location for locations in inputs for location in locations}
        for location in store.locations.values():
            if location not in used_locations:
                findings.warn("images without a caption, which are left out", location.path)
        return self._add_images(located_examples, read_images(store, inputs, self.image_size, self.progress))

    def _add_images(
        self, examples: Sequence[CaptionedImage], images: Sequence[DecodedImage | DataError]
    ) -> list[CaptionedImage]:
        """Returns the examples whose image could be read and is of the same kind as the first."""
        readable_examples = []
        kinds = {image.kind for image in [*self.images[:1], *images] if isinstance(image, DecodedImage)}
        for example, image in zip(examples, images):
            if isinstance(image, DataError):
                self._report_broken(example, image)
                continue
            if "frames" in kinds and image.kind == "images":
                image = replace(image, kind="frames", array=image.array[None])  # a clip of one frame
            if problem := _find_mismatch(image, self.images[0] if self.images else image):
                self.findings.error(f"{example.image}: {problem}", file=example.file, line=example.line)
                continue
            for conversion in image.conversions:
                self.findings.note(f"images {conversion}", example.image)
            readable_examples.append(replace(example, index=len(self.images), digest=image.digest))
            self.images.append(image)
        return readable_examples

    def _report_broken(self, example: CaptionedImage, error: DataError) -> None:
        """Adds an error about an image that cannot be read, or counts it where such images are dropped."""
        if self.drop_broken:
            self.findings.warn(
                "images that are missing, ambiguous or unreadable, which are dropped", example.file, example.line
            )
            return
        problem, fix = error.problem, f"{error.fix}\n{DROP_BROKEN_FIX}".strip()
        if error.file:
            problem += f" {format_location(example.file, example.line)} names it."
        line = None if error.file else example.line
        self.findings.error(problem, fix=fix, file=error.file or example.file, line=line)


def _read_rows(path: Path, columns: str | None, findings: Findings, encoding: str | None) -> Iterator[Row]:
    """Yields the rows with image, caption and, if the table has such a column, split."""
    column_names = split_commas(columns)
    with_split = (*COLUMNS, SPLIT_COLUMN)
    if column_names is not None and len(column_names) == len(with_split):
        return read_table(path, with_split, findings, column_names, encoding).rows
    is_json, header = get_format_suffix(path) in OBJECT_SUFFIXES, read_header(path, encoding)
    names = header if is_json else [name.strip().lower() for name in header]  # keys of JSON are exact
    if SPLIT_COLUMN not in names or (column_names is not None and len(column_names) != len(COLUMNS)):
        return read_table(path, COLUMNS, findings, column_names, encoding).rows
    if column_names is not None:
        index, by_number = names.index(SPLIT_COLUMN), all(name.isdecimal() for name in column_names) and not is_json
        column_names.append(str(index + 1) if by_number else header[index].strip())
    return read_table(path, with_split, findings, column_names, encoding).rows


def _group_by_image(rows: Iterable[Row], split: str, drop_empty: bool, findings: Findings) -> list[CaptionedImage]:
    """Returns one example per image, in the order in which they first occur."""
    captions: dict[str, list[str]] = {}
    examples: dict[str, CaptionedImage] = {}
    for row in rows:
        image, value = str(row.values["image"]).strip(), row.values["caption"]
        values = value if isinstance(value, list) else [value]
        row_captions = [" ".join(each.split()) for each in values if isinstance(each, str) and each.strip()]
        if not image or not row_captions:
            if drop_empty:
                findings.warn("rows without an image or a caption, which are dropped", row.file, row.line)
            else:
                problem = "the caption is empty." if image else "no image is named."
                fix = "Fill it in or remove the row, or pass --data.on-empty drop to leave such rows out."
                findings.error(problem, fix=fix, file=row.file, line=row.line)
            continue
        row_split = _parse_split(row, split, findings)
        example = examples.setdefault(image, CaptionedImage(image, (), split=row_split, file=row.file, line=row.line))
        captions.setdefault(image, []).extend(row_captions)
        if row_split and example.split and row_split != example.split:
            first = format_location(example.file, example.line)
            problem = f"the image {image!r} is in {row_split} here, but in {example.split} in {first}."
            findings.error(problem, fix=ONE_SPLIT_FIX, file=row.file, line=row.line)
    return [replace(example, captions=tuple(captions[image])) for image, example in examples.items()]


def _parse_split(row: Row, default: str, findings: Findings) -> str | None:
    if SPLIT_COLUMN not in row.values:
        return default
    name = str(row.values[SPLIT_COLUMN]).strip()
    if name.lower() not in SPLIT_NAMES:
        fix = f"Splits are train, valid and test. {suggest(name.lower(), SPLIT_NAMES)}"
        findings.error(f"there is no split {name!r}.", fix=fix, file=row.file, line=row.line)
    return SPLIT_NAMES.get(name.lower())


# Images


def _read_array_rows(
    path: Path, examples: Sequence[CaptionedImage], image_size: int | None
) -> list[DecodedImage | DataError]:
    """Decodes the rows of an array that the examples name; a row that cannot be read becomes a `DataError`."""
    array = map_array(path)
    images: list[DecodedImage | DataError] = []
    for name in (example.image for example in examples):
        try:
            index = int(name) if len(name) <= MAX_DIGITS else sys.maxsize
            if index >= len(array):
                problem = f"row {name} is out of range: {path.name} has rows 0 to {len(array) - 1:,}."
                raise DataError(problem, fix="Correct the number.")
            row = np.asarray(array[index])
            image = decode_array(row, image_size or MAX_IMAGE_SIZE)
            images.append(replace(image, digest=compute_digest(row.tobytes())))
        except DataError as error:
            images.append(error)
    return images


def _find_mismatch(image: DecodedImage, first: DecodedImage) -> str:
    """Returns why an image cannot be batched with the first one, "" if it can."""
    if image.kind != first.kind:
        return f"expected {KINDS[first.kind]} like the first one, found {KINDS[image.kind]}."
    if image.kind == "features" and image.array.shape[-1] != first.array.shape[-1]:
        return f"expected features of width {first.array.shape[-1]} like the first, found {image.array.shape[-1]}."
    return ""


# Splits


def _check_splits(examples: Sequence[CaptionedImage], findings: Findings) -> None:
    """Adds an error for each image that is in different splits, under two names or in two tables."""
    first_uses: dict[tuple[ImageLocation, ...], CaptionedImage] = {}
    for example in examples:
        first = first_uses.setdefault(example.locations, example) if example.locations else example
        if first.split != example.split:
            problem = f"the image {example.image!r} is in {example.split} here, but in {first.split} in {first.file}."
            findings.error(problem, fix=ONE_SPLIT_FIX, file=example.file, line=example.line)


def _split_examples(
    spec: str, examples: Sequence[CaptionedImage], fractions: Mapping[str, float], findings: Findings
) -> Splits[CaptionedImage]:
    parts = {split: [example for example in examples if example.split == split] for split in SPLITS}
    parts = {split: part for split, part in parts.items() if part}
    if "train" not in parts and any(fractions.values()):  # evaluation needs no training split: its fractions are 0
        problem = f"no image is for training: the splits are {', '.join(parts)}."
        raise TooShortError(problem, fix="Set the split of some rows to train, or remove the column split.", file=spec)
    splits = split_examples(spec, parts, fractions, findings)
    splits.split_rule = splits.split_rule.replace("as the files are named", "as the data says").replace(
        "examples are held out", "pictures are held out with all their captions"
    )
    return splits
