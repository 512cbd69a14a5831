"""`WordMap`: words with points and clusters, ready to be drawn. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.errors import UsageError
from seqwise.vectors.map.projection import ProjectionMethod, project_vectors
from seqwise.vectors.search import normalize

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

MAX_CLUSTERS = 12  # more colours cannot be distinguished
NUM_INITIALISATIONS, MAX_ITERATIONS = 4, 60  # of k-means
MIN_WORDS, MAX_WORDS = 3, 10_000  # of a map: fewer are meaningless, and with more a page is slow to drag

# A colour per cluster, dark enough for text on white, and the same hues for a dark page.
COLOURS = (
    *("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0e7490"),
    *("#a16207", "#be185d", "#4d7c0f", "#4338ca", "#57534e", "#0f766e"),
)
COLOURS_ON_DARK = (
    *("#7db3f0", "#fb923c", "#4ade80", "#c084fc", "#f87171", "#22d3ee"),
    *("#facc15", "#f472b6", "#a3e635", "#818cf8", "#a8a29e", "#2dd4bf"),
)


def choose_num_clusters(num_vectors: int) -> int:
    """Returns half the square root of the number of vectors, from 2 to MAX_CLUSTERS, at most one per vector."""
    return max(1, min(MAX_CLUSTERS, num_vectors, max(2, round(num_vectors**0.5 / 2))))


def cluster_vectors(
    vectors: np.ndarray, num_clusters: int | None = None, seed: int = 0
) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """Divides unit vectors (N, D) into at most `num_clusters` clusters by spherical k-means, the largest first.

    Returns the cluster of each vector, (N,) int64, and for each cluster its vectors, most central first. It is the best
    of NUM_INITIALISATIONS random initialisations.
    """
    vectors, rng = np.asarray(vectors, np.float64), np.random.default_rng(seed)
    num_clusters = min(choose_num_clusters(len(vectors)) if num_clusters is None else num_clusters, len(vectors))
    initialisations = [_choose_centres(vectors, num_clusters, rng) for _ in range(NUM_INITIALISATIONS)]
    runs = [_run_kmeans(vectors, centres) for centres in initialisations]
    labels, cosines = max(runs, key=lambda run: run[1].sum())
    used_labels, first_members, sizes = np.unique(labels, return_index=True, return_counts=True)
    order = np.lexsort((first_members, -sizes))  # clusters of equal size keep the order of their first members
    labels = np.argsort(order)[np.searchsorted(used_labels, labels)]
    by_centrality = np.argsort(-cosines, kind="stable")
    members = tuple(tuple(by_centrality[labels[by_centrality] == label].tolist()) for label in range(len(order)))
    return labels, members


def _choose_centres(vectors: np.ndarray, num_clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Returns initial centres by k-means++ (Arthur and Vassilvitskii 2007).

    Each is a vector drawn with a probability proportional to its squared distance from the nearest earlier centre.
    """
    rows = [int(rng.integers(len(vectors)))]
    distances = np.full(len(vectors), np.inf)
    while len(rows) < num_clusters:
        distances = np.minimum(distances, np.square(vectors - vectors[rows[-1]]).sum(axis=1))
        if not distances.any():
            break  # fewer distinct vectors than clusters
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


@dataclass(frozen=True)
class WordMap:
    """Words on the plane. `points` are centred at 0 and scaled so that the longer side is 2; up is positive."""

    title: str
    description: str  # how the points were computed
    words: tuple[str, ...]  # highlighted words first, then by frequency
    points: np.ndarray  # (N, 2)
    clusters: np.ndarray  # (N,): the cluster of each word
    cluster_names: tuple[str, ...]  # the two most central words of each cluster
    num_highlighted: int  # words that the user named; they come first


def choose_neighbourhood(vectors: KeyedVectors, words: Sequence[str], count: int) -> tuple[str, ...]:
    """Returns the words and then the `count` nearest neighbours of each, without repetitions."""
    unique_words = tuple(dict.fromkeys(words))
    neighbours = {each.word for word in unique_words for each in (vectors.nearest(word, n=count) if count else ())}
    return (*unique_words, *sorted(neighbours.difference(unique_words), key=vectors.index))


def build_word_map(
    vectors: KeyedVectors,
    words: Sequence[str],
    title: str,
    *,
    num_highlighted: int = 0,
    by: ProjectionMethod | None = None,
    seed: int = 0,
    num_clusters: int | None = None,
    progress: ProgressCallback | None = None,
) -> WordMap:
    """Projects and clusters words, the first `num_highlighted` of which are highlighted."""
    if not MIN_WORDS <= len(words) <= MAX_WORDS:
        problem = f"a map shows {MIN_WORDS} to {MAX_WORDS:,} words; received {len(words):,}."
        change = "fewer" if len(words) > MAX_WORDS else "more"
        fix = f"Name {change} words, or show {change} neighbours of each."
        if not num_highlighted:
            fix = "Show fewer words." if change == "fewer" else "Show more words, or skip fewer."
        raise UsageError(problem, fix=fix)
    unit_vectors = np.stack([normalize(vectors.vector(word)) for word in words])
    labels, members = cluster_vectors(unit_vectors, num_clusters, seed)
    points, description = project_vectors(unit_vectors, by, seed, progress)
    low, high = points.min(axis=0), points.max(axis=0)
    points = (points - (low + high) / 2) * 2 / (float((high - low).max()) or 1.0)
    names = tuple(", ".join(words[row] for row in rows[:2]) for rows in members)
    return WordMap(title, description, tuple(words), points, labels, names, num_highlighted)
