"""Suggests similarly spelt words from a large vocabulary. It knows nothing of vectors.

difflib is not used here: it ranks swapped letters low (for kign, kin before king) and orders equally similar words
alphabetically, not by frequency.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from itertools import pairwise

NUM_CANDIDATES = 60  # words whose edit distance is computed; a cheaper similarity selects them
MAX_LENGTH = 40  # characters; longer words get no suggestion


def suggest_words(word: str, words: Sequence[str], known: Collection[str]) -> str:
    """Returns a sentence that suggests similar words; empty if there are none."""
    for variant in (word.lower(), word.capitalize(), word.upper()):
        if variant in known:
            return f"Words are case-sensitive: {variant!r} is known."
    suggestions = [repr(match) for match in find_similar_words(word, words)]
    if not suggestions:
        return ""
    *others, last = suggestions
    return f"Perhaps you meant {', '.join(others)} or {last}." if others else f"Perhaps you meant {last}."


def find_similar_words(word: str, words: Sequence[str], n: int = 3) -> list[str]:
    """Returns the n words with the smallest edit distance; equal ones by position, which is by frequency."""
    if not 1 < len(word) <= MAX_LENGTH:
        return []
    query = word.lower()
    min_length, max_length, features = len(query) - 2, len(query) + 2, _letters_and_bigrams(query)
    similarities = (
        (2 * len(features & other_features) / (len(features) + len(other_features)), -row)  # Dice coefficient
        for row, other in enumerate(map(str.lower, words))
        if min_length <= len(other) <= max_length
        # The first letter is seldom wrong; if it is, it is often swapped with the second.
        and (other[:1] == query[0] or other[:1] == query[1] or other[1:2] == query[0])
        and (other_features := _letters_and_bigrams(other))
    )
    candidates = [-row for _, row in heapq.nlargest(NUM_CANDIDATES, similarities)]
    distances = sorted((damerau_levenshtein(query, words[row].lower()), row) for row in candidates)
    return [words[row] for distance, row in distances if distance <= max(1, len(word) // 3)][:n]


def damerau_levenshtein(a: str, b: str) -> int:
    """Returns how many insertions, deletions, substitutions and swaps of neighbouring letters turn a into b."""
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


def _letters_and_bigrams(word: str) -> set[str]:
    return {*word, *map("".join, pairwise(word))}
