"""Every objective of word2vec through the same checks: its equation in double precision, finite differences, same bits,
and a corpus whose structure is known.

The reference implementation computes the loss of a window from the equation, and its gradients by central differences.
Nothing is random: all words are kept, windows span the whole sentence, every negative is the same word.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.objective import Objective
from seqwise.vectors.word2vec.sampling_tables import seed_block
from seqwise.vectors.word2vec.trainer import build_objective

KINDS = ("negative", "softmax", "hierarchical", "subwords")
METHODS = ("skipgram", "cbow")
WORDS = ["the", "cat", "sat", "there", "that", "catty", "a"]
COUNTS = np.array([20, 11, 9, 5, 4, 2, 1], dtype=np.int64)
DIM, NEGATIVE, NEGATIVE_WORD = 5, 2, 3  # every negative is word 3
# Six words with one twice, two words, the negative word itself in the middle, and a single word.
SENTENCES = [[0, 1, 2, 6, 2, 4], [5, 0], [1, 3, 2], [4]]
BLOCK = np.concatenate([[*sentence, -1] for sentence in SENTENCES]).astype(np.int32)
WIDE_WINDOW = 1000  # so wide that a window drawn uniformly almost never ends within a sentence


def resolve_settings(kind: str, method: str, **others) -> VectorSettings:
    loss = "negative" if kind == "subwords" else kind
    options = {"dim": DIM, "window": WIDE_WINDOW, "negative": NEGATIVE, "subsample": 0} | others
    if kind == "subwords":
        options = {"buckets": 11} | options
    if loss != "negative":
        options.pop("negative")
    return VectorSettings(method=method, loss=loss, subwords=kind == "subwords", **options).resolve()


def build_random_objective(kind: str, method: str, **others) -> Objective:
    """Returns an objective with random rows, so that no gradient is zero."""
    objective = build_objective(WORDS, COUNTS, resolve_settings(kind, method, **others))
    random = np.random.default_rng(1)
    for rows in (objective.inputs, objective.outputs):
        rows[:, :DIM] = random.normal(0, 0.7, (len(rows), DIM))
    if kind in ("negative", "subwords"):
        table = objective.tables if kind == "negative" else objective.tables[0]
        table.threshold[:], table.alias[:] = 0, NEGATIVE_WORD
    return objective


def compute_cost(score) -> float:
    """Returns −log σ(score)."""
    return float(np.logaddexp(0, -score))


class ReferenceTrainer:
    """The loss and gradients of a window, from the equations in double precision."""

    def __init__(self, kind: str, objective: Objective):
        self.kind, self.cbow, self.objective = kind, objective.settings.method == "cbow", objective
        self.inputs = objective.inputs[:, :DIM].astype(np.float64)
        self.outputs = objective.outputs[:, :DIM].astype(np.float64)

    def compute_hidden_vectors(self, words: list[int]) -> list[np.ndarray]:
        rows = [self.compute_row(word) for word in words]
        return [np.mean(rows, axis=0)] if self.cbow else rows

    def compute_row(self, word: int) -> np.ndarray:
        if self.kind != "subwords":
            return self.inputs[word]
        offsets, rows = self.objective.word_rows
        return self.inputs[rows[offsets[word] : offsets[word + 1]]].mean(axis=0)

    def compute_pair_loss(self, h: np.ndarray, word: int) -> float:
        scores = self.outputs @ h
        if self.kind == "softmax":
            return float(np.log(np.exp(scores).sum()) - scores[word])
        if self.kind == "hierarchical":
            offsets, nodes, turns = self.objective.tree
            path = slice(offsets[word], offsets[word + 1])
            turned_scores = np.where(turns[path], scores[nodes[path]], -scores[nodes[path]])
            return sum(map(compute_cost, turned_scores))
        negatives = NEGATIVE * compute_cost(-scores[NEGATIVE_WORD]) if word != NEGATIVE_WORD else 0.0
        return compute_cost(scores[word]) + negatives

    def compute_loss(self, centre: int, neighbours: list[int]) -> tuple[float, int]:
        """Returns (loss, pairs) of a window."""
        if self.kind == "subwords" and not self.cbow:  # from the centre to each neighbour
            pairs = [(self.compute_row(centre), word) for word in neighbours]
        else:
            pairs = [(h, centre) for h in self.compute_hidden_vectors(neighbours)]
        return sum(self.compute_pair_loss(h, word) for h, word in pairs), len(pairs)

    def compute_gradients(self, centre: int, neighbours: list[int], step: float = 1e-5) -> list[np.ndarray]:
        gradients = []
        for rows in (self.inputs, self.outputs):
            gradient = np.zeros_like(rows)
            for index in np.ndindex(rows.shape):
                original, losses = rows[index], []
                for value in (original + step, original - step):
                    rows[index] = value
                    losses.append(self.compute_loss(centre, neighbours)[0])
                rows[index], gradient[index] = original, (losses[0] - losses[1]) / (2 * step)
            gradients.append(gradient)
        return gradients

    def train(self, rate: float, full_gradient: bool = False) -> tuple[float, int]:
        """Trains on all windows. With `full_gradient`, each neighbour gets all of the gradient of the mean."""
        loss, pairs = 0.0, 0
        for centre, neighbours in iterate_windows():
            window_loss, number = self.compute_loss(centre, neighbours)
            loss, pairs = loss + window_loss, pairs + number
            inputs, outputs = self.compute_gradients(centre, neighbours)
            self.inputs -= rate * inputs * (len(neighbours) if full_gradient else 1)
            self.outputs -= rate * outputs
        return loss, pairs


def iterate_windows() -> Iterator[tuple[int, list[int]]]:
    for sentence in SENTENCES:
        for index, centre in enumerate(sentence):
            if len(sentence) > 1:
                yield centre, sentence[:index] + sentence[index + 1 :]


def train_block(objective: Objective, rate: float, state: int = 5) -> np.ndarray:
    tally = np.zeros(2)
    objective.train(BLOCK, np.uint64(state), rate, objective.allocate_workspace(), tally)
    return tally


each_objective = pytest.mark.parametrize(("kind", "method"), [(kind, method) for kind in KINDS for method in METHODS])


@each_objective
def test_a_pass_equals_gradient_steps_of_the_equations(kind, method):
    objective = build_random_objective(kind, method)
    reference = ReferenceTrainer(kind, objective)
    before = reference.inputs.copy(), reference.outputs.copy()
    # A small rate, since equal negatives of a window are updated one after another in CBOW.
    rate = 1e-3 if (kind, method) == ("negative", "cbow") else 0.1
    tally = train_block(objective, rate)
    loss, pairs = reference.train(rate)
    assert tally[1] == pairs
    assert tally[0] == pytest.approx(loss, rel=2e-6)
    expected = (reference.inputs, reference.outputs)
    for rows, expected_rows, start in zip((objective.inputs, objective.outputs), expected, before):
        change, expected_change = (rows[:, :DIM] - start) / rate, (expected_rows - start) / rate
        assert np.abs(expected_change).max() > 0.1
        assert change == pytest.approx(expected_change, rel=1e-4, abs=4e-4)
        assert not rows[:, DIM:].any()


@each_objective
def test_with_learning_rate_zero_nothing_changes_and_the_loss_is_exact(kind, method):
    objective = build_random_objective(kind, method)
    inputs, outputs = objective.inputs.copy(), objective.outputs.copy()
    loss, pairs = train_block(objective, 0.0)
    reference = ReferenceTrainer(kind, objective)
    exact = [reference.compute_loss(*window) for window in iterate_windows()]
    assert pairs == sum(number for _, number in exact)
    assert loss == pytest.approx(sum(part for part, _ in exact), rel=5e-7)
    assert np.array_equal(objective.inputs, inputs)
    assert np.array_equal(objective.outputs, outputs)


@pytest.mark.parametrize("kind", ["negative", "softmax", "hierarchical"])
def test_gensims_update_gives_each_neighbour_all_of_the_gradient(kind):
    objective = build_random_objective(kind, "cbow", update="gensim")
    reference = ReferenceTrainer(kind, objective)
    start = reference.inputs.copy()
    train_block(objective, 1e-3)
    reference.train(1e-3, full_gradient=True)
    assert (objective.inputs[:, :DIM] - start) / 1e-3 == pytest.approx(
        (reference.inputs - start) / 1e-3, rel=2e-3, abs=2e-3
    )


@each_objective
def test_same_seed_gives_same_bits_with_a_used_workspace(kind, method):
    options = {"window": 3, "subsample": 0.05}
    results = []
    for used in (False, True):
        objective = build_objective(WORDS, COUNTS, resolve_settings(kind, method, **options))
        workspace, tally = objective.allocate_workspace(), np.zeros(2)
        if used:  # as by another thread's blocks, with other rows
            other = build_random_objective(kind, method, **options)
            other.train(BLOCK, np.uint64(77), 0.1, workspace, np.zeros(2))
        for number in range(20):
            objective.train(BLOCK, seed_block(0, 1, number), 0.1, workspace, tally)
        results.append((objective.inputs.tobytes(), objective.outputs.tobytes(), *tally))
    assert results[0] == results[1]


@each_objective
def test_the_seed_determines_small_initial_inputs(kind, method):
    first, second = (build_objective(WORDS, COUNTS, resolve_settings(kind, method, seed=seed)) for seed in (0, 1))
    assert not np.array_equal(first.inputs, second.inputs)
    assert 0 < np.abs(first.inputs).max() <= 0.5 / DIM
    assert not first.outputs.any()
    assert first.export_vectors().shape == (len(WORDS), DIM)
    assert first.export_vectors().flags.c_contiguous


TOPICS, WORDS_PER_TOPIC = 4, 6
RATES = {"negative": (0.05, 0.2), "softmax": (0.05, 0.2), "hierarchical": (0.05, 0.2), "subwords": (0.2, 0.8)}


def build_topic_corpus() -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Returns words, counts, block and the topic of each word: a sentence is about one topic, unrelated to spelling."""
    random = np.random.default_rng(3)
    words = ["".join(random.choice(list("bcdfghjklmnprstvz"), 5)) for _ in range(TOPICS * WORDS_PER_TOPIC)]
    lines = [[*(random.integers(0, WORDS_PER_TOPIC, 8) * TOPICS + random.integers(0, TOPICS)), -1] for _ in range(900)]
    block = np.concatenate(lines).astype(np.int32)
    counts = np.bincount(block[block >= 0], minlength=len(words))
    order = np.argsort(-counts, kind="stable")
    new_ids = np.argsort(order)
    return (
        [words[w] for w in order],
        counts[order],
        np.where(block < 0, -1, new_ids[block]).astype(np.int32),
        order % TOPICS,
    )


@each_objective
def test_words_of_one_topic_become_neighbours(kind, method):
    words, counts, block, topic = build_topic_corpus()
    rate = RATES[kind][METHODS.index(method)]
    objective = build_objective(
        words, counts, resolve_settings(kind, method, dim=16, window=3, negative=5, learning_rate=rate)
    )
    workspace = objective.allocate_workspace()
    losses, passes = [], 12
    for number in range(passes):
        tally = np.zeros(2)
        objective.train(block, seed_block(0, number, 0), rate * (1 - number / passes), workspace, tally)
        losses.append(tally[0] / tally[1])
    vectors = objective.export_vectors()
    normalized = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = normalized @ normalized.T
    np.fill_diagonal(similarity, -2)
    nearest = np.argsort(-similarity, axis=1)[:, : WORDS_PER_TOPIC - 1]
    assert (topic[nearest] == topic[:, None]).mean() > 0.98
    assert losses[-1] < losses[0]
