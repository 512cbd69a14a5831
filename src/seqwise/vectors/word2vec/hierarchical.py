"""The hierarchical softmax (Morin and Bengio 2005; Mikolov et al. 2013b, section 2.1) over a Huffman tree.

    loss of a pair = −Σ log σ(±h·n)      n: rows of the nodes from the root to the word; + where the path turns left

The words are the leaves, so that the probabilities of all words sum to one and a pair costs as many rows as its word
lies deep: few where it is frequent. All pairs of a window share a path. Gradients are taken at the rows as they were
before the window. Threads share the rows without locks. Importing this imports numba.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from seqwise.vectors.compiled import compiled, inlined
from seqwise.vectors.rows import LANES, aligned, padded, real_lanes
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.simd import constant, fetch, total
from seqwise.vectors.word2vec.chances import keep_below
from seqwise.vectors.word2vec.hidden import clear, descend, gather, scatter, score
from seqwise.vectors.word2vec.negative import EVERYWHERE, GENSIM_WIDEST, slopes
from seqwise.vectors.word2vec.objective import LONGEST, Objective, new_inputs
from seqwise.vectors.word2vec.windows import read_sentence, read_window


class Tree(NamedTuple):
    """The path of word w: nodes[offsets[w] : offsets[w + 1]] from the root on, and at each 1 for left, 0 for right."""

    offsets: np.ndarray  # (V + 1,) int64
    nodes: np.ndarray  # int32, the row of the node
    lefts: np.ndarray  # float32


def huffman(counts: np.ndarray) -> Tree:
    """The tree in which frequent words lie high: the two rarest parts are joined until one is left.

    Of equally rare parts the older goes first, words before what was joined; the rarer of two is on the left.
    """
    size = len(counts)
    parents, left = np.full(2 * size - 1, -1, dtype=np.int64), np.zeros(2 * size - 1, dtype=bool)
    parts = [(int(count), number) for number, count in enumerate(counts)]
    heapq.heapify(parts)
    for node in range(size, 2 * size - 1):
        (fewer, rarer), (more, other) = heapq.heappop(parts), heapq.heappop(parts)
        parents[rarer] = parents[other] = node
        left[rarer] = True
        heapq.heappush(parts, (fewer + more, node))
    return _paths(parents, left, size)


def _paths(parents: np.ndarray, left: np.ndarray, size: int) -> Tree:
    """Climb from all leaves at once."""
    depths = np.zeros(len(parents), dtype=np.int64)
    for node in range(len(parents) - 2, -1, -1):  # a parent has a higher number than its children
        depths[node] = depths[parents[node]] + 1
    offsets = np.concatenate([[0], np.cumsum(depths[:size])])
    nodes, lefts = np.empty(offsets[-1], dtype=np.int32), np.empty(offsets[-1], dtype=np.float32)
    climbing, behind = np.arange(size), offsets[1:].copy()
    words = np.arange(size)
    while len(words := words[parents[climbing[words]] >= 0]):
        behind[words] -= 1
        nodes[behind[words]] = parents[climbing[words]] - size
        lefts[behind[words]] = left[climbing[words]]
        climbing[words] = parents[climbing[words]]
    return Tree(offsets, nodes, lefts)


@inlined
def list_path(offsets, nodes, lefts, word, width, targets, labels):
    """The rows of a word's nodes, and where it turns left; returns how many."""
    begin, columns = offsets[word], offsets[word + 1] - offsets[word]
    for j in range(columns):
        targets[j] = np.int64(nodes[begin + j]) * width
        labels[j] = lefts[begin + j]
    return columns


@inlined
def fetch_path(offsets, nodes, word, width, outputs):
    """Ask memory for the nodes of the word that comes next."""
    for place in range(offsets[word], offsets[word + 1]):
        for d in range(0, width, LANES):
            fetch(outputs, np.int64(nodes[place]) * width + d)


@compiled
def train_block(block, state, rate, inputs, outputs, width, keep, tree, window, scratch, tally, mean, share):
    """Train on a block of sentences: CBOW with `mean`, else skip-gram. `tally` gains (loss, pairs)."""
    offsets, nodes, lefts = tree
    sentence, rows, targets, hidden, changes, scores, stride, labels, real = scratch
    widest = EVERYWHERE if share else GENSIM_WIDEST
    place, loss, pairs = 0, 0.0, 0
    while place < len(block):
        place, length, state = read_sentence(block, place, keep, state, sentence)
        for centre in range(length):
            count, state = read_window(sentence, length, centre, window, state, width, rows)
            if count == 0:
                continue
            if centre + 1 < length:
                fetch_path(offsets, nodes, sentence[centre + 1], width, outputs)
            columns = list_path(offsets, nodes, lefts, sentence[centre], width, targets, labels)
            used = gather(inputs, rows, count, width, mean, hidden)
            score(hidden, used, outputs, targets, 0, columns, width, scores, stride)
            lanes = constant(0.0)
            for i in range(used):
                lanes = slopes(scores, i * stride, columns, rate, labels, real, widest, lanes)
            loss += total(lanes)
            pairs += used
            clear(changes, used * width)
            descend(hidden, used, outputs, targets, 0, columns, width, scores, stride, changes)
            scatter(inputs, rows, count, width, mean, share, changes)
    tally[0] += loss
    tally[1] += pairs


class HierarchicalSoftmax(Objective):
    """Skip-gram or CBOW with a softmax over a tree."""

    def __init__(self, words: list[str], counts: np.ndarray, settings: VectorSettings):
        super().__init__(words, counts, settings)
        self.tree = huffman(counts)
        self.inputs = new_inputs(len(counts), settings.dim, settings.seed)
        # Row k is node k, the root comes last.
        self.outputs: np.ndarray | None = aligned(max(1, len(counts) - 1), settings.dim)
        self.keep = keep_below(counts, settings.subsample)

    def scratch(self) -> tuple:
        most, width = 2 * (self.settings.window or 0), self.inputs.shape[1]
        deepest = max(1, int(np.diff(self.tree.offsets).max()))
        stride = padded(deepest) + LANES  # the tile of three may write behind the last node
        return (
            np.empty(LONGEST, dtype=np.int32),
            np.empty(most, dtype=np.int64),
            np.empty(deepest, dtype=np.int64),
            aligned(1, most * width)[0],
            aligned(1, most * width)[0],
            aligned(1, (most + 1) * stride)[0],  # rows are scored by twos
            stride,
            aligned(1, stride)[0],
            real_lanes(),
        )

    def train(self, block: np.ndarray, state: np.uint64, rate: float, scratch: tuple, tally: np.ndarray) -> None:
        assert self.outputs is not None, "the vectors were taken: training is over"
        settings, width = self.settings, self.inputs.shape[1]
        train_block(
            block, state, np.float32(rate), self.inputs.reshape(-1), self.outputs.reshape(-1), width, self.keep,
            tuple(self.tree), settings.window, scratch, tally, settings.method == "cbow", settings.update == "gradient",
        )  # fmt: skip
