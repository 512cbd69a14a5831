"""Word vectors: their map, nearest words, analogies and similarities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.errors import UsageError, pluralize
from seqwise.page.figures import ScatterPlot
from seqwise.page.packing import pack_figure
from seqwise.studio.worker import Context
from seqwise.vectors.formats import load_vectors
from seqwise.vectors.keyed import KeyedVectors, Neighbour
from seqwise.vectors.search import find_similar_words

MAX_FILES = 2  # in memory: two can be compared by switching between them
NUM_EXAMPLES = 2_000  # words that inputs complete
NUM_SUGGESTIONS = 5
MAX_AROUND = 300  # neighbours on a map around a word: beyond, they are hardly related

Source = dict[str, Any]


@dataclass
class Vectors:
    """Vectors in memory."""

    keyed: KeyedVectors
    ranked: Sequence[str]  # words, most frequent first
    messages: list[str] = field(default_factory=list)  # what was wrong with the file
    vocabularies: dict[str, list[str]] = field(default_factory=dict)  # of a run: its embeddings by vocabulary
    find: Callable[[str], list[str]] = lambda word: []  # of a run: the tokens of a word


_files: dict[tuple, Vectors] = {}  # by path, size and time; the one that was used last is the last


def open_vectors(context: Context, source: Source) -> dict[str, Any]:
    """Returns what the page shows of a file before a word is chosen."""
    vectors = _load(context, source)
    keyed = vectors.keyed
    settings = keyed.about.get("settings")
    training = [settings.get("method") if isinstance(settings, dict) else None, keyed.about.get("corpus")]
    return {
        "num_words": len(keyed),
        "dim": keyed.dim,
        "num_bytes": keyed.matrix.nbytes,
        "has_counts": keyed.counts is not None,
        "has_subwords": keyed.subwords is not None,
        "training": [value for value in training if isinstance(value, str)],  # method, corpus
        "words": list(vectors.ranked[:NUM_EXAMPLES]),
        "messages": vectors.messages,
        "vocabularies": vectors.vocabularies,
    }


def map_vectors(
    context: Context, source: Source, count: int, skip: int, around: str | None, method: str | None
) -> dict[str, Any]:
    """Returns a map of the most frequent words after the first `skip`, or of a word with its nearest ones."""
    from seqwise.vectors.map.word_map import build_word_map, choose_neighbourhood

    vectors = _load(context, source)
    if around is not None:
        (word,), unknown = _find_words(vectors, [around])
        if unknown:
            return {"unknown": unknown}
        words = choose_neighbourhood(vectors.keyed, [word], min(count, MAX_AROUND))
        title = f"{word} and its {pluralize(len(words) - 1, 'nearest words')}"
    else:
        words = tuple(vectors.ranked[skip : skip + count])
        first, last = f"{skip + 1:,}", f"{skip + len(words):,}"
        title = f"Words {first} to {last} by frequency" if skip else f"The {last} most frequent words"
    word_map = build_word_map(
        vectors.keyed,
        words,
        title,
        num_highlighted=int(around is not None),
        by=method,  # type: ignore[arg-type]
        progress=context.report_progress,
    )
    names = _number_repeated(word_map.cluster_names)
    figure = ScatterPlot(
        title=title,
        x=np.round(word_map.points[:, 0], 4),
        y=np.round(word_map.points[:, 1], 4),
        names=word_map.words,
        x_label="",
        y_label="",
        groups=[names[cluster] for cluster in word_map.clusters],
        is_labelled=True,
    )
    return {"figure": pack_figure(figure), "description": word_map.description}


def find_nearest(context: Context, source: Source, word: str, count: int) -> dict[str, Any]:
    """Returns the words nearest to a word by cosine."""
    vectors = _load(context, source)
    (found,), unknown = _find_words(vectors, [word])
    if unknown:
        return {"unknown": unknown}
    keyed = vectors.keyed
    return {
        "word": found,
        "is_composed": found not in keyed,
        "count": keyed.count(found),
        "norm": float(np.linalg.norm(keyed.vector(found).astype(np.float64))),
        "nearest": _describe(keyed, keyed.nearest(found, n=count)),
    }


def solve_analogy(context: Context, source: Source, a: str, b: str, c: str, count: int, method: str) -> dict[str, Any]:
    """Returns words that are to c as b is to a."""
    vectors = _load(context, source)
    (a, b, c), unknown = _find_words(vectors, [a, b, c])
    if unknown:
        return {"unknown": unknown}
    answers = vectors.keyed.analogy(a, b, c, n=count, by=method)  # type: ignore[arg-type]
    return {"words": [a, b, c], "answers": _describe(vectors.keyed, answers)}


def compute_similarity(context: Context, source: Source, a: str, b: str) -> dict[str, Any]:
    """Returns the cosine of two words, and the rank of each among the neighbours of the other."""
    vectors = _load(context, source)
    (a, b), unknown = _find_words(vectors, [a, b])
    if unknown:
        return {"unknown": unknown}
    keyed = vectors.keyed
    return {
        "words": [a, b],
        "cosine": keyed.similarity(a, b),
        "dot": keyed.similarity(a, b, by="dot"),
        "ranks": [_compute_rank(keyed, a, b), _compute_rank(keyed, b, a)],
    }


def _compute_rank(keyed: KeyedVectors, word: str, other: str) -> int | None:
    """Returns which neighbour of `word` the `other` is, from 1; None for a word that is not in the vocabulary."""
    if other not in keyed or word == other:
        return None
    cosines = keyed.matrix @ (keyed.vector(word) / max(float(np.linalg.norm(keyed.vector(word))), 1e-30)) / keyed.norms
    is_nearer = cosines > cosines[keyed.index(other)]
    if word in keyed:
        is_nearer[keyed.index(word)] = False
    return int(is_nearer.sum()) + 1


def _load(context: Context, source: Source) -> Vectors:
    if "embedding" in source:
        return _load_embedding(context, **source)
    path = Path(source["path"])
    status = path.stat()
    key = str(path), status.st_size, status.st_mtime_ns
    vectors = _files.pop(key, None)
    if vectors is None:
        while len(_files) >= MAX_FILES:
            del _files[next(iter(_files))]
        messages: list[str] = []
        keyed = load_vectors(path, progress=context.report_progress, log=messages.append)
        vectors = Vectors(keyed, keyed.words, messages)
    _files[key] = vectors
    return vectors


def _load_embedding(context: Context, path: str, vocabulary: str, embedding: str) -> Vectors:
    from seqwise.lens.embeddings import list_vocabularies

    known = list_vocabularies(context.load(path))
    if not known:
        fix = "Choose a neural model of a task that reads text."
        raise UsageError(f"{Path(path).name} has no embedding of words.", fix=fix)
    chosen = next((each for each in known if each.name == vocabulary), known[0])
    keyed = chosen.embeddings.get(embedding) or chosen.embeddings["input"]
    names = {each.name: list(each.embeddings) for each in known}
    return Vectors(keyed, chosen.rank_tokens(), vocabularies=names, find=chosen.find)


def _find_words(vectors: Vectors, words: Sequence[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns the words as the vectors spell them, and those that have no vector, each with similar ones."""
    found, unknown = [], []
    for word in words:
        tokens = [word] if word in vectors.keyed else vectors.find(word)
        if len(tokens) != 1:  # a model may divide a word into several tokens
            try:
                vectors.keyed.vector(word)  # composed of n-grams
                tokens = [word]
            except UsageError:
                unknown.append({"word": word, "suggestions": [*tokens, *_suggest(vectors, word)][:NUM_SUGGESTIONS]})
        found.append(tokens[0] if tokens else word)
    return found, unknown


def _suggest(vectors: Vectors, word: str) -> list[str]:
    variants = [each for each in (word.lower(), word.capitalize(), word.upper()) if each in vectors.keyed]
    return list(dict.fromkeys([*variants, *find_similar_words(word, vectors.ranked, NUM_SUGGESTIONS)]))


def _describe(keyed: KeyedVectors, neighbours: Sequence[Neighbour]) -> list[dict[str, Any]]:
    return [{"word": each.word, "cosine": each.score, "count": keyed.count(each.word)} for each in neighbours]


def _number_repeated(names: Sequence[str]) -> list[str]:
    """Returns names that all differ."""
    return [f"{name} ({index + 1})" if names.index(name) < index else name for index, name in enumerate(names)]
