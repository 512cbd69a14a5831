"""Which part of the data is for training, validation and testing. Pure functions of names, counts and fractions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

SPLITS = ("train", "valid", "test")
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev", "testa"), "valid"),
    **dict.fromkeys(("test", "testing", "testb"), "test"),
}


def parse_split_name(path: Path) -> str | None:
    """The split that a name spells out between dots, dashes and underscores: `ptb.train.txt` is train."""
    for part in path.parts:
        for word in re.split(r"[._\-\s]+", part.lower()):
            if word in SPLIT_NAMES:
                return SPLIT_NAMES[word]
    return None


def group_by_split(paths: Iterable[Path]) -> dict[str, list[Path]] | None:
    """Files by split, or None where the names are no splits.

    They are if some file is for training and either another split is named or every file names one. Otherwise
    `test_drive.txt` or `train-journey.txt` among others is a name like any other.
    """
    groups: dict[str, list[Path]] = {}
    nameless = False
    for path in paths:
        split = parse_split_name(path)
        if split is None:
            nameless = True
        else:
            groups.setdefault(split, []).append(path)
    return groups if "train" in groups and (len(groups) > 1 or not nameless) else None


def evenly_spaced_splits(count: int, valid: float, test: float) -> Callable[[int], str]:
    """Document number → split: the held-out documents stand at even distances, validation and test in turn.

    Each fraction above zero gets at least one document.
    """
    held = {"valid": _share(count, valid), "test": _share(count, test)}
    total = sum(held.values())

    def before(number: int) -> int:
        """Held-out documents among the first `number`: their even share, rounded."""
        return (2 * number * total + count) // (2 * count)

    def assign(number: int) -> str:
        turn = before(number)
        if turn == before(number + 1):
            return "train"
        return "valid" if (turn + 1) * held["valid"] // total > turn * held["valid"] // total else "test"

    return assign


def _share(count: int, fraction: float) -> int:
    return max(1, round(count * fraction)) if fraction > 0 else 0
