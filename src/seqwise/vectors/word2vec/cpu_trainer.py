"""word2vec on the CPU: threads that train on blocks of a corpus until all epochs are over.

Every thread takes the next block and trains on it with the current learning rate. The threads update the same rows
without locks (Recht et al. 2011, "Hogwild!"), so two runs with several threads differ in their last digits; one thread
gives the same bits each time. This module knows nothing of the objective's equations. Importing it imports numba.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np

from seqwise.vectors.corpus import Sentences
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.subwords import Subwords
from seqwise.vectors.trainer import VectorStep, format_count
from seqwise.vectors.word2vec.base_trainer import BaseWord2VecTrainer
from seqwise.vectors.word2vec.hierarchical import HierarchicalSoftmax
from seqwise.vectors.word2vec.negative_sampling import NegativeSampling
from seqwise.vectors.word2vec.objective import Objective
from seqwise.vectors.word2vec.sampling_tables import seed_block
from seqwise.vectors.word2vec.softmax import FullSoftmax
from seqwise.vectors.word2vec.subword import SubwordSampling

TICK = 0.2  # seconds between two steps
OBJECTIVES: dict[str, type[Objective]] = {
    "negative": NegativeSampling,
    "softmax": FullSoftmax,
    "hierarchical": HierarchicalSoftmax,
}


def build_objective(words: list[str], counts: np.ndarray, settings: ResolvedVectorSettings) -> Objective:
    """Returns the objective that the settings name."""
    objective = SubwordSampling if settings.subwords else OBJECTIVES[settings.loss]
    return objective(words, counts, settings)


class Word2VecTrainer(BaseWord2VecTrainer):
    """Skip-gram or CBOW on the CPU."""

    def __init__(self, sentences: Sentences, settings: ResolvedVectorSettings):
        super().__init__(sentences, settings, format_count(settings.threads, "thread"))
        vocabulary = sentences.vocabulary
        self.objective = build_objective(vocabulary.words, vocabulary.counts, settings)
        # (loss, pairs) per thread and epoch; 8 numbers fill a cache line, so that threads do not slow each other down.
        self._tallies = np.zeros((settings.threads, settings.epochs, 8))
        self._blocks = self._iterate_blocks()
        self._lock = threading.Lock()
        self._items_started = 0
        self._items_of_epoch = [0] * settings.epochs  # done so far
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def sum_losses(self, epochs: slice) -> np.ndarray:
        return self._tallies[:, epochs, :2].sum(axis=0)

    def vectors(self) -> np.ndarray:
        self._stop_threads()
        return self.objective.vectors()

    def subwords(self) -> Subwords | None:
        return self.objective.subwords()

    def steps(self) -> Iterator[VectorStep]:
        yield VectorStep("compiling", 0, 0.0, 0.0)
        self._compile()
        self._threads = [threading.Thread(target=self._work, args=(tally,), daemon=True) for tally in self._tallies]
        start, epoch = time.monotonic(), 0
        for thread in self._threads:
            thread.start()
        try:
            while running := [thread for thread in self._threads if thread.is_alive()]:
                running[0].join(TICK)
                while epoch < self.settings.epochs - 1 and self._items_of_epoch[epoch] == self.sentences.items:
                    yield self.make_step(epoch, start, finished=True)
                    epoch += 1
                yield self.make_step(epoch, start, finished=False)
        finally:
            self._stop_threads()
        if self._errors:
            raise self._errors[0]
        yield self.make_step(self.settings.epochs - 1, start, finished=True)

    def _compile(self) -> None:
        """Compiles the loop by training on an empty block, so that compiling does not count as training."""
        empty = np.empty(0, dtype=np.int32)
        self.objective.train(empty, np.uint64(1), 0.0, self.objective.allocate_workspace(), np.zeros(2))

    def _stop_threads(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _iterate_blocks(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yields (epoch, number of the block, ids)."""
        for epoch in range(self.settings.epochs):
            for number, block in enumerate(self.sentences.blocks(self.objective.block_size)):
                yield epoch, number, block

    def _work(self, tally: np.ndarray) -> None:
        """Trains on one block after another; runs in every thread."""
        try:
            workspace = self.objective.allocate_workspace()
            while not self._stop.is_set():
                with self._lock:
                    job = next(self._blocks, None)
                    if job is None:
                        return
                    epoch, number, block = job
                    learning_rate = self._decay_learning_rate()
                    self._items_started += len(block)
                state = seed_block(self.settings.seed, epoch + 1, number)
                self.objective.train(block, state, learning_rate, workspace, tally[epoch])
                with self._lock:
                    self._items_of_epoch[epoch] += len(block)
                    self.items_done += len(block)
        except BaseException as error:  # Python would only print an error of a thread
            self._errors.append(error)
            self._stop.set()

    def _decay_learning_rate(self) -> float:
        """Returns the learning rate of the next block."""
        progress, epochs = self._items_started / self.items_planned, self.settings.epochs
        if self.settings.update == "gensim":
            # With several workers gensim's falls less within an epoch, and the rest of the way between two epochs.
            epoch = int(progress * epochs)
            progress = (epoch + (progress * epochs - epoch) / self.settings.threads) / epochs
        return self.compute_learning_rate(progress)
