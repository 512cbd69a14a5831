"""The Huffman tree by hand and by its properties, and the softmax over it against numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.softmax import HierarchicalSoftmax, build_huffman_tree

DIM = 6
FIBONACCI = [1, 1]
while len(FIBONACCI) < 40:
    FIBONACCI.append(FIBONACCI[-1] + FIBONACCI[-2])
DEEP = FIBONACCI[::-1]  # the tree of these counts is a single branch, 39 nodes long
ZIPF = [10_000 // rank for rank in range(1, 300)]


def find_path(counts, word: int) -> tuple[list[int], list[int]]:
    offsets, nodes, turns = build_huffman_tree(np.array(counts, dtype=np.int64))
    span = slice(offsets[word], offsets[word + 1])
    return nodes[span].tolist(), turns[span].astype(int).tolist()


def build_hierarchical(counts, method="skipgram") -> HierarchicalSoftmax:
    settings = VectorSettings(method=method, loss="hierarchical", dim=DIM, window=1000, subsample=0).resolve()
    objective = HierarchicalSoftmax([f"w{number}" for number in range(len(counts))], np.array(counts), settings)
    random = np.random.default_rng(len(counts))
    for rows in (objective.inputs, objective.outputs):
        rows[:, :DIM] = random.normal(0, 0.6, (len(rows), DIM))
    return objective


def train(objective: HierarchicalSoftmax, block, rate: float = 0.0) -> np.ndarray:
    tally = np.zeros(2)
    objective.train(np.array(block, dtype=np.int32), np.uint64(9), rate, objective.allocate_workspace(), tally)
    return tally


def train_reference(
    objective: HierarchicalSoftmax, u, v, sentence: list[int], rate: float, cbow: bool
) -> tuple[float, int]:
    """Computes the same step in double precision; changes u and v in place."""
    loss, pairs = 0.0, 0
    for position, word in enumerate(sentence):
        context = sentence[:position] + sentence[position + 1 :]
        span = slice(objective.tree.offsets[word], objective.tree.offsets[word + 1])
        nodes, turns = objective.tree.nodes[span], objective.tree.turns[span]
        hidden = u[context].mean(axis=0, keepdims=True) if cbow else u[context]
        scores = hidden @ v[nodes].T
        loss += np.logaddexp(0, np.where(turns, -scores, scores)).sum()
        pairs += len(hidden)
        steps = rate * (turns - 1 / (1 + np.exp(-scores)))
        update = steps @ v[nodes] / (len(context) if cbow else 1)
        v[nodes] += steps.T @ hidden
        np.add.at(u, context, np.repeat(update, len(context), axis=0) if cbow else update)
    return loss, pairs


def test_a_huffman_tree_equals_a_hand_computed_one():
    # 1 + 1 → node 0 (2). Of equal counts the word comes first: 2 + node 0 → node 1 (4). 4 + 5 → node 2, the root.
    counts = [5, 2, 1, 1]
    assert find_path(counts, 0) == ([2], [0])
    assert find_path(counts, 1) == ([2, 1], [1, 1])
    assert find_path(counts, 2) == ([2, 1, 0], [1, 0, 1])
    assert find_path(counts, 3) == ([2, 1, 0], [1, 0, 0])


def test_equal_counts_make_a_balanced_tree():
    assert [len(find_path([3] * 8, word)[0]) for word in range(8)] == [3] * 8


def test_trees_of_one_and_two_words_have_no_and_one_node():
    assert find_path([7], 0) == ([], [])
    assert find_path([7, 7], 0) == ([0], [1])
    assert find_path([7, 7], 1) == ([0], [0])


@pytest.mark.parametrize("counts", [ZIPF, DEEP, [1] * 33, [2**40, 2**39, 5, 1]], ids=["zipf", "deep", "flat", "large"])
def test_huffman_codes_are_unique_complete_and_optimal(counts):
    counts = np.array(counts, dtype=np.int64)
    offsets, nodes, turns = build_huffman_tree(counts)
    depths = np.diff(offsets)
    codes = ["".join("01"[int(bit)] for bit in turns[a:b]) for a, b in pairwise(offsets)]
    assert len(set(codes)) == len(codes)
    assert sum(2.0**-depths) == 1  # no code is a prefix of another, and every leaf is a word
    assert (nodes[offsets[:-1]] == len(counts) - 2).all()  # every path begins at the root, the last row
    assert set(nodes.tolist()) == set(range(len(counts) - 1))
    probabilities = counts / counts.sum()
    entropy = -(probabilities * np.log2(probabilities)).sum()
    assert entropy <= (probabilities * depths).sum() < entropy + 1
    assert (np.diff(depths) >= 0).all() or (counts[:-1] == counts[1:]).any()


def test_the_deepest_path_has_one_node_less_than_the_vocabulary():
    assert max(np.diff(build_huffman_tree(np.array(DEEP)).offsets)) == len(DEEP) - 1


def test_the_same_counts_give_the_same_tree():
    first, second = build_huffman_tree(np.array(ZIPF)), build_huffman_tree(np.array(ZIPF))
    assert all(np.array_equal(a, b) for a, b in zip(first, second))


@pytest.mark.parametrize("counts", [[5, 2, 1, 1], ZIPF[:50], DEEP], ids=["small", "zipf", "deep"])
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_the_hierarchical_softmax_handles_paths_of_any_length(method, counts):
    objective = build_hierarchical(counts, method)
    u, v = objective.inputs[:, :DIM].astype(np.float64), objective.outputs[:, :DIM].astype(np.float64)
    last = len(counts) - 1
    sentence = [0, last, 1, last - 1, 2, 0]
    tally = train(objective, sentence, 0.2)
    assert tally == pytest.approx(train_reference(objective, u, v, sentence, 0.2, method == "cbow"), rel=2e-6)
    assert objective.inputs[:, :DIM] == pytest.approx(u, abs=3e-6)
    assert objective.outputs[:, :DIM] == pytest.approx(v, abs=3e-6)
    assert not objective.outputs[:, DIM:].any()


@pytest.mark.parametrize("counts", [ZIPF, DEEP], ids=["zipf", "deep"])
def test_probabilities_of_all_words_sum_to_one(counts):
    objective = build_hierarchical(counts)
    objective.inputs[:] = objective.inputs[0]  # the same hidden vector, whichever word is predicted
    probabilities = [np.exp(-train(objective, [word, word])[0] / 2) for word in range(len(counts))]
    assert sum(probabilities) == pytest.approx(1, abs=2e-6)


def test_the_initial_loss_is_log_2_per_node():
    objective = build_hierarchical([5, 2, 1, 1])
    objective.outputs[:] = 0
    # A path of one node and one of three, each predicted once.
    assert train(objective, [0, 3]) == pytest.approx([(1 + 3) * np.log(2), 2], rel=1e-6)


def test_a_vocabulary_of_one_word_has_zero_loss():
    assert train(build_hierarchical([4]), [0, 0, 0], 0.1).tolist() == [0, 6]
