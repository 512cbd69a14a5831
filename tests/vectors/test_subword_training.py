"""Words composed of n-grams: their rows, training, and vectors for words that are not in the corpus."""

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


def build_sampling(method="skipgram", words=WORDS, counts=COUNTS, **others) -> SubwordSampling:
    settings = {"dim": DIM, "window": 2, "negative": 2, "subsample": 0, "buckets": BUCKETS} | others
    objective = SubwordSampling(words, counts, VectorSettings(method=method, subwords=True, **settings).resolve())
    random = np.random.default_rng(0)
    objective.inputs[:, :DIM] = random.normal(0, 0.5, (len(objective.inputs), DIM))
    objective.outputs[:, :DIM] = random.normal(0, 0.5, (len(objective.outputs), DIM))
    return objective


def train(objective: SubwordSampling, block, rate: float) -> np.ndarray:
    tally = np.zeros(2)
    objective.train(np.array(block, dtype=np.int32), np.uint64(9), rate, objective.allocate_workspace(), tally)
    return tally


def test_a_word_has_its_own_row_and_those_of_its_ngrams():
    offsets, rows = list_word_rows(WORDS, 3, 4, BUCKETS)
    assert offsets[0] == 0
    assert offsets[-1] == len(rows)
    for number, word in enumerate(WORDS):
        word_rows = rows[offsets[number] : offsets[number + 1]].tolist()
        assert word_rows == [number, *(len(WORDS) + hash_ngrams(word, 3, 4, BUCKETS))]


def test_a_word_too_short_for_ngrams_has_its_own_row_alone():
    offsets, rows = list_word_rows(["a", "where"], 4, 6, BUCKETS)
    assert rows[: offsets[1]].tolist() == [0]
    assert offsets[2] - offsets[1] > 1


@pytest.mark.parametrize("chunk", [2, 512])
def test_vectors_are_means_of_rows(monkeypatch, chunk):
    monkeypatch.setattr(negative_sampling, "CHUNK_WORDS", chunk)
    objective = build_sampling()
    inputs, vectors = objective.inputs.copy(), objective.export_vectors()
    for number, word in enumerate(WORDS):
        rows = [inputs[number, :DIM], *inputs[len(WORDS) + hash_ngrams(word, 3, 6, BUCKETS), :DIM]]
        assert vectors[number] == pytest.approx(np.mean(rows, axis=0), abs=1e-6)


def test_ngram_vectors_are_returned_with_their_lengths():
    objective = build_sampling(min_n=2, max_n=5)
    inputs, subwords = objective.inputs.copy(), objective.export_subwords()
    assert (subwords.min_n, subwords.max_n) == (2, 5)
    assert np.array_equal(subwords.matrix, inputs[len(WORDS) :, :DIM])
    keyed = KeyedVectors(WORDS, objective.export_vectors(), subwords=subwords)
    rows = inputs[len(WORDS) + hash_ngrams("whereabouts", 2, 5, BUCKETS), :DIM]
    assert keyed.vector("whereabouts") == pytest.approx(rows.mean(axis=0), abs=1e-6)
    assert np.array_equal(keyed.vector("where"), objective.export_vectors()[0])


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_only_rows_of_words_in_the_text_are_updated(method):
    objective = build_sampling(method, buckets=5000)
    before = objective.inputs.copy()
    train(objective, [2, 3, 2, 3, -1], 0.1)
    changed_rows = set(np.flatnonzero((objective.inputs != before).any(axis=1)).tolist())
    offsets, rows = objective.word_rows
    assert changed_rows == {*rows[offsets[2] : offsets[3]].tolist(), *rows[offsets[3] : offsets[4]].tolist()}


def test_gensims_update_gives_each_row_all_of_the_gradient():
    changes = []
    for update in ("gradient", "gensim"):
        objective = build_sampling("cbow", update=update)
        before = objective.inputs.copy()
        train(objective, [0, 2, -1], 1e-4)
        changes.append((objective.inputs - before)[:, :DIM])
    # Word 2 has two rows, its own and that of one n-gram, `<a>`: by default each gets half of the gradient.
    assert changes[1][2] == pytest.approx(2 * changes[0][2], rel=0.02, abs=1e-7)


def test_the_same_seed_gives_the_same_loss():
    first, second = np.zeros(2), np.zeros(2)
    for tally in (first, second):
        objective = build_sampling()
        for number in range(5):
            objective.train(
                np.array([0, 1, 2, 3, 4, -1], np.int32),
                seed_block(3, 1, number),
                0.1,
                objective.allocate_workspace(),
                tally,
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
    objective = build_sampling(method, words, np.bincount(block[block >= 0]), dim=DIM, buckets=2000, negative=5)
    objective.inputs[:] *= 0.1
    objective.outputs[:] = 0
    for number in range(8):
        objective.train(
            block, seed_block(0, 1, number), rate * (1 - number / 8), objective.allocate_workspace(), np.zeros(2)
        )
    keyed = KeyedVectors(words, objective.export_vectors(), subwords=objective.export_subwords())
    for unknown, kind in {"horsey": "animal", "tigerish": "animal", "hammered": "tool", "wrenching": "tool"}.items():
        nearest = [neighbour.word for neighbour in keyed.nearest(keyed.vector(unknown), 3)]
        assert all(any(word.startswith(stem) for stem in STEMS[kind]) for word in nearest), (unknown, nearest)
