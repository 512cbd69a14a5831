"""`Objective`: the base of the objectives of word2vec, and the functions that their compiled loops share.

Skip-gram has one hidden vector per neighbour, a copy of its input row; CBOW has one, the mean of the neighbours' rows.
A target is an output row; the objectives decide which rows are targets and what their labels are. Compiled functions
address a row by its start in a flat array. Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqwise.vectors.jit import (
    LANES,
    absolute,
    add,
    allocate_rows,
    broadcast,
    build_lane_masks,
    constant,
    exponential,
    fill_uniform,
    fma,
    inline_njit,
    load,
    log1p,
    maximum,
    multiply,
    pad_width,
    prefetch,
    remove_padding,
    select_negative,
    sigmoid,
    store,
    subtract,
    sum_lanes,
)
from seqwise.vectors.keyed import Subwords
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.word2vec.sampling_tables import compute_keep_thresholds

MULTIPLIER = 2685821657736338717  # the constant of xorshift64*
MAX_SENTENCE = 10_000  # words of a sentence; a longer line is cut
GENSIM_MAX_SCORE = 6.0  # gensim's table of the sigmoid ends there; beyond it nothing is learned


class Model(NamedTuple):
    """What every compiled loop reads, and the rows that it updates."""

    inputs: np.ndarray  # flat: the input row of word w starts at w · width
    outputs: np.ndarray  # flat, likewise
    width: int  # dimension of the vectors, padded to whole SIMD values
    keep_threshold: np.ndarray  # (V,) uint32: see `compute_keep_thresholds`
    window: int
    is_cbow: bool
    share_gradient: bool  # CBOW: each of n neighbours gets 1/n of the gradient
    max_score: np.float32  # beyond ± this score nothing is learned


class Workspace(NamedTuple):
    """Buffers of one thread. Two threads never write to the same cache line."""

    sentence: np.ndarray  # (MAX_SENTENCE,) int32
    centre_word: np.ndarray  # (1,) int64: as an array, so that it can be used like `neighbours`
    neighbours: np.ndarray  # (2 · window,) int64
    targets: np.ndarray  # (max_targets,) int64: starts of output rows
    negatives: np.ndarray  # (number of negatives,) int64: starts of output rows, drawn one window ahead
    labels: np.ndarray  # (stride,) 1 for the word to predict, 0 for a negative
    hidden: np.ndarray  # (max_hidden · width,) hidden vectors
    updates: np.ndarray  # what is added to the hidden vectors, or to the targets
    scores: np.ndarray  # ((max_hidden + 2) · stride,), scored two rows at a time; then the steps
    stride: int  # from one row of scores to the next
    lane_masks: np.ndarray  # as `build_lane_masks` returns them


class Objective:
    """A loss over one vocabulary. Subclasses define the compiled loop and the tables that it needs.

    The loop runs in several threads at once, each with its own workspace; they update the rows without locks.
    """

    inputs: np.ndarray  # (V or more, padded D)
    outputs: np.ndarray | None  # None after `export_vectors()`
    tables: tuple  # what the loop needs besides the model
    # The compiled loop: (block, state, learning_rate, model, tables, workspace, tally).
    train_block: Callable[..., None]
    max_targets: int  # targets of a window
    max_hidden: int  # hidden vectors of a window
    block_size = 10_000  # words of a block, after which the learning rate changes and Ctrl-C is noticed

    def __init__(
        self,
        words: list[str],
        counts: np.ndarray,
        settings: ResolvedVectorSettings,
        num_ngrams: int = 0,
        num_outputs: int | None = None,
    ):
        self.words, self.counts, self.settings = words, counts, settings
        self.inputs = allocate_rows(len(words) + num_ngrams, settings.dim)
        fill_uniform(self.inputs[:, : settings.dim], np.random.default_rng([settings.seed, 0]))
        self.outputs = allocate_rows(len(words) if num_outputs is None else num_outputs, settings.dim)
        self.keep_threshold = compute_keep_thresholds(counts, settings.subsample)
        self.max_targets, self.max_hidden = len(words), 2 * settings.window

    def allocate_workspace(self) -> Workspace:
        """Returns the buffers of one thread."""
        hidden_size = self.max_hidden * self.inputs.shape[1]
        stride = pad_width(self.max_targets) + LANES  # scores are computed by threes and may run over the last target
        workspace = Workspace(
            sentence=np.empty(MAX_SENTENCE, dtype=np.int32),
            centre_word=np.empty(1, dtype=np.int64),
            neighbours=np.empty(2 * self.settings.window, dtype=np.int64),
            targets=np.empty(self.max_targets, dtype=np.int64),
            negatives=np.empty(self.settings.negative, dtype=np.int64),
            labels=allocate_rows(1, stride)[0],
            hidden=allocate_rows(1, hidden_size)[0],
            updates=allocate_rows(1, max(hidden_size, (self.max_targets + 3) * LANES))[0],
            scores=allocate_rows(1, (self.max_hidden + 2) * stride)[0],
            stride=stride,
            lane_masks=build_lane_masks(),
        )
        workspace.labels[0] = 1  # negative sampling: the word itself is the first target, followed by the negatives
        return workspace

    def train(
        self, block: np.ndarray, state: np.uint64, learning_rate: float, workspace: Workspace, tally: np.ndarray
    ) -> None:
        """Trains on a block of ids, where -1 ends a sentence, from a random state; adds (loss, pairs) to `tally`."""
        assert self.outputs is not None, "export_vectors() was called: training is over"
        block = block.view()
        block.setflags(write=False)  # numba would compile the loop again for a block that can be written
        share_gradient = self.settings.update == "gradient"
        model = Model(
            inputs=self.inputs.reshape(-1),
            outputs=self.outputs.reshape(-1),
            width=self.inputs.shape[1],
            keep_threshold=self.keep_threshold,
            window=self.settings.window,
            is_cbow=self.settings.method == "cbow",
            share_gradient=share_gradient,
            max_score=np.float32(1e30 if share_gradient else GENSIM_MAX_SCORE),
        )
        self.train_block(block, state, np.float32(learning_rate), model, self.tables, workspace, tally)

    def export_vectors(self) -> np.ndarray:
        """Returns the input row of each word, (V, D) float32. Ends the training; copies nothing, to save memory."""
        if self.outputs is not None:
            self.outputs = None
            self.inputs = remove_padding(self.inputs, self.settings.dim)
        return self.inputs

    def export_subwords(self) -> Subwords | None:
        """Returns the vectors of the n-grams, if there are any."""
        return None


@inline_njit
def advance_state(state):
    """Returns the next state of xorshift64* (Marsaglia 2003, Vigna 2016)."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state


