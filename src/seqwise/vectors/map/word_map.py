"""`WordMap`: words with points and clusters, ready to be drawn. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqwise.errors import UsageError
from seqwise.vectors.map.projection import MIN_WORDS, By, ProgressCallback, project
from seqwise.vectors.search import normalize

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

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


MAX_WORDS = 10_000  # a page with more is slow to drag

# A colour per cluster, dark enough for text on white, and the same hues for a dark page.
COLOURS = (
    *("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0e7490"),
    *("#a16207", "#be185d", "#4d7c0f", "#4338ca", "#57534e", "#0f766e"),
)
COLOURS_ON_DARK = (
    *("#7db3f0", "#fb923c", "#4ade80", "#c084fc", "#f87171", "#22d3ee"),
    *("#facc15", "#f472b6", "#a3e635", "#818cf8", "#a8a29e", "#2dd4bf"),
)


@dataclass(frozen=True)
class WordMap:
    """Words on the plane. `points` are centred at 0 and scaled so that the longer side is 2; up is positive."""

    title: str
    description: str  # how the points were computed
    words: tuple[str, ...]  # named words first, then by frequency
    points: np.ndarray  # (N, 2)
    clusters: np.ndarray  # (N,)
    cluster_names: tuple[str, ...]  # per cluster its most central words
    num_named: int  # the first words, which were named by the user


def choose_frequent(keyed: KeyedVectors, count: int, skip: int = 0) -> tuple[str, ...]:
    """Returns the `count` most frequent words after the first `skip`."""
    if skip < 0 or count < MIN_WORDS:
        raise UsageError(
            f"expected at least {MIN_WORDS} words, and 0 or more to skip; received count {count} and skip {skip}."
        )
    words = tuple(keyed.words[skip : skip + count])
    if len(words) < MIN_WORDS:
        raise UsageError(
            f"a map needs at least {MIN_WORDS} words; after the first {skip:,} of {len(keyed):,} remain {len(words)}.",
            repair="Skip fewer.",
        )
    return words


def choose_neighbourhood(keyed: KeyedVectors, words: Sequence[str], count: int) -> tuple[str, ...]:
    """Returns the words and then the `count` nearest neighbours of each, without repetitions."""
    if count < 0:
        raise UsageError(f"count: expected 0 neighbours or more of each word; received {count}.")
    named = tuple(dict.fromkeys(words))
    neighbours = {each.word for word in named for each in (keyed.nearest(word, n=count) if count else ())}
    selection = (*named, *sorted(neighbours.difference(named), key=keyed.index))
    if len(selection) < MIN_WORDS:
        raise UsageError(
            f"a map needs at least {MIN_WORDS} words; received {len(selection)}.",
            repair="Name more words, or show more neighbours of each.",
        )
    return selection


def build_word_map(
    keyed: KeyedVectors,
    words: Sequence[str],
    title: str,
    *,
    num_named: int = 0,
    by: By | None = None,
    seed: int = 0,
    clusters: int | None = None,
    progress: ProgressCallback | None = None,
) -> WordMap:
    """Projects and clusters words; the first `num_named` of them are emphasised."""
    if len(words) > MAX_WORDS:
        repair = "Name fewer words, or show fewer neighbours of each." if num_named else "Show fewer words."
        raise UsageError(f"a map shows at most {MAX_WORDS:,} words; received {len(words):,}.", repair=repair)
    vectors = np.stack([normalize(keyed.vector(word)) for word in words])
    groups = cluster(vectors, clusters, seed)  # first, because it checks its arguments and t-SNE is slow
    projection = project(vectors, by, seed, progress)
    names = tuple(", ".join(words[at] for at in members[:2]) for members in groups.members)
    points = _fit_into_box(projection.points)
    return WordMap(title, projection.description, tuple(words), points, groups.labels, names, num_named)


def _fit_into_box(points: np.ndarray) -> np.ndarray:
    """Scales both axes by one factor into the box from -1 to 1."""
    low, high = points.min(axis=0), points.max(axis=0)
    return (points - (low + high) / 2) * 2 / (float((high - low).max()) or 1.0)
