"""Precision, recall and F1 of spans: hand-computed values, and equal to seqeval for arbitrary predictions."""

from __future__ import annotations

import random
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, classification_report, f1_score, precision_score, recall_score

from seqwise.tasks.tag.spans import DEFINITIONS, SpanCounts, compute_f1, extract_spans, to_bio

TAGS = ["O", "O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in ("PER", "ORG", "LOC"))]


def count_sentences(true: list[list[str]], predicted: list[list[str]]) -> SpanCounts:
    counts = SpanCounts()
    for true_tags, predicted_tags in zip(true, predicted):
        counts.add_sentence(true_tags, predicted_tags, has_spans=True)
    return counts


def test_metrics_equal_hand_computed_values():
    true = [["B-PER", "I-PER", "O", "B-ORG", "O"]]
    found = [["B-PER", "I-PER", "O", "B-LOC", "O"]]
    metrics = count_sentences(true, found).metrics(has_spans=True)
    assert metrics == {
        "span_f1": 0.5,
        "span_precision": 0.5,
        "span_recall": 0.5,
        "token_accuracy": 0.8,
        "spans": 2,
        "tokens": 5,
    }


def test_a_span_with_one_wrong_border_is_wrong():
    counts = count_sentences([["B-PER", "I-PER"]], [["B-PER", "O"]])
    assert counts.totals() == (0, 1, 1, 1, 2)


SENTENCES = st.lists(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=8), min_size=1, max_size=6
)


@given(SENTENCES)
def test_metrics_equal_those_of_seqeval(pairs: list[list[tuple[str, str]]]):
    true, found = [[a for a, _ in row] for row in pairs], [[b for _, b in row] for row in pairs]
    metrics = count_sentences(true, found).metrics(has_spans=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about divisions by zero, which are 0 there as well
        assert metrics["span_precision"] == pytest.approx(precision_score(true, found))
        assert metrics["span_recall"] == pytest.approx(recall_score(true, found))
        assert metrics["span_f1"] == pytest.approx(f1_score(true, found))
        true, found = ([to_bio(extract_spans(tags), len(tags)) for tags in rows] for rows in (true, found))
        assert metrics["token_accuracy"] == pytest.approx(accuracy_score(true, found))


def test_the_table_by_type_equals_that_of_seqeval():
    draw = random.Random(0)
    true = [draw.choices(TAGS, k=draw.randint(1, 15)) for _ in range(200)]
    found = [[tag if draw.random() < 0.7 else draw.choice(TAGS) for tag in row] for row in true]
    table = count_sentences(true, found).table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = classification_report(true, found, output_dict=True)
    assert table.columns == ("precision", "recall", "f1", "spans")
    assert list(table.rows) == ["LOC", "ORG", "PER"]
    for kind, row in table.rows.items():
        expected = [report[kind][name] for name in ("precision", "recall", "f1-score", "support")]
        assert row == pytest.approx(expected)


def test_a_zero_denominator_gives_zero():
    assert compute_f1(0, 0, 0) == (0.0, 0.0, 0.0)
    assert SpanCounts().metrics(has_spans=False) == {"token_accuracy": 0.0, "tokens": 0}


def test_every_metric_has_a_definition():
    assert SpanCounts().metrics(has_spans=True).keys() <= DEFINITIONS.keys()
