"""`WordMap`: words with points and clusters, ready to be drawn. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.errors import UsageError
from seqwise.vectors.map.projection import ProjectionMethod, project
from seqwise.vectors.search import normalize

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

MAX_CLUSTERS = 12  # more colours cannot be told apart
NUM_STARTS, MAX_ITERATIONS = 4, 60  # of k-means
MIN_WORDS, MAX_WORDS = 3, 10_000  # a map of fewer is meaningless, a page with more is slow to drag

# A colour per cluster, dark enough for text on white, and the same hues for a dark page.
COLOURS = (
    *("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0e7490"),
    *("#a16207", "#be185d", "#4d7c0f", "#4338ca", "#57534e", "#0f766e"),
)
COLOURS_ON_DARK = (
    *("#7db3f0", "#fb923c", "#4ade80", "#c084fc", "#f87171", "#22d3ee"),
    *("#facc15", "#f472b6", "#a3e635", "#818cf8", "#a8a29e", "#2dd4bf"),
)


def default_num_clusters(num_vectors: int) -> int:
    """Returns half the square root of the number of vectors, from 2 to MAX_CLUSTERS."""
    return max(1, min(MAX_CLUSTERS, num_vectors, max(2, round(num_vectors**0.5 / 2))))


def cluster(
    vectors: np.ndarray, count: int | None = None, seed: int = 0
) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """Divides unit vectors (N, D) into at most `count` clusters by spherical k-means, numbered by falling size.

    Returns the cluster of each vector, (N,) int64, and per cluster its vectors, most central first. It is the best of
    NUM_STARTS random initialisations.
    """
    vectors, rng = np.asarray(vectors, np.float64), np.random.default_rng(seed)
    count = min(default_num_clusters(len(vectors)) if count is None else count, len(vectors))
    runs = [_run_kmeans(vectors, _choose_centres(vectors, count, rng)) for _ in range(NUM_STARTS)]
    labels, cosines = max(runs, key=lambda run: run[1].sum())
    present, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    order = np.lexsort((first, -sizes))  # equal sizes keep the order of their first member
    labels = np.argsort(order)[np.searchsorted(present, labels)]
    by_centrality = np.argsort(-cosines, kind="stable")
    members = tuple(tuple(by_centrality[labels[by_centrality] == new].tolist()) for new in range(len(order)))
    return labels, members


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


@dataclass(frozen=True)
class WordMap:
    """Words on the plane. `points` are centred at 0 and scaled so that the longer side is 2; up is positive."""

    title: str
    description: str  # how the points were computed
    words: tuple[str, ...]  # named words first, then by frequency
    points: np.ndarray  # (N, 2)
    clusters: np.ndarray  # (N,)
    cluster_names: tuple[str, ...]  # per cluster its most central words
    num_named: int  # how many words the user named; they come first


def choose_neighbourhood(keyed: KeyedVectors, words: Sequence[str], count: int) -> tuple[str, ...]:
    """Returns the words and then the `count` nearest neighbours of each, without repetitions."""
    named_words = tuple(dict.fromkeys(words))
    neighbours = {each.word for word in named_words for each in (keyed.nearest(word, n=count) if count else ())}
    return (*named_words, *sorted(neighbours.difference(named_words), key=keyed.index))


def build_word_map(
    keyed: KeyedVectors,
    words: Sequence[str],
    title: str,
    *,
    num_named: int = 0,
    by: ProjectionMethod | None = None,
    seed: int = 0,
    clusters: int | None = None,
    progress: ProgressCallback | None = None,
) -> WordMap:
    """Projects and clusters words; the first `num_named` of them are emphasised."""
    if not MIN_WORDS <= len(words) <= MAX_WORDS:
        problem = f"a map shows {MIN_WORDS} to {MAX_WORDS:,} words; received {len(words):,}."
        change = "fewer" if len(words) > MAX_WORDS else "more"
        repair = f"Name {change} words, or show {change} neighbours of each."
        if not num_named:
            repair = "Show fewer words." if change == "fewer" else "Show more words, or skip fewer."
        raise UsageError(problem, repair=repair)
    vectors = np.stack([normalize(keyed.vector(word)) for word in words])
    labels, members = cluster(vectors, clusters, seed)
    points, description = project(vectors, by, seed, progress)
    low, high = points.min(axis=0), points.max(axis=0)
    points = (points - (low + high) / 2) * 2 / (float((high - low).max()) or 1.0)
    names = tuple(", ".join(words[row] for row in rows[:2]) for rows in members)
    return WordMap(title, description, tuple(words), points, labels, names, num_named)
