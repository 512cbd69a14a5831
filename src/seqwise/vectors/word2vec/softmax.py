"""The full softmax, exact for small vocabularies, and the hierarchical softmax over a Huffman tree; both compiled.

Full softmax; every pair costs as much as there are words:

    loss of a pair = −log softmax(U h)_word = log Σ_w e^(U_w·h) − U_word·h    h: hidden vector, U: output rows

The hidden vectors of a window are scored together, against one tile of output rows after the other, so that a tile is
read from memory once per window and pass.

Hierarchical softmax (Morin and Bengio 2005; Mikolov et al. 2013b, section 2.1):

    loss of a pair = −Σ log σ(±h·n)      n: rows of the nodes from the root to the word; + where the path turns left

The words are the leaves, so that the probabilities of all words sum to one and a pair costs as many rows as its word
is deep: few for a frequent word. All pairs of a window share a path.

Gradients are taken at the rows before the window. Importing this module imports numba.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from seqwise.vectors.jit import (
    LANES,
    add,
    broadcast,
    cached_njit,
    constant,
    exponential,
    inline_njit,
    load,
    max_lanes,
    maximum,
    multiply,
    store,
    subtract,
    sum_lanes,
)
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.word2vec.objective import (
    Objective,
    apply_steps,
    compute_logistic_steps,
    compute_scores,
    fill_zeros,
    gather_hidden,
    prefetch_row,
    read_sentence,
    read_window,
    scatter_updates,
)

BLOCK_WORK = 3_000_000  # words of a block times words of the vocabulary: some tenths of a second
TILE_ROWS = 48  # output rows that are scored together: 21 kB at 100 dimensions, within the first-level cache
MASKED_SCORE = -1e30  # score of the unused lanes after the last word


@inline_njit
def compute_softmax_steps(scores, start, stop, vocabulary_size, word, learning_rate):
    """Replaces the scores of a hidden vector by steps, learning_rate · (1[word] − softmax); returns −log softmax_word.

    The largest score is subtracted first, so that no exponential is above 1.
    """
    for position in range(start + vocabulary_size, stop):
        scores[position] = MASKED_SCORE
    max_by_lane = load(scores, start)
    for position in range(start + LANES, stop, LANES):
        max_by_lane = maximum(max_by_lane, load(scores, position))
    max_score = max_lanes(max_by_lane)
    distance = max_score - scores[start + word]
    sum_by_lane = constant(0.0)
    for position in range(start, stop, LANES):
        exp = exponential(subtract(load(scores, position), broadcast(max_score)))
        store(scores, position, exp)
        sum_by_lane = add(sum_by_lane, exp)
    normaliser = sum_lanes(sum_by_lane)
    weight = broadcast(-learning_rate / normaliser)
    for position in range(start, stop, LANES):
        store(scores, position, multiply(load(scores, position), weight))
    scores[start + word] += learning_rate
    return math.log(normaliser) + distance


@cached_njit
def train_softmax(block, state, learning_rate, model, tables, workspace, tally):
    """Trains on a block of sentences; adds (loss, pairs) to `tally`."""
    (targets,) = tables
    sentence, scores, stride, width = workspace.sentence, workspace.scores, workspace.stride, model.width
    position, loss, pairs, vocabulary_size = 0, 0.0, 0, len(targets)
    padded_size = (vocabulary_size + LANES - 1) // LANES * LANES
    while position < len(block):
        position, length, state = read_sentence(block, position, model.keep_threshold, state, sentence)
        for centre in range(length):
            num_neighbours, state = read_window(
                sentence, length, centre, model.window, state, width, workspace.neighbours
            )
            if num_neighbours == 0:
                continue
            num_hidden = gather_hidden(num_neighbours, model, workspace)
            for start in range(0, vocabulary_size, TILE_ROWS):
                compute_scores(num_hidden, targets, start, min(start + TILE_ROWS, vocabulary_size), model, workspace)
            for i in range(num_hidden):
                start, word = i * stride, np.int64(sentence[centre])
                loss += compute_softmax_steps(scores, start, start + padded_size, vocabulary_size, word, learning_rate)
            pairs += num_hidden
            fill_zeros(workspace.updates, num_hidden * width)
            for start in range(0, vocabulary_size, TILE_ROWS):
                apply_steps(num_hidden, targets, start, min(start + TILE_ROWS, vocabulary_size), model, workspace)
            scatter_updates(num_neighbours, model, workspace)
    tally[0] += loss
    tally[1] += pairs


class FullSoftmax(Objective):
    """Skip-gram or CBOW with a softmax over the whole vocabulary."""

    train_block = staticmethod(train_softmax)

    def __init__(self, words: list[str], counts: np.ndarray, settings: ResolvedVectorSettings):
        super().__init__(words, counts, settings)
        self.block_size = max(50, min(self.block_size, BLOCK_WORK // len(counts)))
        self.tables = (np.arange(len(counts), dtype=np.int64) * self.inputs.shape[1],)


class HuffmanTree(NamedTuple):
    """The path of word w is nodes[offsets[w] : offsets[w + 1]], from the root on."""

    offsets: np.ndarray  # (V + 1,) int64
    nodes: np.ndarray  # int32: output row of each node
    turns: np.ndarray  # float32: 1 where the path turns left, 0 where it turns right


def build_huffman_tree(counts: np.ndarray) -> HuffmanTree:
    """Returns the tree in which frequent words have short paths: the two rarest subtrees are merged until one is left.

    Among equally rare subtrees the older is merged first, words before merged ones; the rarer of two becomes the left
    child.
    """
    size = len(counts)
    parents = np.full(2 * size - 1, -1, dtype=np.int64)
    is_left = np.zeros(2 * size - 1, dtype=bool)
    subtrees = [(int(count), word) for word, count in enumerate(counts)]  # (count, node)
    heapq.heapify(subtrees)
    for node in range(size, 2 * size - 1):
        (low, rarer), (high, other) = heapq.heappop(subtrees), heapq.heappop(subtrees)
        parents[rarer] = parents[other] = node
        is_left[rarer] = True
        heapq.heappush(subtrees, (low + high, node))
    depths = np.zeros(len(parents), dtype=np.int64)
    for node in range(len(parents) - 2, -1, -1):  # the index of a parent is higher than its children's
        depths[node] = depths[parents[node]] + 1
    offsets = np.concatenate([[0], np.cumsum(depths[:size])])
    nodes = np.empty(offsets[-1], dtype=np.int32)
    turns = np.empty(offsets[-1], dtype=np.float32)
    current, position = np.arange(size), offsets[1:].copy()
    words = np.arange(size)  # the paths of all words, by climbing from all leaves at once
    while len(words := words[parents[current[words]] >= 0]):
        position[words] -= 1
        nodes[position[words]] = parents[current[words]] - size
        turns[position[words]] = is_left[current[words]]
        current[words] = parents[current[words]]
    return HuffmanTree(offsets, nodes, turns)


@inline_njit
def list_path(tree, word, width, workspace):
    """Lists the output rows of the nodes on a word's path and their labels; returns their number."""
    start = tree.offsets[word]
    num_targets = tree.offsets[word + 1] - start
    for j in range(num_targets):
        workspace.targets[j] = np.int64(tree.nodes[start + j]) * width
        workspace.labels[j] = tree.turns[start + j]
    return num_targets


