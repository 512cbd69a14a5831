"""N-grams of a word and the numbers of their buckets."""

from __future__ import annotations

import numpy as np
import pytest
from gensim.models.fasttext import ft_ngram_hashes
from hypothesis import given
from hypothesis import strategies as st

from seqwise.vectors.keyed import Subwords, hash_ngrams


def hash_fnv(text: str) -> int:
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) % 2**32
    return value


def test_words_are_enclosed_in_brackets_before_ngrams_are_hashed():
    expected = [hash_fnv(gram) % 1000 for gram in ("<ab", "<ab>", "ab>")]
    assert hash_ngrams("ab", 3, 6, 1000).tolist() == expected


def test_brackets_alone_are_no_ngrams():
    assert len(hash_ngrams("a", 1, 1, 1000)) == 1
    assert len(hash_ngrams("a", 1, 2, 1000)) == 3  # <a, a, a>


def test_a_byte_above_127_is_widened_with_its_sign_as_fasttext_does():
    assert hash_ngrams("é", 3, 3, 2_000_000).tolist() == ft_ngram_hashes("é", 3, 3, 2_000_000)
    assert hash_ngrams("é", 3, 3, 2_000_000).tolist() != [hash_fnv("<é>") % 2_000_000]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.integers(1, 4), st.integers(0, 3))
def test_hash_buckets_equal_those_of_gensim(word: str, min_n: int, more: int):
    max_n = min_n + more
    assert sorted(hash_ngrams(word, min_n, max_n, 5000)) == sorted(ft_ngram_hashes(word, min_n, max_n, 5000))


def test_a_word_is_the_mean_of_its_ngrams():
    matrix = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    subwords = Subwords(3, 6, matrix)
    composed = subwords.compose("ab")
    assert composed is not None
    assert composed == pytest.approx(sum(matrix[i] for i in subwords.bucket_ids("ab")) / 3, rel=1e-6)


def test_a_word_shorter_than_any_ngram_has_no_vector():
    assert Subwords(5, 6, np.ones((10, 4), np.float32)).compose("ab") is None
