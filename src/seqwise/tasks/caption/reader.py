"""`open_captions`: a table of pictures and captions → pictures in memory, and examples in three splits.

An example is a picture with all of its captions, so the captions of one picture are never in two splits. The table is
`captions.csv` (`image,caption[,split]`), `.tsv` or `.jsonl`; the pictures lie below its folder or in a zip archive
beside it. Errors of all rows are raised together. It knows nothing of tokens or models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seqwise.config import DataSettings
from seqwise.data.corpus.sources import TooShortError
from seqwise.data.examples import Splits, find_split_files, find_training_duplicates, split_examples
from seqwise.data.findings import Findings
from seqwise.data.splitting import SPLIT_NAMES, SPLITS
from seqwise.data.tables import SUFFIXES, Row, get_format_suffix, parse_columns, read_table, read_text
from seqwise.errors import DataError, nearest
from seqwise.tasks.caption.image_store import ImageLocation, Shelf
from seqwise.tasks.caption.images import (
    KINDS,
    LARGEST,
    Picture,
    Pictures,
    ProgressCallback,
    choose_size,
    digest_of,
    from_array,
    load_array,
    read_many,
)
from seqwise.tasks.caption.shapes import SIZE, shapes

COLUMNS = ("image", "caption")
SPLIT = "split"
FEATURES = "features.npy"  # one array for all: the table then names its rows, from 0
BUILTIN = "builtin:shapes"
TOGETHER = "All captions of a picture belong to one split."
SAYS = "drawn pictures with the caption that each determines"


@dataclass(frozen=True)
class Captioned:
    """A picture and its captions. `number` is its place among the pictures, `digest` that of its file."""

    image: str
    captions: tuple[str, ...]
    digest: str = ""
    number: int = field(default=0, repr=False)
    split: str | None = field(default=None, repr=False)
    places: tuple[ImageLocation, ...] = field(default=(), repr=False)
    file: str = field(default="", repr=False)
    line: int = field(default=0, repr=False)


@dataclass(frozen=True)
class Gallery:
    """Everything that was read: the pictures, and which of them belong to which split."""

    pictures: Pictures
    splits: Splits[Captioned]
    size: int  # pixels of a side; 0 for features


def open_captions(
    spec: str | Path,
    settings: DataSettings,
    size: int | None = None,
    columns: str | None = None,
    fractions: Mapping[str, float] | None = None,
    progress: ProgressCallback | None = None,
) -> Gallery:
    """Read everything once, check it, and decide the splits."""
    if fractions is None:
        fractions = {"valid": settings.valid_fraction, "test": settings.test_fraction}
    if str(spec).startswith("builtin:"):
        return _open_builtin(str(spec), size or SIZE, fractions)
    reader = _Reader(settings, columns, size, progress)
    examples = [
        example
        for split, paths in _tables(Path(spec), reader.findings).items()
        for path in paths
        for example in reader.read(path, split)
    ]
    _check_splits(examples, reader.findings)
    reader.findings.raise_errors()
    if not examples:
        raise DataError("no captions were found.", repair="Give a table with some.", file=spec)
    splits = _divided(str(spec), examples, fractions, reader.findings)
    for split, example in find_training_duplicates(splits, lambda example: example.digest):
        reader.findings.warn(
            f"pictures of {split} are in train as well: what was learned by heart is measured there", example.image
        )
    kind = reader.pictures[0].kind
    pictures = Pictures(kind, [picture.array for picture in reader.pictures])
    return Gallery(pictures, splits, 0 if kind == "features" else reader.size or LARGEST)


def _open_builtin(spec: str, size: int, fractions: Mapping[str, float]) -> Gallery:
    if spec != BUILTIN:
        name = spec.removeprefix("builtin:")
        raise DataError(f"this task has no built-in data {name!r}.", repair=nearest(name, ["shapes"]))
    drawn, captions = shapes()
    examples = [Captioned(f"{BUILTIN}/{n}", (caption,), "", n) for n, caption in enumerate(captions)]
    splits = split_examples(spec, {"train": examples}, fractions, Findings(), f"{SAYS}; ")
    splits.split_rule = splits.split_rule.replace("examples are", "pictures are")
    arrays = list(drawn) if size == SIZE else [from_array(picture, size).array for picture in drawn]
    return Gallery(Pictures("pictures", arrays), splits, size)


# Tables


def _tables(path: Path, findings: Findings) -> dict[str, list[Path]]:
    """The tables of each split; `captions.*` is the one for all where a folder has it."""
    if path.is_dir():
        named = sorted(file for file in path.glob("captions.*") if get_format_suffix(file) in SUFFIXES)
        if len(named) == 1:
            return {"train": named}
    groups = find_split_files(path, SUFFIXES, findings)
    if len(groups) == 1 and len(groups["train"]) > 1:
        names = ", ".join(file.name for file in groups["train"][:4])
        raise DataError(
            f"several tables may be meant: {names}.",
            repair="Name one of them, or call it captions.csv; train.csv, valid.csv and test.csv are splits.",
            file=path,
        )
    return groups


@dataclass
class _Reader:
    """Reads tables one after the other; what it finds and the pictures are gathered here."""

    settings: DataSettings
    columns: str | None
    size: int | None  # chosen by the first table, unless set
    progress: ProgressCallback | None
    findings: Findings = field(default_factory=Findings)
    pictures: list[Picture] = field(default_factory=list)

    def read(self, path: Path, split: str) -> list[Captioned]:
        """The examples of one table."""
        findings = self.findings
        grouped = _grouped(_rows(path, self.columns, findings), split, self.settings.on_empty == "drop", findings)
        whole = path.parent / FEATURES
        if whole.exists() and all(example.image.isdigit() for example in grouped):
            examples, read = _from_rows(whole, grouped, self.size or LARGEST, findings)
            return self._matched(examples, read)
        shelf = Shelf(path.parent)
        examples = _found(shelf, grouped, findings)
        found = [example.places for example in examples]
        self.size = self.size or choose_size(shelf, found)
        for place in shelf.unused(place for places in found for place in places):
            findings.warn("pictures without a caption, which are left out", place.shown)
        return self._matched(examples, read_many(shelf, found, self.size, self.progress))

    def _matched(self, examples: Sequence[Captioned], read: Sequence[Picture | DataError]) -> list[Captioned]:
        """The examples whose picture could be read, all of one kind, with its number among the pictures."""
        kept = []
        clips = any(isinstance(each, Picture) and each.kind == "frames" for each in [*self.pictures[:1], *read])
        for example, picture in zip(examples, read):
            if isinstance(picture, DataError):
                problem = f"{picture.problem} Line {example.line} of {example.file} names it."
                self.findings.error(problem, repair=picture.repair, file=picture.file)
                continue
            if clips and picture.kind == "pictures":
                picture = replace(picture, kind="frames", array=picture.array[None])  # a clip of one frame
            like = self.pictures[0] if self.pictures else picture
            if problem := _unlike(picture, like):
                self.findings.error(f"{example.image}: {problem}", file=example.file, line=example.line)
                continue
            for remark in picture.remarks:
                self.findings.warn(f"pictures {remark}", example.image)
            kept.append(replace(example, number=len(self.pictures), digest=picture.digest))
            self.pictures.append(picture)
        return kept


def _rows(path: Path, columns: str | None, findings: Findings) -> list[Row]:
    chosen = parse_columns(columns)
    names: tuple[str, ...] = COLUMNS
    if chosen and len(chosen) == len(COLUMNS) + 1:
        names = (*COLUMNS, SPLIT)
    elif (split := _split_column(path)) and (not chosen or len(chosen) == len(COLUMNS)):
        names = (*COLUMNS, SPLIT)
        if chosen:
            chosen.append(split[1] if all(column.isdecimal() for column in chosen) else split[0])
    return read_table(path, names, findings, chosen).rows


def _split_column(path: Path) -> tuple[str, str] | None:
    """The column `split` as the first line spells it, and its number, if there is one."""
    first = next((line for line in read_text(path).split("\n") if line.strip()), "")
    if get_format_suffix(path) == ".jsonl":
        try:
            content = json.loads(first)
        except ValueError:
            return None
        return (SPLIT, SPLIT) if isinstance(content, dict) and SPLIT in content else None
    mark = "\t" if get_format_suffix(path) == ".tsv" else ","
    words = [word.strip(' "') for word in first.split(mark)]
    lowered = [word.lower() for word in words]
    return (words[lowered.index(SPLIT)], str(lowered.index(SPLIT) + 1)) if SPLIT in lowered else None


def _grouped(rows: Sequence[Row], split: str, drop: bool, findings: Findings) -> list[Captioned]:
    """One example per picture, in the order in which they first occur."""
    captions: dict[str, list[str]] = {}
    first: dict[str, Captioned] = {}
    for row in rows:
        image, texts = str(row.values["image"]).strip(), _texts(row.values["caption"])
        if not image or not texts:
            what = "the caption is empty" if image else "no picture is named"
            if drop:
                findings.warn("rows without a picture or a caption, which are dropped", row.file, row.line)
            else:
                repair = "Fill it in or remove the row, or pass --data.on-empty drop to leave such rows out."
                findings.error(f"{what}.", repair=repair, file=row.file, line=row.line)
            continue
        known = _split_of(row, split, findings)
        example = first.setdefault(image, Captioned(image, (), split=known, file=row.file, line=row.line))
        captions.setdefault(image, []).extend(texts)
        if known and example.split and known != example.split:
            problem = f"the picture {image!r} is in {known} here, but in {example.split} in line {example.line}."
            findings.error(problem, repair=TOGETHER, file=row.file, line=row.line)
    return [replace(example, captions=tuple(captions[image])) for image, example in first.items()]


def _texts(value: object) -> list[str]:
    """A caption, or a list of them, without superfluous blanks."""
    values = value if isinstance(value, list) else [value]
    texts = [" ".join(each.split()) for each in values if isinstance(each, str)]
    return [text for text in texts if text]


def _split_of(row: Row, split: str, findings: Findings) -> str | None:
    if SPLIT not in row.values:
        return split
    word = str(row.values[SPLIT]).strip()
    if word.lower() not in SPLIT_NAMES:
        repair = f"Splits are train, valid and test. {nearest(word.lower(), SPLIT_NAMES)}"
        findings.error(f"there is no split {word!r}.", repair=repair, file=row.file, line=row.line)
    return SPLIT_NAMES.get(word.lower())


# Pictures


def _found(shelf: Shelf, examples: Sequence[Captioned], findings: Findings) -> list[Captioned]:
    found = []
    for example in examples:
        try:
            found.append(replace(example, places=tuple(shelf.find(example.image))))
        except DataError as error:
            findings.error(error.problem, repair=error.repair, file=example.file, line=example.line)
    return found


def _from_rows(
    path: Path, examples: Sequence[Captioned], size: int, findings: Findings
) -> tuple[list[Captioned], list[Picture]]:
    """Pictures that are rows of one array."""
    try:
        array = load_array(path.read_bytes())
    except DataError as error:
        raise DataError(error.problem, repair=error.repair, file=path) from None
    kept, read = [], []
    for example in examples:
        try:
            if int(example.image) >= len(array):
                problem = f"there is no row {int(example.image):,}: {path.name} has {len(array):,}, counted from 0."
                raise DataError(problem, repair="Correct the number.")
            row = np.asarray(array[int(example.image)])
            read.append(replace(from_array(row, size), digest=digest_of(row.tobytes())))
            kept.append(example)
        except DataError as error:
            findings.error(error.problem, repair=error.repair, file=example.file, line=example.line)
    return kept, read


def _unlike(picture: Picture, first: Picture) -> str:
    """Why a picture cannot stand beside the first one; empty if it can."""
    if picture.kind != first.kind:
        return f"expected {KINDS[first.kind]} as before, found {KINDS[picture.kind]}."
    if picture.kind == "features" and picture.array.shape[-1] != first.array.shape[-1]:
        return f"expected features of width {first.array.shape[-1]} as before, found {picture.array.shape[-1]}."
    return ""


# Splits


def _check_splits(examples: Sequence[Captioned], findings: Findings) -> None:
    """The same file under two names, or in two tables, must not be in two splits."""
    seen: dict[tuple[ImageLocation, ...], Captioned] = {}
    for example in examples:
        before = seen.setdefault(example.places, example) if example.places else example
        if before.split != example.split:
            findings.error(
                f"the picture {example.image!r} is in {example.split} here, but in {before.split} in {before.file}.",
                repair=TOGETHER,
                file=example.file,
                line=example.line,
            )


def _divided(
    spec: str, examples: Sequence[Captioned], fractions: Mapping[str, float], findings: Findings
) -> Splits[Captioned]:
    parts = {split: [example for example in examples if example.split == split] for split in SPLITS}
    parts = {split: found for split, found in parts.items() if found}
    if "train" not in parts and any(fractions.values()):
        repair = "Name some of them train, or leave the column out."
        raise TooShortError(f"no picture is for training: the splits are {', '.join(parts)}.", repair=repair, file=spec)
    splits = split_examples(spec, parts, fractions, findings)
    splits.split_rule = splits.split_rule.replace("as the files are named", "as the data says").replace(
        "examples are held out", "pictures are held out with all their captions"
    )
    return splits
