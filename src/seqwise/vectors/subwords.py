"""A word → its character n-grams → numbers of buckets. It knows nothing of training, nor of which words are known.

The scheme is fastText's (Bojanowski et al. 2017, section 3.2), so that both number the same n-gram alike: the word
stands between `<` and `>`, lengths are counted in characters, and an n-gram is hashed as UTF-8 into one of the buckets.
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
    """The vectors of n-grams of `least` … `most` characters; n-grams that share a bucket share its vector.

    The matrix is not copied if it is float32 and C-contiguous: do not write into it afterwards.
    """

    least: int
    most: int
    matrix: np.ndarray  # (buckets, D) float32

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            problem = f"expected n-grams of 1 character or more; received lengths {self.least} to {self.most}."
            raise UsageError(problem)
        matrix = np.ascontiguousarray(self.matrix, dtype=np.float32).view()
        if matrix.ndim != 2 or not len(matrix):
            raise UsageError(f"expected a row for each of 1 bucket or more; received shape {matrix.shape}.")
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    def __reduce__(self) -> tuple:
        return Subwords, (self.least, self.most, self.matrix)  # a copy must be as frozen

    def ids(self, word: str) -> np.ndarray:
        return bucket_ids(word, self.least, self.most, len(self.matrix))

    def compose(self, word: str) -> np.ndarray | None:
        """The mean of the vectors of a word's n-grams; None for a word too short to have any."""
        ids = self.ids(word)
        return self.matrix[ids].mean(axis=0, dtype=np.float32) if len(ids) else None


def bucket_ids(word: str, least: int, most: int, buckets: int) -> np.ndarray:
    """The buckets of a word's n-grams, by where they begin and then by length; int64, with repetitions."""
    characters = [[SIGNED[byte] for byte in letter.encode("utf-8", "surrogatepass")] for letter in f"<{word}>"]
    last = len(characters)
    found = []
    for start in range(last):
        value = FNV_START
        # The hash of a longer n-gram goes on from that of the shorter one.
        for stop in range(start + 1, min(last, start + most) + 1):
            for byte in characters[stop - 1]:
                value = ((value ^ byte) * FNV_PRIME) & MASK
            length = stop - start
            mark = length == 1 and (start == 0 or stop == last)  # `<` or `>` alone says nothing
            if length >= least and not mark:
                found.append(value % buckets)
    return np.array(found, dtype=np.int64)
