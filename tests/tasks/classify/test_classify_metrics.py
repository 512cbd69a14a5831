"""Accuracy and F1 equal hand-computed values."""

from __future__ import annotations

import numpy as np
import pytest

from seqwise.tasks.classify.metrics import (
    build_confusion_table,
    build_label_table,
    compute_accuracy,
    compute_confusion_matrix,
    compute_label_scores,
    compute_macro_f1,
)

TRUE, PREDICTED = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 0, 1])


def test_the_confusion_matrix_has_true_labels_in_rows_and_predicted_ones_in_columns():
    assert compute_confusion_matrix(TRUE, PREDICTED, 3).tolist() == [[2, 1, 0], [1, 1, 0], [0, 1, 0]]


def test_confusion_matrices_of_parts_add_up():
    parts = compute_confusion_matrix(TRUE[:2], PREDICTED[:2], 3) + compute_confusion_matrix(TRUE[2:], PREDICTED[2:], 3)
    assert (parts == compute_confusion_matrix(TRUE, PREDICTED, 3)).all()


def test_accuracy_and_f1_equal_hand_computed_values():
    counts = compute_confusion_matrix(TRUE, PREDICTED, 3)
    precision, recall, f1 = compute_label_scores(counts)
    assert compute_accuracy(counts) == 0.5
    assert precision.tolist() == pytest.approx([2 / 3, 1 / 3, 0])
    assert recall.tolist() == pytest.approx([2 / 3, 1 / 2, 0])
    assert f1.tolist() == pytest.approx([2 / 3, 2 / 5, 0])
    assert compute_macro_f1(counts) == pytest.approx((2 / 3 + 2 / 5 + 0) / 3)


def test_a_label_that_is_neither_true_nor_predicted_does_not_count():
    counts = compute_confusion_matrix(np.array([0, 1]), np.array([0, 1]), 5)
    assert compute_accuracy(counts) == compute_macro_f1(counts) == 1.0


def test_always_predicting_one_label_has_a_small_macro_f1():
    counts = compute_confusion_matrix(np.array([0] * 9 + [1]), np.zeros(10, dtype=int), 2)
    assert compute_accuracy(counts) == 0.9
    assert compute_macro_f1(counts) == pytest.approx((18 / 19) / 2)


def test_metrics_of_no_examples_are_zero():
    assert compute_accuracy(np.zeros((2, 2))) == compute_macro_f1(np.zeros((2, 2))) == 0.0


def test_tables_equal_hand_computed_values():
    counts = compute_confusion_matrix(TRUE, PREDICTED, 3)
    assert build_label_table(counts, "abc").rows["b"] == pytest.approx((1 / 3, 1 / 2, 2 / 5, 2))
    assert build_confusion_table(counts, "abc").rows == {"a": (2, 1, 0), "b": (1, 1, 0), "c": (0, 1, 0)}


def test_of_many_labels_the_most_frequent_confusions_are_listed():
    true, predicted = np.array([3, 3, 5, 7, 7]), np.array([4, 4, 6, 7, 7])
    table = build_confusion_table(compute_confusion_matrix(true, predicted, 20), [f"l{i}" for i in range(20)])
    assert table.rows == {"l3 → l4": (2,), "l5 → l6": (1,)}
