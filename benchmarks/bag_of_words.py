"""Bag-of-words baseline of `classify`: logistic regression on words, and on words and bigrams.

    python benchmarks/bag_of_words.py [DATA] [--columns text,label] [--json]

Softmax regression on binary tf-idf features of words, and of words and bigrams: presence times
ln((1 + N) / (1 + df)) + 1, with rows normalised to length 1. L-BFGS fits the weights; the L2 penalty is chosen on the
validation split. Words, splits and metrics are those of `seqwise train --task classify`. There are no requirements.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.config import Settings
from seqwise.tasks.classify.metrics import compute_accuracy, compute_macro_f1, confusion_matrix
from seqwise.tasks.classify.task import Classify

PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # of the summed squares of all weights, against the summed loss


def extract_features(ids: np.ndarray, max_n: int) -> set[tuple[int, ...]]:
    """Returns the words and, with `max_n` 2, the bigrams of a text."""
    words = ids.tolist()
    return {(word,) for word in words} | (set(pairwise(words)) if max_n > 1 else set())


class TfidfVectorizer:
    """Maps texts to rows of tf-idf values, with the features of the training texts."""

    def __init__(self, rows: Sequence[np.ndarray], max_n: int):
        self.max_n = max_n
        counts = Counter(feature for row in rows for feature in extract_features(row, max_n))
        self.indices = {feature: index for index, feature in enumerate(sorted(counts))}
        document_frequencies = np.array([counts[feature] for feature in self.indices])
        self.weights = np.log((1 + len(rows)) / (1 + document_frequencies)) + 1

    def transform(self, rows: Sequence[np.ndarray]) -> SparseRows:
        """Returns the rows as a sparse matrix; features that are not in the training texts are ignored."""
        starts, indices, values = [], [], []
        for row in rows:
            row_indices = sorted(
                self.indices[feature] for feature in extract_features(row, self.max_n) if feature in self.indices
            )
            weights = self.weights[row_indices]
            starts.append(len(indices))
            indices += row_indices
            values += (weights / max(1e-12, np.linalg.norm(weights))).tolist()
        return SparseRows(torch.tensor(indices, dtype=torch.int64), torch.tensor(starts), torch.tensor(values))


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix in CSR format: column indices, start of each row, values."""

    indices: Tensor
    starts: Tensor
    values: Tensor

    def __matmul__(self, weight: Tensor) -> Tensor:
        return F.embedding_bag(self.indices, weight, self.starts, mode="sum", per_sample_weights=self.values)


def fit(rows: SparseRows, targets: Tensor, inputs: int, labels: int, penalty: float) -> tuple[Tensor, Tensor]:
    """Returns weights (features, K) and biases (K,)."""
    weight = torch.zeros(inputs, labels, requires_grad=True)
    bias = torch.zeros(labels, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=60, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        total = F.cross_entropy(rows @ weight + bias, targets, reduction="sum") + penalty / 2 * weight.square().sum()
        total.backward()
        return total

    optimiser.step(loss)  # type: ignore[arg-type]
    return weight.detach(), bias.detach()


def measure(task: Classify, max_n: int) -> dict[str, float]:
    """Returns the metrics on the test split, with the penalty that is best on the validation split."""
    started_at = time.perf_counter()
    vectorizer, labels = TfidfVectorizer(task.ids["train"], max_n), len(task.labels)
    parts = {split: vectorizer.transform(rows) for split, rows in task.ids.items()}
    best: tuple[float, float] = (-1.0, 0.0)
    tables: dict[str, np.ndarray] = {}
    for penalty in PENALTIES:
        weight, bias = fit(
            parts["train"], torch.from_numpy(task.targets["train"]), len(vectorizer.indices), labels, penalty
        )
        predictions = {split: (rows @ weight + bias).argmax(-1).numpy() for split, rows in parts.items()}
        confusions = {split: confusion_matrix(task.targets[split], predictions[split], labels) for split in predictions}
        if compute_accuracy(confusions["valid"]) > best[0]:
            best, tables = (compute_accuracy(confusions["valid"]), penalty), confusions
    return {
        "features": len(vectorizer.indices),
        "penalty": best[1],
        "valid_accuracy": best[0],
        "accuracy": compute_accuracy(tables["test"]),
        "macro_f1": compute_macro_f1(tables["test"]),
        "seconds": time.perf_counter() - started_at,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="builtin:modules")
    parser.add_argument("--columns", help="columns of text and label, by name or number")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    options = parser.parse_args(arguments)
    task = Classify.prepare(options.data, Settings(task="classify", columns=options.columns))
    results = {"words": measure(task, 1), "words and pairs": measure(task, 2)}
    if options.json:
        print(json.dumps({"data": options.data, "rows": results}))
        return
    print(f"{options.data}: logistic regression on bags of words; accuracy and macro-F1 on the test split")
    print(f"{'':16} {'features':>9} {'L2':>5} {'valid acc':>9} {'accuracy':>9} {'macro-F1':>9} {'seconds':>8}")
    for name, row in results.items():
        numbers = f"{row['valid_accuracy']:9.4f} {row['accuracy']:9.4f} {row['macro_f1']:9.4f} {row['seconds']:8.1f}"
        print(f"{name:16} {row['features']:9,} {row['penalty']:5g} {numbers}")


if __name__ == "__main__":
    main()
