"""`ErrorReport`: what the view `errors` of `seqwise.lens` needs of a task.

Each task computes it in its own `errors.py`, with the code of its evaluation: what each item (a text, a token, a
forecast value) adds to a metric, and groups of slices, such as bands of length. Intervals and tests are computed from
it in `lens/slices.py`. The module knows nothing of models or figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.tasks.inspection import choose_evenly

NUM_BANDS = 4  # of a quantity such as length, with about equally many items in each
NUM_WORST = 10  # examples that are listed
MAX_NAMES = 20  # rows and columns of a confusion matrix, labels with a slice of their own
UNKNOWN_COUNTS = ("no unknown words", "1 unknown word", "2 or more unknown words")
ALL = "all of it"  # how the description of data ends of which no split is selected


@dataclass(frozen=True)
class ErrorRequest:
    """Which data is evaluated. Without a split: the validation split of data that has one, else all of it."""

    split: str | None = "valid"
    max_examples: int | None = None  # the default of the task unless set
    progress: ProgressCallback = no_progress
    target: str | None = None  # translate: the language; the first unless set

    def open(self, open_data: Callable[[str | None], Any]) -> Any:
        """Returns `open_data(split)`, a tuple whose last item describes the data."""
        if self.split is not None:
            return open_data(self.split)
        opened = open_data(None)
        return opened if opened[-1].endswith(ALL) else open_data("valid")

    def choose(self, total: int, default: int) -> list[int]:
        """Returns the indices of the examples to evaluate: all, or as many as allowed, evenly spread."""
        return choose_evenly(total, default if self.max_examples is None else self.max_examples)


@dataclass(frozen=True)
class Metric:
    """A metric that is computed from sums over items, by `metrics.evaluation.compute_metric(formula, sums)`."""

    name: str  # such as "accuracy"
    formula: str = "mean"
    lower_is_better: bool = False
    definition: str = ""


@dataclass(frozen=True)
class Slice:
    """Some of the items, and what they add to the metric, summed by unit."""

    name: str  # such as "texts with unknown words"
    sums: np.ndarray  # (units, sums)
    count: int  # items


@dataclass(frozen=True)
class SliceGroup:
    """Slices by one property, such as length."""

    name: str  # such as "length"
    slices: Sequence[Slice]
    positions: np.ndarray | None = None  # of slices that are points on an axis, such as lead times
    axis: str = ""  # name of that axis, with its unit
    is_tested: bool = True  # False: a curve, whose neighbouring points are nearly the same


@dataclass(frozen=True, eq=False)
class ScoredItems:
    """What each of N items adds to a metric. Items of one unit, such as a sentence, depend on each other."""

    metric: Metric
    name: str  # what an item is, plural
    sums: np.ndarray  # (N, sums)
    units: np.ndarray  # (N,) index of the unit
    num_units: int
    unit_name: str  # what a unit is, plural

    @property
    def is_binary(self) -> bool:
        """Whether each item is right or wrong, and independent of the others."""
        is_share = self.metric.formula in ("accuracy", "exact_match")
        return is_share and len(np.unique(self.units)) == len(self.units)

    def select(self, name: str, mask: np.ndarray) -> Slice:
        """Returns the items of a mask (N,) as a slice."""
        sums = np.stack(
            [np.bincount(self.units[mask], column[mask], minlength=self.num_units) for column in self.sums.T], axis=1
        )
        return Slice(name, sums, int(mask.sum()))

    def group(self, name: str, names: Sequence[str], indices: np.ndarray, axis: str = "") -> SliceGroup:
        """Returns a slice for each name that has items; `indices` (N,) is the slice of each item, −1 for none."""
        present = [index for index in range(len(names)) if (indices == index).any()]
        slices = tuple(self.select(names[index], indices == index) for index in present)
        return SliceGroup(name, slices, np.array(present) + 1.0 if axis else None, axis)

    def group_bands(self, name: str, template: str, values: np.ndarray) -> SliceGroup:
        """Returns slices with about equally many items, by ascending values; "texts of {} tokens" is a template."""
        if not len(values):
            return SliceGroup(name, ())
        edges = find_band_edges(values)
        names = [template.format(describe_band(values, low, high)) for low, high in pairwise(edges)]
        return self.group(name, names, np.searchsorted(edges[1:-1], values, side="right"))

    def group_counts(self, name: str, names: Sequence[str], counts: np.ndarray) -> SliceGroup:
        """Returns slices by a count: the first for 0, the second for 1, …, the last for all larger ones."""
        return self.group(name, names, np.minimum(counts, len(names) - 1))


def find_band_edges(values: np.ndarray, num_bands: int = NUM_BANDS) -> np.ndarray:
    """Returns the first value of each band of integers, and a number above the last."""
    quantiles = np.quantile(values, np.arange(1, num_bands) / num_bands)
    inner = np.unique(np.ceil(quantiles)).astype(np.int64)
    inner = inner[(inner > values.min()) & (inner <= values.max())]
    return np.concatenate([[values.min()], inner, [values.max() + 1]])


def describe_band(values: np.ndarray, low: int, high: int) -> str:
    """Returns "9 to 16" for the values from 9 up to, but not including, 17; the ends are values that occur."""
    inside = values[(values >= low) & (values < high)]
    first, last = (int(inside.min()), int(inside.max())) if len(inside) else (int(low), int(high) - 1)
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


@dataclass(frozen=True)
class CountMatrix:
    """Counts of pairs, such as true and predicted labels."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    counts: np.ndarray  # (rows, columns)
    row_label: str
    column_label: str
    note: str = ""


