"""Divides data into training, validation and test. `read_examples`: files → examples in three splits, in memory.

A task brings the function that reads its files; which file belongs to which split, and how a single file is split, is
the same for all. The fingerprint hashes the `repr` of the fields of an example; it excludes `file` and `line`, so that
data may be moved.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from seqwise.config import HELD_OUT_FRACTION
from seqwise.data.opening import blame_file
from seqwise.data.reading import get_format_suffix, list_data, name_file_type
from seqwise.data.shuffle import permute_indices
from seqwise.errors import DataError, Findings, pluralize, suggest

SPLITS = ("train", "valid", "test")
SPLIT_FILES = "train.*, valid.* and test.* in one folder."  # the end of a fix
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev", "testa"), "valid"),
    **dict.fromkeys(("test", "testing", "testb"), "test"),
}


class TooShortError(DataError):
    """The data is too short to be divided into training, validation and test."""


E = TypeVar("E")  # an example: a dataclass, with the fields `file` and `line` for errors
ReadFile = Callable[[Path, Findings], list[E]]
Builtins = Mapping[str, tuple[Callable[[], Sequence[E]], str]]  # name → (function that creates it, description)


@dataclass
class Splits(Generic[E]):
    """Examples in three splits."""

    name: str
    split_rule: str  # how the splits were made, as a sentence
    parts: dict[str, list[E]] = field(repr=False)  # split → its examples
    findings: Findings = field(default_factory=Findings)
    has_predefined_splits: bool = False  # the data came with a test split; other splits may be held out

    @property
    def fingerprint(self) -> str:
        """Hash of the content of each split."""
        digest = hashlib.blake2b(self.split_rule.encode(), digest_size=16)
        for split, examples in self.parts.items():
            digest.update(f"\0{split}\0".encode())
            for example in examples:
                content: object = example
                if is_dataclass(example):
                    # A field with the default () was added later; the fingerprint of data without it stays the same.
                    names = [each.name for each in fields(example) if each.repr and getattr(example, each.name) != ()]
                    content = [getattr(example, name) for name in names if name not in ("file", "line")]
                digest.update(repr(content).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def all_examples(self) -> list[E]:
        """Returns the examples of all splits."""
        return [example for split in SPLITS for example in self.parts.get(split, [])]


def read_examples(
    spec: str | Path,
    read_file: ReadFile[E],
    suffixes: Sequence[str],
    builtins: Builtins[E],
    valid_fraction: float = HELD_OUT_FRACTION,
    test_fraction: float = HELD_OUT_FRACTION,
    files: Mapping[str, list[Path]] | None = None,
    get_label: Callable[[E], Hashable] | None = None,
) -> Splits[E]:
    """Reads and checks everything once, and decides the splits. Errors of all files are raised together.

    `spec` is a file, a folder, or `builtin:NAME`. `files` are the files of each split, found by name unless set. With
    `get_label` the splits are stratified by label.
    """
    fractions = {"valid": valid_fraction, "test": test_fraction}
    if str(spec).startswith("builtin:"):
        name = str(spec).removeprefix("builtin:")
        if name not in builtins:
            raise DataError(f"this task has no built-in data {name!r}.", fix=suggest(name, builtins))
        create, description = builtins[name]
        parts = {"train": list(create())}
        return split_examples(str(spec), parts, fractions, Findings(), f"{description}; ", get_label)
    findings = Findings()
    files = files or find_split_files(Path(spec), suffixes, findings)
    parts = {split: [] for split in files}
    for split, paths in files.items():
        for path in paths:
            try:
                with blame_file(path):
                    parts[split] += read_file(path, findings)
            except DataError as error:  # the file cannot be read at all: one error among those of the others
                if error.parts:  # too many
                    raise
                findings.errors.append(error)
    findings.raise_errors()
    for split, paths in files.items():
        if not parts[split]:
            raise DataError("no examples were found.", fix="Give a file with examples.", file=paths[0])
    return split_examples(str(spec), parts, fractions, findings, get_label=get_label)


def find_split_files(path: Path, suffixes: Sequence[str], findings: Findings | None = None) -> dict[str, list[Path]]:
    """Returns the files of each split in a folder; a single file is for training, to be split later."""
    files = list_data(path)
    readable = [file for file in files if has_known_suffix(file, suffixes)]
    if not path.is_dir():
        if not readable and "" not in suffixes:
            problem = f"{name_file_type(path)} are not read by this task."
            raise DataError(problem, fix=_suggest_files(suffixes), file=path)
        return {"train": files}
    if not readable:
        others = pluralize(len(files), "other files")
        problem = f"the folder contains no data that this task reads ({others})." if files else "the folder is empty."
        raise DataError(problem, fix=_suggest_files(suffixes), file=path)
    # Beside other data, a .json file that names no split is rather a description than data.
    is_data = [get_format_suffix(file) != ".json" or parse_split_name(file.relative_to(path)) for file in readable]
    readable = [file for file, keep in zip(readable, is_data) if keep] or readable
    groups = group_by_split(readable, path) or {"train": readable}
    for file in sorted(set(readable).difference(*groups.values())):
        if findings is not None:
            findings.warn("files whose names contain no split, which are not read", file)
    return groups


def _suggest_files(suffixes: Sequence[str]) -> str:
    """Returns a sentence with the files that a task reads; "" among the suffixes stands for names of splits."""
    kinds = [suffix or "a file named after its split such as eng.train" for suffix in suffixes]
    return f"Give {', '.join(kinds)}, gzip of these, or a folder of them."


def has_known_suffix(path: Path, suffixes: Sequence[str]) -> bool:
    """Returns whether the suffix is one that is read. Where "" is among `suffixes`, so is a split name: `eng.train`.

    `README` has no suffix either, but names no split.
    """
    suffix = get_format_suffix(path)
    if suffix != "" and suffix in suffixes:
        return True
    return "" in suffixes and parse_split_name(Path(suffix or path.name)) is not None


def split_examples(
    name: str,
    parts: dict[str, list[E]],
    fractions: Mapping[str, float],
    findings: Findings,
    description: str = "",
    get_label: Callable[[E], Hashable] | None = None,
) -> Splits[E]:
    """Creates the missing splits from training examples, which a shuffle chooses that is always the same.

    A fraction of 0 holds nothing out. Even distances would not do: where labels alternate, every tenth example has the
    same one. With `get_label` each split has the same share of every label, see `stratify`.
    """
    missing = {split: 0.0 if split in parts else fractions[split] for split in ("valid", "test")}
    has_test = "test" in parts
    # The wording of the rules is part of the fingerprint: changing it would change that of all data.
    if not any(missing.values()):
        rule = "splits as the files are named." if len(parts) > 1 else "all of it is one split."
        return Splits(name, rule, {split: parts[split] for split in SPLITS if split in parts}, findings, has_test)
    examples = parts["train"]
    if len(examples) <= sum(share > 0 for share in missing.values()):
        problem = f"{pluralize(len(examples), 'examples are too few')} to hold some out for validation and testing."
        raise TooShortError(problem, fix=f"Give more examples, or {SPLIT_FILES}", file=name)
    ranks = permute_indices(np.arange(len(examples)), len(examples), 0).tolist()  # of each example in the shuffle
    if get_label is None:
        assign = space_splits_evenly(len(examples), missing["valid"], missing["test"])
        assigned_splits = [assign(rank) for rank in ranks]
    else:
        assigned_splits = stratify([get_label(example) for example in examples], ranks, missing)
    split_parts: dict[str, list[E]] = {split: [] for split in SPLITS}
    for split, example in zip(assigned_splits, examples):
        split_parts[split].append(example)
    prefix = "" if len(parts) == 1 else f"{', '.join(parts)} as the files are named; "
    shares, unit = describe_fractions(missing), "examples" if get_label is None else "examples of each label"
    rule = f"{description}{prefix}{unit} are held out at random among {len(examples):,}, always the same ({shares})."
    return Splits(
        name, rule, {split: split_parts[split] or parts.get(split, []) for split in SPLITS}, findings, has_test
    )


def stratify(labels: Sequence[Hashable], ranks: Sequence[int], fractions: Mapping[str, float]) -> list[str]:
    """Returns the split of each example, such that every split has nearly the same share of every label.

    A label with at least three examples is in every split, where a split has at least as many examples as there are
    labels; the others follow in proportion (the Sainte-Laguë method, which allots the seats of a parliament). At least
    one example of each label is for training. `ranks` are the ranks of the examples in a shuffle: of each label, the
    examples of the lowest ranks are held out.
    """
    remaining: dict[Hashable, list[int]] = {}  # label → indices of its examples, the lowest rank last
    for index in sorted(range(len(labels)), key=ranks.__getitem__, reverse=True):
        remaining.setdefault(labels[index], []).append(index)
    counts = Counter(labels)
    assigned_splits = ["train"] * len(labels)
    sizes = {split: max(1, round(len(labels) * share)) for split, share in fractions.items() if share > 0}
    for num_done, (split, size) in enumerate(sizes.items(), start=1):
        num_later = len(sizes) - num_done
        seats = []  # (priority, ties by frequency, ties by position, label)
        for label, count in counts.items():
            # One example is for training, and of three or more one for each split that follows.
            num_free = len(remaining[label]) - 1 - (num_later if count > 2 else 0)
            first_priority = 0.0 if count > 2 else float("inf")
            for seat in range(min(num_free, 2 + count * size // len(labels))):
                priority = (seat + 0.5) / count if seat else first_priority
                seats.append((priority, -count, remaining[label][-1], label))
        for *_, label in sorted(seats, key=lambda seat: seat[:3])[:size]:
            assigned_splits[remaining[label].pop()] = split
    return assigned_splits


def select_evaluation_examples(
    open_splits: Callable[[float, float], Splits[E]],
    fractions: tuple[float, float],
    split: str | None,
    training_fingerprint: str,
) -> tuple[Splits[E], list[E], str]:
    """Returns the data, the examples to evaluate on, and which they are, in words.

    `open_splits(valid_fraction, test_fraction)` reads the data. The default is the test split of data that has one, or
    that the run was trained on; else all examples. These are read without splitting: in the order of the file, and
    without warnings about splits that are not used.
    """
    splits = None
    if split != "all":
        try:
            splits = open_splits(*fractions)
        except TooShortError:
            if split is not None:
                raise
    if splits is None or (
        split is None and not (splits.has_predefined_splits or splits.fingerprint == training_fingerprint)
    ):
        splits = open_splits(0.0, 0.0)
        return splits, splits.all_examples(), "all of it"
    split = split or "test"
    if not splits.parts.get(split):
        raise DataError(f"there is no split {split!r}.", fix=suggest(split, [*splits.parts, "all"]))
    return splits, splits.parts[split], f"the {split} split"


def find_training_duplicates(splits: Splits[E], get_key: Callable[[E], object]) -> Iterable[tuple[str, E]]:
    """Yields (split, example) of held-out examples whose key occurs in the training split too."""
    training_keys = {get_key(example) for example in splits.parts.get("train", [])}
    for split in ("valid", "test"):
        for example in splits.parts.get(split, []):
            if get_key(example) in training_keys:
                yield split, example


# Names and fractions of splits


def parse_split_name(path: Path) -> str | None:
    """Returns the split named between dots, dashes and underscores of a path: `ptb.train.txt` is train."""
    for part in path.parts:
        for word in re.split(r"[._\-\s]+", part.lower()):
            if word in SPLIT_NAMES:
                return SPLIT_NAMES[word]
    return None


def group_by_split(paths: Iterable[Path], folder: Path | None = None) -> dict[str, list[Path]] | None:
    """Returns the files of each split, or None if their names, inside `folder` if set, are not those of splits.

    They are if some file is for training, and either there is another split or every file name contains one. Otherwise
    `test_drive.txt` or `train-journey.txt` is a name like any other.
    """
    groups: dict[str | None, list[Path]] = {}
    for path in paths:
        groups.setdefault(parse_split_name(path.relative_to(folder) if folder else path), []).append(path)
    split_groups = {split: groups[split] for split in SPLITS if split in groups}
    return split_groups if "train" in split_groups and (len(split_groups) > 1 or None not in groups) else None


def describe_fractions(fractions: Mapping[str, float]) -> str:
    """Returns the share of each held-out split in words, as split rules contain it."""
    return " and ".join(f"{fraction:.0%} for {split}" for split, fraction in fractions.items() if fraction)


def space_splits_evenly(count: int, valid: float, test: float) -> Callable[[int], str]:
    """Returns the function index → split of `count` documents: held-out ones at even distances, valid and test in turn.

    Each fraction above zero gets at least one document.
    """
    fractions = {"valid": valid, "test": test}
    sizes = {split: max(1, round(count * share)) if share > 0 else 0 for split, share in fractions.items()}
    total = sum(sizes.values())

    def count_held_out(num_documents: int) -> int:
        """Returns how many of the first documents are held out: their even share, rounded."""
        return (2 * num_documents * total + count) // (2 * count)

    def assign(index: int) -> str:
        num_before = count_held_out(index)
        if num_before == count_held_out(index + 1):
            return "train"
        return "valid" if (num_before + 1) * sizes["valid"] // total > num_before * sizes["valid"] // total else "test"

    return assign
