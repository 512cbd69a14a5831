"""Negative sampling: a window by hand, any number of negatives against numpy, and the edges of blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.negative_sampling import NegativeSampling

WORDS = [f"w{number}" for number in range(6)]
COUNTS = np.array([9, 7, 5, 4, 2, 1], dtype=np.int64)


def build_sampling(method="skipgram", negative_word=2, **others) -> NegativeSampling:
    """Returns negative sampling that always draws the same negative word."""
    settings = {"dim": 1, "window": 1, "negative": 1, "subsample": 0} | others
    objective = NegativeSampling(WORDS, COUNTS, VectorSettings(method=method, **settings).resolve())
    objective.tables.threshold[:], objective.tables.alias[:] = 0, negative_word
    return objective


def train(objective: NegativeSampling, block, rate: float = 0.0) -> np.ndarray:
    tally = np.zeros(2)
    objective.train(np.array(block, dtype=np.int32), np.uint64(9), rate, objective.allocate_workspace(), tally)
    return tally


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_a_step_on_two_words_equals_the_hand_computed_one(method):
    objective = build_sampling(method)
    objective.inputs[:2, 0] = 2.0, -1.0
    objective.outputs[:3, 0] = 0.5, 1.0, -3.0
    tally = train(objective, [0, 1], rate=0.1)
    # First window: from word 1 (−1) to word 0 (0.5), and not to word 2 (−3): scores −0.5 and 3.
    loss_of_first_window = math.log(1 + math.exp(0.5)) + math.log(1 + math.exp(3))
    push, pull = 0.1 * (1 - sigmoid(-0.5)), -0.1 * sigmoid(3)
    input_of_word_1 = -1 + push * 0.5 + pull * -3
    output_of_word_0, output_of_word_2 = 0.5 + push * -1, -3 + pull * -1
    # Second window: from word 0 (2) to word 1 (1), and not to word 2 as it is now.
    loss_of_second_window = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2 * output_of_word_2))
    push, pull = 0.1 * (1 - sigmoid(2)), -0.1 * sigmoid(2 * output_of_word_2)
    assert tally == pytest.approx([loss_of_first_window + loss_of_second_window, 2], rel=1e-6)
    assert objective.inputs[:2, 0] == pytest.approx([2 + push * 1 + pull * output_of_word_2, input_of_word_1], rel=1e-6)
    assert objective.outputs[:3, 0] == pytest.approx(
        [output_of_word_0, 1 + push * 2, output_of_word_2 + pull * 2], rel=1e-6
    )


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_a_word_is_not_its_own_negative(method):
    objective = build_sampling(method, negative_word=1, negative=3)
    objective.inputs[1, 0], objective.outputs[1, 0] = 2.0, 0.5
    # Both windows predict word 1 from word 1, and every negative drawn is word 1.
    assert train(objective, [1, 1]) == pytest.approx([2 * math.log(1 + math.exp(-1)), 2], rel=1e-6)


@pytest.mark.parametrize("negative", [1, 2, 14, 15, 16, 17, 31, 32, 40])
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_any_number_of_negatives_can_be_drawn(method, negative):
    random = np.random.default_rng(negative)
    dim = 20
    # In CBOW equal negatives of a window are updated one after another: a difference of second order in the rate.
    rate = 1e-3 if method == "skipgram" else 1e-4
    objective = build_sampling(method, dim=dim, negative=negative, window=1000)
    for rows in (objective.inputs, objective.outputs):
        rows[:, :dim] = random.normal(0, 0.5, (len(rows), dim))
    u, v = objective.inputs[:, :dim].astype(np.float64), objective.outputs[:, :dim].astype(np.float64)
    sentence = [0, 1, 3]
    loss, pairs = 0.0, 0
    for position, word in enumerate(sentence):
        context = sentence[:position] + sentence[position + 1 :]
        hidden = u[context] if method == "skipgram" else u[context].mean(axis=0, keepdims=True)
        score, negative_score = hidden @ v[word], hidden @ v[2]
        loss += np.logaddexp(0, -score).sum() + negative * np.logaddexp(0, negative_score).sum()
        pairs += len(hidden)
        step, negative_step = rate * sigmoid(-score), -rate * negative * sigmoid(negative_score)
        update = step[:, None] * v[word] + negative_step[:, None] * v[2]
        v[word] += step @ hidden
        v[2] += negative_step @ hidden
        u[context] += update if method == "skipgram" else update / len(context)
    assert train(objective, sentence, rate) == pytest.approx([loss, pairs], rel=2e-6)
    tolerance = 1e-6 + 1e-7 * negative  # an addition per negative, each rounded
    assert objective.inputs[:, :dim] == pytest.approx(u, abs=tolerance)
    assert objective.outputs[:, :dim] == pytest.approx(v, abs=tolerance)


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
@pytest.mark.parametrize("block", [[], [-1, -1], [3], [3, -1, 2, -1, -1, 1]])
def test_a_block_without_neighbours_changes_nothing(method, block):
    objective = build_sampling(method, dim=8)
    before = objective.inputs.copy()
    assert train(objective, block, 0.1).tolist() == [0, 0]
    assert np.array_equal(objective.inputs, before)
    assert not objective.outputs.any()


def test_the_initial_loss_is_log_2_per_target():
    # Outputs start at zero, so that every score is 0 and every word is as likely as not.
    objective = build_sampling(dim=50, negative=5)
    loss, pairs = train(objective, [0, 1, 3, 4, 5, -1, 1, 0])
    assert loss / pairs == pytest.approx(6 * math.log(2), rel=1e-6)


def test_subsampling_leaves_fewer_pairs():
    block = np.random.default_rng(0).integers(0, 6, 5000).astype(np.int32)
    pairs = [train(build_sampling(subsample=part), block)[1] for part in (0, 0.01)]
    assert pairs[0] == 2 * 4999
    assert pairs[1] < 0.8 * pairs[0]


def test_scores_beyond_six_give_no_update_as_in_gensim():
    largest_changes = []
    for update in ("gradient", "gensim"):
        objective = build_sampling("cbow", update=update, negative_word=1)
        objective.inputs[1, 0], objective.outputs[1, 0] = -7.0, 1.0
        before = objective.inputs.copy()
        train(objective, [1, 1], 0.01)
        largest_changes.append(np.abs(objective.inputs - before).max())
    assert largest_changes[0] > 0.01
    assert largest_changes[1] == 0