@inline_njit
def get_random_bits(state):
    """Returns 32 random bits of a state: the upper half of its product with MULTIPLIER, which is of better quality."""
    return np.uint32((state * np.uint64(MULTIPLIER)) >> np.uint64(32))


@inline_njit
def scale_bits(bits, bound):
    """Maps 32 random bits to an integer in 0 … bound-1."""
    return np.int64((np.uint64(bits) * np.uint64(bound)) >> np.uint64(32))


@inline_njit
def draw_word(state, alias_table):
    """Returns a word drawn by its weight; one random state is enough for it."""
    bits = state * np.uint64(MULTIPLIER)
    slot = scale_bits(np.uint32(bits >> np.uint64(32)), len(alias_table.threshold))
    # The lower bits of the product are of lower quality, but they only choose between the two words of a slot.
    keep_slot = np.uint32(bits >> np.uint64(8)) <= alias_table.threshold[slot]
    return slot if keep_slot else np.int64(alias_table.alias[slot])


@inline_njit
def read_sentence(block, position, keep_threshold, state, sentence):
    """Copies the next sentence of a block into `sentence`, without the occurrences that subsampling drops.

    Returns (position after the sentence, its length, random state). A sentence that fills the buffer is cut.
    """
    length = 0
    while position < len(block) and length < len(sentence):
        word = block[position]
        position += 1
        if word < 0:
            break
        state = advance_state(state)
        if get_random_bits(state) <= keep_threshold[word]:
            sentence[length] = word
            length += 1
    return position, length, state


