"""Words made of n-grams: which rows they have, what is learned from them, and vectors for words never seen."""

from __future__ import annotations

import numpy as np
import pytest

from seqwise.vectors.keyed import KeyedVectors, hash_ngrams
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec import negative_sampling
from seqwise.vectors.word2vec.negative_sampling import SubwordSampling, list_word_rows
from seqwise.vectors.word2vec.sampling_tables import seed_block

WORDS = ["where", "there", "a", "naïve", "here"]
COUNTS = np.array([9, 7, 5, 4, 2], dtype=np.int64)
DIM, BUCKETS = 6, 50


def sampling(method="skipgram", words=WORDS, counts=COUNTS, **others) -> SubwordSampling:
    chosen = {"dim": DIM, "window": 2, "negative": 2, "subsample": 0, "buckets": BUCKETS} | others
    made = SubwordSampling(words, counts, VectorSettings(method=method, subwords=True, **chosen).resolve())
    random = np.random.default_rng(0)
    made.inputs[:, :DIM] = random.normal(0, 0.5, (len(made.inputs), DIM))
    made.outputs[:, :DIM] = random.normal(0, 0.5, (len(made.outputs), DIM))
    return made


def train(made: SubwordSampling, block, rate: float) -> np.ndarray:
    tally = np.zeros(2)
    made.train(np.array(block, dtype=np.int32), np.uint64(9), rate, made.allocate_workspace(), tally)
    return tally


def test_a_word_has_its_own_row_and_those_of_its_ngrams():
    offsets, rows = list_word_rows(WORDS, 3, 4, BUCKETS)
    assert offsets[0] == 0
    assert offsets[-1] == len(rows)
    for number, word in enumerate(WORDS):
        here = rows[offsets[number] : offsets[number + 1]].tolist()
        assert here == [number, *(len(WORDS) + hash_ngrams(word, 3, 4, BUCKETS))]


def test_a_word_too_short_for_ngrams_has_its_own_row_alone():
    offsets, rows = list_word_rows(["a", "where"], 4, 6, BUCKETS)
    assert rows[: offsets[1]].tolist() == [0]
    assert offsets[2] - offsets[1] > 1


@pytest.mark.parametrize("chunk", [2, 512])
def test_vectors_are_means_of_rows(monkeypatch, chunk):
    monkeypatch.setattr(negative_sampling, "CHUNK_WORDS", chunk)
    made = sampling()
    inputs, vectors = made.inputs.copy(), made.vectors()
    for number, word in enumerate(WORDS):
        rows = [inputs[number, :DIM], *inputs[len(WORDS) + hash_ngrams(word, 3, 6, BUCKETS), :DIM]]
        assert vectors[number] == pytest.approx(np.mean(rows, axis=0), abs=1e-6)


def test_ngram_vectors_are_returned_with_their_lengths():
    made = sampling(min_n=2, max_n=5)
    inputs, subwords = made.inputs.copy(), made.subwords()
    assert (subwords.min_n, subwords.max_n) == (2, 5)
    assert np.array_equal(subwords.matrix, inputs[len(WORDS) :, :DIM])
    keyed = KeyedVectors(WORDS, made.vectors(), subwords=subwords)
    rows = inputs[len(WORDS) + hash_ngrams("whereabouts", 2, 5, BUCKETS), :DIM]
    assert keyed.vector("whereabouts") == pytest.approx(rows.mean(axis=0), abs=1e-6)
    assert np.array_equal(keyed.vector("where"), made.vectors()[0])


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_only_rows_of_words_in_the_text_move(method):
    made = sampling(method, buckets=5000)
    before = made.inputs.copy()
    train(made, [2, 3, 2, 3, -1], 0.1)
    moved = set(np.flatnonzero((made.inputs != before).any(axis=1)).tolist())
    offsets, rows = made.word_rows
    assert moved == {*rows[offsets[2] : offsets[3]].tolist(), *rows[offsets[3] : offsets[4]].tolist()}


def test_gensims_update_gives_each_row_all_of_the_gradient():
    changes = []
    for update in ("gradient", "gensim"):
        made = sampling("cbow", update=update)
        before = made.inputs.copy()
        train(made, [0, 2, -1], 1e-4)
        changes.append((made.inputs - before)[:, :DIM])
    # Word 2 has its own row and one n-gram, `<a>`, so that its parts are halves.
    assert changes[1][2] == pytest.approx(2 * changes[0][2], rel=0.02, abs=1e-7)


def test_negatives_do_not_depend_on_earlier_windows():
    first, second = np.zeros(2), np.zeros(2)
    for tally in (first, second):
        made = sampling()
        for number in range(5):
            made.train(
                np.array([0, 1, 2, 3, 4, -1], np.int32), seed_block(3, 1, number), 0.1, made.allocate_workspace(), tally
            )
    assert np.array_equal(first, second)


STEMS = {"animal": ["horse", "mouse", "tiger"], "tool": ["hammer", "wrench", "pliers"]}


@pytest.mark.parametrize(("method", "rate"), [("skipgram", 0.2), ("cbow", 0.8)])
def test_an_unknown_word_is_near_similarly_spelt_words(method, rate):
    words = [stem + ending for stems in STEMS.values() for stem in stems for ending in ("", "s", "like")]
    half = len(words) // 2
    random = np.random.default_rng(1)
    lines = [[*(random.integers(0, half, 8) + half * random.integers(0, 2)), -1] for _ in range(500)]
    block = np.concatenate(lines).astype(np.int32)
    made = sampling(method, words, np.bincount(block[block >= 0]), dim=DIM, buckets=2000, negative=5)
    made.inputs[:] *= 0.1
    made.outputs[:] = 0
    for number in range(8):
        made.train(block, seed_block(0, 1, number), rate * (1 - number / 8), made.allocate_workspace(), np.zeros(2))
    keyed = KeyedVectors(words, made.vectors(), subwords=made.subwords())
    for unknown, kind in {"horsey": "animal", "tigerish": "animal", "hammered": "tool", "wrenching": "tool"}.items():
        nearest = [neighbour.word for neighbour in keyed.nearest(keyed.vector(unknown), 3)]
        assert all(any(word.startswith(stem) for stem in STEMS[kind]) for word in nearest), (unknown, nearest)