@dataclass(frozen=True)
class Confidences:
    """The probability of what the model predicts, and whether that is right."""

    name: str  # of what: "predicted label"
    probabilities: np.ndarray  # (N,)
    is_correct: np.ndarray  # (N,) bool


@dataclass(frozen=True)
class Coverage:
    """How often the true value is below the forecast of each quantile."""

    levels: Sequence[float]
    sums: np.ndarray  # (levels, units, 2): values below, and all values
    note: str = ""


@dataclass(frozen=True)
class Listing:
    """Rows of texts and numbers, such as the worst examples."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Curves:
    """Values over steps, such as a forecast and the truth; `band` is an interval around the forecast, low and high."""

    title: str
    steps: Sequence[float]
    axis: str  # what the steps are, with their unit
    lines: dict[str, np.ndarray]
    label: str  # of the values
    band: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class ErrorReport:
    """The errors of a model on some data."""

    data: str  # which data was evaluated, in words
    items: ScoredItems
    groups: Sequence[SliceGroup]
    num_evaluated: int  # examples
    num_examples: int  # of the data; more than `num_evaluated` if only some were chosen
    example_name: str  # plural
    confusions: Sequence[CountMatrix] = ()
    confidences: Sequence[Confidences] = ()
    coverage: Coverage | None = None
    listings: Sequence[Listing] = ()
    curves: Sequence[Curves] = ()
    metrics: dict[str, float] = field(default_factory=dict)  # others, of all items
    notes: Sequence[str] = ()


def keep_most_confused(
    names: Sequence[str], counts: np.ndarray, limit: int = MAX_NAMES
) -> tuple[list[str], np.ndarray]:
    """Returns a square matrix with at most `limit` names: those with most errors; the others are added up."""
    if len(names) <= limit:
        return list(names), counts
    errors = counts - np.diag(np.diag(counts))
    order = np.argsort(-(errors.sum(0) + errors.sum(1)), kind="stable")
    shown = np.sort(order[: limit - 1])
    num_shown = len(shown)
    position = np.full(len(names), num_shown)
    position[shown] = np.arange(num_shown)
    merged = np.zeros((num_shown + 1, num_shown + 1), counts.dtype)
    np.add.at(merged, (position[:, None], position[None, :]), counts)
    return [*(names[index] for index in shown), f"{len(names) - num_shown} others"], merged


def build_confusion_matrix(
    title: str, names: Sequence[str], counts: np.ndarray, plural: str, true: str = "true", predicted: str = "predicted"
) -> CountMatrix:
    """Returns the counts of true and predicted names; of many, those with most errors.

    plural: what the names are called: "labels"
    true, predicted: names of the axes
    """
    shown, merged = keep_most_confused(names, counts)
    note = "" if len(shown) == len(names) else f"The {len(shown) - 1} {plural} with most errors, the others added up."
    return CountMatrix(title, shown, shown, merged, true, predicted, note)


def list_confusions(
    names: Sequence[str], counts: np.ndarray, limit: int = NUM_WORST
) -> list[tuple[str, str, int, float]]:
    """Returns (true, predicted, count, share of the true ones), the most frequent first."""
    errors = counts - np.diag(np.diag(counts))
    cells = [divmod(int(cell), len(names)) for cell in np.argsort(-errors, axis=None, kind="stable")[:limit]]
    totals = counts.sum(1)
    return [(names[i], names[j], int(errors[i, j]), float(errors[i, j] / totals[i])) for i, j in cells if errors[i, j]]
