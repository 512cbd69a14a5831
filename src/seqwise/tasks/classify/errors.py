"""The errors of a classifier: confusions, probabilities, worst texts, and slices by length, label and unknown words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqwise.tasks.classify.metrics import compute_confusion_matrix, compute_macro_f1
from seqwise.tasks.classify.model import predict_log_probabilities
from seqwise.tasks.classify.reader import LabelledText, reject_unknown_labels
from seqwise.tasks.classify.task import Classify, encode, get_label_ids
from seqwise.tasks.error_report import (
    MAX_NAMES,
    NUM_WORST,
    UNKNOWN_COUNTS,
    Confidences,
    ErrorReport,
    ErrorRequest,
    Listing,
    Metric,
    ScoredItems,
    SliceGroup,
    build_confusion_matrix,
    list_confusions,
)
from seqwise.tasks.task import ModelBundle

MAX_TEXTS = 20_000  # evaluated unless set
ACCURACY = Metric("accuracy", "accuracy", definition="share of the texts whose most probable label is the true one")


def collect_errors(task: type[Classify], bundle: ModelBundle, data: str, request: ErrorRequest) -> ErrorReport:
    """Evaluates texts and returns what went wrong."""
    splits, examples, description = request.open(lambda split: task.select_examples(bundle, data, split))
    labels, tokenizer = bundle.preprocessor.attributes["labels"], bundle.preprocessor.tokenizer
    reject_unknown_labels(examples, labels, splits.findings)
    splits.findings.raise_errors()
    chosen = [examples[index] for index in request.choose(len(examples), MAX_TEXTS)]
    token_ids, true = encode(tokenizer, chosen), get_label_ids(chosen, labels)
    max_length = bundle.settings.data.max_length
    scores, num_done = np.zeros((len(chosen), len(labels))), 0
    for indices, log_probabilities in predict_log_probabilities(bundle.model, token_ids, max_length):
        scores[indices] = log_probabilities
        num_done += len(indices)
        request.progress(num_done, len(chosen))
    predicted = scores.argmax(-1)
    is_correct = predicted == true
    sums = np.stack([is_correct, np.ones(len(true))], axis=1)
    items = ScoredItems(ACCURACY, "texts", sums, np.arange(len(true)), len(true), "texts")
    num_truncated = sum(len(ids) > max_length for ids in token_ids)
    notes = [f"{num_truncated:,} texts of more than {max_length:,} tokens are truncated."] if num_truncated else []
    confusion = compute_confusion_matrix(true, predicted, len(labels))
    return ErrorReport(
        description,
        items,
        build_groups(items, labels, true, token_ids, tokenizer.unknown),
        len(chosen),
        len(examples),
        "texts",
        confusions=[
            build_confusion_matrix("Confusion matrix", labels, confusion, "labels", "true label", "predicted label")
        ],
        confidences=[Confidences("predicted label", np.exp(scores.max(-1)), is_correct)],
        listings=list_errors(chosen, labels, confusion, predicted, scores, true),
        metrics={"macro_f1": compute_macro_f1(confusion), "loss": float(-scores[np.arange(len(true)), true].mean())},
        notes=notes,
    )


def build_groups(
    items: ScoredItems, labels: Sequence[str], true: np.ndarray, token_ids: Sequence[np.ndarray], unknown: int | None
) -> list[SliceGroup]:
    """Returns slices by length, by label, by the frequency of the label and by unknown words."""
    lengths = np.array([len(ids) for ids in token_ids])
    groups = [items.group_bands("length in tokens", "texts of {} tokens", lengths)]
    if len(labels) <= MAX_NAMES:
        groups.append(items.group("true label", [f"texts labelled {label}" for label in labels], true))
    frequencies = np.bincount(true, minlength=len(labels))
    if len(labels) > 3:
        # Bands of labels, so that a rare label is seen although it has few texts.
        groups.append(items.group_bands("label frequency", "texts whose label occurs {} times here", frequencies[true]))
    num_unknown = np.array([int((ids == unknown).sum()) if unknown is not None else 0 for ids in token_ids])
    if num_unknown.any():
        names = [f"texts with {text}" for text in UNKNOWN_COUNTS]
        groups.append(items.group_counts("unknown words", names, num_unknown))
    return groups


def list_errors(
    examples: Sequence[LabelledText],
    labels: Sequence[str],
    confusion: np.ndarray,
    predicted: np.ndarray,
    scores: np.ndarray,
    true: np.ndarray,
) -> list[Listing]:
    """Returns the texts with the highest loss, and of many labels the most frequent confusions."""
    losses = -scores[np.arange(len(true)), true]
    worst = [index for index in np.argsort(-losses, kind="stable")[:NUM_WORST] if predicted[index] != true[index]]
    rows = [
        (
            float(losses[index]),
            labels[true[index]],
            labels[predicted[index]],
            float(np.exp(scores[index, predicted[index]])),
            examples[index].text,
        )
        for index in worst
    ]
    columns = ("loss (nats)", "expected", "predicted", "probability", "text")
    note = "The highest loss among the wrong predictions. Confident errors are often wrong labels in the data."
    listings = [Listing("Worst examples", columns, rows, note)]
    if len(labels) > 2:
        confusions = list_confusions(labels, confusion)
        names = ("expected", "predicted", "texts", "share of the expected")
        listings.append(Listing("Most frequent confusions", names, confusions))
    return listings
