"""Reads the files of a run that have a row per step, and `summary.json`. Damaged and incomplete lines are skipped.

A process that is killed, or a full disk, cuts a line short; and the files may have been edited. So every line is
checked here, and the readers of the rows need not check it again.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

NUMBERS = ("tokens", "loss", "gradient_norm", "learning_rate", "seconds", "tokens_per_second", "progress")
LAYER_TABLES = {"layers": 2, "gates": 2, "dead_units": 1}  # of a row of watch.jsonl, with their levels of keys


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a file that are JSON objects with the number of a step; the file may be missing."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, RecursionError):  # being written, cut short, or damaged
            row = json.loads(line)
            if isinstance(row, dict) and is_count(row.get("step")):
                rows.append(row)
    return rows


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of `metrics.jsonl` that have all numbers of a step."""
    return [row for row in read_rows(path) if _is_step(row)]


def read_layers(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of `watch.jsonl` whose tables hold numbers only."""
    return [
        row
        for row in read_rows(path)
        if all(_is_table(row.get(name), num_levels) for name, num_levels in LAYER_TABLES.items())
    ]


def read_samples(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of `samples.jsonl` whose samples hold texts only."""
    return [row for row in read_rows(path) if all(is_number(row.get(name)) for name in ("seconds", "cost"))
            and _are_samples(row.get("samples"))]  # fmt: skip


def is_summary(values: dict[str, Any]) -> bool:
    """Returns whether the values of `summary.json` have the types of `run.Summary`."""
    return (
        _is_table(values.get("seconds"), 1)
        and (values.get("validation") is None or is_validation(values["validation"]))
        and all(is_number(values[name]) for name in ("share", "final") if values.get(name) is not None)
        and all(is_count(values.get(name, 0)) for name in ("step", "num_averaged"))
    )


def is_validation(value: object) -> bool:
    """Returns whether a value is a dictionary of validation metrics."""
    return isinstance(value, dict) and "loss" in value and _is_table(value, 1)


def is_number(value: Any) -> bool:
    """Returns whether a value is a number that a float can hold; infinite numbers and NaN are."""
    return isinstance(value, float) or (is_integer(value) and abs(value) < 1 << 63)


def is_count(value: Any) -> bool:
    """Returns whether a value is an integer from 0 on."""
    return is_integer(value) and is_number(value) and value >= 0


def is_integer(value: Any) -> bool:
    """Returns whether a value is an integer; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_step(row: dict[str, Any]) -> bool:
    notes = row.get("notes", [])
    return (
        all(is_number(row.get(name)) for name in NUMBERS)
        and (not row.get("validation") or is_validation(row["validation"]))
        and isinstance(notes, list)
        and all(isinstance(note, str) for note in notes)
        and isinstance(row.get("ended", ""), str)
    )


def _is_table(value: object, num_levels: int) -> bool:
    """Returns whether a value is a dictionary of numbers or pairs of numbers, or of such dictionaries."""
    if num_levels == 0:
        is_pair = isinstance(value, list) and len(value) == 2
        return all(map(is_number, value)) if is_pair else is_number(value)  # type: ignore[call-overload]
    return isinstance(value, dict) and all(_is_table(each, num_levels - 1) for each in value.values())


def _are_samples(value: object) -> bool:
    texts = ("input", "output", "expected")
    return isinstance(value, list) and all(
        isinstance(each, dict) and all(isinstance(each.get(name), str) for name in texts) for each in value
    )
