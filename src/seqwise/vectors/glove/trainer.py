"""GloVe: counts pairs, then fits their logarithms by AdaGrad (Pennington, Socher and Manning, 2014).

    J = Σ f(X_ij) (w_i·w̃_j + b_i + b̃_j − log X_ij)²        f(x) = min(1, (x / x_max)^0.75)

over all pairs that occur, (i, j) and (j, i) alike. Pairs are read from disk in blocks. The order of the blocks, and the
order inside each, is a function of seed and epoch alone; with one thread, so are the vectors. Several threads update
the same rows without locks, so two such runs differ slightly. This module knows ids, not words.

AdaGrad divides a step by the root of the sum of all squared gradients, its own included; the sums start at (almost)
zero. With sums that start at one, as in some programs, training is slow on a small corpus: it took 10 epochs to reach
the loss that it reaches here in 4 (6 million words, x_max 10).

The four rows of a word are adjacent in memory, because a step needs them together: the vector w, the context vector w̃
and, for AdaGrad, the sums of their squared gradients. A row is wider than the vector:

    w = (w₁ … w_D, bias, 1, 0 …)        w̃ = (w̃₁ … w̃_D, 1, bias, 0 …)

so that one product of two rows is w·w̃ + b + b̃; its width is a multiple of 16 floats, for SIMD instructions. Importing
this module imports numba.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from seqwise.vectors.corpus import EncodedCorpus
from seqwise.vectors.glove.cooccurrence import PairCounter, PairCounts
from seqwise.vectors.jit import LANES, cached_njit, fill_uniform, inline_njit, pad_width, prefetch
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.training import VectorStep, VectorTrainer, build_divergence_error, format_count

BLOCK_PAIRS = 1 << 18  # pairs in memory at once
PART_PAIRS = 1 << 14  # pairs per call of a compiled loop: some hundredths of a second, after which Ctrl-C is noticed
ALPHA = 0.75  # exponent of the weighting function f
INITIAL_SQUARES = 1e-6  # initial value of AdaGrad's sums: the padding must not divide by zero
PREFETCH_DISTANCE = 4  # pairs between prefetching rows and using them; 2 to 8 are equally fast


@inline_njit
def update_pair(w, c, squares_w, squares_c, log_count, weight, learning_rate, dim):
    """Takes one AdaGrad step on f · (w·w̃ + b + b̃ − log X)², c being the row of w̃; returns the term before the step."""
    product = np.float32(0)
    for k in range(len(w)):
        product += w[k] * c[k]
    error = product - log_count
    weighted_error = weight * error
    for k in range(len(w)):
        grad_w, grad_c = weighted_error * c[k], weighted_error * w[k]
        squares_w[k] += grad_w * grad_w
        squares_c[k] += grad_c * grad_c
        w[k] -= learning_rate * grad_w / np.sqrt(squares_w[k])
        c[k] -= learning_rate * grad_c / np.sqrt(squares_c[k])
    w[dim + 1] = 1  # the ones next to the biases are constants, not parameters
    c[dim] = 1
    return weighted_error * error


@cached_njit(fastmath=True)
def update_pairs(rows, row_words, column_words, log_counts, weights, learning_rate, dim):
    """Takes a step for (i, j) and one for (j, i) of each pair; returns the sum of their terms. rows: (V, 4, width)."""
    loss, last_index = 0.0, len(row_words) - 1
    flat, size = rows.reshape(-1), rows.shape[1] * rows.shape[2]
    for index in range(len(row_words)):
        upcoming = min(index + PREFETCH_DISTANCE, last_index)
        for offset in range(0, size, LANES):
            prefetch(flat, np.int64(row_words[upcoming]) * size + offset)
            prefetch(flat, np.int64(column_words[upcoming]) * size + offset)
        i, j = row_words[index], column_words[index]
        log_count, weight = log_counts[index], weights[index]
        loss += update_pair(rows[i, 0], rows[j, 1], rows[i, 2], rows[j, 3], log_count, weight, learning_rate, dim)
        if i != j:
            loss += update_pair(rows[j, 0], rows[i, 1], rows[j, 2], rows[i, 3], log_count, weight, learning_rate, dim)
    return loss


class GloveTrainer(VectorTrainer):
    """Counts the pairs of a corpus into a temporary file, then trains on it."""

    def __init__(self, corpus: EncodedCorpus, settings: ResolvedVectorSettings):
        super().__init__(corpus, settings)
        self.model = GloveModel(len(corpus.vocabulary), settings)
        self.description = (
            f"GloVe: {settings.dim} dimensions, window {settings.window}, learning rate {settings.learning_rate:g}, "
            f"x_max {settings.x_max:g}, {format_count(settings.epochs, 'epoch')}, "
            f"{format_count(settings.threads, 'thread')}"
        )
        self._progress = 0.0

    @property
    def losses(self) -> list[float | None]:
        return [*self.model.losses, *[None] * (self.settings.epochs - len(self.model.losses))]

    @property
    def progress(self) -> float:
        return self._progress

    def export_vectors(self) -> np.ndarray:
        return self.model.compute_vectors()

    def steps(self) -> Iterator[VectorStep]:
        with tempfile.TemporaryDirectory(prefix="seqwise-glove-") as folder:
            counter = PairCounter(len(self.corpus.vocabulary), self.settings.window, Path(folder))
            start = time.monotonic()
            for num_ids in counter.count(self.corpus.iterate_blocks()):
                share = num_ids / self.corpus.num_items
                speed = share * self.corpus.num_words / max(time.monotonic() - start, 1e-9)
                yield VectorStep("counting", 0, share, speed)
            start, size = time.monotonic(), counter.counts.size
            for epoch, pairs_done, loss in self.model.train(counter.counts):
                pairs_trained = epoch * size + pairs_done
                self._progress = pairs_trained / (self.settings.epochs * size)
                speed = pairs_trained / max(time.monotonic() - start, 1e-9)
                yield VectorStep("training", epoch, self.progress, speed, loss, pairs_done == size, unit="pairs")


class GloveModel:
    """The rows of all words, trained on counted pairs.

    The vector of a word is w + w̃, as published. The loss is J divided by the number of its terms, each measured just
    before its step; it is comparable between runs with the same counts and x_max.
    """

    def __init__(self, vocabulary_size: int, settings: ResolvedVectorSettings):
        self.settings = settings
        self.rows = initialize_rows(vocabulary_size, settings.dim, settings.seed)
        self.losses: list[float] = []  # of the epochs that are over

    def compute_vectors(self) -> np.ndarray:
        """Returns the vectors, (V, D) float32, as trained so far."""
        return self.rows[:, 0, : self.settings.dim] + self.rows[:, 1, : self.settings.dim]

    def train(self, counts: PairCounts) -> Iterator[tuple[int, int, float]]:
        """Trains for all epochs; yields (epoch, pairs done in it, its mean loss so far)."""
        settings, pool = self.settings, ThreadPoolExecutor(self.settings.threads, thread_name_prefix="glove")
        try:
            for epoch in range(settings.epochs):
                loss, terms, pairs_done = 0.0, 0, 0
                for pairs in shuffle_pairs(counts, settings.seed, epoch, settings.threads):
                    parts = [pairs[start : start + PART_PAIRS] for start in range(0, len(pairs), PART_PAIRS)]
                    loss += sum(pool.map(self._train_part, parts))
                    terms += 2 * len(pairs) - int((pairs["row"] == pairs["column"]).sum())
                    pairs_done += len(pairs)
                    if not np.isfinite(loss):
                        raise build_divergence_error(loss, epoch, settings)
                    if pairs_done == counts.size:
                        self.losses.append(loss / terms)
                    yield epoch, pairs_done, loss / terms
        finally:
            pool.shutdown(cancel_futures=True)

    def _train_part(self, pairs: np.ndarray) -> float:
        logs = np.log(pairs["count"])
        weights = np.exp(np.minimum(0, ALPHA * (logs - np.float32(np.log(self.settings.x_max)))))
        return update_pairs(
            self.rows,
            np.ascontiguousarray(pairs["row"]),
            np.ascontiguousarray(pairs["column"]),
            logs,
            weights.astype(np.float32),
            np.float32(self.settings.learning_rate),
            self.settings.dim,
        )


def initialize_rows(vocabulary_size: int, dim: int, seed: int) -> np.ndarray:
    """Returns rows (V, 4, width), as the module describes them: small random vectors, zero biases."""
    rows = np.zeros((vocabulary_size, 4, pad_width(dim + 2)), dtype=np.float32)
    random = np.random.default_rng([seed, 0])
    for index, constant_column in ((0, dim + 1), (1, dim)):  # of w, then of w̃
        fill_uniform(rows[:, index, :dim], random)
        rows[:, index, constant_column] = 1
    rows[:, 2:] = INITIAL_SQUARES
    return rows


def shuffle_pairs(counts: PairCounts, seed: int, epoch: int, threads: int = 1) -> Iterator[np.ndarray]:
    """Yields all pairs once, in blocks: the blocks in a random order, and each shuffled inside."""
    random = np.random.default_rng([seed, 1, epoch])
    size = max(BLOCK_PAIRS, 4 * threads * PART_PAIRS)  # enough parts for every thread
    for block in random.permutation(-(-counts.size // size)):
        start = int(block) * size
        pairs = counts.read(start, min(size, counts.size - start))
        yield pairs[random.permutation(len(pairs))]
