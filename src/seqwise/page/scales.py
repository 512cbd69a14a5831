"""Scales that SVG and terminal share: limits of colours, axes with ticks, and matrices reduced to fewer cells."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.page.figures import Heatmap, Scale
from seqwise.svg import choose_ticks

SMALLEST, LARGEST = 1e-300, 1e300  # absolute values on an axis; beyond them, differences overflow
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # n, where only every n-th name is written
MAX_DECADES = 6  # of a logarithmic axis with a tick at each

Quantity = tuple[Scale, float | None, float | None, str, str]  # scale, low, high, label and role of a heatmap


@dataclass(frozen=True)
class Axis:
    """The range of an axis and the values at its ticks."""

    low: float
    high: float
    ticks: Sequence[float]
    is_log: bool = False

    def locate(self, values: np.ndarray | float) -> np.ndarray:
        """Returns where values are between the two ends, as fractions; NaN for what the axis cannot show."""
        values = _drop_infinities(values)
        if not self.is_log:
            return (np.clip(values, -LARGEST, LARGEST) - self.low) / (self.high - self.low)
        logs = np.log10(np.where(values > 0, np.clip(values, SMALLEST, LARGEST), np.nan))
        return (logs - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))


def make_axis(values: Iterable[np.ndarray], is_log: bool = False, num_ticks: int = 5, is_tight: bool = False) -> Axis:
    """Returns an axis over all values. It begins and ends at ticks or, when tight, at the values themselves."""
    joined = _drop_infinities(np.concatenate([np.zeros(0), *(np.ravel(each) for each in values)]))
    finite = joined[np.isfinite(joined) & (joined > 0 if is_log else True)]
    if not finite.size:
        finite = np.array([1.0, 10.0] if is_log else [0.0, 1.0])
    ends = np.clip([finite.min(), finite.max()], SMALLEST if is_log else -LARGEST, LARGEST)
    low, high = map(float, ends)
    ticks = _choose_log_ticks(low, high) if is_log else choose_ticks(low, high, num_ticks)
    if is_tight and high > low:
        inner = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)] if is_log else ticks
        return Axis(low, high, [tick for tick in inner if low <= tick <= high], is_log)
    return Axis(ticks[0], ticks[-1], ticks, is_log)


def make_padded_axis(values: np.ndarray) -> Axis:
    """Returns an axis that extends a little beyond the values on both sides."""
    finite = _drop_infinities(values)[np.isfinite(values)]
    if not finite.size:
        return make_axis([])
    padding = 0.04 * (finite.max() - finite.min()) or 0.5
    return make_axis([np.array([finite.min() - padding, finite.max() + padding])], num_ticks=8, is_tight=True)


def _choose_log_ticks(low: float, high: float) -> list[float]:
    """Returns powers of ten that cover the range; over less than two decades also 2 and 5 times these."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if last - first <= 2:
        ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
        start = max((tick for tick in ticks if tick <= low * (1 + 1e-9)), default=ticks[0])
        end = min((tick for tick in ticks if tick >= high * (1 - 1e-9) and tick > start), default=ticks[-1])
        return [float(f"{tick:.1g}") for tick in ticks if start <= tick <= end]
    step = math.ceil((last - first) / MAX_DECADES)
    return [10.0**power for power in range(first, last + step, step)]


