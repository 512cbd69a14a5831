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


def path(counts, word: int) -> tuple[list[int], list[int]]:
    offsets, nodes, turns = build_huffman_tree(np.array(counts, dtype=np.int64))
    here = slice(offsets[word], offsets[word + 1])
    return nodes[here].tolist(), turns[here].astype(int).tolist()


def hierarchical(counts, method="skipgram") -> HierarchicalSoftmax:
    chosen = VectorSettings(method=method, loss="hierarchical", dim=DIM, window=1000, subsample=0).resolve()
    made = HierarchicalSoftmax([f"w{number}" for number in range(len(counts))], np.array(counts), chosen)
    random = np.random.default_rng(len(counts))
    for rows in (made.inputs, made.outputs):
        rows[:, :DIM] = random.normal(0, 0.6, (len(rows), DIM))
    return made


def train(made: HierarchicalSoftmax, block, rate: float = 0.0) -> np.ndarray:
    tally = np.zeros(2)
    made.train(np.array(block, dtype=np.int32), np.uint64(9), rate, made.allocate_workspace(), tally)
    return tally


def reference(made: HierarchicalSoftmax, u, v, sentence: list[int], rate: float, cbow: bool) -> tuple[float, int]:
    """The same in double precision; u and v are changed."""
    loss, pairs = 0.0, 0
    for place, word in enumerate(sentence):
        around = sentence[:place] + sentence[place + 1 :]
        here = slice(made.tree.offsets[word], made.tree.offsets[word + 1])
        nodes, turns = made.tree.nodes[here], made.tree.turns[here]
        hidden = u[around].mean(axis=0, keepdims=True) if cbow else u[around]
        scores = hidden @ v[nodes].T
        loss += np.logaddexp(0, np.where(turns, -scores, scores)).sum()
        pairs += len(hidden)
        slopes = rate * (turns - 1 / (1 + np.exp(-scores)))
        change = slopes @ v[nodes] / (len(around) if cbow else 1)
        v[nodes] += slopes.T @ hidden
        np.add.at(u, around, np.repeat(change, len(around), axis=0) if cbow else change)
    return loss, pairs


def test_a_huffman_tree_equals_that_by_hand():
    # 1 + 1 → node 0 (2). Of the two parts of 2 the word goes first: 2 + node 0 → node 1 (4). 4 + 5 → node 2, the root.
    counts = [5, 2, 1, 1]
    assert path(counts, 0) == ([2], [0])
    assert path(counts, 1) == ([2, 1], [1, 1])
    assert path(counts, 2) == ([2, 1, 0], [1, 0, 1])
    assert path(counts, 3) == ([2, 1, 0], [1, 0, 0])


def test_equal_counts_make_a_balanced_tree():
    assert [len(path([3] * 8, word)[0]) for word in range(8)] == [3] * 8


def test_trees_of_one_and_two_words():
    assert path([7], 0) == ([], [])
    assert path([7, 7], 0) == ([0], [1])
    assert path([7, 7], 1) == ([0], [0])


@pytest.mark.parametrize("counts", [ZIPF, DEEP, [1] * 33, [2**40, 2**39, 5, 1]], ids=["zipf", "deep", "flat", "large"])
def test_huffman_codes_are_unique_complete_and_optimal(counts):
    counts = np.array(counts, dtype=np.int64)
    offsets, nodes, turns = build_huffman_tree(counts)
    depths = np.diff(offsets)
    codes = ["".join("01"[int(bit)] for bit in turns[a:b]) for a, b in pairwise(offsets)]
    assert len(set(codes)) == len(codes)
    assert sum(2.0**-depths) == 1  # no code begins with another, and no turn is wasted
    assert (nodes[offsets[:-1]] == len(counts) - 2).all()  # every path begins at the root, the last row
    assert set(nodes.tolist()) == set(range(len(counts) - 1))
    chances = counts / counts.sum()
    entropy = -(chances * np.log2(chances)).sum()
    assert entropy <= (chances * depths).sum() < entropy + 1
    assert (np.diff(depths) >= 0).all() or (counts[:-1] == counts[1:]).any()


def test_the_deepest_path_has_one_node_less_than_the_vocabulary():
    assert max(np.diff(build_huffman_tree(np.array(DEEP)).offsets)) == len(DEEP) - 1


def test_the_same_counts_give_the_same_tree():
    first, second = build_huffman_tree(np.array(ZIPF)), build_huffman_tree(np.array(ZIPF))
    assert all(np.array_equal(a, b) for a, b in zip(first, second))


@pytest.mark.parametrize("counts", [[5, 2, 1, 1], ZIPF[:50], DEEP], ids=["small", "zipf", "deep"])
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_the_hierarchical_softmax_handles_paths_of_any_length(method, counts):
    made = hierarchical(counts, method)
    u, v = made.inputs[:, :DIM].astype(np.float64), made.outputs[:, :DIM].astype(np.float64)
    last = len(counts) - 1
    sentence = [0, last, 1, last - 1, 2, 0]
    tally = train(made, sentence, 0.2)
    assert tally == pytest.approx(reference(made, u, v, sentence, 0.2, method == "cbow"), rel=2e-6)
    assert made.inputs[:, :DIM] == pytest.approx(u, abs=3e-6)
    assert made.outputs[:, :DIM] == pytest.approx(v, abs=3e-6)
    assert not made.outputs[:, DIM:].any()


@pytest.mark.parametrize("counts", [ZIPF, DEEP], ids=["zipf", "deep"])
def test_probabilities_of_all_words_sum_to_one(counts):
    made = hierarchical(counts)
    made.inputs[:] = made.inputs[0]  # the same hidden vector, whichever word is asked for
    chances = [np.exp(-train(made, [word, word])[0] / 2) for word in range(len(counts))]
    assert sum(chances) == pytest.approx(1, abs=2e-6)


def test_the_initial_loss_is_log_2_per_node():
    made = hierarchical([5, 2, 1, 1])
    made.outputs[:] = 0
    # A path of one node and one of three, each asked for once.
    assert train(made, [0, 3]) == pytest.approx([(1 + 3) * np.log(2), 2], rel=1e-6)


def test_a_vocabulary_of_one_word_has_zero_loss():
    assert train(hierarchical([4]), [0, 0, 0], 0.1).tolist() == [0, 6]
