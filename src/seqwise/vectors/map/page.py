"""A `WordMap` as one page to explore: drag, zoom, search, neighbours. It loads nothing from elsewhere.

The layout and its script are in `page.html`. Words are anybody's text: they reach the page as JSON in which no
character can end a tag, and the script only ever sets them as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqwise.vectors.map.projection import ProgressCallback
from seqwise.vectors.map.word_map import COLOURS, COLOURS_ON_DARK, WordMap
from seqwise.vectors.search import find_top_rows, normalize

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

NEIGHBOURS = 8
SCORES = 1 << 23  # numbers compared together: 32 MB

ScoredWords = list[tuple[str, float]]


def neighbours(
    keyed: KeyedVectors, words: Sequence[str], n: int, progress: ProgressCallback | None = None
) -> list[ScoredWords]:
    """The n nearest of all words to each of some, by cosine; many at once, which one product computes."""
    found: list[ScoredWords] = []
    step = max(1, SCORES // len(keyed))
    for start in range(0, len(words), step):
        some = words[start : start + step]
        cosines = np.stack([normalize(keyed.vector(word)) for word in some]) @ keyed.matrix.T
        cosines /= keyed.norms
        for word, scores in zip(some, cosines):
            own = [keyed.index(word)] if word in keyed else []
            found.append([(keyed.words[at], float(scores[at])) for at in find_top_rows(scores, n, own)])
        if progress:
            progress(len(found), len(words))
    return found


def page(chart: WordMap, keyed: KeyedVectors, progress: ProgressCallback | None = None) -> str:
    """The text of the HTML file."""
    near = neighbours(keyed, chart.words, NEIGHBOURS, progress)
    parts = {
        "TITLE": escape(chart.title),
        "HOW": escape(chart.how),
        "COUNT": f"{len(chart.words):,}",
        "DATA": script_json(_data(chart, keyed, near)),
    }
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    # All at once: a word that looks like a place for something else must stay a word.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda place: parts[place[1]], template)


def script_json(value: Any) -> str:
    """JSON that may stand inside a script tag, and in a file of any encoding."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _data(chart: WordMap, keyed: KeyedVectors, near: list[ScoredWords]) -> dict[str, Any]:
    place = {word: number for number, word in enumerate(chart.words)}
    counts = keyed.counts
    return {
        "words": chart.words,
        "points": [round(float(value), 4) for value in chart.points.ravel()],
        "groups": chart.groups.tolist(),
        "names": chart.names,
        "asked": chart.asked,
        "counts": None if counts is None else [_count(keyed, word) for word in chart.words],
        # Each neighbour: the word, its cosine, and its number on this map or -1.
        "near": [[[word, round(score, 3), place.get(word, -1)] for word, score in one] for one in near],
        "colours": {"light": COLOURS, "dark": COLOURS_ON_DARK},
    }


def _count(keyed: KeyedVectors, word: str) -> int | None:
    """How often the word stood in the corpus; None for one composed from its n-grams."""
    return int(keyed.counts[keyed.index(word)]) if keyed.counts is not None and word in keyed else None
