"""Finds the occurrences of one word in several sentences, and their vectors in each layer of a model.

It knows nothing of senses or figures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.errors import UsageError
from seqwise.tasks.contextual import TextTokens
from seqwise.training.api import TrainedModel

# Words without a content of their own, which sentences share by chance.
FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about after all also an and any are as at be because been before but by can could did do does down for from "
        "had has have he her him his how i if in into is it its just me more most much my no not of off on only or "
        "other our out over she so some such than that the their them then there these they this those through to too "
        "under up us very was we were what when where which while who will with would you your",
    )
)
CONTEXT_WORDS = 1  # on each side, in the name of an occurrence


@dataclass(frozen=True)
class Occurrence:
    """A word in a sentence, by its characters."""

    sentence: int  # from 0
    start: int
    stop: int
    name: str  # such as "2: river bank of"


def split_words(text: str) -> list[str]:
    """Returns all words of a text in lower case, in order."""
    return re.findall(r"\w+(?:['’]\w+)?", text.lower())


def find_shared_word(texts: Sequence[str]) -> str:
    """Returns the only content word, or else function word, that all sentences share; raises an error without one."""
    shared = [word for word in dict.fromkeys(split_words(texts[0]))
              if all(word in split_words(text) for text in texts[1:])]  # fmt: skip
    content = [word for word in shared if word not in FUNCTION_WORDS]
    candidates = content or shared
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise UsageError(
            "the sentences share no word.", fix="Name one that occurs in each of them in this form: --word bank"
        )
    names = ", ".join(candidates)
    raise UsageError(f"the sentences share several words: {names}.", fix=f"Name one: --word {candidates[0]}")


def find_occurrences(texts: Sequence[str], word: str) -> list[Occurrence]:
    """Returns all occurrences of a word, in any case; raises an error for a sentence that does not have it."""
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    occurrences = []
    for index, text in enumerate(texts):
        matches = list(pattern.finditer(text))
        if not matches:
            problem = f"sentence {index + 1} does not contain {word!r}: {text!r}."
            raise UsageError(problem, fix="Pass sentences that all contain the word, in the same form.")
        for match in matches:
            before, after = text[: match.start()].split(), text[match.end() :].split()
            context = [*before[-CONTEXT_WORDS:], match.group(), *after[:CONTEXT_WORDS]]
            occurrences.append(Occurrence(index, match.start(), match.end(), f"{index + 1}: {' '.join(context)}"))
    return occurrences


@dataclass(frozen=True)
class LayerVectors:
    """Vectors of one layer: of the occurrences, and of all other tokens of the sentences."""

    name: str  # "static" or "layer 1"
    occurrences: np.ndarray  # (N, D), the means over the tokens of each
    others: np.ndarray  # (M, D)


def compute_occurrence_vectors(
    trained: TrainedModel, texts: Sequence[str], occurrences: Sequence[Occurrence]
) -> tuple[list[LayerVectors], list[list[str]]]:
    """Returns the vectors of all layers, from the input embedding on, and the tokens of each occurrence."""
    encoder = trained.contextual
    tokens = [encoder.tokenize(text) for text in texts]
    for index, text in enumerate(tokens):
        if encoder.max_length is not None and len(text) > encoder.max_length:
            problem = f"sentence {index + 1} has {len(text)} tokens; the model reads at most {encoder.max_length}."
            raise UsageError(problem, fix="Pass shorter sentences.")
    matrices = [list(encoder.compute_vectors(tokens, layer)) for layer in range(encoder.depth + 1)]
    masks = [find_tokens(tokens[each.sentence], each) for each in occurrences]
    layers = []
    for layer, vectors in enumerate(matrices):
        own = np.stack([vectors[o.sentence][mask].mean(axis=0) for o, mask in zip(occurrences, masks)])
        outside = []
        for index, matrix in enumerate(vectors):
            inside = [mask for o, mask in zip(occurrences, masks) if o.sentence == index]
            outside.append(matrix[~np.any(inside, axis=0)])
        layers.append(LayerVectors(f"layer {layer}" if layer else "static", own, np.concatenate(outside)))
    names = [
        [token for token, inside in zip(tokens[o.sentence].tokens, mask) if inside]
        for o, mask in zip(occurrences, masks)
    ]
    return layers, names


def find_tokens(tokens: TextTokens, occurrence: Occurrence) -> np.ndarray:
    """Returns which tokens (n,) of its sentence belong to an occurrence."""
    return (tokens.offsets[:, 0] < occurrence.stop) & (tokens.offsets[:, 1] > occurrence.start)


def normalize_rows(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors (…, D) divided by their norms; zeros stay zeros."""
    vectors = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)
