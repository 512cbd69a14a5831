"""Neighbourhoods: k-means on unit vectors, by cosine, in the original space. It knows nothing of words or the plane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqwise.errors import UsageError

MAX_CLUSTERS = 12  # more colours cannot be told apart
NUM_STARTS, MAX_ITERATIONS = 4, 60


@dataclass(frozen=True)
class Groups:
    """Which group each vector is in, the largest group first."""

    of: np.ndarray  # (N,) int64
    central: tuple[tuple[int, ...], ...]  # per group its members, the most central first


def default_count(vectors: int) -> int:
    """How many groups are shown unless asked otherwise: half the root of the number of vectors."""
    return max(1, min(MAX_CLUSTERS, vectors, max(2, round(vectors**0.5 / 2))))


def group(vectors: np.ndarray, count: int | None = None, seed: int = 0) -> Groups:
    """Divide unit vectors (N, D) into at most `count` groups: the best of some starts drawn with `seed`."""
    if count is None:
        count = default_count(len(vectors))
    if not 1 <= count <= MAX_CLUSTERS:
        raise UsageError(f"count: expected 1 to {MAX_CLUSTERS} groups; received {count}.")
    draw = np.random.default_rng(seed)
    vectors = np.asarray(vectors, np.float64)
    found = [_run_kmeans(vectors, _choose_centres(vectors, min(count, len(vectors)), draw)) for _ in range(NUM_STARTS)]
    of, fit = max(found, key=lambda one: one[1].sum())
    return _sort_clusters(of, fit)


def _choose_centres(vectors: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """Beginnings far from each other: each is drawn with odds that grow with its distance from those before
    (Arthur and Vassilvitskii 2007)."""
    chosen = [int(draw.integers(len(vectors)))]
    distances = np.full(len(vectors), np.inf)
    while len(chosen) < count:
        distances = np.minimum(distances, np.square(vectors - vectors[chosen[-1]]).sum(axis=1))
        if not distances.any():
            break  # fewer different vectors than groups
        chosen.append(int(draw.choice(len(vectors), p=distances / distances.sum())))
    return vectors[chosen]


def _run_kmeans(vectors: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N,) groups, and the cosine of each vector to its centre."""
    of = np.full(len(vectors), -1)
    for _ in range(MAX_ITERATIONS):
        cosines = vectors @ centres.T
        nearest = cosines.argmax(axis=1)
        if (nearest == of).all():
            break
        of = nearest
        sums = np.zeros_like(centres)
        np.add.at(sums, of, vectors)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1.0), centres)
    cosines = vectors @ centres.T
    return of, cosines[np.arange(len(of)), of]


def _sort_clusters(of: np.ndarray, fit: np.ndarray) -> Groups:
    """Groups numbered by size; empty ones are gone. Equal sizes keep the order of their first member."""
    present, first, sizes = np.unique(of, return_index=True, return_counts=True)
    order = sorted(range(len(present)), key=lambda at: (-sizes[at], first[at]))
    number = {int(present[at]): new for new, at in enumerate(order)}
    renamed = np.array([number[int(old)] for old in of], dtype=np.int64)
    inward = np.lexsort((np.arange(len(fit)), -fit))
    central = tuple(tuple(int(at) for at in inward if renamed[at] == new) for new in range(len(order)))
    return Groups(renamed, central)
