"""`neighbours`: the nearest words in the embedding that a model has learned.

    cosine(a, b) = a·b / (‖a‖ ‖b‖)

A model reads a word by its *input* vector and, unless both matrices are tied, scores it by its *output* vector. Words
are close as inputs if the model treats them alike, as outputs if it predicts them in the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from seqwise.errors import UsageError, check_type
from seqwise.lens.embeddings import Vocabulary, list_vocabularies
from seqwise.lens.neighbour_figures import describe_neighbours, draw_neighbours
from seqwise.lens.occurrences import normalize_rows
from seqwise.lens.subject import Subject, name_run
from seqwise.lens.view import View
from seqwise.training.api import TrainedModel
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.search import suggest_words

NUM_CHOSEN = 4  # words that are chosen without a text, in each vocabulary
NUM_FREQUENT = 500  # most frequent words, of which they are chosen
MIN_LETTERS = (4, 2, 1)  # of a word that is chosen: the first number for which there are enough words
NUM_PAIRS = 5_000  # random pairs with which cosines are compared
NUM_COMPARED = 2_000  # most frequent words, to which these pairs belong: rare words have hardly been trained
NUM_DRAWS = 19  # of a random vocabulary, so that the largest cosine of one more exceeds all of them in 5 % of cases


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    if subject.trained is None or not list_vocabularies(subject.trained):
        return f"{subject.name} has no embedding of words."
    return None


def neighbours(model: Any, text: Any = None, *, top: int = 10) -> View:
    """Returns the words nearest to each word of the text, by the cosine of their vectors.

    text: words separated by spaces, or a list of words; a few frequent words with close neighbours unless set
    top: how many neighbours each word has; all other words of the vocabulary if it has fewer

    `data`: `words` (the tokens shown, by vocabulary), `unknown` (words that no vocabulary has), `vocabularies`: by name
    (of a translator "source" and "target …", otherwise "vocabulary") the kinds "input" and "output", each a dictionary
    word → `words` and `cosines` of its neighbours, and `limit`, the cosine below which a neighbour may be one by chance
    (see `compute_chance_limit`); `random`: by vocabulary and kind the `mean`, `deviation` and
    `percentile_99` of the cosine of two random words among the 2,000 most frequent; `shared`: by vocabulary and word
    the share of neighbours that input and output have in common; `is_chosen`: whether no text was given; and `top`.
    """
    check_type("model", model, TrainedModel, "a trained model (seqwise.load)")
    if top < 1:
        raise UsageError(f"top must be at least 1; received {top}.")
    vocabularies = list_vocabularies(model)
    name = name_run(model)
    if not vocabularies:
        fix = "Choose a neural model of a task that reads text."
        raise UsageError(f"{name} has no embedding of words.", fix=fix)
    words, unknown = (choose_words(vocabularies), []) if text is None else find_words(vocabularies, split_words(text))
    data = measure_neighbours(vocabularies, words, top)
    data |= {"unknown": unknown, "is_chosen": text is None, "top": top}
    figures = draw_neighbours(vocabularies, data)
    return View("neighbours", f"Nearest words in {name}", describe_neighbours(data), figures, data)


def split_words(text: str | Sequence[str]) -> list[str]:
    """Returns the words of a text, each once."""
    check_type("text", text, Iterable, "words, as one text or a list")
    several = text.split() if isinstance(text, str) else list(text)
    for word in several:
        check_type("text", word, str, "words, as one text or a list")
    words = list(dict.fromkeys(several))
    if not words:
        raise UsageError("the text has no words.", fix="Pass words, or none: then some are chosen.")
    return words


def find_words(vocabularies: Sequence[Vocabulary], words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the tokens of the words in each vocabulary, and the words that none has."""
    found = {vocabulary.name: [t for word in words for t in vocabulary.find(word)] for vocabulary in vocabularies}
    unknown = [word for word in words if not any(vocabulary.find(word) for vocabulary in vocabularies)]
    if len(unknown) == len(words):
        names = vocabularies[0].rank_tokens()
        problem = f"the vocabulary has none of these words: {', '.join(map(repr, words))}."
        fix = suggest_words(words[0], names, set(names)) or f"For example: {' '.join(names[:8])}."
        raise UsageError(problem, fix=fix)
    return {name: list(dict.fromkeys(tokens)) for name, tokens in found.items()}, unknown


def choose_words(vocabularies: Sequence[Vocabulary]) -> dict[str, list[str]]:
    """Returns frequent words of each vocabulary with the closest neighbours: the model has learned most about them."""
    return {vocabulary.name: choose_close_words(vocabulary) for vocabulary in vocabularies}


