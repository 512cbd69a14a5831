"""Baselines of classification: the most frequent label, and logistic regression on the words of a text.

The logistic regression ignores the order of the words: softmax regression on binary tf-idf features, presence times
ln((1 + N) / (1 + df)) + 1, with rows normalised to length 1. L-BFGS fits the weights; the L2 penalty is chosen on the
validation split. Features are tokens, or tokens and bigrams for `benchmarks/bag_of_words.py`. The module knows nothing
of networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from reprlib import repr as abbreviate
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.metrics.evaluation import Baseline
from seqwise.tasks.training_summary import TrainingSummary

PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03)  # of the summed squares of all weights, against the summed loss
MAX_TEXTS = 50_000  # of the training split, evenly spaced; a tenth as many for validation
MAX_WEIGHTS = 4_000_000  # 16 MB; with many labels only the most frequent features get weights
NUM_ITERATIONS = 100  # of L-BFGS with one penalty, from the weights of the one before


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix (N, F) in CSR format: column indices, start of each row, values."""

    indices: Tensor
    starts: Tensor
    values: Tensor
    num_columns: int

    def __matmul__(self, weight: Tensor) -> Tensor:
        return F.embedding_bag(self.indices, weight, self.starts, mode="sum", per_sample_weights=self.values)

    @cached_property
    def transposed(self) -> SparseRows:
        lengths = torch.diff(self.starts, append=torch.tensor([len(self.indices)]))
        rows, order = (
            torch.arange(len(self.starts)).repeat_interleave(lengths),
            torch.argsort(self.indices, stable=True),
        )
        counts = torch.bincount(self.indices, minlength=self.num_columns)
        return SparseRows(rows[order], counts.cumsum(0) - counts, self.values[order], len(self.starts))


@dataclass(frozen=True)
class TfidfVectorizer:
    """Maps token ids of texts to rows of tf-idf values. A feature is a token, or a bigram as one integer."""

    features: np.ndarray  # (F,) int64, in ascending order
    idf: np.ndarray  # (F,) float32
    bigram_base: int = 0  # size of the vocabulary where bigrams are features

    @classmethod
    def fit(cls, rows: Sequence[np.ndarray], max_features: int, bigram_base: int = 0) -> Self:
        """Returns the vectoriser of training texts; of more features the most frequent ones are kept."""
        found = np.concatenate([extract_features(row, bigram_base) for row in rows])
        features, counts = np.unique(found, return_counts=True)
        selected = np.sort(np.argsort(-counts, kind="stable")[:max_features])
        idf = np.log((1 + len(rows)) / (1 + counts[selected])) + 1
        return cls(features[selected], idf.astype(np.float32), bigram_base)

    def transform(self, rows: Sequence[np.ndarray]) -> SparseRows:
        """Returns the rows as a sparse matrix; features that the training texts do not have are ignored."""
        starts, all_indices, all_values, num_entries = [], [], [], 0
        for row in rows:
            found = extract_features(row, self.bigram_base)
            indices = np.minimum(np.searchsorted(self.features, found), len(self.features) - 1)
            indices = indices[self.features[indices] == found]
            starts.append(num_entries)
            num_entries += len(indices)
            all_indices.append(indices)
            all_values.append(self.idf[indices] / max(1e-12, float(np.linalg.norm(self.idf[indices]))))
        return SparseRows(
            torch.from_numpy(np.concatenate(all_indices).astype(np.int64)),
            torch.tensor(starts),
            torch.from_numpy(np.concatenate(all_values).astype(np.float32)),
            len(self.features),
        )


def extract_features(ids: np.ndarray, bigram_base: int = 0) -> np.ndarray:
    """Returns the distinct tokens of a text and, with a base, its bigrams."""
    ids = np.asarray(ids, dtype=np.int64)
    if not bigram_base:
        return np.unique(ids)
    return np.unique(np.concatenate([ids, (ids[:-1] + 1) * bigram_base + ids[1:]]))


