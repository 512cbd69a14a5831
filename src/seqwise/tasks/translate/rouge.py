"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004): how much of a summary's words are those of the reference.

Each is the F1 of one pair, and the mean over all pairs. Texts are lower-cased and cut into runs of letters and digits;
words are not reduced to stems. It knows nothing of models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

HOW = "F1 per pair, mean over pairs; lower case, runs of letters and digits, no stemming"
DEFINITIONS = {
    "rouge_1": f"ROUGE-1, shared words: {HOW}",
    "rouge_2": f"ROUGE-2, shared pairs of neighbouring words: {HOW}",
    "rouge_l": f"ROUGE-L, longest common subsequence of words: {HOW}",
}

_WORD = re.compile(r"[^\W_]+")


def rouge(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """`rouge_1`, `rouge_2` and `rouge_l` of the outputs."""
    pairs = [(words(output), words(reference)) for output, reference in zip(outputs, references, strict=True)]
    count = max(1, len(pairs))
    return {
        "rouge_1": sum(shared_ngrams(*pair, 1) for pair in pairs) / count,
        "rouge_2": sum(shared_ngrams(*pair, 2) for pair in pairs) / count,
        "rouge_l": sum(common_subsequence(*pair) for pair in pairs) / count,
    }


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def shared_ngrams(output: Sequence[str], reference: Sequence[str], size: int) -> float:
    """F1 of the n-grams, each counted as often as both sides have it."""
    ours, theirs = _ngrams(output, size), _ngrams(reference, size)
    return _f1((ours & theirs).total(), ours.total(), theirs.total())


def common_subsequence(output: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the length of the longest common subsequence."""
    return _f1(longest_common(output, reference), len(output), len(reference))


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence, row by row of the usual table.

    Within a row the best so far is a running maximum: a cell is 1 more than the one diagonally above where the words
    are equal, else the better of its neighbours above and to the left.
    """
    if not first or not second:
        return 0
    numbers: dict[str, int] = {}
    across = np.array([numbers.setdefault(word, len(numbers)) for word in second])
    row = np.zeros(len(second) + 1, dtype=np.int64)
    for word in first:
        grown = np.where(across == numbers.get(word, -1), row[:-1] + 1, row[1:])
        row[1:] = np.maximum.accumulate(grown)
    return int(row[-1])


def _ngrams(text: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(text[at : at + size]) for at in range(len(text) - size + 1))


def _f1(shared: int, ours: int, theirs: int) -> float:
    return 2.0 * shared / (ours + theirs) if shared else 0.0
