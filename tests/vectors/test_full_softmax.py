"""The full softmax against numpy, for vocabularies at the edges of lanes and tiles and for widely differing scores."""

from __future__ import annotations

import numpy as np
import pytest

from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.softmax import TILE_ROWS, FullSoftmax

DIM = 6


def build_softmax(size: int, method="skipgram", scale=0.6, **others) -> FullSoftmax:
    settings = VectorSettings(method=method, loss="softmax", dim=DIM, window=1000, subsample=0, **others).resolve()
    objective = FullSoftmax([f"w{number}" for number in range(size)], np.arange(size, 0, -1), settings)
    random = np.random.default_rng(size)
    for rows in (objective.inputs, objective.outputs):
        rows[:, :DIM] = random.normal(0, scale, (size, DIM))
    return objective


def train(objective: FullSoftmax, block, rate: float = 0.0) -> np.ndarray:
    tally = np.zeros(2)
    objective.train(np.array(block, dtype=np.int32), np.uint64(9), rate, objective.allocate_workspace(), tally)
    return tally


def train_reference(u: np.ndarray, v: np.ndarray, sentence: list[int], rate: float, cbow: bool) -> tuple[float, int]:
    """Computes the same step in double precision; changes u and v in place."""
    loss, pairs = 0.0, 0
    for position, word in enumerate(sentence):
        context = sentence[:position] + sentence[position + 1 :]
        hidden = u[context].mean(axis=0, keepdims=True) if cbow else u[context]
        scores = hidden @ v.T
        highest = scores.max(axis=1, keepdims=True)
        exponentials = np.exp(scores - highest)
        normaliser = exponentials.sum(axis=1, keepdims=True)
        loss += (np.log(normaliser) + highest - scores[:, [word]]).sum()
        pairs += len(hidden)
        error = -exponentials / normaliser
        error[:, word] += 1
        update = error @ v / (len(context) if cbow else 1)
        v += rate * error.T @ hidden
        np.add.at(u, context, rate * (update if not cbow else np.repeat(update, len(context), axis=0)))
    return loss, pairs


@pytest.mark.parametrize("size", [2, 3, 15, 16, 17, TILE_ROWS - 1, TILE_ROWS, TILE_ROWS + 1, 2 * TILE_ROWS + 2])
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_the_full_softmax_handles_any_vocabulary_size(method, size):
    objective = build_softmax(size, method)
    u, v = objective.inputs[:, :DIM].astype(np.float64), objective.outputs[:, :DIM].astype(np.float64)
    sentence = [0, size - 1, 1, size // 2, 0]
    tally = train(objective, sentence, 0.3)
    assert tally == pytest.approx(train_reference(u, v, sentence, 0.3, method == "cbow"), rel=2e-6)
    assert objective.inputs[:, :DIM] == pytest.approx(u, abs=3e-6)
    assert objective.outputs[:, :DIM] == pytest.approx(v, abs=3e-6)
    assert not objective.inputs[:, DIM:].any()
    assert not objective.outputs[:, DIM:].any()


def test_probabilities_of_all_words_sum_to_one():
    objective = build_softmax(37)
    objective.inputs[:] = objective.inputs[0]  # the same hidden vector, whichever word is predicted
    probabilities = [np.exp(-train(objective, [word, word])[0] / 2) for word in range(37)]
    assert sum(probabilities) == pytest.approx(1, abs=2e-6)
    assert max(probabilities) > 3 / 37


@pytest.mark.parametrize("scale", [30, 300])
def test_large_score_differences_stay_finite_and_exact(scale):
    objective = build_softmax(20, scale=scale)
    u, v = objective.inputs[:, :DIM].astype(np.float64), objective.outputs[:, :DIM].astype(np.float64)
    loss, pairs = train(objective, [0, 5, 7, 19])
    expected, _ = train_reference(u, v, [0, 5, 7, 19], 0.0, cbow=False)
    assert expected / pairs > scale  # a naive exponential would be infinite
    assert loss == pytest.approx(expected, rel=1e-6)
    train(objective, [0, 5, 7, 19], 1e-3)
    assert np.isfinite(objective.inputs).all()
    assert np.isfinite(objective.outputs).all()


def test_the_initial_loss_is_the_logarithm_of_the_vocabulary_size():
    objective = build_softmax(100)
    objective.outputs[:] = 0
    loss, pairs = train(objective, [3, 1, 4, 15, 92, 65])
    assert loss / pairs == pytest.approx(np.log(100), rel=1e-6)


def test_a_vocabulary_of_one_word_has_zero_loss():
    objective = build_softmax(1)
    assert train(objective, [0, 0, 0], 0.1) == pytest.approx([0, 6], abs=1e-6)
