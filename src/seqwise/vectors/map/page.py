"""Renders a `WordMap` as one interactive HTML page with zoom, search and neighbours, which loads no other file.

The layout and its script are in `page.html`. Words are untrusted text: they are embedded as JSON in which no character
can end a tag, and the script inserts them with `textContent`, never as HTML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.page.script import dump_json_for_script
from seqwise.printable import escape_xml
from seqwise.vectors.map.word_map import COLOURS, COLOURS_ON_DARK, WordMap
from seqwise.vectors.search import MAX_COSINES, find_top_rows, normalize

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

NUM_NEIGHBOURS = 8  # of a word, shown when it is selected

ScoredWords = list[tuple[str, float]]


def find_neighbours(
    vectors: KeyedVectors, words: Sequence[str], n: int, progress: ProgressCallback | None = None
) -> list[ScoredWords]:
    """Returns the n nearest words of the vocabulary to each of `words`, by cosine, without the word itself."""
    neighbours: list[ScoredWords] = []
    block_size = max(1, MAX_COSINES // len(vectors))
    for start in range(0, len(words), block_size):
        block = words[start : start + block_size]
        cosines = np.stack([normalize(vectors.vector(word)) for word in block]) @ vectors.matrix.T
        cosines /= vectors.norms
        for word, scores in zip(block, cosines):
            own_rows = [vectors.index(word)] if word in vectors else []
            neighbours.append([(vectors.words[row], float(scores[row])) for row in find_top_rows(scores, n, own_rows)])
        if progress:
            progress(len(neighbours), len(words))
    return neighbours


def build_page(word_map: WordMap, vectors: KeyedVectors, progress: ProgressCallback | None = None) -> str:
    """Returns the HTML text."""
    neighbours = find_neighbours(vectors, word_map.words, NUM_NEIGHBOURS, progress)
    values = {
        "TITLE": escape_xml(word_map.title),
        "DESCRIPTION": escape_xml(word_map.description),
        "COUNT": f"{len(word_map.words):,}",
        "DATA": dump_json_for_script(_build_data(word_map, vectors, neighbours)),
    }
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    # In one pass, so that a word that looks like a placeholder is not replaced.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda placeholder: values[placeholder[1]], template)


def _build_data(word_map: WordMap, vectors: KeyedVectors, neighbours: list[ScoredWords]) -> dict[str, Any]:
    """Returns what the script of the page reads."""
    indices = {word: index for index, word in enumerate(word_map.words)}
    return {
        "words": word_map.words,
        "points": [round(float(value), 4) for value in word_map.points.ravel()],
        "clusters": word_map.clusters.tolist(),
        "clusterNames": word_map.cluster_names,
        "numHighlighted": word_map.num_highlighted,
        "counts": None if vectors.counts is None else [vectors.count(word) for word in word_map.words],
        # Each neighbour: the word, its cosine, and its index on this map or -1.
        "neighbours": [[[word, round(score, 3), indices.get(word, -1)] for word, score in each] for each in neighbours],
        "colours": {"light": COLOURS, "dark": COLOURS_ON_DARK},
    }