@inline_njit
def read_window(sentence, length, centre, window, state, width, neighbours):
    """Lists the words within 1 … `window` positions of the centre, each times `width`; the reach is drawn uniformly.

    Returns (number of neighbours, random state).
    """
    state = advance_state(state)
    reach = window - scale_bits(get_random_bits(state), window)
    num_neighbours = 0
    for position in range(max(0, centre - reach), min(length, centre + reach + 1)):
        if position != centre:
            neighbours[num_neighbours] = np.int64(sentence[position]) * width
            num_neighbours += 1
    return num_neighbours, state


@inline_njit
def prefetch_row(matrix, row, width):
    """Starts to load a row into the cache."""
    for d in range(0, width, LANES):
        prefetch(matrix, row + d)


@inline_njit
def fill_zeros(values, stop):
    """Sets values[:stop] to zero."""
    for d in range(0, stop, LANES):
        store(values, d, constant(0.0))


@inline_njit
def gather_hidden(num_neighbours, model, workspace):
    """Copies the input rows of a window, or for CBOW their mean, to `hidden`; returns the number of hidden vectors."""
    inputs, width, is_cbow = model.inputs, model.width, model.is_cbow
    rows, hidden = workspace.neighbours, workspace.hidden
    weight = broadcast(np.float32(1) / np.float32(num_neighbours))
    for d in range(0, width, LANES):
        row_sum = constant(0.0)
        for i in range(num_neighbours):
            x = load(inputs, rows[i] + d)
            row_sum = add(row_sum, x)
            if not is_cbow:
                store(hidden, i * width + d, x)
        if is_cbow:
            store(hidden, d, multiply(row_sum, weight))
    return 1 if is_cbow else num_neighbours


@inline_njit
def scatter_updates(num_neighbours, model, workspace):
    """Adds the updates of the hidden vectors to the input rows.

    For CBOW each of n rows gets 1/n of the update with `share_gradient` (the gradient of the mean), otherwise all of it
    (as in word2vec and gensim).
    """
    inputs, width, is_cbow = model.inputs, model.width, model.is_cbow
    rows, updates = workspace.neighbours, workspace.updates
    weight = (
        broadcast(np.float32(1) / np.float32(num_neighbours)) if is_cbow and model.share_gradient else constant(1.0)
    )
    for i in range(num_neighbours):
        start = 0 if is_cbow else i * width
        for d in range(0, width, LANES):
            store(inputs, rows[i] + d, fma(weight, load(updates, start + d), load(inputs, rows[i] + d)))


@inline_njit
def score_two_vectors(vectors, a, b, outputs, targets, start, stop, width, scores, position, stride):
    """Computes the scores of the vectors at a and b for targets start … stop-1.

    They go to scores[position + j] and scores[position + stride + j]. Three targets at a time, so that every row that
    is loaded is used more than once; up to two scores after the last one are overwritten.
    """
    for j in range(start, stop, 3):
        p, q, r = targets[j], targets[min(j + 1, stop - 1)], targets[min(j + 2, stop - 1)]
        zero = constant(0.0)
        ap, aq, ar, bp, bq, br = zero, zero, zero, zero, zero, zero
        for d in range(0, width, LANES):
            x, y = load(vectors, a + d), load(vectors, b + d)
            v = load(outputs, p + d)
            ap, bp = fma(x, v, ap), fma(y, v, bp)
            v = load(outputs, q + d)
            aq, bq = fma(x, v, aq), fma(y, v, bq)
            v = load(outputs, r + d)
            ar, br = fma(x, v, ar), fma(y, v, br)
        a_start, b_start = position + j, position + stride + j
        scores[a_start], scores[a_start + 1], scores[a_start + 2] = sum_lanes(ap), sum_lanes(aq), sum_lanes(ar)
        scores[b_start], scores[b_start + 1], scores[b_start + 2] = sum_lanes(bp), sum_lanes(bq), sum_lanes(br)


