"""Trains word2vec on the CPU. `BaseWord2VecTrainer` is also the base of the trainer for GPUs: progress and losses.

On the CPU every thread takes the next block of the corpus and trains on it with the current learning rate. The threads
update the same rows without locks (Recht et al. 2011, "Hogwild!"), so two runs with several threads differ in their
last digits; one thread gives the same bits each time. This module knows nothing of the objectives' equations.
"""

from __future__ import annotations

import math
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import numpy as np

from seqwise.vectors.corpus import EncodedCorpus
from seqwise.vectors.keyed import Subwords
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.training import VectorStep, VectorTrainer, build_divergence_error, format_count
from seqwise.vectors.word2vec.sampling_tables import seed_block

if TYPE_CHECKING:
    from seqwise.vectors.word2vec.objective import Objective

FINAL_RATE_SHARE = 0.004  # of the initial learning rate that is left at the end, as 0.0001 of 0.025 in word2vec
SECONDS_PER_STEP = 0.2  # between two reports of progress


class BaseWord2VecTrainer(VectorTrainer):
    """Skip-gram or CBOW; subclasses update the rows, and count the items of the corpus in `items_done`."""

    def __init__(self, corpus: EncodedCorpus, settings: ResolvedVectorSettings, hardware: str):
        super().__init__(corpus, settings)
        name = {"skipgram": "skip-gram", "cbow": "CBOW"}[settings.method]
        losses = {"negative": f"{settings.negative} negatives", "softmax": "full softmax"}
        loss = losses.get(settings.loss, "hierarchical softmax")
        ngrams = f", n-grams of {settings.min_n} to {settings.max_n} characters" if settings.subwords else ""
        self.description = (
            f"{name}: {settings.dim} dimensions, window {settings.window}, {loss}{ngrams}, "
            f"learning rate {settings.learning_rate:g}, {format_count(settings.epochs, 'epoch')}, {hardware}"
        )
        self.items_done = 0
        self.items_planned = settings.epochs * corpus.num_items

    @abstractmethod
    def sum_losses(self, epochs: slice) -> np.ndarray:
        """Returns (loss, pairs) of each of the epochs."""

    @property
    def losses(self) -> list[float | None]:
        return self._compute_mean_losses(slice(None))

    def _compute_mean_losses(self, epochs: slice) -> list[float | None]:
        return [float(loss / pairs) if pairs else None for loss, pairs in self.sum_losses(epochs)]

    @property
    def progress(self) -> float:
        return self.items_done / self.items_planned

    def compute_learning_rate(self, progress: float) -> float:
        """Returns the learning rate after a share of the training: it decays linearly."""
        return self.settings.learning_rate * max(1 - progress, FINAL_RATE_SHARE)

    def build_step(self, epoch: int, start: float, is_epoch_end: bool) -> VectorStep:
        """Returns the progress; raises `NonFiniteError` at the end of an epoch in which training diverged.

        It diverged if the loss is not finite, or far above the loss of untrained vectors. `start` is the time at which
        training started.
        """
        settings = self.settings
        speed = self.progress * settings.epochs * self.corpus.num_words / max(time.monotonic() - start, 1e-9)
        (loss,) = self._compute_mean_losses(slice(epoch, epoch + 1))
        untrained_loss = (1 + settings.negative) * math.log(2) if settings.loss == "negative" else math.inf
        if is_epoch_end and loss is not None and not loss < 3 * untrained_loss:
            raise build_divergence_error(loss, epoch, settings)
        return VectorStep("training", epoch, self.progress, speed, loss, is_epoch_end)


