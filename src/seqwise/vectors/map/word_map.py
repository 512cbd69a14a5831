"""`WordMap`: everything a drawing of the map needs. Here words become points and groups; nothing is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqwise.errors import UsageError
from seqwise.vectors.map.clusters import group
from seqwise.vectors.map.projection import MIN_WORDS, By, ProgressCallback, project
from seqwise.vectors.search import normalize

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

MAX_WORDS = 10_000  # words of a page that can still be dragged without jerks

# A colour per group, dark enough for text on white; and its twin for a dark page.
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
    """Words at their places. `points` lie in a box around 0 whose longer side is 2; up is positive."""

    title: str
    how: str
    words: tuple[str, ...]  # those that were asked for first, then by frequency
    points: np.ndarray  # (N, 2)
    groups: np.ndarray  # (N,)
    names: tuple[str, ...]  # per group its most central words
    asked: int  # so many of the first words were asked for by name


def choose_frequent(keyed: KeyedVectors, count: int, skip: int = 0) -> tuple[str, ...]:
    """The most frequent words, without the `skip` most frequent of all."""
    if skip < 0 or count < MIN_WORDS:
        raise UsageError(
            f"expected at least {MIN_WORDS} words, and 0 or more to skip; received count {count} and skip {skip}."
        )
    found = keyed.words[skip : skip + count]
    if len(found) < MIN_WORDS:
        raise UsageError(
            f"a map needs at least {MIN_WORDS} words; after the first {skip:,} of {len(keyed):,} remain {len(found)}.",
            repair="Skip fewer.",
        )
    return tuple(found)


def choose_neighbourhood(keyed: KeyedVectors, words: Sequence[str], count: int) -> tuple[str, ...]:
    """The words, and with each its `count` nearest. One that is near to several comes once."""
    if count < 0:
        raise UsageError(f"count: expected 0 neighbours or more of each word; received {count}.")
    asked = tuple(dict.fromkeys(words))
    near = {one.word for word in asked for one in (keyed.nearest(word, n=count) if count else ())}
    found = (*asked, *sorted(near.difference(asked), key=keyed.index))
    if len(found) < MIN_WORDS:
        raise UsageError(
            f"a map needs at least {MIN_WORDS} words; received {len(found)}.",
            repair="Name more words, or show more neighbours of each.",
        )
    return found


def chart(
    keyed: KeyedVectors,
    words: Sequence[str],
    title: str,
    *,
    asked: int = 0,
    by: By | None = None,
    seed: int = 0,
    clusters: int | None = None,
    progress: ProgressCallback | None = None,
) -> WordMap:
    """Place and group some words; the first `asked` of them are those that somebody named."""
    if len(words) > MAX_WORDS:
        repair = "Name fewer words, or show fewer neighbours of each." if asked else "Show fewer words."
        raise UsageError(f"a map shows at most {MAX_WORDS:,} words; received {len(words):,}.", repair=repair)
    vectors = np.stack([normalize(keyed.vector(word)) for word in words])
    groups = group(vectors, clusters, seed)  # before the projection, which takes its time and knows no wrong settings
    found = project(vectors, by, seed, progress)
    names = tuple(", ".join(words[at] for at in members[:2]) for members in groups.central)
    return WordMap(title, found.how, tuple(words), _fit_into_box(found.points), groups.of, names, asked)


def _fit_into_box(points: np.ndarray) -> np.ndarray:
    """Into the box from -1 to 1, both directions on one scale."""
    low, high = points.min(axis=0), points.max(axis=0)
    return (points - (low + high) / 2) * 2 / (float((high - low).max()) or 1.0)
