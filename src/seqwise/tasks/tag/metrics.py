"""Precision, recall and F1 of spans and accuracy of tags, as the program conlleval computes them.

A predicted span is correct if its type, first and last token are. How tags become spans is in `schemes.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from seqwise.metrics.evaluation import Table
from seqwise.tasks.tag.schemes import extract_spans, to_bio

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
    """Counts of spans by type and of tags; counts of several processes can be summed."""

    true: Counter[str] = field(default_factory=Counter)
    predicted: Counter[str] = field(default_factory=Counter)
    correct: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    correct_tokens: int = 0

    def add_sentence(
        self, true: Sequence[str], predicted: Sequence[str], has_spans: bool
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Counts one sentence; returns both tag sequences as they were compared: spans in BIO, whatever the scheme."""
        if has_spans:
            true_spans, predicted_spans = extract_spans(true), extract_spans(predicted)
            self.true.update(span_type for span_type, _, _ in true_spans)
            self.predicted.update(span_type for span_type, _, _ in predicted_spans)
            self.correct.update(span_type for span_type, _, _ in {*true_spans} & {*predicted_spans})
            true, predicted = to_bio(true_spans, len(true)), to_bio(predicted_spans, len(true))
        self.tokens += len(true)
        self.correct_tokens += sum(a == b for a, b in zip(true, predicted, strict=True))
        return true, predicted

    def totals(self) -> tuple[int, int, int, int, int]:
        """Returns the numbers of correct, predicted and true spans, of correct tags and of tokens."""
        return self.correct.total(), self.predicted.total(), self.true.total(), self.correct_tokens, self.tokens

    def metrics(self, has_spans: bool) -> dict[str, float]:
        """Returns the metrics by name; only those of tags unless `has_spans`."""
        return compute_metrics(*self.totals(), has_spans=has_spans)

    def table(self) -> Table:
        """Returns precision, recall, F1 and the number of true spans for each type."""
        rows: dict[str, tuple[float, ...]] = {}
        for span_type in sorted({*self.true, *self.predicted}):
            true = self.true[span_type]
            scores = compute_f1(self.correct[span_type], self.predicted[span_type], true)
            rows[span_type] = (*scores, float(true))
        return Table("spans by type", ("precision", "recall", "f1", "spans"), rows)


def compute_metrics(
    correct: float, predicted: float, true: float, correct_tokens: float, tokens: float, *, has_spans: bool
) -> dict[str, float]:
    """Returns the metrics of the summed counts of `SpanCounts.totals`."""
    tag_metrics = {"token_accuracy": correct_tokens / tokens if tokens else 0.0}
    if not has_spans:
        return {**tag_metrics, "tokens": int(tokens)}
    precision, recall, f1 = compute_f1(correct, predicted, true)
    span_metrics = {"span_f1": f1, "span_precision": precision, "span_recall": recall}
    return {**span_metrics, **tag_metrics, "spans": int(true), "tokens": int(tokens)}


def compute_f1(correct: float, predicted: float, true: float) -> tuple[float, float, float]:
    """Returns (precision, recall, F1); 0 where a denominator is 0."""
    precision = correct / predicted if predicted else 0.0
    recall = correct / true if true else 0.0
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0