class Word2VecTrainer(BaseWord2VecTrainer):
    """Skip-gram or CBOW on the CPU. Creating it imports numba."""

    def __init__(self, corpus: EncodedCorpus, settings: ResolvedVectorSettings):
        super().__init__(corpus, settings, format_count(settings.threads, "thread"))
        self.objective = build_objective(corpus.vocabulary.words, corpus.vocabulary.counts, settings)
        # (loss, pairs) per thread and epoch; 8 numbers fill a cache line, so that threads do not slow each other down.
        self._tallies = np.zeros((settings.threads, settings.epochs, 8))
        self._blocks = self._iterate_blocks()
        self._lock = threading.Lock()
        self._items_started = 0
        self._items_done_per_epoch = [0] * settings.epochs
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(settings.threads)

    def sum_losses(self, epochs: slice) -> np.ndarray:
        return self._tallies[:, epochs, :2].sum(axis=0)

    def export_vectors(self) -> np.ndarray:
        self._stop_threads()
        return self.objective.export_vectors()

    def export_subwords(self) -> Subwords | None:
        return self.objective.export_subwords()

    def steps(self) -> Iterator[VectorStep]:
        yield VectorStep("compiling", 0, 0.0, 0.0)
        # An empty block compiles the loop, so that compiling does not count as training.
        empty = np.empty(0, dtype=np.int32)
        self.objective.train(empty, np.uint64(1), 0.0, self.objective.allocate_workspace(), np.zeros(2))
        yield VectorStep("compiling", 0, 1.0, 0.0)
        start, epoch = time.monotonic(), 0
        running = {self._pool.submit(self._train_blocks, tally) for tally in self._tallies}
        try:
            while running:
                done, running = wait(running, SECONDS_PER_STEP, FIRST_EXCEPTION)
                for worker in done:
                    worker.result()  # raises the error of the thread, if there is one
                while epoch < self.settings.epochs - 1 and self._items_done_per_epoch[epoch] == self.corpus.num_items:
                    yield self.build_step(epoch, start, is_epoch_end=True)
                    epoch += 1
                yield self.build_step(epoch, start, is_epoch_end=False)
        finally:
            self._stop_threads()
        yield self.build_step(self.settings.epochs - 1, start, is_epoch_end=True)

    def _stop_threads(self) -> None:
        self._stop.set()
        self._pool.shutdown()

    def _iterate_blocks(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yields (epoch, index of the block, ids)."""
        for epoch in range(self.settings.epochs):
            for block_index, block in enumerate(self.corpus.iterate_blocks(self.objective.block_size)):
                yield epoch, block_index, block

    def _train_blocks(self, tally: np.ndarray) -> None:
        """Trains on one block after another; runs in every thread, which has its own tally."""
        workspace = self.objective.allocate_workspace()
        while not self._stop.is_set():
            with self._lock:
                next_block = next(self._blocks, None)
                if next_block is None:
                    return
                epoch, block_index, block = next_block
                learning_rate = self._compute_next_learning_rate()
                self._items_started += len(block)
            state = seed_block(self.settings.seed, epoch + 1, block_index)
            self.objective.train(block, state, learning_rate, workspace, tally[epoch])
            with self._lock:
                self._items_done_per_epoch[epoch] += len(block)
                self.items_done += len(block)

    def _compute_next_learning_rate(self) -> float:
        """Returns the learning rate of the next block."""
        progress, epochs = self._items_started / self.items_planned, self.settings.epochs
        if self.settings.update == "gensim":
            # With several workers gensim's learning rate falls less within an epoch, and drops between two epochs.
            epoch = int(progress * epochs)
            progress = (epoch + (progress * epochs - epoch) / self.settings.threads) / epochs
        return self.compute_learning_rate(progress)


def build_objective(words: list[str], counts: np.ndarray, settings: ResolvedVectorSettings) -> Objective:
    """Returns the objective that the settings name. Imports numba."""
    from seqwise.vectors.word2vec.negative_sampling import NegativeSampling, SubwordSampling
    from seqwise.vectors.word2vec.softmax import FullSoftmax, HierarchicalSoftmax

    if settings.subwords:
        return SubwordSampling(words, counts, settings)
    objectives = {"negative": NegativeSampling, "softmax": FullSoftmax, "hierarchical": HierarchicalSoftmax}
    return objectives[settings.loss](words, counts, settings)
