"""`KeyedVectors`: words and their vectors, immutable and searchable; `Subwords`: vectors of character n-grams.

The n-grams are hashed to the same buckets as in fastText (Bojanowski et al. 2017, section 3.2): the word is enclosed in
`<` and `>`, lengths are counted in characters, and an n-gram is hashed as UTF-8. This module knows nothing of training
or file formats.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from seqwise.errors import UsageError, check_type, suggest
from seqwise.vectors.search import (
    EPSILON,
    compute_norm,
    compute_row_norms,
    find_nonfinite_row,
    find_top_rows,
    normalize,
    shift_cosines,
    suggest_words,
)

FNV_START, FNV_PRIME, UINT32_MASK = 2166136261, 16777619, 0xFFFFFFFF  # of the hash FNV-1a with 32 bits
# fastText reads a byte as a signed char before it widens it: above 127 the upper 24 bits are set.
SIGN_EXTENDED_BYTES = tuple(byte if byte < 128 else byte | 0xFFFFFF00 for byte in range(256))


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
            raise UsageError(f"expected n-grams of 1 character or more; received {self.min_n} to {self.max_n}.")
        matrix = _freeze_array(self.matrix, np.float32)
        if matrix.ndim != 2 or not len(matrix):
            raise UsageError(f"expected a matrix with one row per bucket; received shape {matrix.shape}.")
        self.__dict__.update(matrix=matrix)

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
    """Returns the buckets of a word's n-grams, ordered by start, then by length; int64, with repetitions."""
    encoded = [letter.encode("utf-8", "surrogatepass") for letter in f"<{word}>"]
    characters = [[SIGN_EXTENDED_BYTES[byte] for byte in letter_bytes] for letter_bytes in encoded]
    num_characters = len(characters)
    bucket_ids = []
    for start in range(num_characters):
        value = FNV_START
        # The hash of a longer n-gram continues the hash of the shorter one.
        for stop in range(start + 1, min(num_characters, start + max_n) + 1):
            for byte in characters[stop - 1]:
                value = ((value ^ byte) * FNV_PRIME) & UINT32_MASK
            length = stop - start
            is_bracket = length == 1 and (start == 0 or stop == num_characters)  # `<` or `>` alone means nothing
            if length >= min_n and not is_bracket:
                bucket_ids.append(value % buckets)
    return np.array(bucket_ids, dtype=np.int64)


SimilarityMeasure = Literal["cosine", "dot", "scaled"]  # scaled: dot / sqrt(dim)
AnalogyMethod = Literal["add", "multiply"]  # 3CosAdd, 3CosMul (Levy and Goldberg 2014, equations 3 and 4)