def choose_close_words(vocabulary: Vocabulary, count: int = NUM_CHOSEN) -> list[str]:
    """Returns the words with the largest mean cosine to their three neighbours; no two of them are close themselves.

    Two words are close if their cosine is above the 99th percentile of random pairs.
    """
    ranked = vocabulary.rank_tokens()
    candidates: list[str] = []
    for minimum in MIN_LETTERS:
        words = ranked if vocabulary.tokenizer.kind != "bpe" else [word for word in ranked if word.startswith(" ")]
        candidates = [word for word in words if word.strip().isalpha() and len(word.strip()) >= minimum]
        if len(candidates) >= 2 * count:
            break
    vectors = vocabulary.embeddings["input"]
    nearest = {word: vectors.nearest(word, n=10) for word in (candidates or ranked)[:NUM_FREQUENT]}
    closeness = {word: np.mean([each.score for each in found[:3]] or [0.0]) for word, found in nearest.items()}
    limit = measure_random_pairs(vectors, ranked)["percentile_99"]
    chosen: list[str] = []
    for word in sorted(nearest, key=lambda each: -closeness[each]):
        if len(chosen) < count and all(vectors.similarity(word, other) <= limit for other in chosen):
            chosen.append(word)
    return chosen


def measure_neighbours(vocabularies: Sequence[Vocabulary], words: dict[str, list[str]], top: int) -> dict[str, Any]:
    """Returns the neighbours of each word in each embedding of its vocabulary, and what random words have."""
    results: dict[str, Any] = {"words": {}, "vocabularies": {}, "random": {}, "shared": {}}
    for vocabulary in vocabularies:
        label = vocabulary.name or "vocabulary"
        tokens = words[vocabulary.name]
        kinds = {kind: list_nearest(vectors, tokens, top) for kind, vectors in vocabulary.embeddings.items()}
        results["words"][label] = tokens
        results["vocabularies"][label] = kinds
        results["random"][label] = {
            kind: measure_random_pairs(vectors, vocabulary.rank_tokens())
            for kind, vectors in vocabulary.embeddings.items()
        }
        if len(kinds) == 2:
            results["shared"][label] = {
                token: len({*kinds["input"][token]["words"]} & {*kinds["output"][token]["words"]})
                / max(1, len(kinds["input"][token]["words"]))
                for token in tokens
            }
    return results


def list_nearest(vectors: KeyedVectors, tokens: Sequence[str], top: int) -> dict[str, dict[str, Any]]:
    """Returns the nearest words of each token, with their cosines, and which cosine may be due to chance."""
    limits = compute_chance_limits(normalize_rows(vectors.matrix), [vectors.index(token) for token in tokens])
    results = {}
    for token, limit in zip(tokens, limits):
        found = vectors.nearest(token, n=top)
        cosines = np.array([each.score for each in found])
        results[token] = {"words": [each.word for each in found], "cosines": cosines, "limit": float(limit)}
    return results


def compute_chance_limits(units: np.ndarray, rows: Sequence[int]) -> np.ndarray:
    """Returns, for rows of unit vectors (N, D), the cosine that the nearest of N random words exceeds in 5 % of cases.

    Random words have the coordinates of all words on the principal axes, each axis shuffled separately: they vary as
    much in every direction, but have nothing in common. The limit is the largest of NUM_DRAWS draws, which one more
    draw exceeds with the probability 1 / (NUM_DRAWS + 1).
    """
    mean = units.mean(axis=0)
    axes = np.linalg.eigh((units - mean).T @ (units - mean))[1]
    coordinates, mean, words = (units - mean) @ axes, mean @ axes, units[list(rows)] @ axes
    rng, limits = np.random.default_rng(0), np.full(len(rows), -1.0)
    for _ in range(NUM_DRAWS):
        random_words = normalize_rows(rng.permuted(coordinates, axis=0) + mean)
        limits = np.maximum(limits, (random_words @ words.T).max(axis=0))
    return limits


def measure_random_pairs(vectors: KeyedVectors, ranked: Sequence[str]) -> dict[str, float]:
    """Returns the cosine of random pairs of frequent words: mean, standard deviation and 99th percentile.

    `ranked` are the words, most frequent first.
    """
    rows = [vectors.index(word) for word in ranked[:NUM_COMPARED]]
    rng = np.random.default_rng(0)
    first, second = rng.integers(len(rows), size=(2, NUM_PAIRS))
    first, second = first[first != second], second[first != second]
    if not len(first):
        return {"mean": np.nan, "deviation": np.nan, "percentile_99": np.nan}
    units = vectors.matrix[rows] / vectors.norms[rows, None]
    cosines = np.einsum("ij,ij->i", units[first], units[second])
    return {
        "mean": float(cosines.mean()),
        "deviation": float(cosines.std()),
        "percentile_99": float(np.quantile(cosines, 0.99)),
    }