@inline_njit
def compute_scores(num_hidden, targets, start, stop, model, workspace):
    """Computes scores[i, j] = hidden vector i · output row of target j, for targets start … stop-1."""
    hidden, outputs, width = workspace.hidden, model.outputs, model.width
    scores, stride = workspace.scores, workspace.stride
    for i in range(0, num_hidden, 2):
        a, b = i * width, min(i + 1, num_hidden - 1) * width
        score_two_vectors(hidden, a, b, outputs, targets, start, stop, width, scores, i * stride, stride)


@inline_njit
def compute_logistic_steps(start, num_targets, learning_rate, model, workspace, loss):
    """Replaces the scores of one hidden vector by steps, learning_rate · (label − σ(score)); returns `loss` plus the
    losses of its pairs.

    Its scores begin at `start`. Scores beyond ±max_score give a step of zero.
    """
    scores, labels, lane_masks = workspace.scores, workspace.labels, workspace.lane_masks
    for j in range(0, num_targets, LANES):
        x = load(scores, start + j)
        exp = exponential(subtract(constant(0.0), absolute(x)))
        label = load(labels, j)
        mask = load(lane_masks, min(LANES, num_targets - j) * LANES)
        # −log σ(x) where the label is 1, −log σ(−x) where it is 0: max(∓x, 0) + log(1 + e^−|x|)
        signed = multiply(x, fma(label, constant(-2.0), constant(1.0)))
        log = fma(x, constant(0.0), log1p(exp))  # keeps nan and inf, which the maximum would hide
        loss = fma(mask, add(maximum(signed, constant(0.0)), log), loss)
        mask = select_negative(subtract(absolute(x), broadcast(model.max_score)), mask, constant(0.0))
        error = subtract(label, sigmoid(x, exp))
        store(scores, start + j, multiply(multiply(error, mask), broadcast(learning_rate)))
    return loss


@inline_njit
def apply_steps(num_hidden, targets, start, stop, model, workspace):
    """Computes updates[i] += Σ_j steps[i, j] · outputs[j], then outputs[j] += Σ_i steps[i, j] · hidden[i].

    A target may occur twice: the updates are computed from its row before it changes.
    """
    hidden, updates, outputs, width = workspace.hidden, workspace.updates, model.outputs, model.width
    steps, stride = workspace.scores, workspace.stride
    for d in range(0, width, LANES):
        for i in range(0, num_hidden, 2):
            a, b = i * stride, min(i + 1, num_hidden - 1) * stride
            x, y = constant(0.0), constant(0.0)
            for j in range(start, stop):
                v = load(outputs, targets[j] + d)
                x, y = fma(broadcast(steps[a + j]), v, x), fma(broadcast(steps[b + j]), v, y)
            store(updates, i * width + d, add(x, load(updates, i * width + d)))
            if i + 1 < num_hidden:
                store(updates, (i + 1) * width + d, add(y, load(updates, (i + 1) * width + d)))
        for j in range(start, stop, 3):
            p, q, r = constant(0.0), constant(0.0), constant(0.0)
            for i in range(num_hidden):
                x, position = load(hidden, i * width + d), i * stride + j
                p = fma(broadcast(steps[position]), x, p)
                q = fma(broadcast(steps[position + 1]), x, q)
                r = fma(broadcast(steps[position + 2]), x, r)
            store(outputs, targets[j] + d, add(p, load(outputs, targets[j] + d)))
            if j + 1 < stop:
                store(outputs, targets[j + 1] + d, add(q, load(outputs, targets[j + 1] + d)))
            if j + 2 < stop:
                store(outputs, targets[j + 2] + d, add(r, load(outputs, targets[j + 2] + d)))
