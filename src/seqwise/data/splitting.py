"""Dividing data into training, validation and test: pure functions of file names, counts and fractions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from seqwise.errors import DataError

SPLITS = ("train", "valid", "test")
SPLIT_FILES = "train.*, valid.* and test.* in one folder."  # a fix of errors
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev", "testa"), "valid"),
    **dict.fromkeys(("test", "testing", "testb"), "test"),
}


class TooShortError(DataError):
    """The data is too short to be divided into training, validation and test."""


def parse_split_name(path: Path) -> str | None:
    """Return the split named between dots, dashes and underscores of a path: `ptb.train.txt` is train."""
    for part in path.parts:
        for word in re.split(r"[._\-\s]+", part.lower()):
            if word in SPLIT_NAMES:
                return SPLIT_NAMES[word]
    return None


def group_by_split(paths: Iterable[Path], folder: Path | None = None) -> dict[str, list[Path]] | None:
    """Return the files of each split, or None where the names (inside `folder`) are no splits.

    They are if some file is for training and either another split is named or every file names one. Otherwise
    `test_drive.txt` or `train-journey.txt` among others is a name like any other.
    """
    groups: dict[str | None, list[Path]] = {}
    for path in paths:
        groups.setdefault(parse_split_name(path.relative_to(folder) if folder else path), []).append(path)
    named = {split: groups[split] for split in SPLITS if split in groups}
    return named if "train" in named and (len(named) > 1 or None not in groups) else None


def describe_fractions(fractions: Mapping[str, float]) -> str:
    """Return the share of each held-out split in words, as split rules contain it."""
    return " and ".join(f"{fraction:.0%} for {split}" for split, fraction in fractions.items() if fraction)


def evenly_spaced_splits(count: int, valid: float, test: float) -> Callable[[int], str]:
    """Return the function document number → split: held-out documents at even distances, validation and test in turn.

    Each fraction above zero gets at least one document.
    """
    fractions = {"valid": valid, "test": test}
    sizes = {split: max(1, round(count * share)) if share > 0 else 0 for split, share in fractions.items()}
    total = sum(sizes.values())

    def held_out_before(number: int) -> int:
        """Return how many of the first `number` documents are held out: their even share, rounded."""
        return (2 * number * total + count) // (2 * count)

    def assign(number: int) -> str:
        index = held_out_before(number)
        if index == held_out_before(number + 1):
            return "train"
        return "valid" if (index + 1) * sizes["valid"] // total > index * sizes["valid"] // total else "test"

    return assign
