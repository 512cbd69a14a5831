"""The full softmax against numpy for vocabularies around the borders of lanes and tiles, and with scores far apart."""

from __future__ import annotations

import numpy as np
import pytest

from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.softmax import TILE, FullSoftmax

DIM = 6


def softmax(size: int, method="skipgram", scale=0.6, **others) -> FullSoftmax:
    chosen = VectorSettings(method=method, loss="softmax", dim=DIM, window=1000, subsample=0, **others).resolve()
    made = FullSoftmax([f"w{number}" for number in range(size)], np.arange(size, 0, -1), chosen)
    random = np.random.default_rng(size)
    for rows in (made.inputs, made.outputs):
        rows[:, :DIM] = random.normal(0, scale, (size, DIM))
    return made


def train(made: FullSoftmax, block, rate: float = 0.0) -> np.ndarray:
    tally = np.zeros(2)
    made.train(np.array(block, dtype=np.int32), np.uint64(9), rate, made.allocate_workspace(), tally)
    return tally


def reference(u: np.ndarray, v: np.ndarray, sentence: list[int], rate: float, cbow: bool) -> tuple[float, int]:
    """The same in double precision; u and v are changed."""
    loss, pairs = 0.0, 0
    for place, word in enumerate(sentence):
        around = sentence[:place] + sentence[place + 1 :]
        hidden = u[around].mean(axis=0, keepdims=True) if cbow else u[around]
        scores = hidden @ v.T
        top = scores.max(axis=1, keepdims=True)
        chances = np.exp(scores - top)
        whole = chances.sum(axis=1, keepdims=True)
        loss += (np.log(whole) + top - scores[:, [word]]).sum()
        pairs += len(hidden)
        slopes = -chances / whole
        slopes[:, word] += 1
        change = slopes @ v / (len(around) if cbow else 1)
        v += rate * slopes.T @ hidden
        np.add.at(u, around, rate * (change if not cbow else np.repeat(change, len(around), axis=0)))
    return loss, pairs


@pytest.mark.parametrize("size", [2, 3, 15, 16, 17, TILE - 1, TILE, TILE + 1, 2 * TILE + 2])
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_the_full_softmax_handles_any_vocabulary_size(method, size):
    made = softmax(size, method)
    u, v = made.inputs[:, :DIM].astype(np.float64), made.outputs[:, :DIM].astype(np.float64)
    sentence = [0, size - 1, 1, size // 2, 0]
    tally = train(made, sentence, 0.3)
    assert tally == pytest.approx(reference(u, v, sentence, 0.3, method == "cbow"), rel=2e-6)
    assert made.inputs[:, :DIM] == pytest.approx(u, abs=3e-6)
    assert made.outputs[:, :DIM] == pytest.approx(v, abs=3e-6)
    assert not made.inputs[:, DIM:].any()
    assert not made.outputs[:, DIM:].any()


def test_probabilities_of_all_words_sum_to_one():
    made = softmax(37)
    made.inputs[:] = made.inputs[0]  # the same hidden vector, whichever word is asked for
    chances = [np.exp(-train(made, [word, word])[0] / 2) for word in range(37)]
    assert sum(chances) == pytest.approx(1, abs=2e-6)
    assert max(chances) > 3 / 37


@pytest.mark.parametrize("scale", [30, 300])
def test_large_score_differences_stay_finite_and_exact(scale):
    made = softmax(20, scale=scale)
    u, v = made.inputs[:, :DIM].astype(np.float64), made.outputs[:, :DIM].astype(np.float64)
    loss, pairs = train(made, [0, 5, 7, 19])
    exact, _ = reference(u, v, [0, 5, 7, 19], 0.0, cbow=False)
    assert exact / pairs > scale  # a naive exponential would be infinite
    assert loss == pytest.approx(exact, rel=1e-6)
    train(made, [0, 5, 7, 19], 1e-3)
    assert np.isfinite(made.inputs).all()
    assert np.isfinite(made.outputs).all()


def test_the_initial_loss_is_the_logarithm_of_the_vocabulary_size():
    made = softmax(100)
    made.outputs[:] = 0
    loss, pairs = train(made, [3, 1, 4, 15, 92, 65])
    assert loss / pairs == pytest.approx(np.log(100), rel=1e-6)


def test_a_vocabulary_of_one_word_has_zero_loss():
    made = softmax(1)
    assert train(made, [0, 0, 0], 0.1) == pytest.approx([0, 6], abs=1e-6)
