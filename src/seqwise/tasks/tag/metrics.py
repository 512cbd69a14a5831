"""Precision, recall and F1 of spans, and accuracy of tags: what the program conlleval computes, from counts.

A span counts as found if its type, its first and its last token are all right. It knows nothing of how tags are read;
that is in `tasks/tag/schemes.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from seqwise.metrics.evaluation import Table
from seqwise.tasks.tag.schemes import Span

DEFINITIONS = {
    "span_f1": "2 · precision · recall / (precision + recall), over spans of all types (micro-averaged), as conlleval",
    "span_precision": "share of the predicted spans whose type, first and last token are right",
    "span_recall": "share of the true spans that were predicted with the right type, first and last token",
    "token_accuracy": "share of the tokens with the right tag",
    "spans": "true spans",
    "tokens": "tokens tagged",
}


@dataclass
class SpanCounts:
    """Counts of spans by type, and of tags. Sentences are added one by one; the sums of processes add up too."""

    true: Counter[str] = field(default_factory=Counter)
    predicted: Counter[str] = field(default_factory=Counter)
    correct: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    right: int = 0

    def add_spans(self, true: Iterable[Span], predicted: Iterable[Span]) -> None:
        """One sentence's spans."""
        wanted, found = set(true), set(predicted)
        self.true.update(kind for kind, _, _ in wanted)
        self.predicted.update(kind for kind, _, _ in found)
        self.correct.update(kind for kind, _, _ in wanted & found)

    def add_tags(self, true: Sequence[str], predicted: Sequence[str]) -> None:
        """One sentence's tags."""
        self.tokens += len(true)
        self.right += sum(a == b for a, b in zip(true, predicted, strict=True))

    def totals(self) -> tuple[int, int, int, int, int]:
        """Spans correct, predicted and true, tags right and all: what processes add up."""
        return self.correct.total(), self.predicted.total(), self.true.total(), self.right, self.tokens

    def metrics(self, spans: bool) -> dict[str, float]:
        """Numbers under plain names; without `spans`, those of the tags alone."""
        return metrics_of(*self.totals(), spans=spans)

    def table(self) -> Table:
        """Precision, recall, F1 and the number of true spans per type."""
        kinds = sorted({*self.true, *self.predicted})
        rows: dict[str, tuple[float, ...]] = {
            kind: (*scores(self.correct[kind], self.predicted[kind], self.true[kind]), float(self.true[kind]))
            for kind in kinds
        }
        return Table("spans by type", ("precision", "recall", "f1", "spans"), rows)


def metrics_of(
    correct: float, predicted: float, true: float, right: float, tokens: float, *, spans: bool
) -> dict[str, float]:
    """The metrics of added counts."""
    tags = {"token_accuracy": right / tokens if tokens else 0.0}
    if not spans:
        return {**tags, "tokens": int(tokens)}
    precision, recall, f1 = scores(correct, predicted, true)
    named = {"span_f1": f1, "span_precision": precision, "span_recall": recall}
    return {**named, **tags, "spans": int(true), "tokens": int(tokens)}


def scores(correct: float, predicted: float, true: float) -> tuple[float, float, float]:
    """(precision, recall, F1); 0 where there is nothing to divide by."""
    precision = correct / predicted if predicted else 0.0
    recall = correct / true if true else 0.0
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0
