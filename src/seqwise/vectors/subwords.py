"""Vectors of character n-grams, from which a word's vector is composed. It knows nothing of training or vocabularies.

The scheme is that of fastText (Bojanowski et al. 2017, section 3.2), so that both hash an n-gram to the same bucket:
the word is enclosed in `<` and `>`, lengths are counted in characters, and an n-gram is hashed as UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqwise.errors import UsageError

FNV_START, FNV_PRIME, MASK = 2166136261, 16777619, 0xFFFFFFFF  # FNV-1a, 32 bits
# fastText reads a byte as a signed char before it widens it: above 127 the upper 24 bits are set.
SIGNED = tuple(byte if byte < 128 else byte | 0xFFFFFF00 for byte in range(256))


@dataclass(frozen=True, eq=False)
class Subwords:
    """The vectors of n-grams of `min_n` … `max_n` characters; n-grams that share a bucket share its vector.

    The matrix is not copied if it is float32 and C-contiguous: do not write into it afterwards.
    """

    min_n: int
    max_n: int
    matrix: np.ndarray  # (buckets, D) float32

    def __post_init__(self) -> None:
        if not 1 <= self.min_n <= self.max_n:
            problem = f"expected n-grams of 1 character or more; received lengths {self.min_n} to {self.max_n}."
            raise UsageError(problem)
        matrix = np.ascontiguousarray(self.matrix, dtype=np.float32).view()
        if matrix.ndim != 2 or not len(matrix):
            raise UsageError(f"expected a row for each of 1 bucket or more; received shape {matrix.shape}.")
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    def __reduce__(self) -> tuple:
        return Subwords, (self.min_n, self.max_n, self.matrix)  # pickling would lose the read-only flag

    def bucket_ids(self, word: str) -> np.ndarray:
        """Returns the buckets of a word's n-grams."""
        return hash_ngrams(word, self.min_n, self.max_n, len(self.matrix))

    def compose(self, word: str) -> np.ndarray | None:
        """Returns the mean of the vectors of a word's n-grams; None if the word is too short to have any."""
        ids = self.bucket_ids(word)
        return self.matrix[ids].mean(axis=0, dtype=np.float32) if len(ids) else None


def hash_ngrams(word: str, min_n: int, max_n: int, buckets: int) -> np.ndarray:
    """Returns the buckets of a word's n-grams by start, then by length; int64, with repetitions."""
    characters = [[SIGNED[byte] for byte in letter.encode("utf-8", "surrogatepass")] for letter in f"<{word}>"]
    end = len(characters)
    ids = []
    for start in range(end):
        value = FNV_START
        # The hash of a longer n-gram continues that of the shorter one.
        for stop in range(start + 1, min(end, start + max_n) + 1):
            for byte in characters[stop - 1]:
                value = ((value ^ byte) * FNV_PRIME) & MASK
            length = stop - start
            is_bracket = length == 1 and (start == 0 or stop == end)  # `<` or `>` alone carries no information
            if length >= min_n and not is_bracket:
                ids.append(value % buckets)
    return np.array(ids, dtype=np.int64)