@dataclass(frozen=True)
class LogisticRegression:
    """Weights (F, K) and biases (K,) of softmax regression on sparse rows."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def create(cls, features: int, labels: int) -> Self:
        return cls(torch.zeros(features, labels), torch.zeros(labels))

    def fit(self, rows: SparseRows, targets: Tensor, penalty: float) -> None:
        """Minimises the summed cross entropy plus penalty / 2 · ‖weight‖², from the present weights on."""
        parameters = [self.weight, self.bias]
        optimizer = torch.optim.LBFGS(
            parameters, max_iter=NUM_ITERATIONS, history_size=10, line_search_fn="strong_wolfe"
        )
        true = F.one_hot(targets, len(self.bias)).float()

        def compute_loss() -> float:
            scores = rows @ self.weight + self.bias
            error = scores.softmax(-1) - true
            self.weight.grad, self.bias.grad = rows.transposed @ error + penalty * self.weight, error.sum(0)
            squares = penalty / 2 * self.weight.square().sum()
            return float(F.cross_entropy(scores, targets, reduction="sum") + squares)

        optimizer.step(compute_loss)

    def predict(self, rows: SparseRows) -> np.ndarray:
        return (rows @ self.weight + self.bias).argmax(-1).numpy()


@torch.no_grad()
def fit_logistic_regression(
    rows: Mapping[str, Sequence[np.ndarray]], targets: Mapping[str, np.ndarray], labels: int, bigram_base: int = 0
) -> tuple[TfidfVectorizer, LogisticRegression, float]:
    """Returns what is best on the validation split of several penalties, and that penalty.

    `rows` are the token ids of texts and `targets` their label ids, by split.
    """
    sample = {
        split: slice(None, None, -(-len(rows[split]) // limit))
        for split, limit in (("train", MAX_TEXTS), ("valid", MAX_TEXTS // 10))
    }
    texts = {split: list(rows[split][part]) for split, part in sample.items()}
    true = {split: torch.from_numpy(targets[split][part]) for split, part in sample.items()}
    vectorizer = TfidfVectorizer.fit(texts["train"], max(1, MAX_WEIGHTS // labels), bigram_base)
    matrices = {split: vectorizer.transform(each) for split, each in texts.items()}
    model, best = LogisticRegression.create(len(vectorizer.features), labels), None
    for penalty in PENALTIES:  # a weak penalty needs many iterations, unless it starts from nearly the same weights
        model.fit(matrices["train"], true["train"], penalty)
        accuracy = float((model.predict(matrices["valid"]) == true["valid"].numpy()).mean())
        if best is None or accuracy >= best[0]:
            best = accuracy, penalty, LogisticRegression(model.weight.clone(), model.bias.clone())
    assert best is not None
    return vectorizer, best[2], best[1]


# As baselines of a run


def fit_baselines(
    rows: Mapping[str, Sequence[np.ndarray]], targets: Mapping[str, np.ndarray], labels: int
) -> dict[str, np.ndarray]:
    """Returns arrays from which `compute_baselines` restores both baselines."""
    vectorizer, model, _ = fit_logistic_regression(rows, targets, labels)
    return {
        "label_counts": np.bincount(targets["train"], minlength=labels),
        "features": vectorizer.features,
        "idf": vectorizer.idf,
        "weight": model.weight.numpy(),
        "bias": model.bias.numpy(),
    }


def compute_baselines(
    training: TrainingSummary | None, rows: Sequence[np.ndarray], targets: np.ndarray, labels: Sequence[str], token: str
) -> list[Baseline]:
    """Returns the accuracy of both baselines on texts (token ids) with known labels; `token` is what a token is."""
    if training is None:
        return []
    arrays = training.arrays
    label = int(arrays["label_counts"].argmax())
    always = f"It always predicts {abbreviate(labels[label])}, the most frequent label of the training split."
    model = LogisticRegression(torch.from_numpy(arrays["weight"]), torch.from_numpy(arrays["bias"]))
    predicted = model.predict(TfidfVectorizer(arrays["features"], arrays["idf"]).transform(rows))
    about = f"Logistic regression on the {token} of the text, whatever their order (tf-idf, L2 penalty)."
    return [
        Baseline(f"bag of {token}", float((predicted == targets).mean()), about),
        Baseline("most frequent label", float((targets == label).mean()), always),
    ]
