"""Metrics of predicted labels (accuracy, F1, tables of confusions), and the format of printed predictions.

All metrics are computed from a confusion matrix: true labels in rows, predicted labels in columns. The matrices of
several batches add up. The module knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqwise.metrics.evaluation import ExampleScores, ExampleText, Table, count_correct
from seqwise.printable import LINE_SYMBOLS
from seqwise.tasks.classify.reader import LabelledText
from seqwise.tasks.task import Prediction

MAX_LABELS = 16  # with more, the most frequent confusions are listed instead of the confusion matrix
MAX_CONFUSIONS = 20  # in that list

DEFINITIONS = {
    "accuracy": "share of the texts whose most probable label is the true one",
    "macro_f1": "mean of F1 = 2 TP / (2 TP + FP + FN) over the labels that are true or predicted somewhere",
    "loss": "mean negative log likelihood of the true label, nats per text",
    "examples": "texts that were labelled",
}


def compute_confusion_matrix(true: np.ndarray, predicted: np.ndarray, num_labels: int) -> np.ndarray:
    """Returns how often each true label (row) was predicted as each label (column): (K, K) int64."""
    cells = np.bincount(np.asarray(true) * num_labels + np.asarray(predicted), minlength=num_labels * num_labels)
    return cells.reshape(num_labels, num_labels)


def compute_accuracy(confusion: np.ndarray) -> float:
    return float(np.trace(confusion) / max(1, confusion.sum()))


def compute_label_scores(confusion: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns precision, recall and F1 of each label; 0 where the denominator is 0."""
    correct = np.diag(confusion).astype(np.float64)
    predicted, true = confusion.sum(0), confusion.sum(1)
    precision, recall = correct / np.maximum(1, predicted), correct / np.maximum(1, true)
    return precision, recall, 2 * correct / np.maximum(1, predicted + true)


def compute_macro_f1(confusion: np.ndarray) -> float:
    """Returns the mean F1 of the labels that occur as true or as predicted label."""
    occurs = confusion.sum(0) + confusion.sum(1) > 0
    return float(compute_label_scores(confusion)[2][occurs].mean()) if occurs.any() else 0.0


def build_label_table(confusion: np.ndarray, names: Sequence[str]) -> Table:
    """Returns precision, recall, F1 and the number of examples of each label."""
    columns = (*compute_label_scores(confusion), confusion.sum(1))
    rows = zip(names, *(column.tolist() for column in columns))
    return Table("labels", ("precision", "recall", "f1", "examples"), {name: tuple(row) for name, *row in rows})


def build_confusion_table(confusion: np.ndarray, names: Sequence[str]) -> Table:
    """Returns the confusion matrix; with more than MAX_LABELS labels the most frequent confusions."""
    rows: dict[str, tuple[float, ...]]
    if len(names) <= MAX_LABELS:
        rows = {name: tuple(row) for name, row in zip(names, confusion.tolist())}
        return Table("confusion: true label in rows, predicted in columns", tuple(names), rows)
    errors = confusion - np.diag(np.diag(confusion))
    largest = np.argsort(-errors, axis=None, kind="stable")[:MAX_CONFUSIONS]
    cells = [divmod(int(cell), len(names)) for cell in largest]
    rows = {f"{names[i]} → {names[j]}": (int(errors[i, j]),) for i, j in cells if errors[i, j]}
    return Table("most frequent confusions: true label → predicted", ("texts",), rows)


def score_examples(examples: Sequence[LabelledText], predictions: Sequence[str]) -> ExampleScores:
    """Returns for each text whether its label was predicted correctly."""
    pairs = list(zip(examples, predictions))
    correct = count_correct(example.label == label for example, label in pairs)
    texts = tuple(ExampleText.single_line(example.text, example.label, label) for example, label in pairs)
    return ExampleScores("accuracy", "texts", correct, texts)


def format_prediction(text: str, ranking: dict[str, float], top: int, has_known_words: bool) -> Prediction:
    """Returns the prediction for a text; `ranking` is label → probability, the most probable first."""
    label, probability = next(iter(ranking.items()))
    # One line for each text; other characters stay exact, for programs that read the output.
    names = [(name.replace("\n", LINE_SYMBOLS["\n"]), value) for name, value in ranking.items()]
    best = [f"{name}  {value:.3f}" for name, value in names[: max(1, top)]]
    values = {"text": text, "label": label, "probability": probability, "probabilities": ranking}
    if not has_known_words:  # the prediction does not depend on the text
        values["nothing_known"] = True
    return Prediction("    ".join(best), values)
