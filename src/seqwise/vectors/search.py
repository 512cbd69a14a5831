"""Finds the nearest rows of a matrix, and words that are spelt like another. It knows nothing of word vectors.

Callers divide scores by the norms of the rows: a normalised copy of the matrix would double the memory. difflib is not
used for spelling: it ranks swapped letters low (for kign, kin before king) and orders equally similar words
alphabetically, not by frequency.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np

# Added to the divisor of 3CosMul. Levy and Goldberg (2014) take 1e-3; gensim, whose answers ours should equal, 1e-6.
EPSILON = 1e-6
BLOCK_NUMBERS = 1 << 22  # numbers converted or checked at once
MAX_COSINES = 1 << 23  # cosines in memory at once: 32 MB
NUM_CANDIDATES = 60  # words whose edit distance is computed; a cheaper similarity selects them
MAX_LENGTH = 40  # characters of a word; longer ones get no suggestion


def compute_row_norms(matrix: np.ndarray) -> np.ndarray:
    """Returns the Euclidean norm of every row; 1 for a row of zeros, whose cosine to anything is then 0.

    In double precision, block by block: in single precision the square of 1e25 is infinite, the square of 1e-25 is 0.
    """
    norms = np.empty(len(matrix))
    for rows in iterate_row_blocks(*matrix.shape):
        block = matrix[rows].astype(np.float64)
        norms[rows] = np.sqrt(np.einsum("ij,ij->i", block, block))
    norms[norms == 0] = 1
    return norms


def compute_norm(vector: np.ndarray) -> float:
    """Returns the Euclidean norm."""
    return float(np.linalg.norm(vector.astype(np.float64)))


def normalize(vector: np.ndarray) -> np.ndarray:
    """Returns the vector divided by its norm; zeros stay zeros."""
    return (vector / (compute_norm(vector) or 1.0)).astype(np.float32)


def shift_cosines(cosines: np.ndarray) -> np.ndarray:
    """Maps cosines from [-1, 1] to [0, 1]: 3CosMul multiplies and divides them, so none may be negative."""
    return (1 + cosines) / 2


def find_top_rows(scores: np.ndarray, n: int, exclude: Collection[int] = ()) -> np.ndarray:
    """Returns the indices of the n largest scores, largest first; among equal scores the earlier row comes first."""
    count = min(n + len(exclude), len(scores))
    if count < len(scores):
        threshold = np.partition(scores, len(scores) - count)[len(scores) - count]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    return order[~np.isin(order, list(exclude))][:n]


def iterate_row_blocks(num_rows: int, width: int, block_numbers: int = BLOCK_NUMBERS) -> Iterator[slice]:
    """Yields slices of the rows of a matrix, with about `block_numbers` numbers in each block."""
    step = max(1, block_numbers // max(1, width))
    for start in range(0, num_rows, step):
        yield slice(start, min(num_rows, start + step))


def find_nonfinite_row(matrix: np.ndarray) -> int | None:
    """Returns the index of the first row with an infinite number or nan."""
    for rows in iterate_row_blocks(*matrix.shape):
        is_finite = np.isfinite(matrix[rows]).all(axis=1)
        if not is_finite.all():
            return rows.start + int(np.argmin(is_finite))
    return None


def suggest_words(word: str, words: Sequence[str], known_words: Collection[str]) -> str:
    """Returns a sentence that suggests similar words; empty if there are none."""
    for variant in (word.lower(), word.capitalize(), word.upper()):
        if variant in known_words:
            return f"Words are case-sensitive: {variant!r} is known."
    suggestions = [repr(match) for match in find_similar_words(word, words)]
    if not suggestions:
        return ""
    *others, last = suggestions
    return f"Perhaps you meant {', '.join(others)} or {last}." if others else f"Perhaps you meant {last}."


def find_similar_words(word: str, words: Sequence[str], n: int = 3) -> list[str]:
    """Returns the n words with the smallest edit distance; at equal distance the earlier, more frequent word first."""
    if not 1 < len(word) <= MAX_LENGTH:
        return []
    query = word.lower()
    min_length, max_length, features = len(query) - 2, len(query) + 2, _collect_letters_and_bigrams(query)
    similarities = (
        (2 * len(features & other_features) / (len(features) + len(other_features)), -row)  # Dice coefficient
        for row, other in enumerate(map(str.lower, words))
        if min_length <= len(other) <= max_length
        # The first letter is seldom wrong; if it is, it is often swapped with the second.
        and (other[:1] == query[0] or other[:1] == query[1] or other[1:2] == query[0])
        and (other_features := _collect_letters_and_bigrams(other))
    )
    candidates = [-row for _, row in heapq.nlargest(NUM_CANDIDATES, similarities)]
    distances = sorted((compute_edit_distance(query, words[row].lower()), row) for row in candidates)
    return [words[row] for distance, row in distances if distance <= max(1, len(word) // 3)][:n]


def compute_edit_distance(a: str, b: str) -> int:
    """Returns how many insertions, deletions, substitutions and swaps of neighbouring letters turn a into b.

    This is the Damerau-Levenshtein distance.
    """
    before_previous, previous = [0] * (len(b) + 1), list(range(len(b) + 1))
    for i, letter in enumerate(a, start=1):
        current = [i]
        for j, other in enumerate(b, start=1):
            distance = min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                distance = min(distance, before_previous[j - 2] + 1)
            current.append(distance)
        before_previous, previous = previous, current
    return previous[-1]


def _collect_letters_and_bigrams(word: str) -> set[str]:
    return {*word, *map("".join, pairwise(word))}