@dataclass(frozen=True)
class Neighbour:
    """A word and its score, a similarity."""

    word: str
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class KeyedVectors:
    """One vector per word, most frequent word first. Immutable.

    The matrix is not copied if it is float32 and C-contiguous: do not write into it afterwards.
    """

    words: Sequence[str]  # a tuple
    matrix: np.ndarray  # (V, D) float32
    counts: np.ndarray | None = None  # (V,) int64: how often each word occurs in the corpus
    subwords: Subwords | None = None
    about: Mapping[str, Any] = field(default_factory=dict)  # how the vectors were trained: method, settings, losses
    _index: dict[str, int] = field(init=False)  # word → row

    def __post_init__(self) -> None:
        check_type("words", self.words, Iterable, "a list of words")
        words, counts = tuple(self.words), self.counts
        try:
            about = json.loads(json.dumps(dict(self.about or {})))  # a copy, equal to what a file would hold
        except (TypeError, ValueError) as error:
            problem = f"about: expected a dictionary that JSON can represent; received {error}."
            raise UsageError(problem, fix="Give words, numbers, and lists and dictionaries of them.") from None
        self.__dict__.update(
            words=words,
            matrix=_freeze_array(self.matrix, np.float32),
            counts=None if counts is None else _freeze_array(counts, np.int64),
            about=MappingProxyType(about),
            _index={word: row for row, word in enumerate(words)},
        )
        self._check()

    def _check(self) -> None:
        words, matrix, counts, subwords = self.words, self.matrix, self.counts, self.subwords
        if matrix.ndim != 2 or len(matrix) != len(words) or not matrix.shape[1]:
            raise UsageError(f"expected a row for each of {len(words):,} words; received shape {matrix.shape}.")
        if not words:
            raise UsageError("expected at least one word; received none.")
        if len(self._index) < len(words):
            repeated_word = next(word for row, word in enumerate(words) if self._index[word] != row)
            raise UsageError(f"expected every word once; {repeated_word!r} occurs twice.")
        if counts is not None and counts.shape != (len(words),):
            raise UsageError(f"expected {len(words):,} counts; received shape {counts.shape}.")
        if subwords is not None and subwords.matrix.shape[1] != self.dim:
            raise UsageError(f"expected n-gram vectors of {self.dim} numbers; received {subwords.matrix.shape[1]}.")
        if subwords is not None and find_nonfinite_row(subwords.matrix) is not None:
            raise UsageError("a vector of an n-gram holds an infinite number or nan.")
        row = find_nonfinite_row(matrix)
        if row is not None:
            raise UsageError(f"the vector of {words[row]!r} (row {row + 1:,}) holds an infinite number or nan.")

    def __reduce__(self) -> tuple:
        return KeyedVectors, (self.words, self.matrix, self.counts, self.subwords, dict(self.about))

    def __repr__(self) -> str:
        return f"KeyedVectors({len(self):,} words, {self.dim} dimensions)"

    @property
    def dim(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def norms(self) -> np.ndarray:
        """The Euclidean norm of every vector, (V,); 1 for a vector of zeros."""
        return _freeze_array(compute_row_norms(self.matrix), np.float32)

    @property
    def lengths(self) -> np.ndarray:
        """Old name of `norms`, accepted until version 0.3."""
        warnings.warn("lengths is now called norms.", FutureWarning, stacklevel=2)
        return self.norms

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def __getitem__(self, word: str) -> np.ndarray:
        return self.matrix[self.index(word)]

    def index(self, word: str) -> int:
        """Returns the row of a word."""
        check_type("word", word, str, "a word")
        row = self._index.get(word)
        if row is None:
            raise self._build_unknown_word_error(word)
        return int(row)

    def count(self, word: str) -> int | None:
        """Returns the count of a word in the corpus; None if it is not known."""
        return None if self.counts is None or word not in self._index else int(self.counts[self._index[word]])

    def vector(self, word: str) -> np.ndarray:
        """Returns the vector of a word, (D,); if it is unknown, composed from its n-grams, if there are any."""
        check_type("word", word, str, "a word")
        if word in self._index or self.subwords is None:
            return self[word]
        vector = self.subwords.compose(word)
        if vector is None:
            raise self._build_unknown_word_error(word)
        return vector

    def similarity(self, a: str, b: str, by: SimilarityMeasure = "cosine") -> float:
        """Returns the similarity of two words: cosine, dot product, or dot product divided by √D."""
        _check_options(by, get_args(SimilarityMeasure))
        vector_a, vector_b = self.vector(a), self.vector(b)
        if by == "cosine":
            return float(normalize(vector_a) @ normalize(vector_b))
        dot = float(vector_a.astype(np.float64) @ vector_b)
        return dot / self.dim**0.5 if by == "scaled" else dot

    def nearest(
        self, query: str | np.ndarray, n: int = 10, by: SimilarityMeasure = "cosine", exclude: Iterable[str] = ()
    ) -> list[Neighbour]:
        """Returns the n words nearest to a word or a vector, nearest first, without the word itself."""
        _check_options(by, get_args(SimilarityMeasure), n)
        excluded_rows = self._find_rows(exclude)
        if isinstance(query, str):
            vector = self.vector(query)
            excluded_rows |= self._find_rows([query])
        else:
            vector = self._check_query(query)
        if by == "cosine":
            scores = self._compute_cosines(vector)
        else:  # normalised first, because the product of two large numbers may exceed single precision
            scores = (self.matrix @ normalize(vector)).astype(np.float64) * compute_norm(vector)
            scores /= self.dim**0.5 if by == "scaled" else 1.0
        return self._select_best(scores, n, excluded_rows)

    def analogy(
        self, a: str, b: str, c: str, n: int = 10, by: AnalogyMethod = "add", exclude: bool = True
    ) -> list[Neighbour]:
        """Returns words that are to c as b is to a; with `exclude` not the three words themselves."""
        _check_options(by, get_args(AnalogyMethod), n)
        unit_a, unit_b, unit_c = (normalize(self.vector(word)) for word in (a, b, c))
        if by == "add":
            scores = self._compute_cosines(unit_b - unit_a + unit_c)
        else:
            cos_a, cos_b, cos_c = (shift_cosines(self._compute_cosines(unit)) for unit in (unit_a, unit_b, unit_c))
            scores = cos_b * cos_c / (cos_a + EPSILON)
        return self._select_best(scores, n, self._find_rows([a, b, c]) if exclude else set())

    def rank_by_centrality(self, words: Sequence[str]) -> list[Neighbour]:
        """Returns these words with their cosine to the mean of the normalised vectors, least central first."""
        if len(words) < 2:
            raise UsageError(f"expected at least two words to compare; received {len(words)}.")
        units = np.stack([normalize(self.vector(word)) for word in words])
        scores = units @ normalize(units.mean(axis=0))
        return [Neighbour(words[row], float(scores[row])) for row in np.argsort(scores, kind="stable")]

    def most_different(self, words: Sequence[str]) -> list[Neighbour]:
        """Old name of `rank_by_centrality`, accepted until version 0.3."""
        warnings.warn("most_different is now called rank_by_centrality.", FutureWarning, stacklevel=2)
        return self.rank_by_centrality(words)

    def save(self, path: str | Path, kind: str | None = None) -> None:
        """Writes a file; its suffix determines the format, see `seqwise.vectors.formats`."""
        from seqwise.vectors.formats import save_vectors

        save_vectors(path, self, kind)

    @classmethod
    def load(cls, path: str | Path, kind: str | None = None) -> KeyedVectors:
        """Reads a file."""
        from seqwise.vectors.formats import load_vectors

        return load_vectors(path, kind)

    def _compute_cosines(self, vector: np.ndarray) -> np.ndarray:
        """Returns the cosine of a vector to every word, (V,)."""
        scores: np.ndarray = self.matrix @ normalize(vector)
        scores /= self.norms
        return scores

    def _select_best(self, scores: np.ndarray, n: int, excluded_rows: Collection[int]) -> list[Neighbour]:
        """Returns the n words with the highest scores."""
        return [Neighbour(self.words[row], float(scores[row])) for row in find_top_rows(scores, n, excluded_rows)]

    def _find_rows(self, words: Iterable[str]) -> set[int]:
        """Returns the rows of these words, without unknown words."""
        return {self._index[word] for word in words if word in self._index}

    def _check_query(self, query: np.ndarray) -> np.ndarray:
        vector = _convert(query, np.float32, "query", "a word or a vector")
        if vector.shape != (self.dim,):
            raise UsageError(f"expected a vector of {self.dim} numbers; received shape {vector.shape}.")
        if not np.isfinite(vector).all():
            raise UsageError("expected a vector of finite numbers; received one with nan or inf.")
        return vector

    def _build_unknown_word_error(self, word: str) -> UsageError:
        problem, fix = f"{word!r} is not among the {len(self):,} words", suggest_words(word, self.words, self._index)
        if self.subwords is not None and len(self.subwords.bucket_ids(word)):
            fix = f"vector({word!r}) composes one from its n-grams. {fix}".rstrip()
        elif self.subwords is not None:
            problem += " and too short for its n-grams"
        return UsageError(f"{problem}.", fix=fix)


def _freeze_array(values: np.ndarray, dtype: type) -> np.ndarray:
    """Returns a read-only view, of the same memory if dtype and layout allow."""
    array: np.ndarray = np.ascontiguousarray(_convert(values, dtype, "matrix and counts", "arrays of numbers")).view()
    array.setflags(write=False)
    return array


def _convert(values: Any, dtype: type, name: str, expected: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        problem = f"{name}: expected {expected}; received {type(values).__name__} {str(values)[:40]}."
        raise UsageError(problem) from None


def _check_options(by: str, choices: Sequence[str], n: int = 1) -> None:
    if by not in choices:
        raise UsageError(f"by: {by!r} is unknown.", fix=suggest(str(by), choices))
    if n < 1:
        raise UsageError(f"n: expected at least 1; received {n}.")
