"""Errors of spans by kind. The module knows nothing of models.

A true span is of the first of these kinds that applies:

    correct         predicted with its type, first and last word
    wrong type      a predicted span has the same words, and another type
    wrong boundary  a predicted span of the same type shares words with it
    both wrong      a predicted span of another type shares words with it, but not the same ones
    missed          no predicted span shares words with it

A predicted span that shares no word with a true span is *spurious*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from seqwise.tasks.tag.spans import Span

KINDS = ("correct", "wrong type", "wrong boundary", "both wrong", "missed", "spurious")


def classify_span(span: Span, predicted: Sequence[Span]) -> str:
    """Returns the kind of a true span, given the predicted spans of its sentence."""
    span_type, start, end = span
    if span in predicted:
        return "correct"
    overlapping = [each for each in predicted if each[1] < end and start < each[2]]
    if any(each[1:] == (start, end) for each in overlapping):
        return "wrong type"
    if any(each[0] == span_type for each in overlapping):
        return "wrong boundary"
    return "both wrong" if overlapping else "missed"


def find_spurious(true: Sequence[Span], predicted: Iterable[Span]) -> list[Span]:
    """Returns the predicted spans that share no word with a true span."""
    return [each for each in predicted if not any(each[1] < end and start < each[2] for _, start, end in true)]


def count_span_errors(sentences: Iterable[tuple[Sequence[Span], Sequence[Span]]], types: Sequence[str]) -> np.ndarray:
    """Returns how many spans of each type are of each kind, (types, kinds); a sentence is (true, predicted) spans."""
    rows, counts = {name: index for index, name in enumerate(types)}, np.zeros((len(types), len(KINDS)), np.int64)
    for true, predicted in sentences:
        for span in true:
            counts[rows[span[0]], KINDS.index(classify_span(span, predicted))] += 1
        for span in find_spurious(true, predicted):
            counts[rows[span[0]], KINDS.index("spurious")] += 1
    return counts
