"""What does a model reach that sees words and pairs of words, but no order beyond that? The baseline of `classify`.

    python benchmarks/bag_of_words.py [DATA] [--columns text,label] [--json]

A logistic regression (softmax over the labels) on tf-idf of words, and one on words and pairs of neighbours: present or
not, times ln((1 + N) / (1 + df)) + 1, rows brought to length 1. Weights by L-BFGS; the strength of their L2 penalty is
chosen on the validation split. Words, splits and metrics are those of `seqwise train --task classify`. Nothing is
required.
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


def features(ids: np.ndarray, longest: int) -> set[tuple[int, ...]]:
    """The words and, with `longest` 2, the pairs of neighbours of a text."""
    words = ids.tolist()
    return {(word,) for word in words} | (set(pairwise(words)) if longest > 1 else set())


class Bag:
    """Text → row of tf-idf, by the features of the training texts."""

    def __init__(self, rows: Sequence[np.ndarray], longest: int):
        self.longest = longest
        counts = Counter(feature for row in rows for feature in features(row, longest))
        self.places = {feature: place for place, feature in enumerate(sorted(counts))}
        found = np.array([counts[feature] for feature in self.places])
        self.weights = np.log((1 + len(rows)) / (1 + found)) + 1

    def rows(self, rows: Sequence[np.ndarray]) -> Sparse:
        """Features that training did not have are left out."""
        starts, places, values = [], [], []
        for row in rows:
            known = sorted(self.places[feature] for feature in features(row, self.longest) if feature in self.places)
            weights = self.weights[known]
            starts.append(len(places))
            places += known
            values += (weights / max(1e-12, np.linalg.norm(weights))).tolist()
        return Sparse(torch.tensor(places, dtype=torch.int64), torch.tensor(starts), torch.tensor(values))


@dataclass(frozen=True)
class Sparse:
    """Rows of a sparse matrix, one behind the other: the places of their entries, where each row starts, the values."""

    places: Tensor
    starts: Tensor
    values: Tensor

    def __matmul__(self, weight: Tensor) -> Tensor:
        return F.embedding_bag(self.places, weight, self.starts, mode="sum", per_sample_weights=self.values)


def fit(rows: Sparse, targets: Tensor, inputs: int, labels: int, penalty: float) -> tuple[Tensor, Tensor]:
    """Weights (features, K) and biases (K,)."""
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


def measure(task: Classify, longest: int) -> dict[str, float]:
    """Accuracy and macro-F1 on the test split, with the penalty that is best on the validation split."""
    began = time.perf_counter()
    bag, labels = Bag(task.ids["train"], longest), len(task.labels)
    parts = {split: bag.rows(rows) for split, rows in task.ids.items()}
    best: tuple[float, float] = (-1.0, 0.0)
    tables: dict[str, np.ndarray] = {}
    for penalty in PENALTIES:
        weight, bias = fit(parts["train"], torch.from_numpy(task.targets["train"]), len(bag.places), labels, penalty)
        found = {split: (rows @ weight + bias).argmax(-1).numpy() for split, rows in parts.items()}
        counted = {split: confusion_matrix(task.targets[split], found[split], labels) for split in found}
        if compute_accuracy(counted["valid"]) > best[0]:
            best, tables = (compute_accuracy(counted["valid"]), penalty), counted
    return {
        "features": len(bag.places),
        "penalty": best[1],
        "valid_accuracy": best[0],
        "accuracy": compute_accuracy(tables["test"]),
        "macro_f1": compute_macro_f1(tables["test"]),
        "seconds": time.perf_counter() - began,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="builtin:modules")
    parser.add_argument("--columns", help="columns of text and label, by name or number")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    asked = parser.parse_args(arguments)
    task = Classify.prepare(asked.data, Settings(task="classify", columns=asked.columns))
    found = {"words": measure(task, 1), "words and pairs": measure(task, 2)}
    if asked.json:
        print(json.dumps({"data": asked.data, "rows": found}))
        return
    print(f"{asked.data}: logistic regression on bags of words; accuracy and macro-F1 on the test split")
    print(f"{'':16} {'features':>9} {'L2':>5} {'valid acc':>9} {'accuracy':>9} {'macro-F1':>9} {'seconds':>8}")
    for name, row in found.items():
        numbers = f"{row['valid_accuracy']:9.4f} {row['accuracy']:9.4f} {row['macro_f1']:9.4f} {row['seconds']:8.1f}"
        print(f"{name:16} {row['features']:9,} {row['penalty']:5g} {numbers}")


if __name__ == "__main__":
    main()
