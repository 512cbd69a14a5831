"""Negative sampling: a window by hand, columns of every number against numpy, and the edges of blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.negative_sampling import NegativeSampling

WORDS = [f"w{number}" for number in range(6)]
COUNTS = np.array([9, 7, 5, 4, 2, 1], dtype=np.int64)


def sampling(method="skipgram", only=2, **others) -> NegativeSampling:
    """With one word as every negative."""
    chosen = {"dim": 1, "window": 1, "negative": 1, "subsample": 0} | others
    made = NegativeSampling(WORDS, COUNTS, VectorSettings(method=method, **chosen).resolve())
    made.tables.threshold[:], made.tables.alias[:] = 0, only
    return made


def train(made: NegativeSampling, block, rate: float = 0.0) -> np.ndarray:
    tally = np.zeros(2)
    made.train(np.array(block, dtype=np.int32), np.uint64(9), rate, made.allocate_workspace(), tally)
    return tally


def sigma(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_a_step_on_two_words_equals_that_by_hand(method):
    made = sampling(method)
    made.inputs[:2, 0] = 2.0, -1.0
    made.outputs[:3, 0] = 0.5, 1.0, -3.0
    tally = train(made, [0, 1], rate=0.1)
    # First window: from word 1 (−1) to word 0 (0.5), and not to word 2 (−3): scores −0.5 and 3.
    first = math.log(1 + math.exp(0.5)) + math.log(1 + math.exp(3))
    up, down = 0.1 * (1 - sigma(-0.5)), -0.1 * sigma(3)
    one = -1 + up * 0.5 + down * -3
    zero_out, two_out = 0.5 + up * -1, -3 + down * -1
    # Second window: from word 0 (2) to word 1 (1), and not to word 2 as it is now.
    second = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2 * two_out))
    up, down = 0.1 * (1 - sigma(2)), -0.1 * sigma(2 * two_out)
    assert tally == pytest.approx([first + second, 2], rel=1e-6)
    assert made.inputs[:2, 0] == pytest.approx([2 + up * 1 + down * two_out, one], rel=1e-6)
    assert made.outputs[:3, 0] == pytest.approx([zero_out, 1 + up * 2, two_out + down * 2], rel=1e-6)


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_a_word_is_not_its_own_negative(method):
    made = sampling(method, only=1, negative=3)
    made.inputs[1, 0], made.outputs[1, 0] = 2.0, 0.5
    # Both windows ask for word 1 from word 1, and every negative drawn is word 1.
    assert train(made, [1, 1]) == pytest.approx([2 * math.log(1 + math.exp(-1)), 2], rel=1e-6)


@pytest.mark.parametrize("negative", [1, 2, 14, 15, 16, 17, 31, 32, 40])
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_any_number_of_negatives(method, negative):
    random, dim = np.random.default_rng(negative), 20
    # CBOW lets equal negatives see each other's change: a second-order difference, small at a small rate.
    rate = 1e-3 if method == "skipgram" else 1e-4
    made = sampling(method, dim=dim, negative=negative, window=1000)
    for rows in (made.inputs, made.outputs):
        rows[:, :dim] = random.normal(0, 0.5, (len(rows), dim))
    u, v = made.inputs[:, :dim].astype(np.float64), made.outputs[:, :dim].astype(np.float64)
    sentence, loss, pairs = [0, 1, 3], 0.0, 0
    for place, word in enumerate(sentence):
        around = sentence[:place] + sentence[place + 1 :]
        hidden = u[around] if method == "skipgram" else u[around].mean(axis=0, keepdims=True)
        good, bad = hidden @ v[word], hidden @ v[2]
        loss += np.logaddexp(0, -good).sum() + negative * np.logaddexp(0, bad).sum()
        pairs += len(hidden)
        good, bad = rate * sigma(-good), -rate * negative * sigma(bad)
        change = good[:, None] * v[word] + bad[:, None] * v[2]
        v[word] += good @ hidden
        v[2] += bad @ hidden
        u[around] += change if method == "skipgram" else change / len(around)
    assert train(made, sentence, rate) == pytest.approx([loss, pairs], rel=2e-6)
    near = 1e-6 + 1e-7 * negative  # an addition per negative, each rounded
    assert made.inputs[:, :dim] == pytest.approx(u, abs=near)
    assert made.outputs[:, :dim] == pytest.approx(v, abs=near)


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
@pytest.mark.parametrize("block", [[], [-1, -1], [3], [3, -1, 2, -1, -1, 1]])
def test_a_block_without_neighbours_changes_nothing(method, block):
    made = sampling(method, dim=8)
    before = made.inputs.copy()
    assert train(made, block, 0.1).tolist() == [0, 0]
    assert np.array_equal(made.inputs, before)
    assert not made.outputs.any()


def test_the_initial_loss_is_log_2_per_target():
    # Outputs begin at zero, so that every score is 0 and every word is as likely as not.
    made = sampling(dim=50, negative=5)
    loss, pairs = train(made, [0, 1, 3, 4, 5, -1, 1, 0])
    assert loss / pairs == pytest.approx(6 * math.log(2), rel=1e-6)


def test_subsampling_leaves_fewer_pairs():
    block = np.random.default_rng(0).integers(0, 6, 5000).astype(np.int32)
    pairs = [train(sampling(subsample=part), block)[1] for part in (0, 0.01)]
    assert pairs[0] == 2 * 4999
    assert pairs[1] < 0.8 * pairs[0]


def test_scores_beyond_six_give_no_update_as_in_gensim():
    moved = []
    for update in ("gradient", "gensim"):
        made = sampling("cbow", update=update, only=1)
        made.inputs[1, 0], made.outputs[1, 0] = -7.0, 1.0
        before = made.inputs.copy()
        train(made, [1, 1], 0.01)
        moved.append(np.abs(made.inputs - before).max())
    assert moved[0] > 0.01
    assert moved[1] == 0
