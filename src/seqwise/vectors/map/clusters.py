"""Spherical k-means on unit vectors in the original space. It knows nothing of words or of the projection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqwise.errors import UsageError

MAX_CLUSTERS = 12  # more colours cannot be told apart
NUM_STARTS, MAX_ITERATIONS = 4, 60


@dataclass(frozen=True)
class Clusters:
    """Clusters of vectors, numbered by falling size."""

    labels: np.ndarray  # (N,) int64: the cluster of each vector
    members: tuple[tuple[int, ...], ...]  # per cluster its vectors, most central first


def default_num_clusters(num_vectors: int) -> int:
    """Returns half the square root of the number of vectors, from 2 to MAX_CLUSTERS."""
    return max(1, min(MAX_CLUSTERS, num_vectors, max(2, round(num_vectors**0.5 / 2))))


def cluster(vectors: np.ndarray, count: int | None = None, seed: int = 0) -> Clusters:
    """Divides unit vectors (N, D) into at most `count` clusters: the best of NUM_STARTS random initialisations."""
    if count is None:
        count = default_num_clusters(len(vectors))
    if not 1 <= count <= MAX_CLUSTERS:
        raise UsageError(f"count: expected 1 to {MAX_CLUSTERS} clusters; received {count}.")
    rng = np.random.default_rng(seed)
    vectors = np.asarray(vectors, np.float64)
    count = min(count, len(vectors))
    runs = [_run_kmeans(vectors, _choose_centres(vectors, count, rng)) for _ in range(NUM_STARTS)]
    labels, cosines = max(runs, key=lambda run: run[1].sum())
    return _sort_clusters(labels, cosines)


def _choose_centres(vectors: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Returns initial centres by k-means++ (Arthur and Vassilvitskii 2007).

    Each is drawn with a probability proportional to its squared distance from the nearest centre before it.
    """
    rows = [int(rng.integers(len(vectors)))]
    distances = np.full(len(vectors), np.inf)
    while len(rows) < count:
        distances = np.minimum(distances, np.square(vectors - vectors[rows[-1]]).sum(axis=1))
        if not distances.any():
            break  # fewer different vectors than clusters
        rows.append(int(rng.choice(len(vectors), p=distances / distances.sum())))
    return vectors[rows]


def _run_kmeans(vectors: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cluster of each vector, (N,), and its cosine to the centre, (N,)."""
    labels = np.full(len(vectors), -1)
    for _ in range(MAX_ITERATIONS):
        cosines = vectors @ centres.T
        nearest = cosines.argmax(axis=1)
        if (nearest == labels).all():
            break
        labels = nearest
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, vectors)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(norms > 0, sums / np.where(norms > 0, norms, 1.0), centres)
    cosines = vectors @ centres.T
    return labels, cosines[np.arange(len(labels)), labels]


def _sort_clusters(labels: np.ndarray, cosines: np.ndarray) -> Clusters:
    """Numbers clusters by size without empty ones; equal sizes keep the order of their first member."""
    present, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    order = sorted(range(len(present)), key=lambda index: (-sizes[index], first[index]))
    new_labels = {int(present[index]): new for new, index in enumerate(order)}
    labels = np.array([new_labels[int(old)] for old in labels], dtype=np.int64)
    by_centrality = np.argsort(-cosines, kind="stable")
    members = tuple(tuple(int(row) for row in by_centrality if labels[row] == new) for new in range(len(order)))
    return Clusters(labels, members)
