"""Units that are active only in a span of a text, and other spans where the same units are active together.

As in LSTMVis (Strobelt et al. 2018), a unit is active where it is above a threshold. Each unit has its own threshold
here, because only the states of recurrent layers have a common range: the one that separates the tokens of the span
best from the other tokens of the text. It knows nothing of figures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.errors import UsageError
from seqwise.tasks.inspection import UNKNOWN_MARK

MAX_UNITS = 10  # whose common activity is searched
MIN_ACCURACY = 0.9  # of a unit that is not active in the span alone, but nearly so
MIN_SHARE = 0.5  # of the units, active at each token of a similar span


@dataclass(frozen=True)
class SpanUnits:
    """Units that separate a span from the rest of a text, the best first."""

    layers: Sequence[str]
    units: np.ndarray  # (N,)
    thresholds: np.ndarray  # (N,): active above
    accuracies: np.ndarray  # (N,): mean of the shares of the span that is active and of the rest that is not
    margins: np.ndarray  # (N,): smallest activation inside minus largest outside, as a share of the range
    num_exclusive: int  # units active at each token of the span and at no other
    num_expected: float  # how many would be by chance, if the order of activations were random


@dataclass(frozen=True)
class SimilarSpan:
    """A span of another text: tokens start … end − 1; `share` is the mean share of the units that are active."""

    text: int
    start: int
    end: int
    share: float


def find_span(tokens: Sequence[str], span: str) -> tuple[int, int] | None:
    """Returns the first and one past the last token of a span, which is "START:END" or a part of the text; or None."""
    if re.fullmatch(r"\d+:\d+", span):
        start, end = map(int, span.split(":"))
        if start >= end or end > len(tokens):
            problem = f"the span {span} is not inside the {len(tokens)} tokens of the text."
            raise UsageError(problem, fix=f"Pass START:END with 0 ≤ START < END ≤ {len(tokens)}; END is not included.")
        return start, end
    # Without spaces, because tokens do not say where there were some.
    bodies = (token.removesuffix(UNKNOWN_MARK).removeprefix("##") for token in tokens)
    parts = ["".join(body.split()).casefold() for body in bodies]
    wanted = "".join(span.split()).casefold()
    position = "".join(parts).find(wanted) if wanted else -1
    if position < 0:
        return None
    ends = np.cumsum([len(part) for part in parts])
    first = int(np.searchsorted(ends, position, side="right"))
    last = int(np.searchsorted(ends, position + len(wanted), side="left"))
    return first, last + 1


def separate_span(activations: np.ndarray, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the threshold of each unit (U,) that separates the span best in activations (T, U), and its accuracy.

    The accuracy is the mean of two shares: of the span, what is above; of the rest, what is not.
    """
    length = len(activations)
    order = np.argsort(-activations, axis=0, kind="stable")  # the most active token first
    is_inside = (order >= start) & (order < end)
    inside = np.cumsum(is_inside, axis=0) / (end - start)  # share of the span among the first k + 1 tokens
    outside = np.cumsum(~is_inside, axis=0) / (length - (end - start))
    ranked = np.take_along_axis(activations, order, axis=0)
    accuracy = (1 + inside - outside) / 2
    accuracy[:-1][ranked[:-1] == ranked[1:]] = 0.5  # no threshold is between equal activations
    best = accuracy[:-1].argmax(axis=0)
    units = np.arange(activations.shape[1])
    return (ranked[best, units] + ranked[best + 1, units]) / 2, accuracy[best, units]


def find_span_units(arrays: dict[str, np.ndarray], start: int, end: int) -> SpanUnits:
    """Returns the units of all layers, label → (T, U), that are active only in a span, at most MAX_UNITS."""
    length = len(next(iter(arrays.values())))
    if end - start == length:
        raise UsageError("the span is the whole text.", fix="Pass a span that leaves some tokens outside.")
    columns: list[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
    is_inside = np.zeros(length, bool)
    is_inside[start:end] = True
    for label, array in arrays.items():
        thresholds, accuracies = separate_span(array, start, end)
        gaps = array[is_inside].min(axis=0) - array[~is_inside].max(axis=0)
        margins = gaps / np.maximum(np.ptp(array, axis=0), 1e-12)
        columns.append((label, np.arange(array.shape[1]), thresholds, accuracies, margins))
    labels = [label for label, numbers, *_ in columns for _ in numbers]
    numbers, thresholds, accuracies, margins = (np.concatenate([one[part] for one in columns]) for part in range(1, 5))
    order = np.lexsort((-margins, -accuracies))
    num_exclusive = int((margins > 0).sum())
    min_accuracy = 1.0 if num_exclusive else MIN_ACCURACY
    chosen = [int(index) for index in order[:MAX_UNITS] if accuracies[index] >= min_accuracy]
    num_expected = len(labels) / math.comb(length, end - start)
    return SpanUnits([labels[index] for index in chosen], numbers[chosen], thresholds[chosen], accuracies[chosen],
                     margins[chosen], num_exclusive, num_expected)  # fmt: skip


def find_active_runs(is_active: np.ndarray, text: int) -> list[SimilarSpan]:
    """Returns the spans of a text in which at least MIN_SHARE of the units (T, N) are active at each token."""
    shares = is_active.mean(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], shares >= MIN_SHARE, [False]]).astype(int)))
    return [
        SimilarSpan(text, int(start), int(end), float(shares[start:end].mean()))
        for start, end in zip(edges[::2], edges[1::2])
    ]


def rank_spans(spans: Sequence[SimilarSpan], length: int) -> list[SimilarSpan]:
    """Returns the most similar spans first: by the share of active units, less where a span is shorter than `length`.

    Of equal ones, those whose length is nearest come first.
    """

    def rank(span: SimilarSpan) -> tuple[float, int, int]:
        size = span.end - span.start
        return -round(span.share * min(1.0, size / length), 6), abs(size - length), span.text

    return sorted(spans, key=rank)