def split_at_gaps(points: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields where the parts of a line between points without a value start and stop."""
    finite = np.concatenate([[False], np.isfinite(points).all(axis=1), [False]])
    edges = np.flatnonzero(finite[1:] != finite[:-1])
    yield from zip(edges[::2].tolist(), edges[1::2].tolist())


def reduce_points(points: np.ndarray, max_points: int) -> np.ndarray:
    """Returns at most that many points (…, 2) of a line: its ends, and the lowest and highest of each interval."""
    if len(points) <= max_points:
        return points
    chosen = {0, len(points) - 1}
    for part in np.array_split(np.arange(len(points)), max_points // 2 - 1):
        chosen |= {int(part[points[part, 1].argmin()]), int(part[points[part, 1].argmax()])}
    return points[sorted(chosen)]


def find_limits(values: np.ndarray, scale: Scale, low: float | None = None, high: float | None = None) -> list[float]:
    """Returns the two ends of a colour scale; a diverging one is symmetric around zero."""
    finite = values[np.isfinite(values)]
    ends = [float(finite.min()), float(finite.max())] if finite.size else [0.0, 1.0]
    low, high = ends[0] if low is None else low, ends[1] if high is None else high
    if scale == "diverging":
        size = max(abs(low), abs(high)) or 1.0
        return [-size, size]
    if high > low:
        return [low, high]
    return [low - (abs(low) or 1.0) / 2, low + (abs(low) or 1.0) / 2]


def find_common_limits(
    panels: Sequence[Heatmap], matrices: Sequence[np.ndarray], is_pooled: bool = False
) -> list[list[float]]:
    """Returns the limits of each panel, which are the same for all panels that show the same quantity.

    Means of blocks are smaller than the largest values, so a matrix that was reduced has an upper limit of its own.
    """
    joined: dict[Quantity, list[np.ndarray]] = {}
    for panel, matrix in zip(panels, matrices):
        joined.setdefault(get_quantity(panel), []).append(matrix.ravel())
    limits = {}
    for quantity, parts in joined.items():
        scale, low, high = quantity[:3]
        ends = (None if scale == "diverging" else low, None) if is_pooled else (low, high)
        limits[quantity] = find_limits(np.concatenate(parts), scale, *ends)
    return [limits[get_quantity(panel)] for panel in panels]


def get_quantity(panel: Heatmap) -> Quantity:
    """Returns what panels must have in common to share a colour scale."""
    return panel.scale, panel.low, panel.high, panel.value_label, panel.role


def to_fractions(values: np.ndarray, limits: Sequence[float]) -> np.ndarray:
    """Returns where values are between the limits of a colour scale, from 0 to 1; NaN stays."""
    low, high = limits
    return np.clip((_drop_infinities(values) - low) / (high - low), 0, 1)


@dataclass(frozen=True)
class PooledMatrix:
    """A matrix reduced to fewer cells, each the mean of a block, and the rows and columns at which blocks begin."""

    values: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    shape: tuple[int, int]  # before

    @property
    def is_pooled(self) -> bool:
        return self.values.shape != self.shape

    def describe(self) -> str:
        """Returns a sentence about the reduction; empty if there is none."""
        sizes = [math.ceil(before / after) for before, after in zip(self.shape, self.values.shape)]
        block = f"each cell is the mean of up to {sizes[0]} × {sizes[1]} of them"
        return f"{self.shape[0]:,} × {self.shape[1]:,} values; {block}." if self.is_pooled else ""


def pool(values: np.ndarray, max_rows: int, max_columns: int) -> PooledMatrix:
    """Returns a matrix of at most that size; blocks without any value are NaN."""
    shape = (values.shape[0], values.shape[1])
    rows, columns = (
        np.linspace(0, size, min(size, limit), endpoint=False).astype(int)
        for size, limit in zip(shape, (max_rows, max_columns))
    )
    if (len(rows), len(columns)) == shape:
        return PooledMatrix(_drop_infinities(values), rows, columns, shape)
    is_finite = np.isfinite(values)
    finite = values if is_finite.all() else np.where(is_finite, values, 0)
    sums = np.add.reduceat(np.add.reduceat(finite, rows, axis=0, dtype=float), columns, axis=1)
    counts = np.add.reduceat(np.add.reduceat(is_finite, rows, axis=0, dtype=int), columns, axis=1)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return PooledMatrix(means, rows, columns, shape)


def split_titles(titles: Sequence[str], num_columns: int) -> tuple[list[str], list[str]] | None:
    """Returns names for the rows and columns of a grid if each title consists of the two, as in "layer 1, head 2"."""
    rows = [[title.split() for title in titles[i : i + num_columns]] for i in range(0, len(titles), num_columns)]
    if len(rows) < 2:
        return None
    length = _count_common_words(rows[0])
    row_names = [{_join_words(words[:length]) for words in row} for row in rows]
    columns = [{_join_words(row[index][length:]) for row in rows if index < len(row)} for index in range(num_columns)]
    if any(len(names) > 1 for names in (*row_names, *columns)):
        return None
    return [names.pop() for names in row_names], [names.pop() for names in columns]


def _count_common_words(titles: Sequence[Sequence[str]]) -> int:
    """Returns how many words at the start all titles share, up to one that ends in a digit or a sign."""
    length = 0
    while all(len(words) > length for words in titles) and len({words[length] for words in titles}) == 1:
        length += 1
    while length and not re.search(r"[\d,;:·/]$", titles[0][length - 1]):
        length -= 1
    return length


def _join_words(words: Sequence[str]) -> str:
    return " ".join(words).strip(" ,;:·/")


def choose_step(spacing: float, needed: float) -> int:
    """Returns n such that every n-th of some names, `spacing` from each other, has the width it needs."""
    return next((step for step in STEPS if step * spacing >= needed), 1000)


def find_strongest(values: np.ndarray, count: int) -> list[int]:
    """Returns the indices of the `count` values furthest from zero, the strongest first; NaN is none of them."""
    sizes = np.abs(_drop_infinities(values))
    order = np.argsort(-np.nan_to_num(sizes, nan=-1.0), kind="stable")[:count]
    return [int(index) for index in order if np.isfinite(sizes[index])]


def _drop_infinities(values: np.ndarray | float) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    return np.where(np.isfinite(values), values, np.nan)
