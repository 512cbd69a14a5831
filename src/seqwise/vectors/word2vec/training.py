"""Threads that learn from blocks of a corpus until all epochs are over, and tell how far they are.

Every thread takes the next block, trains on it with the rate of that moment, and takes the next. They write to the same
rows without locks (Recht et al. 2011, "Hogwild!"), so two runs of several threads differ in their last digits; one
thread gives the same bits each time. This module knows nothing of the objective.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from seqwise.errors import NonFiniteError
from seqwise.vectors.corpus import Sentences
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.steps import VectorStep, amount
from seqwise.vectors.subwords import Subwords
from seqwise.vectors.word2vec.chances import block_state
from seqwise.vectors.word2vec.objective import Objective, objective_of

LEAST = 0.004  # part of the rate that is left at the end, as 0.0001 is of 0.025 in word2vec
TICK = 0.2  # seconds between two steps


class Word2Vec:
    """Skip-gram or CBOW on the CPU. Iterate over `steps()`, then take `vectors()`."""

    def __init__(self, sentences: Sentences, settings: VectorSettings, threads: int):
        vocabulary = sentences.vocabulary
        self.sentences, self.settings, self.threads = sentences, settings, threads
        self.objective: Objective = objective_of(vocabulary.words, vocabulary.counts, settings)
        self.epochs = settings.epochs or 1
        self.says = f"{describe(settings)}, {amount(self.epochs, 'epoch')}, {amount(threads, 'thread')}"
        # Of each thread: (loss, pairs) per epoch, with a line of memory to itself.
        self._tallies = [np.zeros((self.epochs, 8)) for _ in range(threads)]
        self._jobs, self._lock = self._blocks(), threading.Lock()
        self._given, self._learned = 0, [0] * self.epochs  # items handed out; items learned from, of each epoch
        self._stop = threading.Event()
        self._trouble: list[BaseException] = []
        self._running: list[threading.Thread] = []

    def _compile(self) -> None:
        """Once now, so that it does not count as training."""
        nothing, tally = np.frombuffer(b"", dtype=np.int32), np.zeros(2)  # read-only, as blocks are: that is a type
        self.objective.train(nothing, np.uint64(1), 0.0, self.objective.scratch(), tally)

    @property
    def losses(self) -> list[float | None]:
        """The mean loss per pair of each epoch; None where no pair was met."""
        sums = np.sum([tally[:, :2] for tally in self._tallies], axis=0)
        return [float(loss / pairs) if pairs else None for loss, pairs in sums]

    @property
    def progress(self) -> float:
        return sum(self._learned) / (self.epochs * self.sentences.items)

    def vectors(self) -> np.ndarray:
        """What was learned. Training is over then, wherever it stands."""
        self._halt()
        return self.objective.vectors()

    def subwords(self) -> Subwords | None:
        return self.objective.subwords()

    def steps(self) -> Iterator[VectorStep]:
        """Train. Leaving the iteration early stops the threads; what was learned so far stays."""
        yield VectorStep("compiling", 0, 0.0, 0.0)
        self._compile()
        threads = [threading.Thread(target=self._work, args=(tally,), daemon=True) for tally in self._tallies]
        self._running = threads
        start, epoch = time.monotonic(), 0
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                threads[0].join(TICK) if threads[0].is_alive() else time.sleep(TICK / 10)
                while epoch < self.epochs - 1 and self._learned[epoch] == self.sentences.items:
                    yield self._step(epoch, start, finished=True)
                    epoch += 1
                yield self._step(epoch, start)
        finally:
            self._halt()
        if self._trouble:
            raise self._trouble[0]
        yield self._step(self.epochs - 1, start, finished=True)

    def _halt(self) -> None:
        self._stop.set()
        for thread in self._running:
            thread.join()

    def _step(self, epoch: int, start: float, finished: bool = False) -> VectorStep:
        words = self.progress * self.epochs * self.sentences.words
        speed = words / max(time.monotonic() - start, 1e-9)
        if finished:
            check_loss(self.losses[epoch], epoch, self.settings)
        return VectorStep("training", epoch, self.progress, speed, self.losses[epoch], finished)

    def _blocks(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """(epoch, number of the block, ids)."""
        for epoch in range(self.epochs):
            for number, block in enumerate(self.sentences.blocks(self.objective.block)):
                yield epoch, number, block

    def _work(self, tally: np.ndarray) -> None:
        try:
            scratch: Any = self.objective.scratch()
            while not self._stop.is_set():
                with self._lock:
                    job = next(self._jobs, None)
                    if job is None:
                        return
                    rate = self._rate()
                    self._given += len(job[2])
                epoch, number, block = job
                state = block_state(self.settings.seed, epoch + 1, number)
                self.objective.train(block, state, rate, scratch, tally[epoch])
                with self._lock:
                    self._learned[epoch] += len(block)
        except BaseException as error:  # a thread's own error would only be printed
            self._trouble.append(error)
            self._stop.set()

    def _rate(self) -> float:
        """Falls with each word from the rate asked for to almost nothing."""
        rate, done = self.settings.rate or 0.0, self._given / (self.epochs * self.sentences.items)
        if self.settings.update == "gensim":
            # With several workers gensim's falls less within an epoch, and the rest of the way between two.
            epoch = int(done * self.epochs)
            done = (epoch + (done * self.epochs - epoch) / self.threads) / self.epochs
        return rate * max(1 - done, LEAST)


def check_loss(loss: float | None, epoch: int, settings: VectorSettings) -> None:
    """Complain about vectors that ran away: a loss that is no number, or far above that of knowing nothing."""
    nothing = (1 + settings.negative) * math.log(2) if settings.loss == "negative" else math.inf
    if loss is not None and not loss < 3 * nothing:
        raise NonFiniteError(
            f"the vectors ran away: the loss is {loss:g} in epoch {epoch + 1}.",
            repair=f"Train with a smaller --rate than {settings.rate:g}.",
        )


def describe(settings: VectorSettings) -> str:
    """The method in words."""
    name = {"skipgram": "skip-gram", "cbow": "CBOW"}[settings.method]
    loss = {
        "negative": f"{settings.negative} negatives",
        "softmax": "full softmax",
        "hierarchical": "hierarchical softmax",
    }[settings.loss]
    extra = f", n-grams of {settings.least} to {settings.most} characters" if settings.subwords else ""
    return f"{name}: {settings.dim} numbers per word, window {settings.window}, {loss}{extra}, rate {settings.rate:g}"
