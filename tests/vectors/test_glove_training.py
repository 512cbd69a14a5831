"""GloVe's steps against plain numbers and finite differences, and its vectors against a corpus with known structure."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from seqwise.errors import NonFiniteError
from seqwise.vectors.glove.cooccurrence import PAIR, PairCounter, PairCounts
from seqwise.vectors.glove.trainer import (
    ALPHA,
    INITIAL_SQUARES,
    GloveModel,
    initialize_rows,
    shuffle_pairs,
    update_pairs,
)
from seqwise.vectors.settings import VectorSettings

X_MAX = 10.0


def write_pairs(folder: Path, entries: list[tuple[int, int, float]]) -> PairCounts:
    pairs = np.array(entries, dtype=PAIR)
    pairs.tofile(folder / "pairs")
    return PairCounts(folder / "pairs", len(pairs))


def build_model(vocabulary: int, dim: int, epochs: int, threads: int = 1, seed: int = 1, **changes) -> GloveModel:
    settings = VectorSettings(method="glove", dim=dim, epochs=epochs, threads=threads, seed=seed).resolve()
    return GloveModel(vocabulary, settings.model_copy(update=changes))


def train(counts: PairCounts, *sizes: int, **options) -> tuple[np.ndarray, list[float]]:
    """Returns the vectors and the loss of each epoch."""
    model = build_model(*sizes, **options)
    for _ in model.train(counts):
        pass
    return model.compute_vectors(), model.losses


def draw_counts(folder: Path, vocabulary: int, entries: int, seed: int = 0) -> PairCounts:
    random = np.random.default_rng(seed)
    pairs = np.unique(np.sort(random.integers(0, vocabulary, (entries, 2)), axis=1), axis=0)
    random.shuffle(pairs)
    return write_pairs(folder, [(i, j, c) for (i, j), c in zip(pairs, random.lognormal(1, 1, len(pairs)))])


def compute_term(w, c, b, d, count, x_max: float = X_MAX) -> float:
    """Returns f(X) (w·w̃ + b + b̃ − log X)² in double precision."""
    weight = min(1.0, (count / x_max) ** ALPHA)
    return weight * (np.dot(w, c) + b + d - np.log(count)) ** 2


def update_one_pair(
    rows: np.ndarray, i: int, j: int, count: float, dim: int, learning_rate: float = 0.05, x_max: float = X_MAX
) -> float:
    weight = np.array([min(1.0, (count / x_max) ** ALPHA)], dtype=np.float32)
    pair = [np.array([k], dtype=np.int32) for k in (i, j)]
    log_count = np.log(np.array([count], dtype=np.float32))
    return update_pairs(rows, *pair, log_count, weight, np.float32(learning_rate), dim)


def test_one_adagrad_step_equals_the_hand_computed_one():
    # One dimension, one word next to itself, so there is one step: w = 2, w̃ = 3, b = 0.5, b̃ = -0.5, X = x_max = e.
    rows = np.zeros((1, 4, 16), dtype=np.float32)
    rows[0, 0, :3], rows[0, 1, :3] = (2, 0.5, 1), (3, 1, -0.5)
    rows[0, 2:] = 4.0
    loss = update_one_pair(rows, 0, 0, np.e, dim=1, learning_rate=0.1, x_max=np.e)
    # error = 2·3 + 0.5 − 0.5 − 1 = 5; gradients: 15 for w, 10 for w̃, 5 for the biases; squares: 4 + gradient².
    assert loss == pytest.approx(25, rel=1e-6)
    w, c, squares_w, squares_c = rows[0, :, :4]
    assert squares_w == pytest.approx([4 + 225, 4 + 25, squares_w[2], 4])
    assert squares_c == pytest.approx([4 + 100, squares_c[1], 4 + 25, 4])
    assert w == pytest.approx([2 - 0.1 * 15 / 229**0.5, 0.5 - 0.1 * 5 / 29**0.5, 1, 0], rel=1e-5)
    assert c == pytest.approx([3 - 0.1 * 10 / 104**0.5, 1, -0.5 - 0.1 * 5 / 29**0.5, 0], rel=1e-5)


def test_the_adagrad_step_follows_the_gradient_of_the_loss():
    # With squares so large that they do not change, a step is −learning_rate · gradient / √squares / 2.
    dim, count, square, learning_rate = 5, 3.7, 1e6, 1.0
    random = np.random.default_rng(3)
    rows = initialize_rows(2, dim, seed=0)
    rows[0, 0, : dim + 1] = random.normal(size=dim + 1)  # w and b
    rows[1, 1, :dim], rows[1, 1, dim + 1] = random.normal(size=dim), 0.3  # w̃ and b̃
    rows[:, 2:] = square
    before = rows.copy().astype(float)
    update_one_pair(rows, 0, 1, count, dim, learning_rate)
    scaled_steps = (rows - before) * -np.sqrt(square) / learning_rate * 2

    def compute_loss(values: np.ndarray) -> float:
        return compute_term(values[:dim], values[dim + 1 : -1], values[dim], values[-1], count)

    point = np.concatenate([before[0, 0, : dim + 1], before[1, 1, :dim], before[1, 1, [dim + 1]]])
    offsets = 1e-5 * np.eye(len(point))
    gradient = [(compute_loss(point + offset) - compute_loss(point - offset)) / 2e-5 for offset in offsets]
    actual = np.concatenate([scaled_steps[0, 0, : dim + 1], scaled_steps[1, 1, :dim], scaled_steps[1, 1, [dim + 1]]])
    assert actual == pytest.approx(gradient, rel=0.01, abs=1e-3)


def test_both_triangles_are_trained():
    rows = initialize_rows(3, 4, seed=0)
    before = rows.copy()
    update_one_pair(rows, 0, 2, 5.0, dim=4)
    changed = np.any(rows != before, axis=2)
    assert changed.tolist() == [[True] * 4, [False] * 4, [True] * 4]


def test_padding_and_constant_ones_are_not_trained(tmp_path):
    dim, rows = 5, initialize_rows(4, 5, seed=0)
    for i, j in [(0, 1), (1, 2), (2, 2), (0, 3)] * 5:
        update_one_pair(rows, i, j, 4.0, dim)
    assert rows.shape == (4, 4, 16)
    assert np.all(rows[:, 0, dim + 1] == 1)
    assert np.all(rows[:, 1, dim] == 1)
    assert not np.any(rows[:, :2, dim + 2 :])
    assert np.all(rows[:, 2:, dim + 2 :] == np.float32(INITIAL_SQUARES))


def test_the_first_loss_is_the_mean_over_both_triangles(tmp_path):
    # At a learning rate of 0 nothing moves: (0, 1) has two terms, the diagonal one.
    counts = write_pairs(tmp_path, [(0, 1, 2.0), (1, 1, 30.0)])
    start = initialize_rows(2, 3, seed=7)[:, :2, :3].astype(float)
    parts = [compute_term(start[i, 0], start[j, 1], 0, 0, x) for i, j, x in [(0, 1, 2), (1, 0, 2), (1, 1, 30)]]
    vectors, losses = train(counts, 2, 3, epochs=2, seed=7, learning_rate=0.0)
    assert losses == pytest.approx([np.mean(parts)] * 2, rel=1e-5)
    assert vectors == pytest.approx(start.sum(1), rel=1e-6)


def test_the_loss_falls_and_one_thread_is_deterministic(tmp_path):
    counts = draw_counts(tmp_path, vocabulary=60, entries=800)
    first, losses = train(counts, 60, 20, epochs=8)
    second, second_losses = train(counts, 60, 20, epochs=8)
    other_seed, _ = train(counts, 60, 20, epochs=8, seed=2)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.3 * losses[0]
    assert (first.dtype, first.shape) == (np.float32, (60, 20))
    assert np.array_equal(first, second)
    assert losses == second_losses
    assert not np.array_equal(first, other_seed)


def test_threads_reach_the_same_loss(tmp_path, monkeypatch):
    monkeypatch.setattr("seqwise.vectors.glove.trainer.PART_PAIRS", 256)
    counts = draw_counts(tmp_path, vocabulary=300, entries=10_000)
    losses_of_one = train(counts, 300, 20, epochs=5)[1]
    losses_of_three = train(counts, 300, 20, epochs=5, threads=3)[1]
    assert losses_of_three == pytest.approx(losses_of_one, rel=0.05)


def test_every_epoch_shuffles_all_pairs_differently(tmp_path, monkeypatch):
    monkeypatch.setattr("seqwise.vectors.glove.trainer.BLOCK_PAIRS", 100)
    counts = draw_counts(tmp_path, vocabulary=60, entries=800)

    def list_pairs(seed: int, epoch: int) -> list[tuple]:
        return [tuple(entry) for block in shuffle_pairs(counts, seed, epoch) for entry in block]

    assert sorted(list_pairs(1, 0)) == sorted(tuple(entry) for entry in counts.read(0, counts.size))
    assert list_pairs(1, 0) == list_pairs(1, 0)
    assert len({tuple(list_pairs(*seed_and_epoch)) for seed_and_epoch in [(1, 0), (1, 1), (2, 0)]}) == 3


def test_words_of_one_topic_become_nearest_neighbours(tmp_path):
    # Six topics of ten words; a sentence is about one topic, mixed with five words that occur in all topics.
    random = np.random.default_rng(0)
    sentences = []
    for _ in range(3_000):
        topic = random.integers(6)
        words = np.where(
            random.random(10) < 0.3, random.integers(0, 5, 10), 5 + 10 * topic + random.integers(0, 10, 10)
        )
        sentences.append(np.append(words, -1))
    counter = PairCounter(65, 4, tmp_path)
    for _ in counter.count([np.concatenate(sentences).astype(np.int32)]):
        pass
    vectors, _ = train(counter.counts, 65, 16, epochs=15, seed=0)
    normalized = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = normalized[5:] @ normalized[5:].T - 2 * np.eye(60)
    neighbour_topics = np.argsort(-cosines, axis=1)[:, :5] // 10
    assert np.mean(neighbour_topics == np.arange(60)[:, None] // 10) > 0.95


def test_progress_reports_epoch_pairs_and_loss(tmp_path):
    counts = draw_counts(tmp_path, vocabulary=60, entries=800)
    model = build_model(60, 8, 3)
    assert list(model.train(counts)) == [(epoch, counts.size, model.losses[epoch]) for epoch in range(3)]


def test_a_learning_rate_that_is_too_high_raises_a_divergence_error(tmp_path):
    counts = draw_counts(tmp_path, vocabulary=60, entries=800)
    with pytest.raises(NonFiniteError, match="smaller --learning-rate than 1e") as excinfo:
        train(counts, 60, 8, 20, learning_rate=1e18)
    assert "epoch" in excinfo.value.problem


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interruption_stops_all_threads(tmp_path, threads):
    counts = draw_counts(tmp_path, vocabulary=60, entries=800)
    steps = build_model(60, 8, 1_000_000, threads).train(counts)
    next(steps)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("glove")]
