"""Every objective of word2vec through the same checks: its equation in double precision, finite differences, same bits,
and a corpus whose structure is known.

The reference implementation has the loss of a window as in the equation, and no gradients: these are central
differences. Chance is taken out: all words are kept, windows reach over the whole sentence, one word is every negative.
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
DIM, NEGATIVE, ONLY = 5, 2, 3  # every negative is word 3
# Six words with one twice, two words, the negative itself in the middle, and one alone.
SENTENCES = [[0, 1, 2, 6, 2, 4], [5, 0], [1, 3, 2], [4]]
BLOCK = np.concatenate([[*sentence, -1] for sentence in SENTENCES]).astype(np.int32)
WIDE = 1000  # so wide that a window drawn evenly almost never ends within a sentence


def resolve_settings(kind: str, method: str, **others) -> VectorSettings:
    loss = "negative" if kind == "subwords" else kind
    chosen = {"dim": DIM, "window": WIDE, "negative": NEGATIVE, "subsample": 0, "buckets": 11} | others
    return VectorSettings(method=method, loss=loss, subwords=kind == "subwords", **chosen).resolve()


def objective(kind: str, method: str, **others) -> Objective:
    """With random rows, so that every gradient is there."""
    made = build_objective(WORDS, COUNTS, resolve_settings(kind, method, **others))
    random = np.random.default_rng(1)
    for rows in (made.inputs, made.outputs):
        rows[:, :DIM] = random.normal(0, 0.7, (len(rows), DIM))
    if kind in ("negative", "subwords"):
        table = made.tables if kind == "negative" else made.tables[0]
        table.threshold[:], table.alias[:] = 0, ONLY
    return made


def cost(score) -> float:
    """−log σ(score)"""
    return float(np.logaddexp(0, -score))


class ReferenceTrainer:
    """The loss of one window, from the equations."""

    def __init__(self, kind: str, made: Objective):
        self.kind, self.cbow, self.made = kind, made.settings.method == "cbow", made
        self.inputs = made.inputs[:, :DIM].astype(np.float64)
        self.outputs = made.outputs[:, :DIM].astype(np.float64)

    def hidden(self, words: list[int]) -> list[np.ndarray]:
        rows = [self.row(word) for word in words]
        return [np.mean(rows, axis=0)] if self.cbow else rows

    def row(self, word: int) -> np.ndarray:
        if self.kind != "subwords":
            return self.inputs[word]
        offsets, rows = self.made.word_rows
        return self.inputs[rows[offsets[word] : offsets[word + 1]]].mean(axis=0)

    def pair(self, h: np.ndarray, word: int) -> float:
        scores = self.outputs @ h
        if self.kind == "softmax":
            return float(np.log(np.exp(scores).sum()) - scores[word])
        if self.kind == "hierarchical":
            offsets, nodes, turns = self.made.tree
            path = slice(offsets[word], offsets[word + 1])
            return sum(cost(scores[node] if left else -scores[node]) for node, left in zip(nodes[path], turns[path]))
        negatives = NEGATIVE * cost(-scores[ONLY]) if word != ONLY else 0.0
        return cost(scores[word]) + negatives

    def loss(self, centre: int, neighbours: list[int]) -> tuple[float, int]:
        """(loss, pairs) of a window."""
        if self.kind == "subwords" and not self.cbow:  # from the centre to each neighbour
            pairs = [(self.row(centre), word) for word in neighbours]
        else:
            pairs = [(h, centre) for h in self.hidden(neighbours)]
        return sum(self.pair(h, word) for h, word in pairs), len(pairs)

    def gradients(self, centre: int, neighbours: list[int], step: float = 1e-5) -> list[np.ndarray]:
        found = []
        for rows in (self.inputs, self.outputs):
            gradient = np.zeros_like(rows)
            for place in np.ndindex(rows.shape):
                kept, losses = rows[place], []
                for moved in (kept + step, kept - step):
                    rows[place] = moved
                    losses.append(self.loss(centre, neighbours)[0])
                rows[place], gradient[place] = kept, (losses[0] - losses[1]) / (2 * step)
            found.append(gradient)
        return found

    def train(self, rate: float, more: bool = False) -> tuple[float, int]:
        """With `more`, each neighbour gets all of the gradient of the mean."""
        loss, pairs = 0.0, 0
        for centre, neighbours in windows():
            here, number = self.loss(centre, neighbours)
            loss, pairs = loss + here, pairs + number
            inputs, outputs = self.gradients(centre, neighbours)
            self.inputs -= rate * inputs * (len(neighbours) if more else 1)
            self.outputs -= rate * outputs
        return loss, pairs


def windows() -> Iterator[tuple[int, list[int]]]:
    for sentence in SENTENCES:
        for place, centre in enumerate(sentence):
            if len(sentence) > 1:
                yield centre, sentence[:place] + sentence[place + 1 :]


def trained(made: Objective, rate: float, state: int = 5) -> np.ndarray:
    tally = np.zeros(2)
    made.train(BLOCK, np.uint64(state), rate, made.allocate_workspace(), tally)
    return tally


contract = pytest.mark.parametrize(("kind", "method"), [(kind, method) for kind in KINDS for method in METHODS])


@contract
def test_a_pass_equals_gradient_steps_of_the_equations(kind, method):
    made = objective(kind, method)
    reference = ReferenceTrainer(kind, made)
    before = reference.inputs.copy(), reference.outputs.copy()
    # A small rate, since CBOW's negatives see what an equal one before them in the window has changed.
    rate = 1e-3 if (kind, method) == ("negative", "cbow") else 0.1
    tally = trained(made, rate)
    loss, pairs = reference.train(rate)
    assert tally[1] == pairs
    assert tally[0] == pytest.approx(loss, rel=2e-6)
    for rows, slow, start in zip((made.inputs, made.outputs), (reference.inputs, reference.outputs), before):
        moved, should = (rows[:, :DIM] - start) / rate, (slow - start) / rate
        assert np.abs(should).max() > 0.1
        assert moved == pytest.approx(should, rel=1e-4, abs=4e-4)
        assert not rows[:, DIM:].any()


@contract
def test_with_learning_rate_zero_nothing_changes_and_the_loss_is_exact(kind, method):
    made = objective(kind, method)
    inputs, outputs = made.inputs.copy(), made.outputs.copy()
    loss, pairs = trained(made, 0.0)
    reference = ReferenceTrainer(kind, made)
    exact = [reference.loss(*window) for window in windows()]
    assert pairs == sum(number for _, number in exact)
    assert loss == pytest.approx(sum(part for part, _ in exact), rel=5e-7)
    assert np.array_equal(made.inputs, inputs)
    assert np.array_equal(made.outputs, outputs)


@pytest.mark.parametrize("kind", ["negative", "softmax", "hierarchical"])
def test_gensims_update_gives_each_neighbour_all_of_the_gradient(kind):
    made = objective(kind, "cbow", update="gensim")
    reference = ReferenceTrainer(kind, made)
    start = reference.inputs.copy()
    trained(made, 1e-3)
    reference.train(1e-3, more=True)
    assert (made.inputs[:, :DIM] - start) / 1e-3 == pytest.approx((reference.inputs - start) / 1e-3, rel=2e-3, abs=2e-3)


@contract
def test_same_seed_gives_same_bits_with_a_used_workspace(kind, method):
    chosen = {"window": 3, "subsample": 0.05}
    results = []
    for used in (False, True):
        made = build_objective(WORDS, COUNTS, resolve_settings(kind, method, **chosen))
        workspace, tally = made.allocate_workspace(), np.zeros(2)
        if used:  # by another thread's blocks, with other rows
            other = objective(kind, method, **chosen)
            other.train(BLOCK, np.uint64(77), 0.1, workspace, np.zeros(2))
        for number in range(20):
            made.train(BLOCK, seed_block(0, 1, number), 0.1, workspace, tally)
        results.append((made.inputs.tobytes(), made.outputs.tobytes(), *tally))
    assert results[0] == results[1]


@contract
def test_the_seed_determines_small_initial_inputs(kind, method):
    first, second = (build_objective(WORDS, COUNTS, resolve_settings(kind, method, seed=seed)) for seed in (0, 1))
    assert not np.array_equal(first.inputs, second.inputs)
    assert 0 < np.abs(first.inputs).max() <= 0.5 / DIM
    assert not first.outputs.any()
    assert first.vectors().shape == (len(WORDS), DIM)
    assert first.vectors().flags.c_contiguous


TOPICS, EACH = 4, 6
RATES = {"negative": (0.05, 0.2), "softmax": (0.05, 0.2), "hierarchical": (0.05, 0.2), "subwords": (0.2, 0.8)}


def topics() -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """(words, counts, block, topic of each word): a sentence is about one topic, which no spelling betrays."""
    random = np.random.default_rng(3)
    words = ["".join(random.choice(list("bcdfghjklmnprstvz"), 5)) for _ in range(TOPICS * EACH)]
    lines = [[*(random.integers(0, EACH, 8) * TOPICS + random.integers(0, TOPICS)), -1] for _ in range(900)]
    block = np.concatenate(lines).astype(np.int32)
    counts = np.bincount(block[block >= 0], minlength=len(words))
    order = np.argsort(-counts, kind="stable")
    place = np.argsort(order)
    return (
        [words[w] for w in order],
        counts[order],
        np.where(block < 0, -1, place[block]).astype(np.int32),
        order % TOPICS,
    )


@contract
def test_words_of_one_topic_become_neighbours(kind, method):
    words, counts, block, topic = topics()
    rate = RATES[kind][METHODS.index(method)]
    made = build_objective(
        words, counts, resolve_settings(kind, method, dim=16, window=3, negative=5, learning_rate=rate)
    )
    workspace, losses, passes = made.allocate_workspace(), [], 12
    for number in range(passes):
        tally = np.zeros(2)
        made.train(block, seed_block(0, number, 0), rate * (1 - number / passes), workspace, tally)
        losses.append(tally[0] / tally[1])
    vectors = made.vectors()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    likeness = unit @ unit.T
    np.fill_diagonal(likeness, -2)
    nearest = np.argsort(-likeness, axis=1)[:, : EACH - 1]
    assert (topic[nearest] == topic[:, None]).mean() > 0.98
    assert losses[-1] < losses[0]
