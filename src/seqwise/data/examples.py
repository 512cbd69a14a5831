"""`open_examples`: what the user names → examples in three splits. For data that fits into memory.

A task brings the function that reads its files; which file belongs to which split, and how a single file is divided,
is the same for all. An example is any value whose `repr` tells its whole content, for the fingerprint; of dataclasses
the fields `file` and `line` are left out, so that data may be moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from seqwise.config import HELD_OUT
from seqwise.data.corpus.sources import TooShortError, list_files, missing_file_error
from seqwise.data.findings import Findings
from seqwise.data.reading import read_error
from seqwise.data.shuffle import permute_indices
from seqwise.data.splitting import SPLITS, evenly_spaced_splits, group_by_split, parse_split_name
from seqwise.data.tables import get_format_suffix
from seqwise.errors import DataError, nearest


class Example(Protocol):
    """What every example knows besides its content."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...


E = TypeVar("E", bound=Example)

ReadFile = Callable[[Path, Findings], list[E]]
Builtins = Mapping[str, tuple[Callable[[], Sequence[E]], str]]  # name → (how it is made, what it is)


@dataclass
class Splits(Generic[E]):
    """Examples in three splits, with the rule that made them, as a sentence."""

    name: str
    split_rule: str
    parts: dict[str, list[E]] = field(repr=False)
    findings: Findings = field(default_factory=Findings)
    has_predefined_splits: bool = False  # the data came with a test split

    @property
    def fingerprint(self) -> str:
        """Of the content of each split."""
        digest = hashlib.blake2b(self.split_rule.encode(), digest_size=16)
        for split, examples in self.parts.items():
            digest.update(f"\0{split}\0".encode())
            for example in examples:
                digest.update(_content(example).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def all_examples(self) -> list[E]:
        return [example for split in SPLITS for example in self.parts.get(split, [])]


def _content(example: object) -> str:
    """What an example says, without the place where it stood."""
    if not is_dataclass(example):
        return repr(example)
    return repr([getattr(example, f.name) for f in fields(example) if f.repr and f.name not in ("file", "line")])


def open_examples(
    spec: str | Path,
    read: ReadFile[E],
    suffixes: Sequence[str],
    builtins: Builtins[E],
    valid_fraction: float = HELD_OUT,
    test_fraction: float = HELD_OUT,
) -> Splits[E]:
    """Read everything once, check it, and decide the splits. Errors of all files are raised together."""
    fractions = {"valid": valid_fraction, "test": test_fraction}
    if str(spec).startswith("builtin:"):
        name = str(spec).removeprefix("builtin:")
        if name not in builtins:
            raise DataError(f"this task has no built-in data {name!r}.", repair=nearest(name, builtins))
        make, says = builtins[name]
        return split_examples(str(spec), {"train": list(make())}, fractions, Findings(), f"{says}; ")
    findings = Findings()
    groups = find_split_files(Path(spec), suffixes, findings)
    parts = {split: [each for path in paths for each in _read(read, path, findings)] for split, paths in groups.items()}
    findings.raise_errors()
    for split, paths in groups.items():
        if not parts[split]:
            raise DataError("no examples were found.", repair="Give a file with some.", file=paths[0])
    return split_examples(str(spec), parts, fractions, findings)


def _read(read: ReadFile[E], path: Path, findings: Findings) -> list[E]:
    """The examples of a file. A file that cannot be read at all is one error among those of the others."""
    try:
        return read(path, findings)
    except DataError as error:
        findings.errors.append(error)
        return []


def find_split_files(path: Path, suffixes: Sequence[str], findings: Findings | None = None) -> dict[str, list[Path]]:
    """The files of each split that a name stands for; a file alone is for training, to be divided."""
    try:
        if not path.exists():
            raise missing_file_error(path)
        if not path.is_dir():
            return {"train": [_readable(path, suffixes)]}
        found = sorted(list_files(path))
    except OSError as error:
        raise read_error(error, error.filename or path) from None
    fitting = [file for file in found if has_known_suffix(file, suffixes)]
    if not fitting:
        others = f"{len(found):,} other files" if found else "it is empty"
        raise DataError(f"the folder holds no {', '.join(suffixes)} ({others}).", file=path)
    groups = group_by_split(file.relative_to(path) for file in fitting)
    if groups is None:
        return {"train": fitting}
    for file in fitting:
        if findings is not None and parse_split_name(file.relative_to(path)) is None:
            findings.warn("files whose names tell no split, which are not read", file)
    return {split: [path / file for file in groups[split]] for split in SPLITS if split in groups}


def has_known_suffix(path: Path, suffixes: Sequence[str]) -> bool:
    """Does the ending tell a format that is read? `eng.train` has none, which is fine where "" is among them.

    `README` has none either, but names no split: it lies beside the data.
    """
    suffix = get_format_suffix(path)
    return (suffix != "" and suffix in suffixes) or (
        "" in suffixes and parse_split_name(Path(suffix or path.name)) is not None
    )


def _readable(path: Path, suffixes: Sequence[str]) -> Path:
    if not has_known_suffix(path, suffixes) and "" not in suffixes:
        raise DataError(
            f"files ending in {path.suffix or 'nothing'!r} are not read by this task.",
            repair=f"Give {', '.join(suffixes)}, gzip of these, or a folder of them.",
            file=path,
        )
    return path


def split_examples(
    name: str, parts: dict[str, list[E]], fractions: Mapping[str, float], findings: Findings, says: str = ""
) -> Splits[E]:
    """Take the splits that are missing out of the training examples: by a shuffle that is always the same.

    Even distances would not do: where labels take turns, every tenth example has the same one.
    """
    missing = {split: 0.0 if split in parts else fractions[split] for split in ("valid", "test")}
    if not any(missing.values()):
        rule = "splits as the files are named." if len(parts) > 1 else "all of it is one split."
        kept = {split: parts[split] for split in SPLITS if split in parts}
        return Splits(name, rule, kept, findings, "test" in parts)
    examples, wanted = parts["train"], sum(share > 0 for share in missing.values())
    if len(examples) <= wanted:
        raise TooShortError(
            f"{len(examples)} examples are too few to hold some out for validation and testing.",
            repair="Give more examples, or train.*, valid.* and test.* in one folder.",
            file=name,
        )
    assign = evenly_spaced_splits(len(examples), missing["valid"], missing["test"])
    made: dict[str, list[E]] = {split: [] for split in SPLITS}
    for place, example in zip(permute_indices(np.arange(len(examples)), len(examples), 0), examples):
        made[assign(int(place))].append(example)
    shares = " and ".join(f"{share:.0%} for {split}" for split, share in missing.items() if share)
    named = "" if len(parts) == 1 else f"{', '.join(parts)} as the files are named; "
    rule = f"{says}{named}examples are held out at random among {len(examples):,}, always the same ({shares})."
    kept = {split: made[split] or parts.get(split, []) for split in SPLITS}
    return Splits(name, rule, kept, findings, "test" in parts)


def select_evaluation_examples(
    open_with: Callable[[float, float], Splits[E]], fractions: tuple[float, float], split: str | None, trained_on: str
) -> tuple[list[E], str]:
    """The examples to evaluate on, and which they are, in words. `open_with` reads the data with given fractions.

    Without a wish: the test split of data that has one, or that the run was trained on; else everything. Everything
    is read undivided: in the order of the file, and without remarks about splits that are not used.
    """
    if split == "all":
        return open_with(0.0, 0.0).all_examples(), "all of it"
    try:
        splits = open_with(*fractions)
    except TooShortError:
        if split is not None:
            raise
        return open_with(0.0, 0.0).all_examples(), "all of it"
    if split is None and not (splits.has_predefined_splits or splits.fingerprint == trained_on):
        return open_with(0.0, 0.0).all_examples(), "all of it"
    if split is not None and not splits.parts.get(split):
        raise DataError(f"there is no split {split!r}.", repair=nearest(split, [*splits.parts, "all"]))
    return splits.parts[split or "test"], f"the {split or 'test'} split"


def find_training_duplicates(splits: Splits[E], key: Callable[[E], object]) -> Iterable[tuple[str, E]]:
    """(split, example) of held-out examples whose key occurs in the training split too."""
    seen = {key(example) for example in splits.parts.get("train", [])}
    for split in ("valid", "test"):
        for example in splits.parts.get(split, []):
            if key(example) in seen:
                yield split, example