@cached_njit
def train_hierarchical(block, state, learning_rate, model, tree, workspace, tally):
    """Trains on a block of sentences; adds (loss, pairs) to `tally`."""
    sentence, targets, width = workspace.sentence, workspace.targets, model.width
    position, loss, pairs = 0, 0.0, 0
    while position < len(block):
        position, length, state = read_sentence(block, position, model.keep_threshold, state, sentence)
        for centre in range(length):
            num_neighbours, state = read_window(
                sentence, length, centre, model.window, state, width, workspace.neighbours
            )
            if num_neighbours == 0:
                continue
            if centre + 1 < length:
                upcoming = sentence[centre + 1]
                for index in range(tree.offsets[upcoming], tree.offsets[upcoming + 1]):
                    prefetch_row(model.outputs, np.int64(tree.nodes[index]) * width, width)
            num_targets = list_path(tree, sentence[centre], width, workspace)
            num_hidden = gather_hidden(num_neighbours, model, workspace)
            compute_scores(num_hidden, targets, 0, num_targets, model, workspace)
            losses = constant(0.0)
            for i in range(num_hidden):
                losses = compute_logistic_steps(
                    i * workspace.stride, num_targets, learning_rate, model, workspace, losses
                )
            loss += sum_lanes(losses)
            pairs += num_hidden
            fill_zeros(workspace.updates, num_hidden * width)
            apply_steps(num_hidden, targets, 0, num_targets, model, workspace)
            scatter_updates(num_neighbours, model, workspace)
    tally[0] += loss
    tally[1] += pairs


class HierarchicalSoftmax(Objective):
    """Skip-gram or CBOW with a softmax over a Huffman tree. Output row k is node k; the root is the last."""

    train_block = staticmethod(train_hierarchical)

    def __init__(self, words: list[str], counts: np.ndarray, settings: ResolvedVectorSettings):
        super().__init__(words, counts, settings, num_outputs=max(1, len(counts) - 1))
        self.tables = self.tree = build_huffman_tree(counts)
        self.max_targets = max(1, int(np.diff(self.tree.offsets).max()))  # the longest path
