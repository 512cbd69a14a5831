"""Baselines of classification: the most frequent label, and logistic regression on the words of a text.

The logistic regression ignores the order of the words. Its features are binary tf-idf values: if a token occurs,
ln((1 + N) / (1 + df)) + 1, and the vector of a text is normalised to length 1. L-BFGS fits the weights; the L2 penalty
is chosen on the validation split. For `benchmarks/bag_of_words.py` bigrams are features too. The module knows nothing
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

PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03)  # L2 penalties, as `LogisticRegression.fit` defines them
MAX_TEXTS = 50_000  # of the training split, evenly spaced; a tenth as many for validation
MAX_WEIGHTS = 4_000_000  # 16 MB; with many labels only the most frequent features get weights
MAX_ITERATIONS = 100  # of L-BFGS with one penalty, from the weights of the penalty before


@dataclass(frozen=True)
class SparseMatrix:
    """A sparse matrix (N, F) in CSR format."""

    indices: Tensor  # column of each value
    starts: Tensor  # (N,) index of the first value of each row
    values: Tensor
    num_columns: int

    def __matmul__(self, weight: Tensor) -> Tensor:
        return F.embedding_bag(self.indices, weight, self.starts, mode="sum", per_sample_weights=self.values)

    @cached_property
    def transposed(self) -> SparseMatrix:
        lengths = torch.diff(self.starts, append=torch.tensor([len(self.indices)]))
        rows = torch.arange(len(self.starts)).repeat_interleave(lengths)
        order = torch.argsort(self.indices, stable=True)
        counts = torch.bincount(self.indices, minlength=self.num_columns)
        return SparseMatrix(rows[order], counts.cumsum(0) - counts, self.values[order], len(self.starts))


@dataclass(frozen=True)
class TfidfVectorizer:
    """Maps texts, as arrays of token ids, to rows of tf-idf values. A feature is a token, or a bigram as an integer."""

    features: np.ndarray  # (F,) int64, in ascending order
    idf: np.ndarray  # (F,) float32
    bigram_base: int = 0  # size of the vocabulary if bigrams are features, else 0

    @classmethod
    def fit(cls, texts: Sequence[np.ndarray], max_features: int, bigram_base: int = 0) -> Self:
        """Returns the vectoriser of training texts, with the most frequent features."""
        text_features = np.concatenate([extract_features(ids, bigram_base) for ids in texts])
        features, counts = np.unique(text_features, return_counts=True)
        selected = np.sort(np.argsort(-counts, kind="stable")[:max_features])
        idf = np.log((1 + len(texts)) / (1 + counts[selected])) + 1
        return cls(features[selected], idf.astype(np.float32), bigram_base)

    def transform(self, texts: Sequence[np.ndarray]) -> SparseMatrix:
        """Returns a sparse row per text; features that the training texts do not have are ignored."""
        starts, all_indices, all_values, num_entries = [], [], [], 0
        for ids in texts:
            text_features = extract_features(ids, self.bigram_base)
            indices = np.minimum(np.searchsorted(self.features, text_features), len(self.features) - 1)
            indices = indices[self.features[indices] == text_features]
            starts.append(num_entries)
            num_entries += len(indices)
            all_indices.append(indices)
            all_values.append(self.idf[indices] / max(1e-12, float(np.linalg.norm(self.idf[indices]))))
        return SparseMatrix(
            torch.from_numpy(np.concatenate(all_indices).astype(np.int64)),
            torch.tensor(starts),
            torch.from_numpy(np.concatenate(all_values).astype(np.float32)),
            len(self.features),
        )


def extract_features(ids: np.ndarray, bigram_base: int = 0) -> np.ndarray:
    """Returns the distinct tokens of a text and, unless `bigram_base` is 0, its bigrams."""
    ids = np.asarray(ids, dtype=np.int64)
    if not bigram_base:
        return np.unique(ids)
    return np.unique(np.concatenate([ids, (ids[:-1] + 1) * bigram_base + ids[1:]]))


@dataclass(frozen=True)
class LogisticRegression:
    """Multinomial logistic regression on a sparse matrix with a row per text."""

    weight: Tensor  # (F, K)
    bias: Tensor  # (K,)

    @classmethod
    def create(cls, num_features: int, num_labels: int) -> Self:
        return cls(torch.zeros(num_features, num_labels), torch.zeros(num_labels))

    def fit(self, matrix: SparseMatrix, targets: Tensor, penalty: float) -> None:
        """Minimises the summed cross entropy plus penalty / 2 · ‖weight‖², starting from the present weights."""
        parameters = [self.weight, self.bias]
        optimizer = torch.optim.LBFGS(
            parameters, max_iter=MAX_ITERATIONS, history_size=10, line_search_fn="strong_wolfe"
        )
        one_hot_targets = F.one_hot(targets, len(self.bias)).float()

        def compute_loss() -> float:
            # Autograd would be five times slower: it does not use the transposed matrix.
            scores = matrix @ self.weight + self.bias
            grad_scores = scores.softmax(-1) - one_hot_targets
            self.weight.grad = matrix.transposed @ grad_scores + penalty * self.weight
            self.bias.grad = grad_scores.sum(0)
            squares = penalty / 2 * self.weight.square().sum()
            return float(F.cross_entropy(scores, targets, reduction="sum") + squares)

        optimizer.step(compute_loss)

    def predict(self, matrix: SparseMatrix) -> np.ndarray:
        """Returns the label ids with the highest scores."""
        return (matrix @ self.weight + self.bias).argmax(-1).numpy()


@torch.no_grad()
def fit_logistic_regression(
    texts: Mapping[str, Sequence[np.ndarray]], targets: Mapping[str, np.ndarray], num_labels: int, bigram_base: int = 0
) -> tuple[TfidfVectorizer, LogisticRegression, float]:
    """Returns the vectoriser, the model with the penalty that is best on the validation split, and that penalty.

    `texts` are the token ids of texts and `targets` their label ids, by split.
    """
    samples = {
        split: slice(None, None, -(-len(texts[split]) // limit))
        for split, limit in (("train", MAX_TEXTS), ("valid", MAX_TEXTS // 10))
    }
    sampled_texts = {split: list(texts[split][sample]) for split, sample in samples.items()}
    sampled_targets = {split: torch.from_numpy(targets[split][sample]) for split, sample in samples.items()}
    vectorizer = TfidfVectorizer.fit(sampled_texts["train"], max(1, MAX_WEIGHTS // num_labels), bigram_base)
    matrices = {split: vectorizer.transform(sampled) for split, sampled in sampled_texts.items()}
    model, best = LogisticRegression.create(len(vectorizer.features), num_labels), None
    for penalty in PENALTIES:  # a weak penalty needs many iterations, unless it starts from nearly the same weights
        model.fit(matrices["train"], sampled_targets["train"], penalty)
        accuracy = float((model.predict(matrices["valid"]) == sampled_targets["valid"].numpy()).mean())
        if best is None or accuracy >= best[0]:
            best = accuracy, penalty, LogisticRegression(model.weight.clone(), model.bias.clone())
    assert best is not None
    return vectorizer, best[2], best[1]


# Baselines of a run


def fit_baselines(
    texts: Mapping[str, Sequence[np.ndarray]], targets: Mapping[str, np.ndarray], num_labels: int
) -> dict[str, np.ndarray]:
    """Returns arrays from which `compute_baselines` restores both baselines."""
    vectorizer, model, _ = fit_logistic_regression(texts, targets, num_labels)
    return {
        "label_counts": np.bincount(targets["train"], minlength=num_labels),
        "features": vectorizer.features,
        "idf": vectorizer.idf,
        "weight": model.weight.numpy(),
        "bias": model.bias.numpy(),
    }


def compute_baselines(
    training: TrainingSummary | None,
    texts: Sequence[np.ndarray],
    targets: np.ndarray,
    labels: Sequence[str],
    token_unit: str,
) -> list[Baseline]:
    """Returns the accuracy of both baselines on texts (token ids) with known labels.

    `token_unit` is the plural name of the tokens, such as "words".
    """
    if training is None:
        return []
    arrays = training.arrays
    frequent_label = int(arrays["label_counts"].argmax())
    name = abbreviate(labels[frequent_label])
    model = LogisticRegression(torch.from_numpy(arrays["weight"]), torch.from_numpy(arrays["bias"]))
    predicted = model.predict(TfidfVectorizer(arrays["features"], arrays["idf"]).transform(texts))
    return [
        Baseline(
            f"bag of {token_unit}",
            float((predicted == targets).mean()),
            f"Logistic regression on the {token_unit} of the text, whatever their order (tf-idf, L2 penalty).",
        ),
        Baseline(
            "most frequent label",
            float((targets == frequent_label).mean()),
            f"It always predicts {name}, the most frequent label of the training split.",
        ),
    ]
