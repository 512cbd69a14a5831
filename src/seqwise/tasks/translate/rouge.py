"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004): how many words a summary shares with the reference.

Each is the F1 of one pair, averaged over all pairs. Texts are lower-cased and split into runs of letters and digits;
there is no stemming. The module knows nothing of models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

METHOD = "F1 per pair, mean over pairs; lower case, runs of letters and digits, no stemming"
DEFINITIONS = {
    "rouge_1": f"ROUGE-1, shared words: {METHOD}",
    "rouge_2": f"ROUGE-2, shared pairs of neighbouring words: {METHOD}",
    "rouge_l": f"ROUGE-L, longest common subsequence of words: {METHOD}",
}

_WORD = re.compile(r"[^\W_]+")


def rouge(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return `rouge_1`, `rouge_2` and `rouge_l` of the outputs."""
    pairs = [
        (split_words(output), split_words(reference)) for output, reference in zip(outputs, references, strict=True)
    ]
    count = max(1, len(pairs))
    return {
        "rouge_1": sum(ngram_f1(*pair, 1) for pair in pairs) / count,
        "rouge_2": sum(ngram_f1(*pair, 2) for pair in pairs) / count,
        "rouge_l": sum(subsequence_f1(*pair) for pair in pairs) / count,
    }


def split_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def ngram_f1(output: Sequence[str], reference: Sequence[str], n: int) -> float:
    """Return the F1 of the n-grams, each counted as often as both sides have it."""
    output_ngrams, reference_ngrams = _count_ngrams(output, n), _count_ngrams(reference, n)
    return _f1((output_ngrams & reference_ngrams).total(), output_ngrams.total(), reference_ngrams.total())


def subsequence_f1(output: Sequence[str], reference: Sequence[str]) -> float:
    """Return the F1 of the length of the longest common subsequence."""
    return _f1(longest_common_subsequence(output, reference), len(output), len(reference))


def longest_common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, row by row of the usual table.

    A cell is 1 more than its upper left neighbour where the words are equal, else the maximum of its upper and left
    neighbour; so a row is a running maximum.
    """
    if not first or not second:
        return 0
    numbers: dict[str, int] = {}
    columns = np.array([numbers.setdefault(word, len(numbers)) for word in second])
    row = np.zeros(len(second) + 1, dtype=np.int64)
    for word in first:
        candidates = np.where(columns == numbers.get(word, -1), row[:-1] + 1, row[1:])
        row[1:] = np.maximum.accumulate(candidates)
    return int(row[-1])


def _count_ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def _f1(shared: int, num_output: int, num_reference: int) -> float:
    return 2.0 * shared / (num_output + num_reference) if shared else 0.0
