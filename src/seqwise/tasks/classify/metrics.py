"""Accuracy, F1 and confusions of labels. All follow from one table of counts: rows are true, columns predicted labels.

Tables of parts of the data add up. It knows nothing of texts or models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqwise.metrics.evaluation import Table

MANY = 16  # labels; with more the confusion table becomes a list of the most frequent confusions
LISTED = 20  # confusions in that list

DEFINITIONS = {
    "accuracy": "share of the texts whose most probable label is the true one",
    "macro_f1": "mean of F1 = 2 TP / (2 TP + FP + FN) over the labels that are true or predicted somewhere",
    "loss": "mean negative log likelihood of the true label, nats per text",
    "examples": "texts that were labelled",
}


def confusion(true: np.ndarray, predicted: np.ndarray, labels: int) -> np.ndarray:
    """How often each true label (row) was given each label (column): (K, K) int64."""
    cells = np.bincount(np.asarray(true) * labels + np.asarray(predicted), minlength=labels * labels)
    return cells.reshape(labels, labels)


def accuracy(counts: np.ndarray) -> float:
    return float(np.trace(counts) / max(1, counts.sum()))


def scores_of(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1 of each label; 0 where nothing was there to be divided by."""
    hits = np.diag(counts).astype(np.float64)
    predicted, true = counts.sum(0), counts.sum(1)
    precision, recall = hits / np.maximum(1, predicted), hits / np.maximum(1, true)
    return precision, recall, 2 * hits / np.maximum(1, predicted + true)


def macro_f1(counts: np.ndarray) -> float:
    """The mean F1 of the labels that occur, as truth or as prediction."""
    occurs = counts.sum(0) + counts.sum(1) > 0
    return float(scores_of(counts)[2][occurs].mean()) if occurs.any() else 0.0


def label_table(counts: np.ndarray, names: Sequence[str]) -> Table:
    """Precision, recall, F1 and number of examples of each label."""
    columns = zip(names, *(column.tolist() for column in scores_of(counts)), counts.sum(1).tolist())
    return Table("labels", ("precision", "recall", "f1", "examples"), {name: tuple(row) for name, *row in columns})


def confusion_table(counts: np.ndarray, names: Sequence[str]) -> Table:
    """The whole table of few labels; of many the most frequent confusions."""
    found: dict[str, tuple[float, ...]]
    if len(names) <= MANY:
        found = {name: tuple(row) for name, row in zip(names, counts.tolist())}
        return Table("confusion: true label in rows, predicted in columns", tuple(names), found)
    wrong = counts - np.diag(np.diag(counts))
    places = [divmod(int(at), len(names)) for at in np.argsort(-wrong, axis=None, kind="stable")[:LISTED]]
    found = {f"{names[a]} → {names[b]}": (int(wrong[a, b]),) for a, b in places if wrong[a, b]}
    return Table("most frequent confusions: true label → predicted", ("texts",), found)
