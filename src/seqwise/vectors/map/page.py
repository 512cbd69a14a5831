"""Renders a `WordMap` as one interactive HTML page with zoom, search and neighbours, which loads no other file.

The layout and its script are in `page.html`. Words are untrusted text: they are embedded as JSON in which no character
can end a tag, and the script inserts them with `textContent`, never as HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.vectors.map.word_map import COLOURS, COLOURS_ON_DARK, WordMap
from seqwise.vectors.search import find_top_rows, normalize

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

NUM_NEIGHBOURS = 8
MAX_COSINES = 1 << 23  # in memory at once: 32 MB

ScoredWords = list[tuple[str, float]]


def find_neighbours(
    keyed: KeyedVectors, words: Sequence[str], n: int, progress: ProgressCallback | None = None
) -> list[ScoredWords]:
    """Returns the n nearest words of the vocabulary to each of `words`, by cosine, without the word itself."""
    neighbours: list[ScoredWords] = []
    step = max(1, MAX_COSINES // len(keyed))
    for start in range(0, len(words), step):
        block = words[start : start + step]
        cosines = np.stack([normalize(keyed.vector(word)) for word in block]) @ keyed.matrix.T
        cosines /= keyed.norms
        for word, scores in zip(block, cosines):
            own_rows = [keyed.index(word)] if word in keyed else []
            neighbours.append([(keyed.words[row], float(scores[row])) for row in find_top_rows(scores, n, own_rows)])
        if progress:
            progress(len(neighbours), len(words))
    return neighbours


def build_page(word_map: WordMap, keyed: KeyedVectors, progress: ProgressCallback | None = None) -> str:
    """Returns the HTML text."""
    neighbours = find_neighbours(keyed, word_map.words, NUM_NEIGHBOURS, progress)
    parts = {
        "TITLE": escape(word_map.title),
        "DESCRIPTION": escape(word_map.description),
        "COUNT": f"{len(word_map.words):,}",
        "DATA": script_json(_build_data(word_map, keyed, neighbours)),
    }
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    # In one pass, so that a word that looks like a placeholder is not replaced.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda placeholder: parts[placeholder[1]], template)


def script_json(value: Any) -> str:
    """Returns ASCII JSON that is safe inside a script tag."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _build_data(word_map: WordMap, keyed: KeyedVectors, neighbours: list[ScoredWords]) -> dict[str, Any]:
    index = {word: number for number, word in enumerate(word_map.words)}
    return {
        "words": word_map.words,
        "points": [round(float(value), 4) for value in word_map.points.ravel()],
        "clusters": word_map.clusters.tolist(),
        "clusterNames": word_map.cluster_names,
        "numNamed": word_map.num_named,
        "counts": None if keyed.counts is None else [keyed.count(word) for word in word_map.words],
        # Each neighbour: the word, its cosine, and its index on this map or -1.
        "neighbours": [[[word, round(score, 3), index.get(word, -1)] for word, score in each] for each in neighbours],
        "colours": {"light": COLOURS, "dark": COLOURS_ON_DARK},
    }
