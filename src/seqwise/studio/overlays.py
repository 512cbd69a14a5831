"""Curves of several runs in one chart: runs that differ only in the seed are one line, with an interval over the seeds.

Also the settings in which runs differ. This module knows nothing of servers and pages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqwise.compare.statistics.student_t import compute_t_quantile
from seqwise.page.palette import choose_styles
from seqwise.studio.curves import choose_indices, cut_range
from seqwise.studio.entries import Entry

CONFIDENCE = 0.95
DIGITS = 9
# Settings that say how a run came about, not what it is.
IGNORED_KEYS = ("run.command", "run.recipe", "run.overrides", "run.split", "run.format")
SEED = "seed"
MAX_VALUE, MAX_DIGEST = 200, 12  # characters of a setting, and of the fingerprint of the data

Line = tuple[np.ndarray, np.ndarray]  # x, ascending, and y


@dataclass(frozen=True)
class Window:
    """What a chart shows of a curve: the range of x, the number of points, and over which share of them it smooths."""

    num_points: int
    start: float | None = None
    stop: float | None = None
    smoothing: float = 0.0


def flatten_settings(entry: Entry) -> dict[str, str]:
    """Returns the settings of a run as texts, by dotted name."""
    return dict(_flatten(entry.settings, ""))


def _flatten(values: dict[str, Any], prefix: str, depth: int = 4) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and depth:
            yield from _flatten(value, f"{name}.", depth - 1)
        elif name not in IGNORED_KEYS:
            yield name, _format_value(value)[: MAX_DIGEST if name == "run.fingerprint" else MAX_VALUE]


def _format_value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def group_entries(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Returns the runs in groups that differ only in the seed, in the order of their first runs; a group by seed."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        settings = flatten_settings(entry)
        settings.pop(SEED, None)
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(entry)
    return [sorted(group, key=lambda entry: (_get_seed(entry), entry.id)) for group in groups.values()]


def _get_seed(entry: Entry) -> int:
    seed = entry.settings.get(SEED)
    return seed if isinstance(seed, int) else 0


def name_groups(groups: Sequence[Sequence[Entry]]) -> list[str]:
    """Returns a different short name for each group: of one run its name, of several what their names share."""
    names = [_name_group(group) for group in groups]
    return [
        name if names.count(name) == 1 else f"{name} [{names[: index + 1].count(name)}]"
        for index, name in enumerate(names)
    ]


def _name_group(group: Sequence[Entry]) -> str:
    first = group[0]
    if first.parent:  # a trial: comparison and family, and which trial it is if there is only one
        name = f"{first.parent.rpartition('/')[2]}: {first.folder.parent.name}"
        return name if len(group) > 1 or first.folder.name.startswith("seed-") else f"{name} {first.folder.name}"
    if len(group) == 1:
        return first.folder.name
    names = [entry.folder.name for entry in group]
    num_shared = next((at for at, letters in enumerate(zip(*names)) if len(set(letters)) > 1), min(map(len, names)))
    shared = names[0][:num_shared].rstrip("0123456789").rstrip("-_. ").removesuffix("seed").rstrip("-_. ")
    return shared or str(first.settings.get("model") or "runs")


def describe_groups(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Returns the groups with their names, the style of each in all charts, and their runs."""
    groups = group_entries(entries)
    names = name_groups(groups)
    # A style is chosen by the family in the name, so that a family looks the same everywhere.
    hints = [
        name if str(group[0].settings.get("model")) in name else f"{name} ({group[0].settings.get('model')})"
        for name, group in zip(names, groups)
    ]
    return [
        {"name": name, "style": style.to_plain(), "runs": [entry.id for entry in group]}
        for name, style, group in zip(names, choose_styles(hints), groups)
    ]


def list_differences(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Returns the settings in which the groups differ, or their seeds: a name, and a value per group."""
    settings = [[flatten_settings(entry) for entry in group] for group in group_entries(entries)]
    names = dict.fromkeys(name for group in settings for each in group for name in each)
    rows = []
    for name in names:
        values = [", ".join(dict.fromkeys(each.get(name, "–") for each in group)) for group in settings]
        if len(set(values)) > 1 or (name == SEED and any(len(group) > 1 for group in settings)):
            rows.append({"name": name, "values": values})
    return rows


def build_line(curves: Sequence[Line], window: Window) -> dict[str, Any]:
    """Returns the line of a group: the mean with a 95 % interval over the seeds, and faint lines of each seed.

    The mean ends where the shortest curve does. A single curve has no interval; if it is smoothed, the faint line has
    its unsmoothed values.
    """
    smooth = [(x, smooth_values(y, window.smoothing)) for x, y in curves]
    drawn = [line for line in smooth if len(line[0])]
    faint = drawn if len(drawn) > 1 else [line for line in curves if len(line[0]) and window.smoothing]
    if not drawn:
        return {"x": [], "y": [], "low": None, "high": None, "faint": [], "is_exact": True}
    x, stack = _align(drawn)
    mean = stack.mean(axis=0)
    inside = cut_range(x, window.start, window.stop)
    chosen = choose_indices(x[inside], mean[inside], window.num_points)
    margin = _compute_margin(stack[:, inside][:, chosen]) if len(drawn) > 1 else None
    y = mean[inside][chosen]
    return {
        "x": to_numbers(x[inside][chosen]),
        "y": to_numbers(y),
        "low": None if margin is None else to_numbers(y - margin),
        "high": None if margin is None else to_numbers(y + margin),
        "faint": [_reduce(line, window) for line in faint],
        "is_exact": len(chosen) == len(x[inside]),
    }


def _align(curves: Sequence[Line]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the longest curve that all others reach, and the values there (curves, positions)."""
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    longest = max((x for x, _ in curves), key=len)
    x = longest[(longest >= first) & (longest <= last)]
    rows = [y if len(own) == len(x) and np.array_equal(own, x) else np.interp(x, own, y) for own, y in curves]
    return x, np.array(rows).reshape(len(curves), len(x))


def _compute_margin(values: np.ndarray) -> np.ndarray:
    """Returns half the width of the 95 % interval of the mean by Student's t; `values` is (seeds, positions)."""
    num_seeds = len(values)
    return compute_t_quantile(CONFIDENCE, num_seeds - 1) * values.std(axis=0, ddof=1) / np.sqrt(num_seeds)


def _reduce(line: Line, window: Window) -> dict[str, list[float | None]]:
    x, y = line
    inside = cut_range(x, window.start, window.stop)
    chosen = choose_indices(x[inside], y[inside], window.num_points)
    return {"x": to_numbers(x[inside][chosen]), "y": to_numbers(y[inside][chosen])}


def to_numbers(values: np.ndarray) -> list[float | None]:
    """Returns JSON numbers with `DIGITS` digits of the largest, which makes answers smaller; None where not finite."""
    is_finite = np.isfinite(values)
    largest = np.abs(values[is_finite]).max(initial=0.0)
    decimals = 0 if largest == 0 else DIGITS - 1 - math.floor(math.log10(largest))
    numbers: list[float | None] = np.round(values, min(300, decimals)).tolist()
    return numbers if is_finite.all() else [number if ok else None for number, ok in zip(numbers, is_finite)]


def smooth_values(values: np.ndarray, share: float) -> np.ndarray:
    """Returns the mean over a window around each value, with `share` of all values; values that are not finite stay."""
    half = int(len(values) * share / 2)
    if not half:
        return values
    is_finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(is_finite, values, 0.0), dtype=np.float64)])
    counts = np.concatenate([[0], np.cumsum(is_finite)])
    positions = np.arange(len(values))
    # Symmetric, so narrower at the ends: otherwise a falling curve would begin too low and end too high.
    reach = np.minimum(half, np.minimum(positions, len(values) - 1 - positions))
    low, high = positions - reach, positions + reach + 1
    means = (sums[high] - sums[low]) / np.maximum(1, counts[high] - counts[low])
    return np.where(is_finite, means, values)
